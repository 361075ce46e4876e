// What a loaded model says of itself, and of what its steps wrote.
#include "pipelines/llm.h"

namespace situ {

LedgerReading Model::ledger() const {
  const Ledger l = impl_->between_steps([&] { return impl_->Served::ledger(); });
  return {l.computed, l.copied, l.packed};
}

Stats Model::stats() const { return impl_->scheduler->stats(*impl_); }

Status Model::record(Trace* trace) const {
  SITU_RETURN_IF_ERROR(impl_->check_generates());
  if (!impl_->in_place)
    return Status::error(Code::kInvalidArgument, "a trace records placed programs; the naive mode has none");
  return impl_->between_steps([&] {
    impl_->in_place->set_trace(trace);
    return Status::ok();
  });
}

void Model::finish_saving() const {
  if (impl_->in_place) impl_->in_place->finish_saving();
  // Made between two steps, when it is first asked for; then it stays.
  Embedder* const embedder = impl_->between_steps([&] { return impl_->embedder.get(); });
  if (embedder) embedder->encoder().finish_saving();
}

void Model::reset_ledger() const {
  impl_->between_steps([&] {
    impl_->Served::ledger() = Ledger{};
    return true;
  });
}

ModelFacts Model::facts() const {
  ModelFacts f;
  f.file = impl_->folder.model_file.string();
  impl_->files.each([&](const ImportedModel& m) {
    for (const auto& mapped : m.files) f.mapped_files.push_back(mapped->path);
  });
  f.isa = kernels().isa;
  f.mode = impl_->naive ? "naive" : "in-place";
  if (!impl_->generates()) f.threads = impl_->embedder->encoder().threads();
  f.vocabulary = impl_->vocabulary;
  f.context_length = impl_->context_length;
  const Embedder* const embedder = impl_->between_steps([&] { return impl_->embedder.get(); });
  if (embedder && !embedder->scores_pairs()) f.embedding_size = embedder->size();
  f.weight_bytes = impl_->files.weight_bytes();
  f.load_ms = impl_->load_ms;
  if (impl_->in_place) {
    f.threads = impl_->in_place->threads();
    f.computed_bytes = impl_->in_place->computed_bytes();
    f.arena_bytes = impl_->in_place->arena_bytes();
    f.state_bytes_per_token = impl_->in_place->states().bytes_per_slot();
    f.slots = impl_->in_place->states().capacity();
    f.kernel_calls_per_token = impl_->in_place->kernel_calls();
    f.one_sequence = impl_->in_place->one_sequence();
    f.packed_bytes = impl_->in_place->packs().packed_bytes;
    f.mapped_packed_bytes = impl_->in_place->packs().mapped_bytes;
  }
  return f;
}

}  // namespace situ
