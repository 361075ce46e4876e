// The server: listens, routes, answers. What it prints, and signals, are its caller's.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "serve/access.h"
#include "serve/answering.h"
#include "serve/call.h"
#include "serve/call_queue.h"
#include "serve/hosted.h"
#include "serve/http.h"
#include "serve/listen.h"
#include "serve/media_files.h"

namespace situ::serve {

inline constexpr size_t kLongBody = 256 << 10;  // bytes, from which on others do not wait for it

struct ServeOptions {
  std::string host;         // "": 127.0.0.1 and ::1
  std::optional<int> port;  // none: 8080, where there is no Unix socket
  std::string unix_path, api_key_file, media_path;
  std::vector<std::string> allowed_hosts, cors;
  int64_t max_running = 64, queue = 1000;
  int64_t media_memory = int64_t{1} << 30;  // bytes of bodies that are being read and answered
  int64_t memory = 0;                       // of all models, as LoadOptions::memory of one
  bool json_log = false, insecure = false;
  bool strict = false;                               // names that no body knows are refused
  PrefixReuse prefix_cache = PrefixReuse::kPrompts;  // of all requests
  bool share_prefixes = false;                       // between keys
  Limits limits;
  std::function<void(const std::string&)> log;  // a line a request; by one thread
  // The page of /debug/placement.
  std::function<Result<std::string>(Model&)> placement;
};

class Server final : HttpHandler, Client {
 public:
  // It listens from here on. Error kInvalidArgument: options that do not go together, the key file; others: an address
  // that cannot be had.
  static Result<std::unique_ptr<Server>> start(ServeOptions options, HostedModels models);
  ~Server();

  const std::vector<std::string>& where() const { return where_; }
  // Loads the models, after which calls are answered. Error: names the file.
  Status load();
  Status read_keys() { return options_.api_key_file.empty() ? Status::ok() : keys_.read(options_.api_key_file); }
  // No new connections; new requests on those that there are get 503.
  void stop();
  // After stop(): whether all is answered, within so long at most.
  bool drain(std::chrono::milliseconds limit);
  // What is still being answered ends with an error.
  void cut();

  // -- routes
  void live(Call& call);
  void ready(Call& call);
  void list_models(Call& call);
  void show_model(Call& call);
  void answer(Call& call);  // by the protocol of the path
  void count_tokens(Call& call);
  void tokenize(Call& call);
  void detokenize(Call& call);
  void apply_template(Call& call);
  void embeddings(Call& call);
  void show_metrics(Call& call);
  void describe(Call& call);
  void slots(Call& call);
  void placement(Call& call);

 private:
  Server(ServeOptions options, HostedModels models);
  Result<std::vector<int>> listen();

  // -- the thread of HTTP
  bool on_head(uint64_t id, const Head& head, HttpFault refusal) override;
  void on_request(uint64_t id, std::string_view body, HttpFault refusal) override;
  std::string on_broken(HttpFault fault, std::string_view path) override;
  void on_gone(uint64_t id) noexcept override;
  void on_over(uint64_t id, bool whole) noexcept override;
  // Why the call is refused before its body is read; or it was answered by `answered`.
  std::optional<Refusal> refuse(Call& call, const Head& head, bool& answered);
  const RouteEntry* find_route(Call& call, Refusal& refusal) const;
  // Who asks, where keys are wanted: of the call, by its headers. Refusal: no key, or none that is known.
  std::optional<Refusal> check_key(Call& call, const Head& head) const;
  // An answer to a page of another origin, or to what a browser asks before it; true: it was that. Refusal: it may not.
  OrRefusal<bool> check_origin(Call& call, const Head& head);
  // False: as many wait as may.
  bool to_be_prepared(const std::shared_ptr<Call>& call, std::string_view body);
  std::shared_ptr<Call> call_of(uint64_t id);

  // -- threads that prepare
  struct Queue {
    std::condition_variable changed;
    CallQueue calls;
    int64_t preparing = 0;  // those that wait, and those that its threads have
  };
  void prepare_calls(Queue& queue);
  // What a body asks for, and of which model.
  struct Understood {
    Hosted& hosted;
    Ask ask;
    std::vector<Request> requests;
  };
  static const Refusal kQueueIsFull;
  OrRefusal<Understood> understand(Call& call, bool waits);  // `waits`: in the queue of the model
  bool is_busy(const Hosted& hosted);
  // That the call's body names, with memory of their own.
  MediaFiles files_of(const Call& call);
  // Memory for what images and sounds of a conversation become; why there is none.
  std::optional<Refusal> take_media(Call& call, const Ask& ask);
  // The same for the tokens of its texts.
  std::optional<Refusal> take_texts(Call& call, const Json& body, const Hosted& hosted);
  // A small body with its model; null: it was refused.
  Hosted* small_call(Call& call, Json& body, HostedModels::Use use);

  // -- the answers' thread
  void advance_calls();
  void advance(Call& call);
  void tick();
  void abort_left();
  void finish(Call& call);
  struct Finished;  // counts a call as finished when it goes
  std::string line_of(const Call& call) const;
  std::string note_of(const std::string& model, const std::string& note) const;  // a line of the log, of no call
  std::string slots_event();

  // -- any thread
  // The client of a call that is prepared sends no more.
  void leave(Call& call) noexcept;
  // What `work` does for a call, which is lost where it throws.
  template <typename Work>
  void for_call(Call& call, const Work& work) noexcept;
  Headers headers_of(const Call& call, const char* type) const;
  void respond(Call& call, int status, const Json& body) override;
  void respond_json(Call& call, int status, std::string_view body) override;
  void respond_text(Call& call, int status, const char* type, std::string_view text, Headers more = {});
  // The answer of a small body, with the names that were ignored.
  void respond_small(Call& call, Json body);
  void refuse_call(Call& call, const Refusal& refusal) override;
  bool begin_events(Call& call) override;
  bool send(Call& call, std::string_view bytes) override;
  void end(Call& call) override { http_->end(call.id); }
  void wake(Call& call) noexcept override;
  Metrics& metrics() override { return metrics_; }

  ServeOptions options_;
  HostedModels models_;
  Keys keys_;
  Metrics metrics_;
  std::vector<std::string> where_;
  std::atomic<bool> loaded_{false}, stopping_{false}, cutting_{false};

  std::mutex calls_mutex_;
  std::map<uint64_t, std::shared_ptr<Call>> calls_;

  std::mutex prepare_mutex_;
  Queue to_prepare_, texts_, long_, pages_;
  bool prepare_ends_ = false;

  std::mutex answers_mutex_;
  std::condition_variable answers_changed_;
  std::shared_ptr<Call> first_woken_;
  Call* last_woken_ = nullptr;
  bool answers_end_ = false;
  int64_t unfinished_ = 0;                                       // calls that are not in the log
  std::map<uint64_t, std::shared_ptr<Call>> active_, watching_;  // of the answers' thread; the second: /debug/slots
  std::map<uint64_t, std::shared_ptr<Call>> leaving_;            // whose clients send no more; of the same thread
  std::string shown_slots_;

  std::unique_ptr<Http> http_;  // from start() on, for as long as there are threads
  std::vector<std::thread> threads_;
};

}  // namespace situ::serve
