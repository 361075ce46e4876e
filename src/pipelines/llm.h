// The language-model pipeline behind the public API: folder -> graph -> engine -> tokens -> text.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "base/out_of_memory.h"
#include "pipelines/dialogs.h"
#include "pipelines/embedder.h"
#include "pipelines/grammar_cache.h"
#include "pipelines/logit_scorer.h"
#include "pipelines/model_folder.h"
#include "pipelines/public_tokenizer.h"
#include "requests/job.h"
#include "requests/runtime.h"
#include "requests/served.h"
#include "situ/model.h"

namespace situ {

// What the public classes hide.
struct Internals {
  template <typename T>
  static auto& of(T& t) {
    return *t.impl_;
  }
  static Model model(std::shared_ptr<Model::Impl> impl) { return Model(std::move(impl)); }
  static Tokenizer tokenizer(std::shared_ptr<const Tokenizer::Impl> impl) { return Tokenizer(std::move(impl)); }
};
inline Model::Impl& impl_of(Model& model) { return Internals::of(model); }
inline const Model::Impl& impl_of(const Model& model) { return Internals::of(model); }
inline Session::Impl& impl_of(Session& session) { return Internals::of(session); }
inline const Session::Impl& impl_of(const Session& session) { return Internals::of(session); }

// What a model is loaded for, beside being run.
struct LoadPurpose {
  bool dry = false;  // to see whether it can be: no weights are packed or looked at, and it must not be run
  bool float_activations = false;  // to compare programs: nothing is rounded to 8 or 16 bits on its way
  std::shared_ptr<CompileTraces> traces = nullptr;  // EngineOptions::traces
};
// Model::load. `runtime`: null: Runtime::shared().
Result<Model> load_model(const std::string& path, const LoadOptions& options, const LoadPurpose& purpose,
                         const Runtime* runtime = nullptr);

struct Model::Impl : Served, std::enable_shared_from_this<Model::Impl> {
  ModelFolder folder;
  LoadPurpose purpose;
  ModelFiles files;
  std::optional<Runtime> runtime;
  std::shared_ptr<Tokenizer::Impl> texts;
  std::optional<Tokenizer> public_tokenizer;  // over `texts`
  std::unique_ptr<Model> draft_model;         // or null
  int64_t source_vocabulary = 0;              // rows of the table that the encoder's ids index; 0: not known
  // Refer to folder, files and tokenizer. Of a model that generates: made when embeddings and scores are first asked
  // for, by the thread that asks.
  std::mutex making;
  std::unique_ptr<Embedder> embedder;
  std::unique_ptr<LogitScorer> logit_scorer;
  LoadOptions loaded;  // as Model::load was asked
  double load_ms = 0;
  GrammarCache grammars;

  ~Impl() {
    if (scheduler) scheduler->remove(*this);
  }
  // Work that touches the state of sequences, by the scheduler's thread between two steps.
  template <typename Work>
  auto between_steps(Work&& work) {
    return scheduler->call(std::forward<Work>(work));
  }
  // Submits it and waits; the flag of the model or of the thread cancels it.
  Result<Generation> wait_for(std::unique_ptr<Decoding> decoding, const std::string& client = {}) const;
  Result<Generation> wait_for(const std::shared_ptr<Job>& job) const;
  const FolderTokenizer* text() const { return tokenizer; }  // null: ids only
  bool generates() const { return in_place || naive; }
  // The error of a model that gives embeddings alone.
  Status check_generates() const;
  Result<Embedder*> embeds();
  Result<LogitScorer*> scores_by_logits();
  // `some`, and what its texts refer to, stays until the job is gone; `each` is called by the scheduler's thread.
  // `let_in`: they are a part of what was let in before, whatever waits.
  Result<std::shared_ptr<Job>> submit_texts(std::span<const TextTokens> some, const std::string& client,
                                            const TextEncoder::RowsOf& each, bool let_in);
  Status run_texts(std::span<const TextTokens> some, const std::string& client, const TextEncoder::RowsOf& each);
  // What `work` makes of the embedder, by the caller's thread; steps of its encoder are the scheduler's.
  template <typename Work>
  auto embedded(Work&& work) -> decltype(work(std::declval<Embedder&>())) {
    using Made = decltype(work(std::declval<Embedder&>()));
    return or_out_of_memory([&]() -> Made {
      const Result<Embedder*> made = embeds();
      return made.is_ok() ? work(**made) : Made(made.status());
    });
  }
  Status load_embedder();
  const Compiled& compiled() const { return in_place ? in_place->compiled() : naive->compiled(); }
  bool encoder_takes_ids() const;
  // The encoder takes the spectrogram of a window, as Whisper's does: [batch, mels, frames].
  bool is_for_speech() const;
  // Refuses ids that the encoder's table has no row for.
  Status check_source(std::span<const int64_t> ids) const;
  bool takes_media() const { return !files.media.empty(); }
  Result<Session> new_session();
  // Model::step.
  Result<std::vector<Model::Logits>> step_sessions(std::span<const Model::Feed> feeds, std::span<float> logits,
                                                   const std::string& client = {});
  // Refuses a feed without a session of this model, or whose session is there before.
  Status check_session(std::span<const Model::Feed> feeds, size_t i) const;
};

struct Session::Impl {
  const std::shared_ptr<Model::Impl> model;
  std::unique_ptr<Scheduler::Discarded> held;
  std::vector<float> logits;  // of its last step, where the caller wants them nowhere else

  explicit Impl(std::shared_ptr<Model::Impl> m)
      : model(std::move(m)),
        held(std::make_unique<Scheduler::Discarded>(Scheduler::Discarded{Strand(*model), nullptr})) {}
  ~Impl() { model->scheduler->discard(std::move(held)); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  Strand& strand() { return held->strand; }
  const Strand& strand() const { return held->strand; }
};

}  // namespace situ
