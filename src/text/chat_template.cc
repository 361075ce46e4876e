// FolderTokenizer::apply_chat_template: which template, and with which variables. transformers is the reference.
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/lfs_pointer.h"
#include "base/thread_flag.h"
#include "text/json_file.h"
#include "text/ordered_json.h"
#include "text/stop.h"
#include "text/tokenizer.h"

namespace situ {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;  // a template that lists a mapping sees it in the order of the text

// Throws json::exception.
Result<ordered_json> parse_variables(std::string_view text) {
  SITU_RETURN_IF_ERROR(check_json(text, "chat template variables", 0));
  std::variant<ordered_json, JsonFault> read = parse_ordered(text);
  if (const JsonFault* fault = std::get_if<JsonFault>(&read))
    return Status::error("chat template variables: byte " + std::to_string(fault->byte) + " cannot be read");
  return std::move(std::get<ordered_json>(read));
}

// With tools a template named "tool_use" wins, if there is one; otherwise it is "default".
Result<const TokenizerConfig::ChatTemplate*> choose_template(const TokenizerConfig::ChatTemplates& templates,
                                                             bool has_tools) {
  for (const char* name : {"tool_use", "default"}) {
    if (name == std::string_view("tool_use") && !has_tools) continue;
    if (const auto found = templates.find(name); found != templates.end()) return &found->second;
  }
  if (templates.empty()) return Status::error("the model has no chat template");
  std::string names;
  for (const auto& [name, chosen] : templates) names += " '" + name + "'";
  return Status::error("the model has no default chat template, only" + names);
}

}  // namespace

bool FolderTokenizer::template_reads(std::string_view name) const {
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const auto names = [&](std::string_view code) {
    for (size_t at = 0; (at = code.find(name, at)) != std::string_view::npos; ++at) {
      const size_t end = at + name.size();
      if ((at == 0 || !part(code[at - 1])) && (end == code.size() || !part(code[end]))) return true;
    }
    return false;
  };
  for (const auto& [kind, chosen] : config_.chat_templates)  // code stands between {{ and }}, or {% and %}
    for (std::string_view rest = chosen.source; !name.empty();) {
      const size_t output = rest.find("{{"), statement = rest.find("{%"), begin = std::min(output, statement);
      if (begin == std::string_view::npos) break;
      rest.remove_prefix(begin + 2);
      const size_t end = rest.find(output < statement ? "}}" : "%}");
      if (names(rest.substr(0, end))) return true;
      rest.remove_prefix(std::min(end, rest.size()));
    }
  return false;
}

Result<std::string> FolderTokenizer::apply_chat_template(std::string_view messages_json, bool add_generation_prompt,
                                                         std::string_view variables_json) const {
  SITU_RETURN_IF_ERROR(check_utf8(variables_json, "the text of the chat template variables"));
  // transformers passes these two even when they are not set.
  ordered_json variables = {{"tools", nullptr}, {"documents", nullptr}};
  std::string text;
  try {
    for (const auto& [name, token] : config_.special_tokens) variables[name] = token;
    variables["add_generation_prompt"] = add_generation_prompt;
    if (!variables_json.empty()) {
      const Result<ordered_json> given = parse_variables(variables_json);
      if (!given.is_ok()) return given.status();
      variables.update(given.value());
    }
    text = variables.dump();
  } catch (const json::exception& e) {
    return Status::error(std::string("chat template variables: ") + e.what());
  }
  const Result<const TokenizerConfig::ChatTemplate*> chosen =
      choose_template(config_.chat_templates, !variables["tools"].is_null());
  if (!chosen.is_ok()) return chosen.status();
  const std::string& jinja = chosen.value()->source;
  if (is_lfs_pointer(jinja)) return lfs_pointer_error(chosen.value()->file);
  OwnedText out, error;
  const Stop stop(thread_flag_or(*interrupt_));
  const situ_text_stop when = stop.for_call();
  if (situ_text_render_chat(jinja.data(), jinja.size(), messages_json.data(), messages_json.size(), text.data(),
                            text.size(), &when, out.get(), error.get()) != 0) {
    return stop.status(error).with_context(chosen.value()->file);
  }
  return out.str();
}

}  // namespace situ
