// Messages of a chat body: texts, images and sounds, as the chat template and the encoders get them.
#include <filesystem>
#include <fstream>

#include "base/one_line.h"
#include "pipelines/conversation.h"
#include "serve/body_reader.h"
#include "text/mark.h"

namespace situ::serve {
namespace {

namespace fs = std::filesystem;

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

  Prompt read(const Json& messages, std::shared_ptr<const void>* memory);

 private:
  void read_message(const Json& message, const std::string& where);
  Json read_content(const Json& content, const std::string& where);
  void read_image(const Json& part, const std::string& where);
  std::optional<std::vector<uint8_t>> bytes_of_url(const std::string& url, const std::string& where);
  std::optional<std::vector<uint8_t>> bytes_of_file(const std::string& path, const std::string& where);
  void read_sound(const Json& part, const std::string& where);
  Json read_calls(const Json& calls, const std::string& where);
  Result<Sounds> sounds() const;
  std::optional<Prompt> prompt_with(const Images& images, const Sounds& sounds);
  void refuse(const Status& why);

  BodyReader& r_;
  std::vector<Turn> turns_;
  std::vector<std::vector<uint8_t>> images_, sounds_;
  std::string place_of_sound_;  // a character that no message has
};

// What the template gets of a call's arguments is an object, as transformers documents it, not the text of one.
Json MessageReader::read_calls(const Json& calls, const std::string& where) {
  if (!calls.is_array()) {
    r_.refuse_type(where, calls, "a list of tool calls");
    return {};
  }
  Json read = calls;
  for (Json& call : read) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) {
      r_.refuse_type(where, call, "a list of tool calls");
      return {};
    }
    Json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const OrFault<Json> arguments = parse_body(function["arguments"].get_ref<const std::string&>());
    if (const Json* object = std::get_if<Json>(&arguments)) function["arguments"] = *object;
  }
  return read;
}

