#include "serve/server.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/one_line.h"
#include "base/random_number.h"
#include "base/utc_time.h"
#include "pipelines/llm.h"
#include "serve/route_path.h"
#include "text/json_file.h"
#include "text/stop.h"
#include "text/tokenizer.h"

namespace situ::serve {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr const char* kJson = "application/json";
constexpr const char* kRetrySeconds = "1";

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 64 && std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  });
}

std::string new_request_id() {
  char text[32];
  std::snprintf(text, sizeof(text), "req_%016llx", static_cast<unsigned long long>(random_number()));
  return text;
}

using Kind = Refusal::Kind;
const Refusal kStopping{Kind::kStopping, "", "the server is stopping"};

Refusal broken_http(const HttpFault& broken) { return {Kind::kHttp, "", std::string(broken.reason), broken.status}; }

bool is_blank(std::string_view body) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (body.starts_with(kMark)) body.remove_prefix(kMark.size());
  return body.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// An exception, for want of memory, ended what was done for it.
void note_lost(Call& call) {
  call.status = 500;
  call.finish = "error";
}

}  // namespace

Server::Server(ServeOptions options, HostedModels models) : options_(std::move(options)), models_(std::move(models)) {}

Result<std::vector<int>> Server::listen() {
  std::vector<int> sockets;
  const auto take = [&](Result<Listening> listening) {
    if (!listening.is_ok()) return listening.status();
    sockets.insert(sockets.end(), listening->sockets.begin(), listening->sockets.end());
    where_.push_back(listening->where);
    return Status::ok();
  };
  const bool tcp = options_.port || options_.unix_path.empty();
  const bool own = options_.host.empty() || options_.host == "localhost" || is_loopback(options_.host);
  if (tcp && !options_.insecure && options_.api_key_file.empty() && !own)
    return Status::error(Code::kInvalidArgument,
                         "--host " + options_.host +
                             " lets other machines in: it wants --api-key-file, or --insecure where that is meant");
  if (tcp) SITU_RETURN_IF_ERROR(take(listen_tcp(options_.host, options_.port.value_or(8080))));
  if (!options_.unix_path.empty()) SITU_RETURN_IF_ERROR(take(listen_unix(options_.unix_path)));
  return sockets;
}

Result<std::unique_ptr<Server>> Server::start(ServeOptions options, HostedModels models) {
  std::unique_ptr<Server> server(new Server(std::move(options), std::move(models)));
  SITU_RETURN_IF_ERROR(server->read_keys());
  const std::string& media = server->options_.media_path;
  if (std::error_code none; !media.empty() && !std::filesystem::is_directory(media, none))
    return Status::error(Code::kInvalidArgument, "--media-path " + media + " is no folder");
  Result<std::vector<int>> sockets = server->listen();
  if (!sockets.is_ok()) return sockets.status();
  Server* s = server.get();
  {
    const std::lock_guard held(s->calls_mutex_);  // the first head, which may be here at once, waits for http_
    Result<std::unique_ptr<Http>> http = Http::start(*s, s->options_.limits, s->options_.media_memory, *sockets);
    if (!http.is_ok()) return http.status();
    s->http_ = std::move(*http);
  }
  s->threads_.emplace_back([s] { s->advance_calls(); });
  // Two at least: one that makes a large grammar keeps nobody waiting.
  const unsigned preparing = std::clamp(std::thread::hardware_concurrency() / 2, 2u, 4u);
  for (unsigned i = 0; i < preparing; ++i) s->threads_.emplace_back([s] { s->prepare_calls(s->to_prepare_); });
  for (Queue* queue : {&s->texts_, &s->texts_, &s->long_, &s->pages_})
    s->threads_.emplace_back([s, queue] { s->prepare_calls(*queue); });
  return server;
}

Server::~Server() {
  if (http_) http_->finish();  // all calls are over; threads that still prepare one, or answer it, may say so
  {
    const std::lock_guard held(prepare_mutex_);
    prepare_ends_ = true;
    for (Queue* queue : {&to_prepare_, &texts_, &long_, &pages_}) queue->changed.notify_all();
  }
  {
    const std::lock_guard held(answers_mutex_);
    answers_end_ = true;
  }
  answers_changed_.notify_all();
  for (std::thread& t : threads_) t.join();
}

