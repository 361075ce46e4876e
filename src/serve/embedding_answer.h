// Embeddings on their way: the scheduler on one side, a client on the other.
#pragma once

#include <memory>

#include "serve/answering.h"
#include "serve/protocols/openai/embeddings.h"

namespace situ::serve {

class EmbeddingAnswer final : public Underway {
 public:
  EmbeddingAnswer(Client& client, Call& call, std::unique_ptr<Embedding> embedding, EmbeddingsBody body)
      : client_(client), call_(call), embedding_(std::move(embedding)), body_(std::move(body)) {}
  // The client is woken whenever there is something to advance.
  void follow();

  void advance() override;
  void fail(const Refusal& refusal) override;
  void give_up() noexcept override;
  bool ended() const override { return ended_; }
  std::optional<Clock::time_point> silent_since() const override { return std::nullopt; }
  void ping() override {}
  void account() override { call_.prompt_tokens = embedding_->tokens(); }

 private:
  Client& client_;
  Call& call_;
  const std::unique_ptr<Embedding> embedding_;
  const EmbeddingsBody body_;
  std::optional<EmbeddingsText> text_;  // once all is computed
  bool ended_ = false;
};

}  // namespace situ::serve
