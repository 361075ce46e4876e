// Model::embed and Model::score.
#include "pipelines/llm.h"
#include "pipelines/out_of_memory.h"

namespace situ {

Status Model::Impl::check_generates() const {
  if (generates()) return Status::ok();
  const bool scores = embedder->scores_pairs();
  return Status::error(Code::kInvalidArgument,
                       folder.model_file.string() + ": the model " +
                           (scores ? "scores pairs of texts" : "gives embeddings of texts") +
                           ", it generates none: situ embed, Model::" + (scores ? "score" : "embed"));
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
    return Status::error(Code::kInvalidArgument, folder.model_file.string() + ": embeddings have no naive mode");
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