Status Server::load() {
  int64_t memory = options_.memory;
  auto left = static_cast<int64_t>(models_.all().size());
  for (Hosted& h : models_.all()) {
    LoadOptions load = h.source.load;
    if (options_.memory > 0) load.memory = std::max<int64_t>(1, memory / left);
    Result<Model> model = Model::load(h.source.path, load);
    if (!model.is_ok()) return model.status();
    const ModelFacts facts = model->facts();
    memory -= facts.weight_bytes + facts.computed_bytes + facts.arena_bytes + facts.slots * facts.state_bytes_per_token;
    --left;
    h.model = std::make_unique<Model>(std::move(*model));
    h.created = now_seconds();
    Served& served = impl_of(*h.model);
    served.queue_limit = options_.queue;
    served.running_limit = options_.max_running;
  }
  for (const Hosted& h : models_.all())
    if (const ModelForm* const form = impl_of(*h.model).texts->form(); form && options_.log)  // nobody waits for it yet
      for (const std::string& what : form->form.dropped)
        options_.log(note_of(h.name, "of an answer in a conversation the chat template leaves out " + what));
  loaded_ = true;
  for (Hosted& h : models_.all())
    if (InPlaceEngine* const engine = impl_of(*h.model).in_place.get()) engine->warm();
  return Status::ok();
}

void Server::stop() {
  stopping_ = true;
  http_->stop();
  answers_changed_.notify_all();
}

bool Server::drain(std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  {
    std::unique_lock held(answers_mutex_);
    if (!answers_changed_.wait_until(held, end, [&] { return unfinished_ == 0; })) return false;
  }
  return http_->wait(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::max(end - Clock::now(), Clock::duration{})));
}

void Server::cut() {
  cutting_ = true;
  answers_changed_.notify_all();
  constexpr auto kPatience = std::chrono::milliseconds(500);  // for the last bytes to go out
  drain(kPatience);
}

// -- the thread of HTTP

std::shared_ptr<Call> Server::call_of(uint64_t id) {
  const std::lock_guard held(calls_mutex_);
  const auto found = calls_.find(id);
  return found == calls_.end() ? nullptr : found->second;
}

const RouteEntry* Server::find_route(Call& call, Refusal& refusal) const {
  const std::string plain = plain_path(call.path);
  for (const std::string& path : {plain, "/v1" + plain}) {
    for (const RouteEntry& r : route_entries()) {
      if (r.flags & RouteEntry::kBelow ? !path.starts_with(r.path) : path != r.path) continue;
      const bool get = std::string_view(r.method) == "GET";
      if (call.method == r.method || (call.method == "HEAD" && get)) {
        call.path = path;
        call.protocol = &protocol_of(path);
        return &r;
      }
      call.allowed += (call.allowed.empty() ? "" : ", ") + std::string(get ? "GET, HEAD" : r.method);
    }
    if (call.allowed.empty()) continue;
    refusal = {Kind::kMethod, "", "this path takes " + call.allowed};
    return nullptr;
  }
  refusal = {Kind::kNoPath, "",
             "there is no path " + one_line(call.path.substr(0, 100)) + "; the nearest is " + nearest_route(plain) +
                 ", and GET /openapi.json has all"};
  return nullptr;
}

OrRefusal<bool> Server::check_origin(Call& call, const Head& head) {
  const std::string origin(head.header("origin"));
  if (origin.empty()) return false;
  const bool allowed = is_allowed_origin(origin, options_.cors);
  if (!allowed && !is_own_origin(origin, head.header("host")))
    return Refusal{Kind::kForbidden, "", "pages of this Origin may not ask here; --cors allows one"};
  if (allowed) call.origin = origin;
  if (call.method != "OPTIONS" || head.header("access-control-request-method").empty()) return false;
  const std::string wanted(head.header("access-control-request-headers"));
  respond_text(
      call, 204, "", "",
      {{"access-control-allow-methods", "GET, POST"},
       {"access-control-allow-headers", wanted.empty() ? "authorization, content-type, x-api-key, api-key" : wanted},
       {"access-control-max-age", "600"}});
  return true;
}

