// Messages of a chat body: texts, images and sounds, as the chat template and the encoders get them.
#include "base/one_line.h"
#include "pipelines/read_prompt.h"
#include "serve/body_reader.h"
#include "serve/data_url.h"
#include "serve/media_files.h"

namespace situ::serve {
namespace {

struct Key {
  const char *name, *roles;  // roles: first letters; "": all
};
// refusal and annotations are OpenAI's, and come back in histories; they are not shown to the model.
constexpr Key kKeys[] = {{"role", ""},          {"content", ""},     {"name", ""},
                         {"tool_call_id", "t"}, {"tool_calls", "a"}, {"reasoning_content", "a"},
                         {"refusal", "a"},      {"annotations", "a"}};

class MessageReader {
 public:
  explicit MessageReader(BodyReader& reader) : r_(reader) {}

  Prompt read(const Json& messages);
  std::string text(const Json& messages, bool add_generation_prompt);

 private:
  std::optional<Prompt> conversation(const Json& messages);
  void read_message(const Json& message, const std::string& where);
  void read_content(const Json& content, const std::string& where);
  bool check_keys(const Json& object, const std::string& where, std::initializer_list<const char*> known);
  void read_image(const Json& part, const std::string& where);
  std::optional<std::vector<uint8_t>> bytes_of_url(const std::string& url, const std::string& where);
  std::optional<std::vector<uint8_t>> bytes_of_file(const std::string& url, const std::string& where);
  void read_sound(const Json& part, const std::string& where);
  void read_calls(const Json& calls, const std::string& where);
  void refuse(const Status& why);

  BodyReader& r_;
  std::vector<Message> messages_;
  bool media_ = false;  // there are images or sounds
};

// Refuses other keys, but for null values.
bool MessageReader::check_keys(const Json& object, const std::string& where, std::initializer_list<const char*> known) {
  for (const auto& [key, value] : object.items()) {
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const char* k) { return key == k; });
    if (is_known || value.is_null()) continue;
    const std::string here = where + "." + one_line(key.substr(0, 100));
    r_.refuse(here, "unknown parameter: '" + here + "'", "unknown_parameter");
    return false;
  }
  return true;
}

void MessageReader::read_calls(const Json& calls, const std::string& where) {
  if (!calls.is_array()) return r_.refuse_type(where, calls, "a list of tool calls");
  for (size_t i = 0; i < calls.size() && !r_.fault; ++i) {
    const std::string here = where + "[" + std::to_string(i) + "]";
    const Json function = calls[i].is_object() ? calls[i].value("function", Json()) : Json();
    if (!function.is_object()) return r_.refuse_type(here, calls[i], "a call of a function");
    if (!check_keys(calls[i], here, {"id", "type", "function", "index"}) ||
        !check_keys(function, here + ".function", {"name", "arguments"}))
      return;
    const Json type = calls[i].value("type", Json());
    if (!type.is_null() && type != "function")
      return r_.refuse(here + ".type", here + ".type should be function, is " + shown(type));
    ToolCall call;
    for (const auto& [key, value, text] :
         {std::tuple{".id", calls[i].value("id", Json()), &call.id},
          {".function.name", function.value("name", Json()), &call.name},
          {".function.arguments", function.value("arguments", Json()), &call.arguments_json}}) {
      if (value.is_string())
        *text = value.get<std::string>();
      else if (value.is_object() && text == &call.arguments_json)
        *text = value.dump();
      else if (!value.is_null() || text == &call.name)
        return r_.refuse_type(here + key, value, "a string");
    }
    messages_.back().tool_calls.push_back(std::move(call));
  }
}

std::optional<std::vector<uint8_t>> MessageReader::bytes_of_file(const std::string& url, const std::string& where) {
  std::optional<std::vector<uint8_t>> bytes = r_.rules.files->bytes(url);
  if (!bytes) r_.refuse(where, where + ": there is no such file below the folder of media");
  return bytes;
}

