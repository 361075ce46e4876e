#include "serve/answering.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace situ::serve {
namespace {

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

int64_t tokens_of(const Generation& g) {
  if (g.answers.empty()) return static_cast<int64_t>(g.output_ids.size());
  int64_t tokens = 0;
  for (const Generation::Answer& a : g.answers) tokens += static_cast<int64_t>(a.output_ids.size());
  return tokens;
}

double rate(int64_t tokens, double ms) { return ms > 0 ? static_cast<double>(tokens) * 1000 / ms : 0; }

}  // namespace

Answering::Answering(Client& client, Call& call, std::unique_ptr<BodyAnswer> answer)
    : client_(client), call_(call), answer_(std::move(answer)), submitted_(Clock::now()) {
  last_tokens_.resize(answer_->ask().prompts.size() * static_cast<size_t>(answer_->ask().choices));
}

Answering::~Answering() = default;

OrRefusal<std::unique_ptr<Answering>> Answering::begin(Client& client, Call& call, Model& model, Ask ask,
                                                       std::vector<Request> requests) {
  const Protocol& protocol = *call.protocol;
  Envelope envelope{protocol.new_id(), now_seconds(), ask.model.empty() ? call.model : ask.model};
  envelope.request_id = call.request_id;
  envelope.fingerprint = fingerprint_of(model);
  for (const Ask::Asked& prompt : ask.prompts) call.prompt_tokens += prompt.tokens;
  const bool stream = ask.stream;
  for (Request& r : requests) {
    r.interactive = stream;
    r.client = call.client;
  }
  OrRefusal<std::unique_ptr<BodyAnswer>> begun =
      BodyAnswer::begin(model, protocol, std::move(ask), std::move(requests), std::move(envelope));
  if (Refusal* f = std::get_if<Refusal>(&begun)) return std::move(*f);
  std::unique_ptr<Answering> answering(
      new Answering(client, call, std::move(std::get<std::unique_ptr<BodyAnswer>>(begun))));
  if (stream) {
    client.begin_events(call);
    answering->sent_ = Clock::now();
    answering->add(answering->answer_->first_pieces());
    answering->flush();
  }
  return answering;
}

void Answering::follow() {
  answer_->on_ready([this] { client_.wake(call_); });
}

void Answering::advance() {
  if (ended_) return;
  std::vector<Piece> pieces;
  const std::optional<Refusal> refusal = answer_->advance([&](size_t choice) { note_token(choice); }, pieces);
  add(pieces);
  if (refusal) return fail(*refusal);
  flush();
  if (!ended_ && answer_->over()) complete();
}

void Answering::note_token(size_t choice) {
  const Clock::time_point now = Clock::now();
  std::optional<Clock::time_point>& last = last_tokens_[choice];
  if (!call_.first_ms) {
    call_.first_ms = ms_between(call_.begun, now);
    client_.metrics().observe(Metrics::kFirstToken, call_.model, *call_.first_ms / 1000);
  }
  if (last) client_.metrics().observe(Metrics::kInterToken, call_.model, ms_between(*last, now) / 1000);
  last = now;
}

void Answering::add(const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) pending_ += answer_->protocol().frame(piece);
}

void Answering::flush() {
  if (pending_.empty()) return;
  sent_ = Clock::now();
  if (!client_.send(call_, pending_)) ended_ = true;
  pending_.clear();
}

void Answering::complete() {
  ended_ = true;
  account();
  if (!streams()) return client_.respond(call_, 200, answer_->whole(timings()));
  add(answer_->last_pieces(timings()));
  pending_ += answer_->protocol().last_frame();
  client_.send(call_, pending_);
  client_.end(call_);
}

void Answering::fail(const Refusal& refusal) {
  if (ended_) return;
  ended_ = true;
  account();
  call_.finish = "error";
  answer_->cancel();
  if (!streams()) return client_.refuse_call(call_, refusal);
  add(answer_->refusal_pieces(refusal));
  client_.send(call_, pending_);
  client_.end(call_);
}

void Answering::give_up() noexcept {
  ended_ = true;
  answer_->cancel();
}

std::optional<Clock::time_point> Answering::silent_since() const {
  if (!streams() || ended_) return std::nullopt;
  return sent_;
}

void Answering::ping() {
  pending_ += answer_->protocol().ping();
  flush();
}

void Answering::account() {
  call_.cached_tokens = call_.answer_tokens = 0;
  for (const std::optional<Generation>& result : answer_->results()) {
    if (!result) continue;
    call_.cached_tokens += result->cached_tokens;
    call_.answer_tokens += tokens_of(*result);
    call_.finish = finish_reason_name(result->finish_reason);
    const double queued = std::max(
        0.0, call_.first_ms.value_or(0) - result->prefill_ms - result->encode_ms - ms_between(call_.begun, submitted_));
    if (!call_.queue_ms || queued < *call_.queue_ms) call_.queue_ms = queued;
  }
}

Timings Answering::timings() const {
  Timings t;
  double copied = 0;
  for (const std::optional<Generation>& result : answer_->results()) {
    const Generation& g = *result;
    const auto tokens = static_cast<double>(g.output_ids.size());
    t.prompt_ms = std::max(t.prompt_ms, g.prefill_ms + g.encode_ms);
    t.predicted_ms = std::max(t.predicted_ms, g.decode_ms_per_token * std::max(0.0, tokens - 1));
    copied += g.bytes_copied_per_token * tokens;
    t.guessed += g.guessed_tokens;
    t.accepted += g.accepted_tokens;
  }
  t.cached = call_.cached_tokens;
  t.prompt = call_.prompt_tokens - call_.cached_tokens;
  t.prompt_per_second = rate(t.prompt, t.prompt_ms);
  t.predicted = call_.answer_tokens;
  t.predicted_per_second = rate(t.predicted, t.predicted_ms);
  t.queue_ms = call_.queue_ms.value_or(0);
  t.bytes_copied = static_cast<int64_t>(copied + 0.5);
  return t;
}

}  // namespace situ::serve
