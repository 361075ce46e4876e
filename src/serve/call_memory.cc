// Memory that a call takes beside its body: for images and sounds, and for the tokens of long texts.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "pipelines/llm.h"
#include "serve/media_bytes.h"
#include "serve/server.h"
#include "serve/small_bodies.h"
#include "text/tokenizer.h"

namespace situ::serve {
namespace {

// Bytes of memory for each byte of a text: while it becomes tokens; of the tokens; and of these with their texts in an
// answer.
constexpr int64_t kTokenising = 100, kIds = 8, kPieces = 400;

// Calls `each` with all strings, but for files in base64, which take_media counts.
template <typename Each>
void for_texts(const Json& value, const Each& each) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (!text.starts_with("data:")) each(text);
  }
  if (value.is_structured())
    for (const auto& [name, part] : value.items())
      if (name != "input_audio" && name != "source") for_texts(part, each);
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
  int64_t bytes = 0, texts = 0;
  for_texts(body, [&](const std::string& text) { bytes += std::ssize(text), ++texts; });
  if (bytes <= static_cast<int64_t>(kLongBody)) return std::nullopt;
  const Served& served = impl_of(*hosted.model);
  const FolderTokenizer* const tokenizer = served.tokenizer;
  int64_t memory = kTokenising * bytes;
  // A prompt that is longer than the context is refused before it becomes tokens, where its bytes tell.
  if (call.route->flags & RouteEntry::kPrompts && tokenizer && tokenizer->longest_token() > 0 &&
      !served.has_encoder()) {
    int64_t spelled = 0;
    for_texts(body, [&](const std::string& text) { spelled += tokenizer->spelled_bytes(text); });
    const int64_t most = served.context_length * tokenizer->longest_token();
    memory = kTokenising * (std::min(spelled, most) + bytes - spelled);
    memory += kIds * std::min(bytes, texts * served.context_length);
  }
  if (call.route->flags & RouteEntry::kShowsTokens && flag_of(body, "with_pieces", false)) memory += kPieces * bytes;
  if (http_->take(call.id, memory)) return std::nullopt;
  return Refusal{
      Refusal::Kind::kBusy, "",
      "no memory is left now (--media-memory) for the tokens of a text of " + std::to_string(bytes) + " bytes"};
}

}  // namespace situ::serve
