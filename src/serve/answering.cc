#include "serve/answering.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace situ::serve {
namespace {

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int64_t tokens_of(const Generation& g) {
  if (g.answers.empty()) return static_cast<int64_t>(g.output_ids.size());
  int64_t tokens = 0;
  for (const Generation::Answer& a : g.answers) tokens += static_cast<int64_t>(a.output_ids.size());
  return tokens;
}

double rate(int64_t tokens, double ms) { return ms > 0 ? static_cast<double>(tokens) * 1000 / ms : 0; }

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

Answering::Answering(Client& client, Call& call, Model& model, Asked asked)
    : client_(client),
      call_(call),
      model_(model),
      asked_(std::move(asked)),
      envelope_{new_id(asked_.route), now_seconds(), asked_.model.empty() ? call.model : asked_.model},
      submitted_(Clock::now()) {}

Answering::~Answering() = default;

OrFault<std::unique_ptr<Answering>> Answering::begin(Client& client, Call& call, Model& model, Asked asked) {
  std::vector<Request> requests = std::move(asked.requests);
  asked.requests.clear();
  for (const Request& r : requests) {  // what is said of prompts later
    Request& kept = asked.requests.emplace_back();
    kept.prompt = Prompt(r.prompt.ids());
    kept.prompt.decoder_ids = r.prompt.decoder_ids;
    kept.options = r.options;
  }
  std::unique_ptr<Answering> answering(new Answering(client, call, model, std::move(asked)));
  for (Request& r : requests) {
    r.interactive = answering->asked_.stream;
    r.client = call.client;
    call.prompt_tokens += static_cast<int64_t>(r.prompt.ids().size());
    Result<Ticket> ticket = model.submit(std::move(r));
    if (!ticket.is_ok()) return fault_of(answering->asked_, ticket.status());
    answering->parts_.push_back({std::move(*ticket), false, std::nullopt, std::nullopt});
  }
  if (answering->asked_.stream) {
    answering->stream_.emplace(model, answering->asked_, answering->envelope_);
    client.begin_events(call);
    answering->sent_ = Clock::now();
  }
  return answering;
}

void Answering::follow() {
  for (Part& p : parts_) p.ticket.on_ready([this] { client_.wake(call_); });
}

void Answering::advance() {
  if (ended_) return;
  for (size_t i = 0; i < parts_.size(); ++i)
    if (!advance(i)) return;
  flush();
  if (ended_) return;
  for (Part& p : parts_)
    if (!p.result) return;
  complete();
}

// False: the whole answer has failed.
bool Answering::advance(size_t i) {
  Part& p = parts_[i];
  if (p.result) return true;
  const auto begin = [&] {
    if (p.begun) return;
    p.begun = true;
    if (stream_)
      for (const Json& chunk : stream_->begin(i)) event(chunk);
  };
  while (const std::optional<Event> token = p.ticket.poll()) {
    if (token->id >= 0) note_token(p);
    begin();
    if (!stream_) continue;
    if (const std::optional<Json> chunk = stream_->token(i, *token)) event(*chunk);
  }
  if (!p.ticket.ended()) return true;
  Result<Generation> result = p.ticket.result();
  if (const std::optional<Fault> fault = fault_of(asked_, result)) {
    fail(*fault);
    return false;
  }
  begin();
  p.result = std::move(*result);
  if (stream_)
    for (Json& chunk : stream_->end(i, *p.result)) last_.push_back(std::move(chunk));
  return true;
}

void Answering::note_token(Part& p) {
  const Clock::time_point now = Clock::now();
  if (!call_.first_ms) {
    call_.first_ms = ms_between(call_.begun, now);
    client_.metrics().observe(Metrics::kFirstToken, call_.model, *call_.first_ms / 1000);
  }
  if (p.last_token) client_.metrics().observe(Metrics::kInterToken, call_.model, ms_between(*p.last_token, now) / 1000);
  p.last_token = now;
}

void Answering::event(const Json& chunk) { pending_ += "data: " + text_of(chunk) + "\n\n"; }

void Answering::flush() {
  if (pending_.empty()) return;
  sent_ = Clock::now();
  if (!client_.send(call_, pending_)) ended_ = true;
  pending_.clear();
}

void Answering::complete() {
  ended_ = true;
  account();
  std::vector<Generation> results;
  const Json times = timings();
  if (!stream_) {
    for (Part& p : parts_) results.push_back(*p.result);
    Json body = answer_body(model_, asked_, envelope_, results);
    body["timings"] = times;
    return client_.respond(call_, 200, body);
  }
  if (asked_.include_usage) last_.push_back(stream_->usage());
  if (!last_.empty()) last_.back()["timings"] = times;
  for (const Json& chunk : last_) event(chunk);
  pending_ += "data: [DONE]\n\n";
  client_.send(call_, pending_);
  client_.end(call_);
}

void Answering::fail(const Fault& fault) {
  if (ended_) return;
  ended_ = true;
  account();
  call_.finish = "error";
  parts_.clear();
  if (!stream_) return client_.respond(call_, fault.status, to_json(fault));
  event(to_json(fault));
  client_.send(call_, pending_);
  client_.end(call_);
}

std::optional<Clock::time_point> Answering::silent_since() const {
  if (!stream_ || ended_) return std::nullopt;
  return sent_;
}

void Answering::ping() {
  pending_ += ": ping\n\n";
  flush();
}

void Answering::account() {
  call_.cached_tokens = call_.answer_tokens = 0;
  for (const Part& p : parts_) {
    if (!p.result) continue;
    call_.cached_tokens += p.result->cached_tokens;
    call_.answer_tokens += tokens_of(*p.result);
    call_.finish = finish_reason_name(p.result->finish_reason);
    const double queued = std::max(0.0, call_.first_ms.value_or(0) - p.result->prefill_ms - p.result->encode_ms -
                                            ms_between(call_.begun, submitted_));
    if (!call_.queue_ms || queued < *call_.queue_ms) call_.queue_ms = queued;
  }
}

// Of the whole answer; rates are of all its choices.
Json Answering::timings() const {
  double prompt_ms = 0, predicted_ms = 0, copied = 0;
  for (const Part& p : parts_) {
    const Generation& g = *p.result;
    const auto tokens = static_cast<double>(g.output_ids.size());
    prompt_ms = std::max(prompt_ms, g.prefill_ms + g.encode_ms);
    predicted_ms = std::max(predicted_ms, g.decode_ms_per_token * std::max(0.0, tokens - 1));
    copied += g.bytes_copied_per_token * tokens;
  }
  const int64_t fed = call_.prompt_tokens - call_.cached_tokens;
  return {{"cache_n", call_.cached_tokens},
          {"prompt_n", fed},
          {"prompt_ms", prompt_ms},
          {"prompt_per_second", rate(fed, prompt_ms)},
          {"predicted_n", call_.answer_tokens},
          {"predicted_ms", predicted_ms},
          {"predicted_per_second", rate(call_.answer_tokens, predicted_ms)},
          {"queue_ms", call_.queue_ms.value_or(0)},
          {"bytes_copied", static_cast<int64_t>(copied + 0.5)}};
}

}  // namespace situ::serve