std::optional<Refusal> Server::check_key(Call& call, const Head& head) const {
  bool shown = false;
  for (const std::string_view key :
       {bearer_of(head.header("authorization")), head.header("x-api-key"), head.header("api-key")}) {
    if (key.empty()) continue;
    shown = true;
    const std::optional<KeyHolder> holder = keys_.holder_of(key);
    if (!holder) continue;
    call.key = holder->name;
    call.client = "key:" + holder->name;
    call.most_priority = holder->most_priority;
    if (!options_.share_prefixes) call.salt = holder->salt;
    return std::nullopt;
  }
  return Refusal{Kind::kKey, "", shown ? "this key is not known" : "a key is wanted"};
}

std::optional<Refusal> Server::refuse(Call& call, const Head& head, bool& answered) {
  const bool by_unix = head.peer().empty(), keys = keys_.any();
  // Where there are keys the name does not matter: a page that was led here by its name server has none.
  if (!by_unix && !keys && !is_own_host(head.header("host"), options_.allowed_hosts))
    return Refusal{Kind::kHost, "", "this server does not go by that name in Host; --allowed-host adds it"};
  const OrRefusal<bool> origin = check_origin(call, head);
  if (const Refusal* f = std::get_if<Refusal>(&origin)) return *f;
  answered = std::get<bool>(origin);
  if (answered) return std::nullopt;
  Refusal none;
  const RouteEntry* route = find_route(call, none);
  const bool open = route && route->flags & RouteEntry::kOpen;
  if (keys && !open)
    if (std::optional<Refusal> unknown = check_key(call, head)) return unknown;
  if (!route) return none;
  call.route = route;
  if (head.full() && !(route->flags & RouteEntry::kSpare))
    return Refusal{Kind::kBusy, "", "as many connections have a request as may (connections)"};
  if (route->flags & RouteEntry::kDebug && !keys && !by_unix && !is_loopback(std::string(head.peer())))
    return Refusal{Kind::kForbidden, "", "without keys this path answers on the machine itself only"};
  if (stopping_ && !open) return kStopping;
  if (!loaded_ && route->flags & RouteEntry::kLoaded) return Refusal{Kind::kLoading, "", "the models are being loaded"};
  return std::nullopt;
}

bool Server::on_head(uint64_t id, const Head& head, HttpFault broken) {
  auto call = std::make_shared<Call>();
  call->id = id;
  call->method = head.method();
  call->path = head.path();
  call->protocol = &protocol_of(plain_path(call->path));
  call->query = head.query();
  // Behind a proxy on this machine all have one address.
  const std::string peer(head.peer());
  call->client = peer.empty() || is_loopback(peer) ? "connection:" + std::to_string(head.connection()) : "peer:" + peer;
  const std::string_view wanted = head.header("x-request-id");
  call->request_id = is_request_id(wanted) ? std::string(wanted) : new_request_id();
  {
    const std::lock_guard held(calls_mutex_);
    calls_.emplace(id, call);
  }
  {
    const std::lock_guard held(answers_mutex_);
    ++unfinished_;
  }
  try {
    bool answered = false;
    std::optional<Refusal> refused;
    if (broken.status != 0)
      refused = broken_http(broken);
    else
      refused = refuse(*call, head, answered);
    if (refused) refuse_call(*call, *refused);
    call->prepared = refused || answered;
  } catch (...) {
    note_lost(*call);
    call->prepared = true;
    throw;
  }
  return !call->prepared;
}

bool Server::to_be_prepared(const std::shared_ptr<Call>& call, std::string_view body) {
  call->body = body;
  const int flags = call->route->flags;
  Queue& queue = flags & RouteEntry::kDebug    ? pages_
                 : body.size() > kLongBody     ? long_
                 : flags & RouteEntry::kEmbeds ? texts_
                                               : to_prepare_;
  const std::lock_guard held(prepare_mutex_);
  if (queue.preparing >= options_.limits.preparing) return false;
  queue.calls.push(call);
  ++queue.preparing;
  queue.changed.notify_one();
  return true;
}