std::optional<std::vector<uint8_t>> MessageReader::bytes_of_file(const std::string& path, const std::string& where) {
  std::error_code error;
  const fs::path root = fs::canonical(r_.rules.media_path, error);
  const fs::path file = error ? fs::path() : fs::canonical(path.starts_with('/') ? fs::path(path) : root / path, error);
  const auto inside = std::mismatch(root.begin(), root.end(), file.begin(), file.end()).first == root.end();
  if (error || file.empty() || !inside || !fs::is_regular_file(file, error)) {
    r_.refuse(where, where + ": there is no such file below the folder of media");
    return std::nullopt;
  }
  std::ifstream in(file, std::ios::binary);
  return std::vector<uint8_t>((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
}

std::optional<std::vector<uint8_t>> MessageReader::bytes_of_url(const std::string& url, const std::string& where) {
  if (url.starts_with("file:") && !r_.rules.media_path.empty()) {
    const std::string path = url.substr(url.starts_with("file://") ? 7 : 5);
    return bytes_of_file(path, where);
  }
  const size_t comma = url.find(',');
  if (!url.starts_with("data:") || comma == std::string::npos) {
    r_.refuse(where, where + " should be a data: URL" +
                         (r_.rules.media_path.empty() ? "" : " or a file: URL below the folder of media") + ", is " +
                         shown(Json(url.substr(0, 40))) + ": nothing is fetched");
    return std::nullopt;
  }
  std::optional<std::vector<uint8_t>> bytes;
  if (std::string_view(url).substr(0, comma).ends_with(";base64"))
    bytes = from_base64(std::string_view(url).substr(comma + 1));
  if (!bytes || bytes->empty()) {
    r_.refuse(where, where + " is no data: URL with base64 bytes");
    return std::nullopt;
  }
  return bytes;
}

void MessageReader::read_image(const Json& part, const std::string& where) {
  const Json image = part.value("image_url", Json());
  const Json url = image.is_object() ? image.value("url", Json()) : image;
  if (!url.is_string()) return r_.refuse_type(where + ".image_url.url", url, "a data: URL");
  if (std::optional<std::vector<uint8_t>> bytes =
          bytes_of_url(url.get_ref<const std::string&>(), where + ".image_url.url"))
    images_.push_back(std::move(*bytes));
}

// {"data": base64, "format"}; what the bytes are is told by themselves.
void MessageReader::read_sound(const Json& part, const std::string& where) {
  const Json audio = part.value("input_audio", Json());
  const Json data = audio.is_object() ? audio.value("data", Json()) : Json();
  if (!data.is_string()) return r_.refuse_type(where + ".input_audio.data", data, "a base64 text");
  std::optional<std::vector<uint8_t>> bytes = from_base64(data.get_ref<const std::string&>());
  if (!bytes || bytes->empty())
    return r_.refuse(where + ".input_audio.data", where + ".input_audio.data is no base64 text");
  sounds_.push_back(std::move(*bytes));
}

// A text, or parts, in which neighbouring texts are one.
Json MessageReader::read_content(const Json& content, const std::string& where) {
  if (content.is_null() || content.is_string()) return content;
  if (!content.is_array()) {
    r_.refuse_type(where, content, "a string or a list of parts");
    return {};
  }
  Json parts = Json::array();
  const auto add_text = [&](const std::string& text, const std::string& between) {
    if (parts.empty() || parts.back()["type"] != "text") {
      parts.push_back({{"type", "text"}, {"text", text}});
      return;
    }
    const std::string before = parts.back()["text"].get<std::string>();
    parts.back()["text"] = before + (before.ends_with(place_of_sound_) ? "" : between) + text;
  };
  for (size_t i = 0; i < content.size() && !r_.fault; ++i) {
    const Json& part = content[i];
    const std::string here = where + "[" + std::to_string(i) + "]";
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    if (type == "text" || type == "refusal") {
      const Json text = part.value(type.get<std::string>(), Json());
      if (!text.is_string()) {
        r_.refuse_type(here + "." + type.get<std::string>(), text, "a string");
      } else {
        add_text(text.get<std::string>(), "\n");
      }
    } else if (type == "image_url") {
      read_image(part, here);
      parts.push_back({{"type", "image"}});
    } else if (type == "input_audio") {
      read_sound(part, here);
      add_text(place_of_sound_, "");
    } else {
      r_.refuse(here + ".type", here + ".type should be text, image_url or input_audio, is " + shown(type));
    }
  }
  if (parts.empty()) return "";
  return parts.size() == 1 && parts[0]["type"] == "text" ? parts[0]["text"] : parts;
}

void MessageReader::read_message(const Json& message, const std::string& where) {
  if (!message.is_object()) return r_.refuse_type(where, message, "an object");
  Json role = message.value("role", Json());
  if (role == "developer") role = "system";
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    return r_.refuse(where + ".role",
                     where + ".role should be system, developer, user, assistant or tool, is " + shown(role));
  const char first = role.get_ref<const std::string&>()[0];
  Json turn = {{"role", role}, {"content", ""}};
  for (const auto& [key, value] : message.items()) {
    if (value.is_null()) continue;
    const std::string here = where + "." + one_line(key.substr(0, 100));
    const auto known = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) {
      return key == k.name && (*k.roles == 0 || *k.roles == first);
    });
    if (known == std::end(kKeys)) return r_.refuse(here, "unknown parameter: '" + here + "'", "unknown_parameter");
    if (key == "content")
      turn["content"] = read_content(value, here);
    else if (key == "tool_calls")
      turn["tool_calls"] = read_calls(value, here);
    else if (key == "name" || key == "tool_call_id" || key == "reasoning_content") {
      if (!value.is_string()) return r_.refuse_type(here, value, "a string");
      turn[key] = value;
    }
  }
  const bool may_be_empty = message.contains("tool_calls") || message.contains("refusal");
  if (message.value("content", Json()).is_null() && !may_be_empty)
    r_.refuse(where + ".content", where + ".content is missing", "missing_required_parameter");
  turns_.push_back(Turn{std::move(turn), {}});
}

