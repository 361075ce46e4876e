#include "serve/protocol.h"

#include <algorithm>

#include "serve/protocols/messages/messages.h"
#include "serve/protocols/openai/openai.h"

namespace situ::serve {
namespace {

struct Row {
  const char* path;
  const Protocol& (*protocol)();
};
constexpr Row kRows[] = {{"/v1/chat/completions", chat_protocol},
                         {"/v1/completions", completions_protocol},
                         {"/v1/messages", messages_protocol},
                         {"/v1/messages/count_tokens", count_tokens_protocol}};

}  // namespace

std::string Protocol::frame(const Piece& piece) const {
  std::string bytes;
  if (!piece.event.empty()) bytes = "event: " + piece.event + "\n";
  return bytes + "data: " + piece.json + "\n\n";
}

bool Protocol::has_no_effect(std::string_view name) const {
  const std::span<const BodyField* const> all = fields();
  const auto field = std::find_if(all.begin(), all.end(), [&](const BodyField* f) { return name == f->name; });
  return field == all.end() || (*field)->use == BodyField::Use::kAccepted;
}

const Protocol* reading_protocol(std::string_view path) {
  for (const Row& row : kRows)
    if (path == row.path) return &row.protocol();
  return nullptr;
}

const Protocol& protocol_of(std::string_view path) {
  if (!path.starts_with("/v1/"))
    return path.starts_with("/v1") ? chat_protocol() : protocol_of("/v1" + std::string(path));
  if (const Protocol* own = reading_protocol(path)) return *own;
  return path.starts_with("/v1/messages/") ? messages_protocol() : chat_protocol();
}

}  // namespace situ::serve
