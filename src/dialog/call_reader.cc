#include "dialog/call_reader.h"

#include <algorithm>
#include <cctype>

namespace situ {

bool has_tool(std::span<const Tool> tools, std::string_view name) {
  return std::any_of(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
}

size_t name_size(std::string_view text) {
  const auto stands = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  return static_cast<size_t>(std::find_if_not(text.begin(), text.end(), stands) - text.begin());
}

std::unique_ptr<CallReader> CallReader::make(const CallForm& form, std::span<const Tool> tools, bool at_end) {
  if (form.kind == CallForm::Kind::kObject) return object_call_reader(form, tools, at_end);
  if (form.kind == CallForm::Kind::kTagged) return tagged_call_reader(form, tools);
  return named_call_reader(form, tools);
}

}  // namespace situ
