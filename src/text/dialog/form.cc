#include "text/dialog/form.h"

#include <algorithm>
#include <cctype>

#include "text/dialog/marks.h"

namespace situ {
namespace {

bool has_letter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c >= 0x80; });
}

}  // namespace

bool CallForm::bare() const { return kind != Kind::kChannels && !has_letter(open) && !has_letter(call_open); }

bool ReasoningForm::open_in(std::string_view prompt) const {
  const std::string_view mark = trimmed(open);
  return !mark.empty() && trimmed_right(prompt).ends_with(mark);
}

std::vector<std::string> Form::marks() const {
  std::vector<std::string> all;
  for (const std::string* mark : {&calls.open, &calls.call_open, &calls.call_close, &calls.between, &calls.close,
                                  &calls.name_close, &calls.id_open, &calls.key_open, &calls.key_close,
                                  &calls.value_close, &calls.text_quote, &reasoning.open, &reasoning.close})
    if (!trimmed(*mark).empty()) all.emplace_back(trimmed(*mark));
  if (calls.kind == CallForm::Kind::kChannels)
    for (const char* mark :
         {"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"})
      all.emplace_back(mark);
  return all;
}

CallForm documented_calls() {
  CallForm form;
  form.call_open = "<tool_call>\n";
  form.call_close = "\n</tool_call>";
  form.between = "\n";
  return form;
}

}  // namespace situ
