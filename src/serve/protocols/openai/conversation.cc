// Messages of a chat body: texts, images and sounds, as the chat template and the encoders get them.
#include "base/one_line.h"
#include "serve/data_url.h"
#include "serve/media_files.h"
#include "serve/protocols/openai/openai.h"
#include "text/json_file.h"

namespace situ::serve {
namespace {

class MessageReader {
 public:
  explicit MessageReader(BodyReader& reader) : r_(reader) {}

  std::optional<Prompt> read(const Json& messages);

 private:
  std::string variables() const;
  void read_message(const Json& message, const std::string& where);
  void read_content(const Json& content, const std::string& where);
  void read_key(const std::string& key, const Json& value, const std::string& where, Json& more);
  void read_image(const Json& part, const std::string& where);
  std::optional<std::vector<uint8_t>> bytes_of_url(const std::string& url, const std::string& where);
  std::optional<std::vector<uint8_t>> bytes_of_file(const std::string& url, const std::string& where);
  void read_sound(const Json& part, const std::string& where);
  void read_calls(const Json& calls, const std::string& where);
  // Whether the template shows the reasoning of answers, under whatever key.
  bool shows_reasoning() const { return r_.form() && !r_.form()->form.reasoning.field.empty(); }

  BodyReader& r_;
  std::vector<Message> messages_;
};

void MessageReader::read_calls(const Json& calls, const std::string& where) {
  if (!calls.is_array()) return r_.refuse_type(where, calls, "a list of tool calls");
  for (size_t i = 0; i < calls.size() && !r_.refusal; ++i) {
    const std::string here = where + "[" + std::to_string(i) + "]";
    const Json function = calls[i].is_object() ? calls[i].value("function", Json()) : Json();
    if (!function.is_object()) return r_.refuse_type(here, calls[i], "a call of a function");
    r_.ignore_others(calls[i], here, {"id", "type", "function", "index"});
    r_.ignore_others(function, here + ".function", {"name", "arguments"});
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
  if (image.is_object()) r_.ignore_others(image, where + ".image_url", {"url", "detail"});
  const Json url = image.is_object() ? image.value("url", Json()) : image;
  if (!url.is_string()) return r_.refuse_type(where + ".image_url.url", url, "a data: URL");
  if (std::optional<std::vector<uint8_t>> bytes =
          bytes_of_url(url.get_ref<const std::string&>(), where + ".image_url.url"))
    messages_.back().parts.push_back(Part::of_bytes(Part::Kind::kImage, std::move(*bytes)));
}

// {"data": base64, "format"}; what the bytes are is told by themselves.
void MessageReader::read_sound(const Json& part, const std::string& where) {
  const Json audio = part.value("input_audio", Json());
  if (audio.is_object()) r_.ignore_others(audio, where + ".input_audio", {"data", "format"});
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
  for (size_t i = 0; i < content.size() && !r_.refusal; ++i) {
    const Json& part = content[i];
    const std::string here = where + "[" + std::to_string(i) + "]";
    if (part.is_string()) {
      parts.push_back(Part::of_text(part.get<std::string>()));
      continue;
    }
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    const bool text = type == "text" || type == "refusal" || type == "input_text" || type == "output_text",
               image = type == "image_url", sound = type == "input_audio";
    if (!text && !image && !sound)
      return r_.refuse(here + ".type", here + ".type should be text, image_url or input_audio, is " + shown(type));
    const std::string key = text && type != "refusal" ? "text" : type.get<std::string>();
    r_.ignore_others(part, here, {"type", key.c_str()});
    if (image) read_image(part, here);
    if (sound) read_sound(part, here);
    if (!text) continue;
    const Json words = part.value(key, Json());
    if (!words.is_string()) return r_.refuse_type(here + "." + key, words, "a string");
    parts.push_back(Part::of_text(words.get<std::string>()));
  }
}

// What the template does not read changes nothing, and is told.
void MessageReader::read_key(const std::string& key, const Json& value, const std::string& where, Json& more) {
  Message& turn = messages_.back();
  const bool assistant = turn.role == "assistant";
  std::string* const text = key == "name"                                  ? &turn.name
                            : key == "tool_call_id" && turn.role == "tool" ? &turn.tool_call_id
                            : key == "reasoning_content" && assistant      ? &turn.reasoning
                                                                           : nullptr;
  if (key == "content") return read_content(value, where);
  if (text && !value.is_string()) return r_.refuse_type(where, value, "a string");
  if (key == "tool_calls" && assistant) read_calls(value, where);
  if (text) *text = value.get<std::string>();
  // The name that reasoning has elsewhere.
  const bool reasoning = key == "reasoning" && assistant && value.is_string() && shows_reasoning();
  if (reasoning && turn.reasoning.empty()) turn.reasoning = value.get<std::string>();
  const bool calls = (key == "tool_calls" && assistant) || text == &turn.tool_call_id;
  const bool read = calls || (text == &turn.reasoning ? shows_reasoning() : r_.template_reads(key));
  constexpr std::string_view kKnown[] = {"name",    "tool_call_id", "tool_calls", "reasoning_content", "reasoning",
                                         "refusal", "annotations",  "audio",      "function_call"};
  if (read && !text && key != "tool_calls")
    more[key] = value;
  else if (!read && !reasoning && std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown))
    r_.ask.ignored.add(where);  // strict rules too know what the API has
  else if (!read && !reasoning)
    r_.ignore(where);
}

void MessageReader::read_message(const Json& message, const std::string& where) {
  if (!message.is_object()) return r_.refuse_type(where, message, "an object");
  Json role = message.value("role", Json());
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    return r_.refuse(where + ".role",
                     where + ".role should be system, developer, user, assistant or tool, is " + shown(role));
  Message& turn = messages_.emplace_back(Message{role.get<std::string>(), {}});
  Json more = Json::object();  // keys that nobody here knows, and the template reads
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null() && key != "role") read_key(key, value, where + "." + key, more);
    if (r_.refusal) return;
  }
  if (!more.empty()) turn.more_json = json_text(more);
  const auto has = [&](const char* key) { return message.contains(key) && !message[key].is_null(); };
  const bool may_be_empty = message.value("role", Json()) == "assistant" || has("tool_calls") || has("refusal");
  if (message.value("content", Json()).is_null() && !may_be_empty)
    r_.refuse(where + ".content", where + ".content is missing", Refusal::Kind::kMissing);
}

