// What an exporter puts between QK^T and Softmax: scale, softcap and mask, told by what the nodes are and what they
// compute on probe inputs.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "passes/context/pass_context.h"
#include "passes/host/distance_bias.h"
#include "passes/host/mask.h"
#include "passes/host/probe.h"
#include "passes/host/turning_points.h"

namespace situ {

// A cast between floats.
bool float_cast(const Graph& graph, const Node& n);
// x * c or x / c with one number c that no step changes; x / c has x on the left.
bool scales(const Graph& graph, const Prober& prober, const Node& n);

// softcap(scale * s) + mask
struct ScoreForm {
  float scale = 1, softcap = 0;
  MaskForm mask;
  std::optional<DistanceBias> distance;
  ValueId bias = kNoValue;  // where the mask has no closed form
};

class ScoreRecogniser {
 public:
  ScoreRecogniser(PassContext& context, Prober& prober)
      : context_(context),
        graph_(context.graph),
        prober_(prober),
        distances_(context, prober),
        tokens_(context.probe_tokens()),
        past_(context.probe_past()) {}

  // Softmax's input `x` as a function of the product `s` [.., heads, S, keys]: tokens of the sequence, S + P, or
  // others.
  bool recognise(ValueId x, ValueId s, int64_t heads, ScoreForm* form);
  // Whether all that is added to a score hides it. Softmax takes no notice of what is added to a whole row, unless
  // there is a sink.
  bool nothing_for_whole_rows(ValueId x, ValueId s, int64_t heads);
  DistanceBiases& distances() { return distances_; }

 private:
  bool recognise_form(ValueId x, ValueId s, int64_t heads, ScoreForm* form);
  TellingSteps steps_of(ValueId x, ValueId s, int64_t heads) const;
  std::vector<int64_t> dims_of(ValueId s, int64_t tokens, int64_t past) const;
  bool scores_node(const Node& n);
  bool hides(ValueId v);
  bool beyond_scores(ValueId v) const;
  bool from_bool(ValueId v) const;
  std::vector<ValueId> known_operands(ValueId x, ValueId s) const;
  bool multiplied(ValueId x, ValueId s) const;
  bool hides_what_it_multiplies(ValueId x, ValueId s, float scale, int64_t heads);
  std::string mask_key(ValueId x, ValueId s) const;
  bool mask_operand(ValueId x, ValueId s, ScoreForm* m);
  bool only_adds(ValueId x, ValueId s) const;
  bool rest_form(ValueId x, ValueId s, const std::vector<ValueId>& rules, const std::vector<float>& now,
                 const MaskProbe& probe, int64_t heads, ScoreForm* m);
  bool told_apart(ValueId x, ValueId s, int64_t heads, ScoreForm* m);
  bool added_as_it_is(ValueId x, ValueId s, const DistanceBias& distance);
  Result<std::vector<float>> without_scores(ValueId x, ValueId s, const std::vector<ValueId>& others, int64_t tokens,
                                            int64_t past);

  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }

  PassContext& context_;
  const Graph& graph_;
  Prober& prober_;
  DistanceBiases distances_;
  const int64_t tokens_, past_;  // of the probed step
  bool few_rows_ = false;        // of scores with fixed extents are probed
  std::map<std::string, std::optional<MaskForm>> masks_;
  std::map<std::string, bool> multiplied_;  // by mask_key: what hides_what_it_multiplies found
};

}  // namespace situ
