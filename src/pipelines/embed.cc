// Model::embed and Model::score.
#include "pipelines/llm.h"
#include "pipelines/out_of_memory.h"

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
  Result<std::unique_ptr<Embedder>> made = Embedder::create(folder, files.decoder, text(), loaded);
  if (!made.is_ok()) return made.status();
  embedder = std::move(*made);
  return embedder.get();
}

Status Model::Impl::load_embedder() {
  if (loaded.naive)
    return Status::error(Code::kInvalidArgument, check_generates().message() + "; these have no naive mode");
  const Result<Embedder*> made = embeds();
  if (made.is_ok()) context_length = (*made)->max_tokens();
  return made.status();
}

Result<Embeddings> Model::embed(std::span<const std::string> texts, const EmbedOptions& options) {
  return or_out_of_memory([&]() -> Result<Embeddings> {
    const Result<Embedder*> embedder = impl_->embeds();
    return embedder.is_ok() ? (*embedder)->embed(texts, options) : embedder.status();
  });
}

Result<Embeddings> Model::embed(std::span<const std::vector<int64_t>> ids) {
  return or_out_of_memory([&]() -> Result<Embeddings> {
    const Result<Embedder*> embedder = impl_->embeds();
    return embedder.is_ok() ? (*embedder)->embed(ids) : embedder.status();
  });
}

Result<PairScores> Model::score(std::span<const TextPair> pairs) {
  return or_out_of_memory([&]() -> Result<PairScores> {
    const Result<Embedder*> embedder = impl_->embeds();
    return embedder.is_ok() ? (*embedder)->score(pairs) : embedder.status();
  });
}

bool Model::generates() const { return impl_->generates(); }
bool Model::scores_pairs() const { return impl_->embedder && impl_->embedder->scores_pairs(); }

}  // namespace situ