void Server::on_request(uint64_t id, std::string_view body, HttpFault broken) {
  const std::shared_ptr<Call> call = call_of(id);
  if (!call) return;
  call->asked = true;
  try {
    if (broken.status != 0)
      refuse_call(*call, broken_http(broken));
    else if (std::string_view(call->route->method) == "POST" && is_blank(body))
      refuse_call(*call, {Kind::kEmpty, "",
                          body.empty() ? "the body is empty: the request came without one"
                                       : "the body is empty: there is white space alone in it"});
    else if (call->route->flags & RouteEntry::kAtOnce)
      (this->*call->route->serve)(*call);
    else if (to_be_prepared(call, body))
      return;
    else
      refuse_call(*call, {Kind::kBusy, "", "too many requests are being read (preparing)"});
    call->prepared = true;
    wake(*call);
  } catch (...) {
    note_lost(*call);
    call->prepared = true;
    throw;
  }
}

std::string Server::on_broken(HttpFault fault, std::string_view path) {
  auto call = std::make_shared<Call>();
  call->protocol = &protocol_of(plain_path(path));
  call->request_id = new_request_id();
  call->status = fault.status;
  const std::string body = call->protocol->error(broken_http(fault), call->request_id).json;
  std::string rest;
  for (const auto& [name, value] : headers_of(*call, "")) rest += name + ": " + value + "\r\n";
  rest += "content-length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  call->finish = "refused";
  call->prepared = call->whole = call->over = true;
  {
    const std::lock_guard held(answers_mutex_);
    ++unfinished_;
  }
  wake(*call);
  return rest;
}

void Server::on_gone(uint64_t id) noexcept {
  const std::shared_ptr<Call> call = call_of(id);
  if (!call || !call->route || !(call->route->flags & RouteEntry::kLong)) return;
  call->gone_at = Clock::now();
  call->gone = true;
  if (call->prepared) leave(*call);  // else whoever prepares it does
  wake(*call);
}

void Server::on_over(uint64_t id, bool whole) noexcept {
  std::shared_ptr<Call> call;
  {
    const std::lock_guard held(calls_mutex_);
    const auto found = calls_.find(id);
    if (found == calls_.end()) return;
    call = std::move(found->second);
    calls_.erase(found);
  }
  if (!call->asked) call->prepared = true;
  call->whole = whole;
  call->over = true;
  wake(*call);
}

// -- threads that prepare

void Server::prepare_calls(Queue& queue) {
  while (true) {
    std::shared_ptr<Call> call;
    {
      std::unique_lock held(prepare_mutex_);
      queue.changed.wait(held, [&] { return prepare_ends_ || !queue.calls.empty(); });
      if (queue.calls.empty()) return;
      call = queue.calls.pop();
    }
    bool done = call->over;
    const StopOfThread stop(&call->over);  // tokenizers end when nobody waits any more
    for_call(*call, [&] {
      if (!done) (this->*call->route->serve)(*call);
      done = true;
    });
    if (!done) call->answering.reset();  // cancels
    call->body = {};
    call->prepared = true;
    if (call->gone) leave(*call);
    wake(*call);
    const std::lock_guard held(prepare_mutex_);
    --queue.preparing;
  }
}

template <typename Work>
void Server::for_call(Call& call, const Work& work) noexcept {
  try {
    return work();
  } catch (...) {
  }
  const bool begun = call.status != 0;
  note_lost(call);
  try {
    if (!begun) return refuse_call(call, {Kind::kServer, "", "an error of the server, or it has no memory"});
  } catch (...) {
  }
  http_->abort(call.id);
}

// A client that went resets the connection when something comes, which ends the exchange; one that reads on does not.
// Before the first byte of an answer nothing can be sent: it is given up when it takes long (abort_left).
void Server::leave(Call& call) noexcept {
  if (call.streams) http_->write(call.id, ": ping\n");
}

// -- the answers' thread

void Server::wake(Call& call) noexcept {
  if (call.woken.exchange(true)) return;
  std::shared_ptr<Call> held_call = call.weak_from_this().lock();
  if (!held_call) return;
  {
    const std::lock_guard held(answers_mutex_);
    (first_woken_ ? last_woken_->next_woken : first_woken_) = std::move(held_call);
    last_woken_ = &call;
  }
  answers_changed_.notify_all();
}