std::optional<std::vector<uint8_t>> MessageReader::bytes_of_url(const std::string& url, const std::string& where) {
  const bool files = r_.rules.files && r_.rules.files->allowed();
  if (files && url.starts_with("file:")) return bytes_of_file(url, where);
  if (!is_data_url(url)) {
    r_.refuse(where, where + " should be a data: URL" + (files ? " or a file: URL below the folder of media" : "") +
                         ", is " + shown(Json(url.substr(0, 40))) + ": nothing is fetched");
    return std::nullopt;
  }
  std::optional<std::vector<uint8_t>> bytes = bytes_of_data_url(url);
  if (bytes && !bytes->empty()) return bytes;
  r_.refuse(where, where + (bytes ? " is a data: URL without bytes" : " is no data: URL with a comma and base64"));
  return std::nullopt;
}

void MessageReader::read_image(const Json& part, const std::string& where) {
  const Json image = part.value("image_url", Json());
  if (image.is_object() && !check_keys(image, where + ".image_url", {"url", "detail"})) return;
  const Json url = image.is_object() ? image.value("url", Json()) : image;
  if (!url.is_string()) return r_.refuse_type(where + ".image_url.url", url, "a data: URL");
  if (std::optional<std::vector<uint8_t>> bytes =
          bytes_of_url(url.get_ref<const std::string&>(), where + ".image_url.url"))
    messages_.back().parts.push_back(Part::of_bytes(Part::Kind::kImage, std::move(*bytes)));
}

// {"data": base64, "format"}; what the bytes are is told by themselves.
void MessageReader::read_sound(const Json& part, const std::string& where) {
  const Json audio = part.value("input_audio", Json());
  if (audio.is_object() && !check_keys(audio, where + ".input_audio", {"data", "format"})) return;
  const Json data = audio.is_object() ? audio.value("data", Json()) : Json();
  if (!data.is_string()) return r_.refuse_type(where + ".input_audio.data", data, "a base64 text");
  std::optional<std::vector<uint8_t>> bytes = from_base64(data.get_ref<const std::string&>());
  if (!bytes || bytes->empty())
    return r_.refuse(where + ".input_audio.data", where + ".input_audio.data is no base64 text");
  messages_.back().parts.push_back(Part::of_bytes(Part::Kind::kAudio, std::move(*bytes)));
}

// A text, or parts.
void MessageReader::read_content(const Json& content, const std::string& where) {
  std::vector<Part>& parts = messages_.back().parts;
  if (content.is_string()) return parts.push_back(Part::of_text(content.get<std::string>()));
  if (!content.is_array()) return r_.refuse_type(where, content, "a string or a list of parts");
  for (size_t i = 0; i < content.size() && !r_.fault; ++i) {
    const Json& part = content[i];
    const std::string here = where + "[" + std::to_string(i) + "]";
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    const bool text = type == "text" || type == "refusal", image = type == "image_url", sound = type == "input_audio";
    if (!text && !image && !sound)
      return r_.refuse(here + ".type", here + ".type should be text, image_url or input_audio, is " + shown(type));
    const std::string key = type.get<std::string>();
    if (!check_keys(part, here, {"type", key.c_str()})) return;
    media_ = media_ || !text;
    if (image) read_image(part, here);
    if (sound) read_sound(part, here);
    if (!text) continue;
    const Json words = part.value(key, Json());
    if (!words.is_string()) return r_.refuse_type(here + "." + key, words, "a string");
    parts.push_back(Part::of_text(words.get<std::string>()));
  }
}

