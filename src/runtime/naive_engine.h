// The baseline: the graphs of a model as a plain ONNX runtime would be used. Values are tensors, Concat copies, the
// host hands present back as past, and the encoder's output to the decoder.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/encoder_input.h"
#include "runtime/fixed_window_loop.h"
#include "runtime/literal.h"
#include "runtime/media_writer.h"
#include "runtime/switches.h"

namespace situ {

// Its present tensors by the names of the states, and how many tokens they hold.
struct NaiveSequence {
  std::map<std::string, Tensor> states;
  int64_t length = 0, source_rows = 0;
  int64_t source_length = 0;   // of the encoder's input, where it has a mask
  FixedWindowSequence window;  // of an export whose extents are fixed
  SequenceMedia media;
  std::vector<int64_t> tokens;  // of a model whose tables follow the length of the sequence; else none
};

class NaiveEngine {
 public:
  static Result<std::unique_ptr<NaiveEngine>> create(const ModelFiles& files, const EngineOptions& options);

  NaiveSequence new_sequence() const { return {}; }
  // Runs the encoder; the sequence begins anew behind its output.
  Status encode(NaiveSequence& sequence, const EncoderInput& input);
  // As in place: the embeddings of the prompt are looked up, and the rows of encoders copied over those of their
  // tokens. `stages`: as in place; the copies are those of "embed".
  Status encode(NaiveSequence& sequence, std::span<const int64_t> prompt, const EncoderInput& input,
                std::vector<Stage>* stages);
  // After an error the sequence is what it was.
  Status step(NaiveSequence& sequence, std::span<const int64_t> tokens, float* to = nullptr);  // `to`: as in place
  std::span<const float> logits() const { return logits_; }
  Ledger& ledger() { return evaluator_->ledger(); }
  const Compiled& compiled() const { return fixed_ ? fixed_->compiled() : decode_; }
  // The first call's, where it is compiled apart and holds fewer tokens.
  const Compiled& shortest() const { return first_ && first_->context < decode_.context ? *first_ : decode_; }
  int64_t context() const { return fixed_ ? context_of(options_) : shortest().context; }  // tokens of a sequence
  bool has_encoder() const { return module_.has_encoder(); }
  bool encoder_takes_ids() const;

 private:
  NaiveEngine() = default;
  static Result<std::unique_ptr<NaiveEngine>> make(const ModelFiles& files, const EngineOptions& options);
  Status encode_source(NaiveSequence& sequence, const EncoderInput& input);
  Status feed(NaiveSequence& sequence, std::span<const int64_t> tokens);
  Status feed_by_length(NaiveSequence& sequence, std::span<const int64_t> tokens);
  NaiveSequence without_past(const NaiveSequence& sequence) const;
  // `rows`: embeddings of the tokens, of a decoder behind them; null: those of the sequence's media.
  Status run(const Compiled& compiled, NaiveSequence& sequence, std::span<const int64_t> tokens,
             std::byte* rows = nullptr);
  Result<Tensor> embeddings_of(const NaiveSequence& sequence, std::span<const int64_t> tokens);
  Result<Tensor> encoder_rows(const MediaPlaces::Encoder& places, int64_t width);
  Status keep_logits(const Tensor& logits);

  const ModelFiles* files_ = nullptr;
  EngineOptions options_;
  Module module_;
  Compiled decode_;
  std::unique_ptr<FixedWindowLoop> fixed_;   // null: extents follow the step
  std::optional<Compiled> first_, encoder_;  // encoder_: for extents_
  int64_t encoder_length_ = 0;               // of its mask, where it takes one
  Result<CutGraphs> cut_ = Status::error("the model has no encoder of pictures or sounds");
  Switches switches_;
  bool one_token_ = false;  // decode_ holds for single tokens, and no graph for more
  std::map<std::string, std::vector<int64_t>> extents_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<Evaluator> evaluator_;
  std::vector<float> converted_;
  std::span<const float> logits_;
};

}  // namespace situ
