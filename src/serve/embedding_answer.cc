#include "serve/embedding_answer.h"

namespace situ::serve {

void EmbeddingAnswer::follow() {
  embedding_->on_ready([this] { client_.wake(call_); });
}

// The text of many numbers is written in pieces, between which others are answered.
void EmbeddingAnswer::advance() {
  if (ended_) return;
  if (!text_) {
    if (const std::optional<Refusal> refusal = embedding_->go_on()) return fail(*refusal);
    if (!embedding_->done()) return follow();
    text_.emplace(embedding_->take(), body_);
  }
  if (text_->add_rows()) return client_.wake(call_);
  ended_ = true;
  account();
  call_.finish = "stop";
  call_.first_ms = ms_since(call_.begun);
  client_.respond_json(call_, 200, text_->take());
}

void EmbeddingAnswer::fail(const Refusal& refusal) {
  if (ended_) return;
  ended_ = true;
  account();
  embedding_->cancel();
  client_.refuse_call(call_, refusal);
}

void EmbeddingAnswer::give_up() noexcept {
  ended_ = true;
  embedding_->cancel();
}

}  // namespace situ::serve
