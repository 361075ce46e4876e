#include "serve/answering.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include "serve/openai_errors.h"
#include "text/json_file.h"

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
  last_tokens_.resize(answer_->asked().requests.size() * static_cast<size_t>(answer_->asked().choices));
}

Answering::~Answering() = default;

OrRefusal<std::unique_ptr<Answering>> Answering::begin(Client& client, Call& call, Model& model, Asked asked) {
  const Envelope envelope{new_id(asked.route), now_seconds(), asked.model.empty() ? call.model : asked.model};
  for (const Request& r : asked.requests) call.prompt_tokens += std::ssize(r.prompt.ids());
  const bool stream = asked.stream;
  OrRefusal<std::unique_ptr<BodyAnswer>> begun =
      BodyAnswer::begin(model, std::move(asked), envelope, stream, call.client);
  if (Refusal* f = std::get_if<Refusal>(&begun)) return std::move(*f);
  std::unique_ptr<Answering> answering(
      new Answering(client, call, std::move(std::get<std::unique_ptr<BodyAnswer>>(begun))));
  if (stream) {
    client.begin_events(call);
    answering->sent_ = Clock::now();
  }
  return answering;
}

void Answering::follow() {
  answer_->on_ready([this] { client_.wake(call_); });
}

void Answering::advance() {
  if (ended_) return;
  const std::optional<Refusal> refusal =
      answer_->advance([&](size_t choice) { note_token(choice); }, [&](const Json& piece) { event(piece); });
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

void Answering::event(const Json& chunk) { pending_ += "data: " + json_text(chunk) + "\n\n"; }

void Answering::flush() {
  if (pending_.empty()) return;
  sent_ = Clock::now();
  if (!client_.send(call_, pending_)) ended_ = true;
  pending_.clear();
}

void Answering::complete() {
  ended_ = true;
  account();
  if (!streams()) {
    Json body = answer_->whole();
    body["timings"] = timings();
    return client_.respond(call_, 200, body);
  }
  std::vector<Json> last = answer_->last_pieces();
  if (!last.empty()) last.back()["timings"] = timings();
  for (const Json& piece : last) event(piece);
  pending_ += "data: [DONE]\n\n";
  client_.send(call_, pending_);
  client_.end(call_);
}

void Answering::fail(const Refusal& refusal) {
  if (ended_) return;
  ended_ = true;
  account();
  call_.finish = "error";
  answer_->cancel();
  if (!streams()) return client_.respond(call_, words_of(refusal).status, to_json(refusal));
  event(to_json(refusal));
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
  pending_ += kComment;
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

// Of the whole answer; rates are of all its choices.
Json Answering::timings() const {
  double prompt_ms = 0, predicted_ms = 0, copied = 0;
  int64_t guessed = 0, accepted = 0;
  for (const std::optional<Generation>& result : answer_->results()) {
    const Generation& g = *result;
    const auto tokens = static_cast<double>(g.output_ids.size());
    prompt_ms = std::max(prompt_ms, g.prefill_ms + g.encode_ms);
    predicted_ms = std::max(predicted_ms, g.decode_ms_per_token * std::max(0.0, tokens - 1));
    copied += g.bytes_copied_per_token * tokens;
    guessed += g.guessed_tokens;
    accepted += g.accepted_tokens;
  }
  const int64_t fed = call_.prompt_tokens - call_.cached_tokens;
  Json timings = {{"cache_n", call_.cached_tokens},
                  {"prompt_n", fed},
                  {"prompt_ms", prompt_ms},
                  {"prompt_per_second", rate(fed, prompt_ms)},
                  {"predicted_n", call_.answer_tokens},
                  {"predicted_ms", predicted_ms},
                  {"predicted_per_second", rate(call_.answer_tokens, predicted_ms)},
                  {"queue_ms", call_.queue_ms.value_or(0)},
                  {"bytes_copied", static_cast<int64_t>(copied + 0.5)}};
  if (guessed > 0) {
    timings["draft_n"] = guessed;
    timings["draft_n_accepted"] = accepted;
  }
  return timings;
}

}  // namespace situ::serve