void Server::advance_calls() {
  bool cut = false;
  Clock::time_point next_tick = Clock::now() + kTick;
  while (true) {
    std::shared_ptr<Call> woken;
    {
      std::unique_lock held(answers_mutex_);
      const auto due = [&] {
        return answers_end_ || first_woken_ || (cutting_ && !cut) || (stopping_ && !watching_.empty());
      };
      if (active_.empty() && watching_.empty() && leaving_.empty())
        answers_changed_.wait(held, due);
      else
        answers_changed_.wait_until(held, next_tick, due);
      if (answers_end_ && !first_woken_) break;
      woken = std::move(first_woken_);
    }
    while (woken) {
      const std::shared_ptr<Call> call = std::move(woken);
      woken = std::move(call->next_woken);
      call->woken = false;  // from here on it may be woken again
      bool done = false;
      for_call(*call, [&] {
        advance(*call);
        done = true;
      });
      if (!done && call->answering) call->answering->give_up();  // a later token must not answer once more
    }
    if (cutting_ && !cut) {
      cut = true;
      for (const auto& [id, call] : active_) for_call(*call, [&, c = call.get()] { c->answering->fail(kStopping); });
    }
    if (stopping_) {
      for (const auto& [id, call] : watching_) http_->end(id);
      watching_.clear();
    }
    if (Clock::now() >= next_tick) {
      next_tick = Clock::now() + kTick;
      try {
        tick();
      } catch (const std::exception&) {  // no memory: the next one does what this one does not
      }
    }
  }
  active_.clear();
  watching_.clear();
  leaving_.clear();
}

void Server::advance(Call& call) {
  if (call.gone && !call.over) leaving_.emplace(call.id, call.shared_from_this());  // it may still be prepared
  if (!call.prepared || call.finished) return;
  if (call.over) return finish(call);
  if (call.watches) {
    watching_.emplace(call.id, call.shared_from_this());
    shown_slots_.clear();  // all are told anew
  }
  if (!call.answering) return;
  active_.emplace(call.id, call.shared_from_this());
  if (cutting_) call.answering->fail(kStopping);
  call.answering->advance();
}

// The end of the exchange ends what is prepared or computed for it.
void Server::abort_left() {
  std::erase_if(leaving_, [&](const auto& one) {
    const Call& call = *one.second;
    const bool left = !call.streams && call.is_left();
    if (left) http_->abort(one.first);
    return left || call.streams || call.over;
  });
}

void Server::tick() {
  abort_left();
  for (const auto& [id, call] : active_) {
    const std::chrono::seconds patience(call->protocol->ping_seconds(options_.limits.ping_seconds));
    if (const auto since = call->answering->silent_since(); since && Clock::now() - *since > patience)
      call->answering->ping();
  }
  if (watching_.empty()) return;
  const std::string event = slots_event();
  if (event.empty() || event == shown_slots_) return;
  shown_slots_ = event;
  for (const auto& [id, call] : watching_) send(*call, event);
}

struct Server::Finished {
  Server& server;
  ~Finished() {
    const std::lock_guard held(server.answers_mutex_);
    --server.unfinished_;
    server.answers_changed_.notify_all();
  }
};

void Server::finish(Call& call) {
  call.finished = true;
  const Finished counted{*this};  // whatever there is no memory for
  active_.erase(call.id);
  watching_.erase(call.id);
  leaving_.erase(call.id);
  if (const std::unique_ptr<Underway> answering = std::move(call.answering)) {  // which cancels when it goes
    if (!answering->ended()) answering->account();
  }
  if (!call.whole && call.status != 500) {
    call.finish = "cancelled";
    if (call.status == 0) call.status = 499;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - call.begun).count();
  metrics_.count(call.model, call.route ? call.route->path : "", call.status);
  if (call.first_ms) {
    metrics_.observe(Metrics::kRequest, call.model, seconds);
    metrics_.observe(Metrics::kQueue, call.model, call.queue_ms.value_or(0) / 1000);
    metrics_.observe(Metrics::kPromptLength, call.model, static_cast<double>(call.prompt_tokens));
    metrics_.observe(Metrics::kAnswerLength, call.model, static_cast<double>(call.answer_tokens));
  }
  if (options_.log) options_.log(line_of(call));
}

