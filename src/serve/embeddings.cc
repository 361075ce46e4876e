#include "serve/embeddings.h"

#include "base/out_of_memory.h"
#include "pipelines/llm.h"
#include "serve/requests.h"

namespace situ::serve {
namespace {

// Of one request to the scheduler: those of other clients come between two.
constexpr size_t kTextsAtOnce = 32;
constexpr int64_t kTokensAtOnce = 2048;

Refusal refusal_of_embedding(Model& model, const Status& status) {
  using Kind = Refusal::Kind;
  const std::string message = without_paths(model, status.message());
  switch (status.code()) {
    case Code::kUnsupportedModel:
      return {Kind::kByModel, "model", message};
    case Code::kContextExceeded:
      return {Kind::kContext, "input", message};
    case Code::kInvalidArgument:
    case Code::kNotFound:
      if (status.option() == "dimensions") return {Kind::kUnsupported, "dimensions", message};  // sizes there are not
      return {Kind::kInvalid, status.option().empty() ? "input" : status.option(), message};
    case Code::kNoRoom:
      return {Kind::kNoRoom, "", message};
    case Code::kBusy:
      return {Kind::kBusy, "", message};
    default:
      return {Kind::kFailed, "", message};
  }
}

// Of the input of this number.
Refusal refusal_at(Model& model, const Status& status, size_t number) {
  Refusal refusal = refusal_of_embedding(model, status);
  if (refusal.option != "input") return refusal;
  const std::string name = "text " + std::to_string(number + 1);
  for (const std::string& own : {name + ": ", name + " "})
    if (refusal.message.starts_with(own)) refusal.message.erase(0, own.size());
  refusal.message = "input[" + std::to_string(number) + "]: " + refusal.message;
  return refusal;
}

}  // namespace

struct Embedding::State {
  Model& model;
  const std::string client;
  Embedder& embedder;
  Embedder::Reading reading;
  std::vector<TextTokens> tokens = {};
};

Embedding::Embedding(std::shared_ptr<State> state) : state_(std::move(state)) {
  for (const EncodedTexts& text : state_->reading.texts) {
    state_->tokens.push_back({text.ids, text.types});
    tokens_ += std::ssize(text.ids);
  }
}

void Embedding::cancel() noexcept {
  if (!job_) return;
  job_->on_ready(nullptr);
  job_->cancel();
}

OrRefusal<std::unique_ptr<Embedding>> Embedding::read(Model& model, EmbedAsk ask,
                                                      const std::function<bool()>& stopped) {
  const Result<Embedder*> embedder = or_out_of_memory([&] { return impl_of(model).embeds(); });
  if (!embedder.is_ok()) return refusal_of_embedding(model, embedder.status());
  const bool of_ids = !ask.inputs.empty() && !std::holds_alternative<std::string>(ask.inputs[0]);
  Result<Embedder::Reading> reading = (*embedder)->begin(ask.options, of_ids);
  if (!reading.is_ok()) return refusal_at(model, reading.status(), 0);
  for (size_t i = 0; i < ask.inputs.size(); ++i) {
    if (stopped && stopped()) return Refusal{Refusal::Kind::kStopping, "", "the server is stopping"};
    const Status added =
        std::visit([&](const auto& input) { return (*embedder)->add(*reading, input); }, ask.inputs[i]);
    if (!added.is_ok()) return refusal_at(model, added, i);
    ask.inputs[i] = std::string();
  }
  auto state = std::make_shared<State>(State{model, ask.options.client, **embedder, std::move(*reading)});
  return std::unique_ptr<Embedding>(new Embedding(std::move(state)));
}

std::optional<Refusal> Embedding::go_on() {
  if (job_) {
    if (!job_->ended()) return std::nullopt;
    const Result<Generation> over = job_->result();
    job_.reset();
    if (!over.is_ok()) return refusal_of_embedding(state_->model, over.status());
    next_ += count_;
  }
  if (done()) return std::nullopt;
  int64_t tokens = 0;
  for (count_ = 0; next_ + count_ < state_->tokens.size() && count_ < kTextsAtOnce; ++count_) {
    tokens += std::ssize(state_->tokens[next_ + count_].ids);
    if (count_ > 0 && tokens > kTokensAtOnce) break;
  }
  const auto take = [state = state_, first = next_](size_t i, std::span<const float> rows) {
    return state->embedder.take_row(state->reading, first + i, rows);
  };
  const std::span<const TextTokens> some = std::span(state_->tokens).subspan(next_, count_);
  Result<std::shared_ptr<Job>> job =
      or_out_of_memory([&] { return impl_of(state_->model).submit_texts(some, state_->client, take, begun_); });
  if (!job.is_ok()) return refusal_of_embedding(state_->model, job.status());
  begun_ = true;
  job_ = std::move(*job);
  return std::nullopt;
}

void Embedding::on_ready(const std::function<void()>& ready) {
  if (job_) job_->on_ready(ready);
}

void Embedding::wait() const {
  if (job_) (void)impl_of(state_->model).wait_for(job_);
}

bool Embedding::done() const { return next_ == state_->tokens.size(); }

Embedded Embedding::take() {
  Embeddings made = state_->embedder.end(std::move(state_->reading));
  return {std::move(made.rows), std::move(made.cut), tokens_};
}

}  // namespace situ::serve