void MessageReader::read_message(const Json& message, const std::string& where) {
  if (!message.is_object()) return r_.refuse_type(where, message, "an object");
  Json role = message.value("role", Json());
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    return r_.refuse(where + ".role",
                     where + ".role should be system, developer, user, assistant or tool, is " + shown(role));
  Message& turn = messages_.emplace_back(Message{role.get<std::string>(), {}});
  const char first = turn.role[0];
  for (const auto& [key, value] : message.items()) {
    if (value.is_null()) continue;
    const std::string here = where + "." + one_line(key.substr(0, 100));
    const auto known = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) {
      return key == k.name && (*k.roles == 0 || *k.roles == first);
    });
    if (known == std::end(kKeys)) return r_.refuse(here, "unknown parameter: '" + here + "'", "unknown_parameter");
    std::string* const text = key == "name"                ? &turn.name
                              : key == "tool_call_id"      ? &turn.tool_call_id
                              : key == "reasoning_content" ? &turn.reasoning
                                                           : nullptr;
    if (key == "content") read_content(value, here);
    if (key == "tool_calls") read_calls(value, here);
    if (text && !value.is_string()) return r_.refuse_type(here, value, "a string");
    if (text) *text = value.get<std::string>();
    if (r_.fault) return;
  }
  const auto has = [&](const char* key) { return message.contains(key) && !message[key].is_null(); };
  const bool may_be_empty = has("tool_calls") || has("refusal");
  if (message.value("content", Json()).is_null() && !may_be_empty)
    r_.refuse(where + ".content", where + ".content is missing", "missing_required_parameter");
}

std::optional<Prompt> MessageReader::conversation(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    r_.refuse_type("messages", messages, "a list of messages");
    return std::nullopt;
  }
  for (size_t i = 0; i < messages.size() && !r_.fault; ++i)
    read_message(messages[i], "messages[" + std::to_string(i) + "]");
  if (r_.fault) return std::nullopt;
  const Tokenizer& tokenizer = r_.model.tokenizer();
  if (!tokenizer.has_chat_template()) {
    r_.refuse("messages",
              tokenizer.is_there() ? "the model has no chat template"
                                   : "the model has no tokenizer, so that prompts are prompt_token_ids",
              kUnsupportedByModel);
    return std::nullopt;
  }
  if (media_ && !r_.model.takes_arrays()) {
    r_.refuse("messages", "the model takes neither images nor sounds", kUnsupportedByModel);
    return std::nullopt;
  }
  Prompt prompt(std::move(messages_));
  if (const Json* variables = r_.find("chat_template_kwargs")) prompt.chat.variables_json = variables->dump();
  return prompt;
}

Prompt MessageReader::read(const Json& messages) {
  std::optional<Prompt> prompt = conversation(messages);
  if (!prompt) return {};
  Result<Prompt> read = r_.model.read(std::move(*prompt));
  if (!read.is_ok()) refuse(read.status());
  return read.is_ok() ? std::move(*read) : Prompt();
}

std::string MessageReader::text(const Json& messages, bool add_generation_prompt) {
  std::optional<Prompt> prompt = conversation(messages);
  if (!prompt) return "";
  prompt->chat.add_generation_prompt = add_generation_prompt;
  Result<std::string> text = text_of_conversation(impl_of(r_.model), *prompt);
  if (!text.is_ok()) refuse(text.status());
  return text.is_ok() ? std::move(*text) : "";
}

void MessageReader::refuse(const Status& why) {
  if (why.code() == Code::kNoRoom && !r_.fault) r_.fault = overloaded(without_paths(r_.model, why.message()));
  const char* code = why.code() == Code::kNotFound || why.code() == Code::kUnsupportedModel ? kUnsupportedByModel
                     : why.code() == Code::kContextExceeded                                 ? "context_length_exceeded"
                                                                                            : "invalid_value";
  r_.refuse("messages", without_paths(r_.model, why.message()), code);
}

}  // namespace

Prompt prompt_of_messages(BodyReader& reader, const Json& messages) { return MessageReader(reader).read(messages); }

std::string text_of_messages(BodyReader& reader, const Json& messages, bool add_generation_prompt) {
  return MessageReader(reader).text(messages, add_generation_prompt);
}

}  // namespace situ::serve
