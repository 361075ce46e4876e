// The graphs of prompts among whose embeddings are rows that encoders made: the lookup of embeddings, the decoder
// behind it, and the encoders, for arrays of known extents.
#pragma once

#include <map>
#include <string>

#include "runtime/compile.h"

namespace situ {

// Both of the same compiled graph, so that text has the same embeddings and logits whoever looks them up.
struct CutGraphs {
  Compiled lookup;   // ids -> Binding::rows
  Compiled decoder;  // the embeddings are an input of the caller (InputRole::kFeatures)
};
// Error: the passes left no value that has an embedding for each token.
Result<CutGraphs> cut_at_embeddings(const Compiled& whole);

// What an encoder's program is compiled for: the extents of all arrays, and the numbers of those that are integers or
// bools (grids, masks), which shapes depend on.
struct MediaKey {
  std::map<std::string, std::vector<int64_t>> extents;
  std::map<std::string, std::vector<int64_t>> numbers;  // also of what the prologue chose among the floats
  bool operator==(const MediaKey&) const = default;
  // Of an encoder all of whose inputs these are, and without a prologue.
  static MediaKey of(const std::map<std::string, Tensor>& arrays);
};

// The encoder for these arrays: integers and bools are constants of it. What has as many elements as data decides
// (NonZero) is computed on the arrays before the rest is compiled: the prologue. Errors: a size that depends on
// activations; those of compile().
class MediaGraph {
 public:
  static Result<MediaGraph> bind(const MediaEncoder& encoder, const std::map<std::string, Tensor>& arrays,
                                 int64_t width, Evaluator& evaluator);
  const MediaKey& key() const { return key_; }
  // x -> Gather -> rows  =>  x -> rows, where the last operator only puts the rows of x into another order, which
  // integers tell: the encoder of windows in Qwen2.5-VL. For each row of x the place where it goes; empty: as it was.
  // Whether x has just so many rows is known once it is compiled.
  Result<std::vector<int64_t>> take_order(Evaluator& evaluator);
  Result<Compiled> compile(const EngineOptions& options, PackStore* packs) const;

 private:
  Graph graph_;
  MediaKey key_;
  std::string rows_;  // name of the output
};

}  // namespace situ
