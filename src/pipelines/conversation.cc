#include "pipelines/conversation.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

// Every text of a message but for the names of roles and of parts' types.
Status break_texts(const Tokenizer& tokenizer, char32_t mark, Json& value, bool* any) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    Result<std::string> broken = tokenizer.break_special(text, mark);
    if (!broken.is_ok()) return broken.status();
    *any = *any || broken->size() > text.size();
    value = std::move(*broken);
  } else if (value.is_array()) {
    for (Json& item : value) SITU_RETURN_IF_ERROR(break_texts(tokenizer, mark, item, any));
  } else if (value.is_object()) {
    for (auto& [key, item] : value.items())
      if (key != "role" && key != "type") SITU_RETURN_IF_ERROR(break_texts(tokenizer, mark, item, any));
  }
  return Status::ok();
}

}  // namespace

Result<PromptText> render_conversation(const Model::Impl& m, std::vector<Turn> turns, const TemplateOptions& options) {
  if (!m.tokenizer || !m.tokenizer->has_chat_template()) return Status::error(Code::kNotFound, m.no_chat_template());
  const auto text_of = [](const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); };
  Json messages = Json::array();
  for (const Turn& t : turns) messages.push_back(t.message);
  const Result<char32_t> mark = Tokenizer::free_mark(text_of(messages) + options.variables_json);
  if (!mark.is_ok()) return mark.status();
  PromptText prompt;
  bool any = false;
  for (size_t i = 0; i < turns.size(); ++i)
    if (!turns[i].parse_special.value_or(messages[i].value("role", "") == "assistant"))
      SITU_RETURN_IF_ERROR(break_texts(*m.tokenizer, *mark, messages[i], &any));
  if (any) prompt.mark = *mark;
  Result<std::string> text =
      m.tokenizer->apply_chat_template_json(text_of(messages), options.add_generation_prompt, options.variables_json);
  if (!text.is_ok()) return text.status().or_code(Code::kInvalidArgument);
  prompt.text = std::move(*text);
  return prompt;
}

// The template writes the special tokens itself.
Result<std::vector<int64_t>> encode_prompt(const Model::Impl& m, const PromptText& prompt) {
  Result<std::vector<int64_t>> ids = m.tokenizer->encode(prompt.text, !prompt.templated, prompt.mark);
  if (!ids.is_ok()) return ids.status().or_code(Code::kInvalidArgument);
  return ids;
}

}  // namespace situ
