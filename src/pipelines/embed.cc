// Model::embed and Model::score.
#include "base/assign.h"
#include "base/out_of_memory.h"
#include "pipelines/llm.h"

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

Result<Embedder*> Model::Impl::embeds() {
  if (embedder) return embedder.get();
  if (naive)
    return Status::error(Code::kInvalidArgument, folder.model_file.string() + ": embeddings have no naive mode");
  SITU_RETURN_IF_ERROR(assign(
      &embedder, Embedder::create(folder, files.decoder, text(), loaded, Internals::of(*runtime).pool, purpose.dry)));
  if (!generates()) other_ledger = &embedder->encoder().ledger();
  return embedder.get();
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

Result<Embeddings> Model::embed(std::span<const std::vector<int64_t>> ids) const {
  return impl_->embedded([&](Embedder& e) { return e.embed(ids); });
}

Result<PairScores> Model::score(std::span<const TextPair> pairs) const {
  return impl_->embedded([&](Embedder& e) { return e.score(pairs); });
}

bool Model::generates() const { return impl_->generates(); }
bool Model::scores_pairs() const { return !generates() && impl_->embedder->scores_pairs(); }

}  // namespace situ
