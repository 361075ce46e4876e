// Model::embed and Model::score.
#include "base/assign.h"
#include "base/out_of_memory.h"
#include "pipelines/llm.h"
#include "requests/text_decoding.h"

namespace situ {

Status Model::Impl::check_generates() const {
  if (generates()) return Status::ok();
  const TextGraph graph = text_graph(files.decoder.graph);
  const bool scores = graph.kind == EncoderOutput::kLabels;
  return Status::error(Code::kInvalidArgument,
                       folder.model_file.string() +
                           ": no output holds logits of tokens: the table that token ids index has " +
                           std::to_string(graph.table_rows) + " rows, and '" + graph.output + "' is for " +
                           (scores ? "scores of texts and pairs (situ embed --pair, Model::score)"
                                   : "embeddings (situ embed, Model::embed)"));
}

// The scheduler's thread sees what is there between two steps.
Result<Embedder*> Model::Impl::embeds() {
  const std::lock_guard held(making);
  if (embedder) return embedder.get();
  if (naive)
    return Status::error(Code::kInvalidArgument, folder.model_file.string() + ": embeddings have no naive mode");
  std::unique_ptr<Embedder> made;
  SITU_RETURN_IF_ERROR(assign(&made, Embedder::create(folder, files.decoder, text(), loaded,
                                                      Internals::of(*runtime).pool, purpose.dry, purpose.traces)));
  made->run_texts = [this](std::span<const TextTokens> some, const std::string& client,
                           const TextEncoder::RowsOf& each) { return run_texts(some, client, each); };
  const auto show = [&] {
    embedder = std::move(made);
    text_encoder = &embedder->encoder();
    if (!generates()) other_ledger = &text_encoder->ledger();
    return embedder.get();
  };
  return scheduler ? between_steps(show) : show();
}

Result<std::shared_ptr<Job>> Model::Impl::submit_texts(std::span<const TextTokens> some, const std::string& client,
                                                       const TextEncoder::RowsOf& each, bool let_in) {
  SITU_RETURN_IF_ERROR(text_encoder->check(some));
  auto decoding = std::make_unique<TextDecoding>(*this, some, each);
  Treatment treatment{.follows_flag = true, .client = client};
  if (let_in) return scheduler->submit_part(std::move(decoding), std::move(treatment));
  return scheduler->submit(std::move(decoding), std::move(treatment));
}

Status Model::Impl::run_texts(std::span<const TextTokens> some, const std::string& client,
                              const TextEncoder::RowsOf& each) {
  SITU_TAKE(job, submit_texts(some, client, each, false));
  return wait_for(job).status();
}

Status Model::Impl::load_embedder() {
  if (loaded.naive)
    return Status::error(Code::kInvalidArgument, check_generates().message() + "; these have no naive mode");
  const Result<Embedder*> made = embeds();
  if (made.is_ok()) context_length = (*made)->max_tokens();
  return made.status();
}

Result<Embeddings> Model::embed(std::span<const std::string> texts, const EmbedOptions& options) const {
  return impl_->embedded([&](Embedder& e) { return e.embed(texts, options); });
}

Result<Embeddings> Model::embed(std::span<const std::vector<int64_t>> ids, const EmbedOptions& options) const {
  return impl_->embedded([&](Embedder& e) { return e.embed(ids, options); });
}

Result<LogitScorer*> Model::Impl::scores_by_logits() {
  return or_out_of_memory([&]() -> Result<LogitScorer*> {
    const std::lock_guard held(making);
    if (!logit_scorer)
      SITU_RETURN_IF_ERROR(assign(&logit_scorer, LogitScorer::create(folder, text(), context_length, vocabulary)));
    return logit_scorer.get();
  });
}

Result<PairScores> Model::score(std::span<const TextPair> pairs, const EmbedOptions& options) const {
  if (!generates()) return impl_->embedded([&](Embedder& e) { return e.score(pairs, options); });
  const Result<LogitScorer*> scorer = impl_->scores_by_logits();
  if (!scorer.is_ok()) return scorer.status();
  std::optional<Session> session;  // of the pair whose logits are read
  return or_out_of_memory([&] {
    return (*scorer)->score(pairs, options, [&](std::span<const int64_t> ids) -> Result<std::span<const float>> {
      Result<Session> fresh = impl_->new_session();
      if (!fresh.is_ok()) return fresh.status();
      session.emplace(std::move(*fresh));
      const Model::Feed feed{&*session, ids};
      SITU_TAKE(logits, impl_->step_sessions({&feed, 1}, {}, options.client));
      return std::move(logits[0]);
    });
  });
}

bool Model::generates() const { return impl_->generates(); }
bool Model::scores_pairs() const {
  return generates() ? scores_by_logits(impl_->folder.modules) : impl_->embedder->scores_pairs();
}

}  // namespace situ
