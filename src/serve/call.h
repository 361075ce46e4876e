// One request of a client, from its head to its line in the log.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "serve/hosted.h"
#include "serve/http.h"
#include "serve/ignored.h"
#include "serve/protocol.h"

namespace situ::serve {

class Underway;
class Server;
struct Call;

// What can be asked for: the table is in routes.cc.
struct RouteEntry {
  enum Flags {
    kOpen = 1,
    kAtOnce = 2,
    kLoaded = 4,
    kDebug = 8,
    kBelow = 16,
    kEmbeds = 32,
    kLong = 64,
    kSpare = 128,
    kPrompts = 256,
    kShowsTokens = 512
  };
  const char *method, *path;
  // kOpen: without a key; kAtOnce: by the thread of HTTP; kLoaded: not before models are; kBelow: the path goes on;
  // kEmbeds: its texts become tokens beside the prompts of others; kLong: what takes long is given up when the client
  // sends no more; kSpare: it is answered by the connections that are kept for it, too; kPrompts: its texts are
  // prompts, which the context bounds; kShowsTokens: the answer may have the tokens with their texts.
  int flags;
  void (Server::*serve)(Call&);
  const char* what;
};
std::span<const RouteEntry> route_entries();

struct Call : std::enable_shared_from_this<Call> {
  uint64_t id = 0;
  std::string request_id, key, client, salt, method, path, query, origin, body;
  int most_priority = 0;                        // of its key
  const RouteEntry* route = nullptr;            // null: refused before it was known
  const Protocol* protocol = &protocol_of("");  // of its path: what refuses it, and answers it
  std::string allowed;                          // methods of the path, where this is none of them
  Clock::time_point begun = Clock::now();

  bool asked = false;  // its body came, or what was wrong with it; of the thread of HTTP
  // The answer is being made by `answering`; or the call was answered.
  std::atomic<bool> prepared{false};
  std::unique_ptr<Underway> answering;  // of whoever prepares, then of the answers' thread
  bool watches = false;                 // /debug/slots
  std::atomic<bool> gone{false};        // the client sends no more, since gone_at
  Clock::time_point gone_at{};
  std::atomic<bool> streams{false};  // events have begun
  std::atomic<bool> over{false}, whole{false};
  std::atomic<bool> woken{false};    // it waits for the answers' thread
  std::shared_ptr<Call> next_woken;  // who does behind it: waking somebody takes no memory
  bool finished = false;             // the answers' thread has forgotten it

  // The client may have gone, and has not got its answer in the time that one that reads on has.
  bool is_left() const { return gone && Clock::now() - gone_at > std::chrono::seconds(1); }
  Ignored ignored;  // names of the body that change nothing

  // For the log and metrics.
  std::string model, finish;
  int status = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;
  std::optional<double> queue_ms, first_ms;
};

}  // namespace situ::serve
