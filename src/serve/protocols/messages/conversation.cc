// Messages as the chat template and the encoders get them: texts, images, calls and their results, thinking.
#include <algorithm>

#include "serve/data_url.h"
#include "serve/protocols/messages/messages.h"
#include "text/json_file.h"

namespace situ::serve {
namespace {

// Clients put a block with a number that changes with each request before the system's text: with it no two prompts
// have a beginning in common.
constexpr std::string_view kVolatile = "x-anthropic-";

class TurnReader {
 public:
  explicit TurnReader(BodyReader& reader) : r_(reader) {}

  std::optional<Prompt> read() {
    read_system();
    const Json* messages = r_.find("messages");
    if (!messages) r_.refuse("messages", "messages is missing", Refusal::Kind::kMissing);
    if (messages && (!messages->is_array() || messages->empty()))
      r_.refuse_type("messages", *messages, "a list of messages");
    for (size_t i = 0; !r_.refusal && i < messages->size(); ++i)
      read_message((*messages)[i], "messages[" + std::to_string(i) + "]");
    if (r_.refusal) return std::nullopt;
    Prompt prompt(std::move(turns_));
    prompt.chat = r_.chat;
    prompt.chat.continue_last = !prompt.messages.empty() && prompt.messages.back().role == "assistant";
    prompt.chat.variables_json = variables();
    return prompt;
  }

 private:
  std::string variables() const {
    Json all = Json::object();
    if (const ModelForm* form = r_.form(); form && !form->form.reasoning.switch_name.empty())
      all[form->form.reasoning.switch_name] = r_.ask.shows_reasoning;
    const Json* output = r_.find("output_config");
    const Json effort = output ? output->value("effort", Json()) : Json();
    if (effort.is_string() && r_.template_reads("reasoning_effort")) all["reasoning_effort"] = effort;
    return all.empty() ? "" : json_text(all);
  }

  bool hides_reasoning() const { return r_.form() && r_.form()->form.reasoning.field.empty(); }

  void read_system() {
    const Json* system = r_.find("system");
    if (!system) return;
    std::string text;
    if (system->is_string()) {
      text = system->get<std::string>();
    } else if (!system->is_array()) {
      return r_.refuse_type("system", *system, "a text or a list of blocks");
    } else {
      for (size_t i = 0; i < system->size() && !r_.refusal; ++i) {
        const std::string here = "system[" + std::to_string(i) + "]";
        const Json& block = (*system)[i];
        if (!block.is_object() || block.value("type", Json()) != "text")
          return r_.refuse_type(here, block, "a block of text");
        r_.ignore_others(block, here, {"type", "text", "cache_control", "citations"});
        const std::optional<std::string> words = r_.string(here + ".text", block.value("text", Json()));
        if (!words || words->starts_with(kVolatile)) continue;
        text += (text.empty() ? "" : "\n\n") + *words;
      }
    }
    if (!text.empty()) turns_.push_back(Message::of_text("system", std::move(text)));
  }

  void read_message(const Json& message, const std::string& where) {
    if (!message.is_object()) return r_.refuse_type(where, message, "an object");
    const Json role = message.value("role", Json()), content = message.value("content", Json());
    if (role != "user" && role != "assistant" && role != "system")
      return r_.refuse(where + ".role", where + ".role should be user or assistant, is " + shown(role));
    r_.ignore_others(message, where, {"role", "content"});
    role_ = role.get<std::string>();
    if (content.is_string()) return turn().parts.push_back(Part::of_text(content.get<std::string>()));
    if (content.is_null()) return r_.refuse(where + ".content", where + ".content is missing", Refusal::Kind::kMissing);
    if (!content.is_array()) return r_.refuse_type(where + ".content", content, "a string or a list of blocks");
    for (size_t i = 0; i < content.size() && !r_.refusal; ++i)
      read_block(content[i], where + ".content[" + std::to_string(i) + "]");
  }

  // The turn that a block of this role belongs to: neighbours of the same role are one.
  Message& turn() {
    if (turns_.empty() || turns_.back().role != role_) turns_.push_back(Message{role_, {}});
    return turns_.back();
  }