// Of the chat template: fields of the body that it reads, then chat_template_kwargs, which win.
std::string MessageReader::variables() const {
  Json all = r_.variables;
  for (const BodyField* f : r_.fields) {
    const bool variable = f->use == BodyField::Use::kTemplate || f->name == std::string_view("documents");
    if (const Json* value = variable ? r_.find(f->name) : nullptr; value && r_.template_reads(f->name))
      all[f->name] = *value;
  }
  if (const Json* given = r_.find("chat_template_kwargs"))
    for (const auto& [name, value] : given->items()) all[name] = value;
  return all.empty() ? "" : json_text(all);
}

std::optional<Prompt> MessageReader::read(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    r_.refuse_type("messages", messages, "a list of messages");
    return std::nullopt;
  }
  for (size_t i = 0; i < messages.size() && !r_.refusal; ++i)
    read_message(messages[i], "messages[" + std::to_string(i) + "]");
  if (r_.refusal) return std::nullopt;
  Prompt prompt(std::move(messages_));
  prompt.chat = r_.chat;
  prompt.chat.variables_json = variables();
  return prompt;
}

}  // namespace

std::optional<Prompt> read_messages(BodyReader& reader, const Json& messages) {
  return MessageReader(reader).read(messages);
}

}  // namespace situ::serve
