#include "text/dialog/call_reader.h"

#include <algorithm>

#include "text/dialog/literal_scanner.h"
#include "text/dialog/marks.h"

namespace situ {

bool bare_key_reads(std::string_view key, bool python) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [&](char c) { return stands_in_bare_key(c, python); });
}

bool tagged_key_reads(const CallForm& form, std::string_view key) {
  const std::string mark(trimmed(form.key_close));
  return !key.empty() && key.size() <= kMostKey && trimmed(key) == key &&
         (std::string(key) + mark).find(mark) == key.size();
}

size_t name_size(std::string_view text) {
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), stands_in_tool_name) - text.begin());
}

std::unique_ptr<CallReader> CallReader::make(const CallForm& form, std::span<const Tool> tools, bool at_end) {
  if (form.kind == CallForm::Kind::kObject) return object_call_reader(form, tools, at_end);
  if (form.kind == CallForm::Kind::kTagged) return tagged_call_reader(form, tools);
  return named_call_reader(form, tools);
}

}  // namespace situ