Prompt MessageReader::read(const Json& messages, std::shared_ptr<const void>* memory) {
  if (!messages.is_array() || messages.empty()) {
    r_.refuse_type("messages", messages, "a list of messages");
    return {};
  }
  const Result<char32_t> place = Tokenizer::free_mark(messages.dump());
  if (!place.is_ok()) return refuse(place.status()), Prompt{};
  place_of_sound_ = utf8_of(*place);
  for (size_t i = 0; i < messages.size() && !r_.fault; ++i)
    read_message(messages[i], "messages[" + std::to_string(i) + "]");
  if (r_.fault) return {};
  if (!r_.model.has_chat_template()) {
    r_.refuse("messages",
              r_.model.has_tokenizer() ? "the model has no chat template"
                                       : "the model has no tokenizer, so that prompts are prompt_token_ids",
              kUnsupportedByModel);
    return {};
  }
  if (!(images_.empty() && sounds_.empty()) && !r_.model.takes_arrays()) {
    r_.refuse("messages", "the model takes neither images nor sounds", kUnsupportedByModel);
    return {};
  }
  std::vector<ImageSource> sources;
  for (const std::vector<uint8_t>& bytes : images_) sources.push_back({"", nullptr, 0, 0, bytes});
  const Result<Images> images = sources.empty() ? Images{} : read_images(r_.model, sources);
  if (!images.is_ok()) return refuse(images.status()), Prompt{};
  const Result<Sounds> sounds = this->sounds();
  if (!sounds.is_ok()) return refuse(sounds.status()), Prompt{};
  *memory = std::make_shared<std::pair<Images, Sounds>>(*images, *sounds);
  return prompt_with(*images, *sounds).value_or(Prompt{});
}

Result<Sounds> MessageReader::sounds() const {
  std::vector<SoundSource> sources;
  for (const std::vector<uint8_t>& bytes : sounds_) sources.push_back({"", bytes});
  return sources.empty() ? Sounds{} : read_sounds(r_.model, sources);
}

void MessageReader::refuse(const Status& why) {
  const char* code = why.code() == Code::kNotFound || why.code() == Code::kUnsupportedModel ? kUnsupportedByModel
                     : why.code() == Code::kContextExceeded                                 ? "context_length_exceeded"
                                                                                            : "invalid_value";
  r_.refuse("messages", without_paths(r_.model, why.message()), code);
}

std::optional<Prompt> MessageReader::prompt_with(const Images& images, const Sounds& sounds) {
  if (!images.images.empty())  // templates of such models take lists of parts
    for (Turn& t : turns_)
      if (Json& content = t.message["content"]; content.is_string())
        content = Json::array({{{"type", "text"}, {"text", content}}});
  TemplateOptions options;
  if (const Json* variables = r_.find("chat_template_kwargs")) options.variables_json = variables->dump();
  const Model::Impl& m = impl_of(r_.model);
  Result<PromptText> text = render_conversation(m, std::move(turns_), options);
  if (!text.is_ok()) return refuse(text.status()), std::nullopt;
  if (!sounds.sounds.empty()) {
    const std::string inserted = insertion_of(sounds);
    std::string& t = text->text;
    for (size_t at = 0; (at = t.find(place_of_sound_, at)) != std::string::npos; at += inserted.size())
      t.replace(at, place_of_sound_.size(), inserted);
    Result<std::string> expanded = expand_sounds(t, sounds);
    if (!expanded.is_ok()) return refuse(expanded.status()), std::nullopt;
    t = std::move(*expanded);
  }
  Result<std::vector<int64_t>> ids = encode_prompt(m, *text, images);
  if (!ids.is_ok()) return refuse(ids.status()), std::nullopt;
  Prompt prompt{std::move(*ids), images.arrays, {}};
  prompt.arrays.insert(prompt.arrays.end(), sounds.arrays.begin(), sounds.arrays.end());
  return prompt;
}

}  // namespace

Prompt prompt_of_messages(BodyReader& reader, const Json& messages, std::shared_ptr<const void>* memory) {
  return MessageReader(reader).read(messages, memory);
}

}  // namespace situ::serve
