// The engine of encoders without a state: whole texts in, a row for each of their tokens (or one row a text) out.
// Texts of any lengths share a step, side by side and without padding, where the graph computes each of them alone.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/compile.h"
#include "runtime/pack_saver.h"
#include "runtime/program.h"

namespace situ {

// Tokens of one text, or of a pair; `types`: of which of the two each is, empty: of the first.
struct TextTokens {
  std::span<const int64_t> ids, types;
};

// What such an encoder is compiled for.
GraphUse use_for_texts(const std::string& output);
// The part of the graph that computes the output of this name.
Result<Graph> graph_for_texts(const ImportedModel& model, const std::string& output);

// One run at a time.
class TextEncoder {
 public:
  // `model`, which must outlive the encoder, computes the output of that name. `options`: pool, pack_cache, chunk
  // (most tokens of a step of several texts), batch (most texts of one) and source_length (most tokens of a text) are
  // read. Errors: those of compile(); an output that is no float [1, tokens, width], [tokens, width] or [1, width].
  static Result<std::unique_ptr<TextEncoder>> create(const ImportedModel& model, const std::string& output,
                                                     const EngineOptions& options);

  // Takes the rows of a text: [tokens, width()], or [1, width()] unless by_token(), valid during the call. They do not
  // depend on other texts.
  using RowsOf = std::function<Status(size_t text, std::span<const float> rows)>;
  // Refuses a text without tokens, or with more than most_tokens().
  Status check(std::span<const TextTokens> texts) const;
  // How many of the first texts one step takes, of `most` tokens: one at least.
  size_t share_step(std::span<const TextTokens> texts, int64_t most) const;
  // A step of texts that share one, until about then, at least to the next barrier, then `each` of every text. False:
  // it is to be called again, with the same texts, and what they refer to stays; or drop() is. Errors: those of a step,
  // and of `each`.
  Result<bool> step(std::span<const TextTokens> texts, Clock::time_point until, const RowsOf& each);
  void drop() { begun_ = false; }

  int64_t chunk() const { return chunk_; }
  int64_t width() const { return width_; }
  bool by_token() const { return by_token_; }
  int64_t most_tokens() const { return compiled_.context; }
  // Whether no token depends on a later one: the graph is a decoder's.
  bool is_causal() const { return compiled_.order.mixing.empty(); }
  // Why texts are computed one after the other; "": several share a step.
  const std::string& one_text() const { return program_ ? program_->one_sequence() : compiled_.order.one_sequence; }
  const Compiled& compiled() const { return compiled_; }
  const Plan& plan() const { return plan_; }
  Ledger& ledger() { return ledger_; }
  int threads() const { return pool_->threads(); }
  int64_t kernel_calls() const { return program_ ? program_->kernel_calls() : 0; }
  void finish_saving() { saver_.finish(); }

 private:
  TextEncoder() = default;
  Status prepare(int64_t tokens);
  Status begin_step(std::span<const TextTokens> texts);

  Compiled compiled_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<Executor> executor_;
  Plan plan_;
  std::unique_ptr<Program> program_;
  ReservedMemory memory_;  // arena, then io
  int64_t planned_ = 0;
  int64_t chunk_ = 1, batch_ = 1, width_ = 0;
  bool by_token_ = false, begun_ = false;
  std::vector<Segment> segments_;  // of the step
  std::vector<Run> runs_;
  StepInput input_;  // the program reads it until the step is over
  Tensor rows_;
  std::vector<float> floats_;
  Ledger ledger_;
  PackSaver saver_;
};

}  // namespace situ
