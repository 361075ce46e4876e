// Numbers that follow the length of the sequence alone, such as whether it is longer than what the model was first
// trained on, by which a graph chooses between rotary factors; or a factor that is made of the length itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "passes/context/binding.h"
#include "passes/host/probe.h"

namespace situ {

// A value that is another one from few lengths on.
struct ByLength {
  std::vector<int64_t> turns;  // lengths from which on it is the next one, ascending; none within a shorter context
  std::vector<Tensor> values;  // one more than turns
  const Tensor& at(int64_t length) const;
  // Of one integer or bool: its number.
  Dim of(const Dim& length) const;
  // How many of the turns lie behind.
  Dim stage(const Dim& length) const;
};

// What a value has in its stages, one behind the other: [stages, ..].
Result<Tensor> stacked(Evaluator& evaluator, const std::vector<Tensor>& values);

// What a graph's values are at the end of any step of sequences of 1 to `context` tokens. A value of few numbers that
// is computed from others is looked at for every length at once; what is made of values that change at few lengths,
// at those.
class LengthValues {
 public:
  LengthValues(const Graph& graph, Prober& prober, Evaluator& evaluator, Phase phase, int64_t context);

  // Of a value whose shape no step changes. Null: it is no such value, or it changes more often.
  const ByLength* few(ValueId v);
  // The first lengths at which it changes, where it follows the length and changes more often; else none.
  std::vector<int64_t> often(ValueId v);

 private:
  struct Form {
    std::optional<ByLength> few;
    Tensor all;  // [lengths, numbers], where there are more
    std::vector<int64_t> first_turns;
  };
  const Form& form(ValueId v, int depth);
  Form make(ValueId v, int depth);
  Form from_content(ValueId v);
  Form from_stages(ValueId v, const Node& n, int depth);
  Form from_all(ValueId v, const Node& n, int depth);
  Form from_steps(ValueId v);
  Form of_numbers(ValueId v, const Tensor& all);
  Form count_from(ValueId v, int64_t more);
  Form settled(ByLength found, ValueId v) const;
  Form beyond(Form found, ValueId v);
  std::optional<Tensor> at_every_length(ValueId v, int depth);
  std::optional<Tensor> fixed(ValueId v);
  std::set<int64_t> telling_lengths(ValueId v) const;
  bool has_fixed_shape(ValueId v) const;
  size_t most_turns(ValueId v) const;

  const Graph& graph_;
  Prober& prober_;
  Evaluator& evaluator_;
  const Phase phase_;
  const int64_t context_;
  const int64_t looked_at_;  // lengths
  std::map<ValueId, Form> forms_;
  std::map<std::pair<DType, int64_t>, Tensor> counts_;  // lengths and a number, by type
  std::set<const std::byte*> held_;                     // numbers of forms
  int64_t held_bytes_ = 0;
};

}  // namespace situ