  void read_block(const Json& block, const std::string& where) {
    if (!block.is_object()) return r_.refuse_type(where, block, "a block");
    const Json type = block.value("type", Json());
    const bool assistant = role_ == "assistant";
    if (type == "text") {
      r_.ignore_others(block, where, {"type", "text", "cache_control", "citations"});
      if (std::optional<std::string> text = r_.string(where + ".text", block.value("text", Json())))
        turn().parts.push_back(Part::of_text(std::move(*text)));
    } else if (type == "image") {
      if (std::optional<Part> image = read_image(block, where)) turn().parts.push_back(std::move(*image));
    } else if (type == "tool_use" && assistant) {
      read_call(block, where);
    } else if (type == "tool_result" && !assistant) {
      read_result(block, where);
    } else if (type == "thinking" && assistant && hides_reasoning()) {
      r_.ask.ignored.add(where + " (thinking)");
    } else if (type == "thinking" && assistant) {
      if (std::optional<std::string> text = r_.string(where + ".thinking", block.value("thinking", Json())))
        turn().reasoning += *text;
    } else if (type.is_string()) {  // documents, blocks of a server's own tools: nothing here shows them
      r_.ask.ignored.add(where + " (" + type.get<std::string>() + ")");
    } else {
      r_.refuse(where + ".type",
                where + ".type should be text, image, tool_use, tool_result or thinking, is " + shown(type));
    }
  }

  // None: it is left out, or refused.
  std::optional<Part> read_image(const Json& block, const std::string& where) {
    r_.ignore_others(block, where, {"type", "source", "cache_control"});
    const Json source = block.value("source", Json());
    const Json type = source.is_object() ? source.value("type", Json()) : Json();
    if (type == "url" || type == "file") {  // nothing is fetched
      r_.ask.ignored.add(where + ".source");
      return std::nullopt;
    }
    const Json data = source.is_object() ? source.value("data", Json()) : Json();
    if (type != "base64" || !data.is_string()) {
      r_.refuse_type(where + ".source", source, "an object of the type base64 with data");
      return std::nullopt;
    }
    std::optional<std::vector<uint8_t>> bytes = from_base64(data.get_ref<const std::string&>());
    if (bytes && !bytes->empty()) return Part::of_bytes(Part::Kind::kImage, std::move(*bytes));
    r_.refuse(where + ".source.data", where + ".source.data is no base64 text");
    return std::nullopt;
  }

  void read_call(const Json& block, const std::string& where) {
    r_.ignore_others(block, where, {"type", "id", "name", "input", "cache_control", "caller"});
    const std::optional<std::string> id = r_.string(where + ".id", block.value("id", Json())),
                                     name = r_.string(where + ".name", block.value("name", Json()));
    const Json input = block.value("input", Json());
    if (!input.is_object() && !input.is_null()) return r_.refuse_type(where + ".input", input, "an object");
    if (!id || !name) return;
    turn().tool_calls.push_back({*id, *name, input.is_null() ? "{}" : json_text(input)});
  }

  void read_result(const Json& block, const std::string& where) {
    r_.ignore_others(block, where, {"type", "tool_use_id", "content", "is_error", "cache_control"});
    const std::optional<std::string> id = r_.string(where + ".tool_use_id", block.value("tool_use_id", Json()));
    if (!id) return;
    Message result{"tool", {}};
    result.tool_call_id = *id;
    // Templates have no place for it.
    const Json failed = block.value("is_error", Json());
    if (!failed.is_null() && !failed.is_boolean()) return r_.refuse_type(where + ".is_error", failed, "true or false");
    if (failed == true) result.parts.push_back(Part::of_text("Error:"));
    const Json content = block.value("content", Json());
    if (content.is_string()) {
      result.parts.push_back(Part::of_text(content.get<std::string>()));
    } else if (content.is_null()) {
      result.parts.push_back(Part::of_text(""));
    } else if (!content.is_array()) {
      return r_.refuse_type(where + ".content", content, "a string or a list of blocks");
    } else {
      for (size_t i = 0; i < content.size() && !r_.refusal; ++i)
        read_result_block(content[i], where + ".content[" + std::to_string(i) + "]", result);
    }
    turns_.push_back(std::move(result));
  }

  void read_result_block(const Json& block, const std::string& where, Message& result) {
    const Json type = block.is_object() ? block.value("type", Json()) : Json();
    if (type == "text") {
      if (std::optional<std::string> text = r_.string(where + ".text", block.value("text", Json())))
        result.parts.push_back(Part::of_text(std::move(*text)));
    } else if (type == "image") {
      if (std::optional<Part> image = read_image(block, where)) result.parts.push_back(std::move(*image));
    } else if (type.is_string()) {
      r_.ask.ignored.add(where + " (" + type.get<std::string>() + ")");
    } else {
      r_.refuse(where + ".type", where + ".type should be text or image, is " + shown(type));
    }
  }

  BodyReader& r_;
  std::string role_;  // of the message that is being read
  std::vector<Message> turns_;
};

}  // namespace

std::optional<Prompt> read_turns(BodyReader& reader) { return TurnReader(reader).read(); }

}  // namespace situ::serve
