#include "serve/limits.h"

#include <charconv>

namespace situ::serve {

std::span<const LimitEntry> limit_entries() {
  constexpr int64_t kMost = int64_t{1} << 40, kDay = 86400;
  static const LimitEntry entries[] = {
      {"header-bytes", &Limits::header_bytes, 1024, 1 << 20, "bytes of a request's first line and header: 431"},
      {"headers", &Limits::headers, 8, 1000, "fields of a header: 431"},
      {"body-bytes", &Limits::body_bytes, 1, int64_t{1} << 31,
       "bytes of a body: 413; of a file below `--media-path`: 400"},
      {"connections", &Limits::connections, 1, 1 << 16,
       "connections at once: the oldest without a request is closed for a new one, else that waits. Of these 16 (where "
       "there are fewer than 128: an eighth) are kept for `/health` and `/metrics`: other calls get 429"},
      {"header-seconds", &Limits::header_seconds, 1, kDay, "seconds for a header: the connection is closed"},
      {"idle-seconds", &Limits::idle_seconds, 1, kDay,
       "seconds between an answer and the next request of a connection: it is closed"},
      {"body-seconds", &Limits::body_seconds, 1, kDay, "seconds for a body: 408"},
      {"write-seconds", &Limits::write_seconds, 1, kDay,
       "seconds in which a client takes no byte of an answer: the connection is closed, the answer cancelled"},
      {"least-write-rate", &Limits::least_write_rate, 0, 1 << 30,
       "bytes a second that a client takes while bytes wait for it, fewer over `write-seconds`: the same"},
      {"unread-bytes", &Limits::unread_bytes, 1024, kMost,
       "bytes of a stream that wait for a client that does not read: the same"},
      {"preparing", &Limits::preparing, 1, 1 << 16,
       "requests that are being read or wait to be, of each kind (embeddings; bodies above 256 KiB; others): 429"},
      {"ping-seconds", &Limits::ping_seconds, 1, kDay, "seconds of silence in a stream: a comment is sent"},
      {"json-depth", &Limits::json_depth, 4, 100, "lists and objects in each other, in a body: 400"},
      {"messages", &Limits::messages, 1, 1 << 20, "messages of a conversation: 400"},
      {"texts", &Limits::texts, 1, 1 << 20, "prompts or inputs of a request: 400"},
      {"choices", &Limits::choices, 1, 256, "answers to a prompt (`n`), and beams (`num_beams`): 400"},
      {"stops", &Limits::stops, 1, 1 << 16, "stop texts: 400"},
      {"stop-bytes", &Limits::stop_bytes, 1, 1 << 20, "bytes of a stop text: 400"},
      {"token-rules", &Limits::token_rules, 1, 1 << 20, "tokens in `logit_bias` or `stop_token_ids`: 400"},
      {"grammar-bytes", &Limits::grammar_bytes, 1, 1 << 26,
       "bytes of a JSON schema, regular expression or grammar: 400"},
      {"images", &Limits::images, 0, 1 << 16, "images of a request: 400"},
      {"image-pixels", &Limits::image_pixels, 1, 1 << 30, "pixels of an image, width times height: 400"},
      {"sound-bytes", &Limits::sound_bytes, 1, int64_t{1} << 31, "bytes of a sound's file: 400"},
      {"sound-seconds", &Limits::sound_seconds, 1, kDay, "seconds of a sound: 400"},
  };
  return entries;
}

Status set_limit(Limits& limits, const std::string& name, const std::string& value) {
  std::string names;
  for (const LimitEntry& entry : limit_entries()) {
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
    if (name != entry.name) continue;
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < entry.least || number > entry.most)
      return Status::error(Code::kInvalidArgument, "limit " + name + " should be an integer from " +
                                                       std::to_string(entry.least) + " to " +
                                                       std::to_string(entry.most) + ", is '" + value + "'");
    limits.*entry.value = number;
    return Status::ok();
  }
  return Status::error(Code::kInvalidArgument, "there is no limit '" + name + "'; there are " + names);
}

}  // namespace situ::serve