std::string Server::note_of(const std::string& model, const std::string& note) const {
  if (!options_.json_log) return one_line(utc_time() + " model=" + model + " note: " + note);
  return json_text(Json{{"time", utc_time()}, {"model", model}, {"note", note}});
}

std::string Server::line_of(const Call& call) const {
  const auto rounded = [](double value) { return std::round(value * 10) / 10; };
  const std::pair<const char*, Json> fields[] = {
      // no object: see text_of
      {"time", utc_time()},
      {"id", call.request_id},
      {"key", call.key},
      {"method", call.method},
      {"route", call.route ? call.route->path : call.path},
      {"model", call.model},
      {"status", call.status},
      {"finish", call.finish},
      {"prompt", call.prompt_tokens},
      {"cached", call.cached_tokens},
      {"answer", call.answer_tokens},
      {"queue_ms", rounded(call.queue_ms.value_or(0))},
      {"first_ms", rounded(call.first_ms.value_or(0))},
      {"total_ms", rounded(std::chrono::duration<double, std::milli>(Clock::now() - call.begun).count())}};
  std::string line;
  for (const auto& [name, value] : fields) {
    if (options_.json_log) {
      line += (line.empty() ? "{\"" : ",\"") + std::string(name) +
              "\":" + value.dump(-1, ' ', true, Json::error_handler_t::replace);
      continue;
    }
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    line += line.empty() ? text : " " + std::string(name) + "=" + (text.empty() ? "-" : text);
  }
  if (options_.json_log) return line + "}";
  return one_line(line);
}

// -- any thread

Headers Server::headers_of(const Call& call, const char* type) const {
  Headers headers{{"x-request-id", call.request_id}};
  if (const std::string_view own = call.protocol->request_id_header(); own != "x-request-id")
    headers.emplace_back(own, call.request_id);
  if (call.ignored.any()) headers.emplace_back("x-situ-ignored", call.ignored.header());
  if (*type) headers.emplace_back("content-type", type);
  if (!call.origin.empty()) {
    headers.emplace_back("access-control-allow-origin", call.origin);
    headers.emplace_back("access-control-expose-headers", "x-request-id, x-situ-ignored, retry-after");
    headers.emplace_back("vary", "origin");
  }
  return headers;
}

void Server::respond_text(Call& call, int status, const char* type, std::string_view text, Headers more) {
  Headers headers = headers_of(call, type);
  headers.insert(headers.end(), more.begin(), more.end());
  if (http_->respond(call.id, status, headers, text, stopping_)) call.status = status;
}

void Server::respond(Call& call, int status, const Json& body) { respond_json(call, status, json_text(body)); }

void Server::respond_json(Call& call, int status, std::string_view body) {
  Headers more;
  if (status == 429 || status == 503 || status == 529) more.emplace_back("retry-after", kRetrySeconds);
  if (status == 405) more.emplace_back("allow", call.allowed);
  if (status == 401) more.emplace_back("www-authenticate", "Bearer");
  respond_text(call, status, kJson, body, std::move(more));
}

void Server::refuse_call(Call& call, const Refusal& refusal) {
  if (call.finish.empty()) call.finish = "refused";
  const ErrorText error = call.protocol->error(refusal, call.request_id);
  respond_json(call, error.status, error.json);
}

bool Server::begin_events(Call& call) {
  Headers headers = headers_of(call, "text/event-stream");
  headers.emplace_back("cache-control", "no-cache");
  headers.emplace_back("x-accel-buffering", "no");
  call.streams = true;
  const bool begun = http_->begin(call.id, 200, headers);
  if (begun) call.status = 200;
  return begun;
}

bool Server::send(Call& call, std::string_view bytes) {
  const int64_t waiting = http_->write(call.id, bytes);
  if (waiting > options_.limits.unread_bytes) http_->abort(call.id);
  return waiting >= 0 && waiting <= options_.limits.unread_bytes;
}

}  // namespace situ::serve
