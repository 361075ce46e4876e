// Memory that a call takes beside its body: for images and sounds, and for the tokens of long texts.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "pipelines/llm.h"
#include "serve/media_bytes.h"
#include "serve/server.h"
#include "text/tokenizer.h"

namespace situ::serve {
namespace {

constexpr int64_t kTokenising = 100;  // bytes of memory for each byte of a text that becomes tokens

// Of all strings, but for files in base64, which take_media counts.
int64_t bytes_of_texts(const Json& value) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return text.starts_with("data:") ? 0 : std::ssize(text);
  }
  int64_t bytes = 0;
  if (value.is_structured())
    for (const auto& [name, part] : value.items())
      if (name != "input_audio" && name != "source") bytes += bytes_of_texts(part);
  return bytes;
}

}  // namespace

MediaFiles Server::files_of(const Call& call) {
  return MediaFiles(options_.media_path, [this, id = call.id](int64_t bytes) { return http_->take(id, bytes); });
}

std::optional<Refusal> Server::take_media(Call& call, const Ask& ask) {
  const Prompt* conversation = std::get_if<Prompt>(&ask.input);
  if (!conversation) return std::nullopt;
  const OrRefusal<int64_t> media = bytes_of_media(*conversation, options_.limits);
  if (const Refusal* f = std::get_if<Refusal>(&media)) return *f;
  if (http_->take(call.id, std::get<int64_t>(media))) return std::nullopt;
  return Refusal{Refusal::Kind::kBusy, "",
                 "no memory is left now (--media-memory) for what the images and sounds become"};
}

std::optional<Refusal> Server::take_texts(Call& call, const Json& body, const Hosted& hosted) {
  int64_t bytes = bytes_of_texts(body);
  const Served& served = impl_of(*hosted.model);
  const int64_t longest =
      bytes > static_cast<int64_t>(kLongBody) && served.tokenizer ? served.tokenizer->longest_token() : 0;
  if (longest > 0 && !(call.route->flags & RouteEntry::kSlow) && call.route->flags & RouteEntry::kLong)
    bytes = std::min(bytes, served.context_length * longest);  // a longer prompt is refused before it becomes tokens
  if (bytes <= static_cast<int64_t>(kLongBody) || http_->take(call.id, kTokenising * bytes)) return std::nullopt;
  return Refusal{
      Refusal::Kind::kBusy, "",
      "no memory is left now (--media-memory) for the tokens of a text of " + std::to_string(bytes) + " bytes"};
}

}  // namespace situ::serve
