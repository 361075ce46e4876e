#include "passes/recognise/attention_scores.h"

#include <algorithm>
#include <cmath>

#include "passes/context/binding.h"
#include "passes/context/node_key.h"

namespace situ {
namespace {

constexpr int kMaxConeNodes = 24;
constexpr int64_t kMostScores = 1 << 22;  // that are probed
constexpr float kTolerance = 1e-5f;

// Whether `part`, again and again, is `whole`.
bool equal_rows(const std::vector<float>& part, const std::vector<float>& whole) {
  if (part.empty()) return false;
  for (size_t i = 0; i < whole.size(); ++i)
    if (const float f = part[i % part.size()], y = whole[i];
        !(y == f || std::fabs(y - f) <= kTolerance * (1 + std::fabs(y))))
      return false;  // equal: -inf too
  return true;
}

// Scores of the step's tokens for all tokens of the sequence.
bool of_sequence(const Shape& scores) {
  return scores.size() >= 2 && scores.back() == scores[scores.size() - 2] + Dim::symbol(kSymP);
}

}  // namespace

bool float_cast(const Graph& graph, const Node& n) {
  auto real = [&](ValueId v) {
    return dtype_is_float(graph.values[v].info.type) && dtype_bytes(graph.values[v].info.type) >= 2;
  };
  return n.is("Cast") && real(n.in[0]) && real(n.out[0]);
}

bool scales(const Graph& graph, const Prober& prober, const Node& n) {
  if ((!n.is("Mul") && !n.is("Div")) || n.in.size() != 2) return false;
  const bool left = prober.fixed(n.in[0]), right = prober.fixed(n.in[1]);
  if (left == right || (left && n.is("Div"))) return false;
  const Shape& factor = graph.values[n.in[left ? 0 : 1]].info.shape;
  return std::all_of(factor.begin(), factor.end(), [](const Dim& d) { return d == Dim(1); });
}

// What may stand between QK^T and Softmax; probing then tells what it computes. Anything else might do so for the
// probed scores and lengths alone.
bool ScoreRecogniser::scores_node(const Node& n) {
  if (!n.def || !n.domain.empty()) return false;
  if (n.def->placement == Placement::kView || float_cast(graph_, n) || scales(graph_, prober_, n) || n.is("Tanh"))
    return true;
  auto host = [&](size_t i) { return n.has_input(i) && prober_.known(n.in[i]); };
  if (n.is("Add") || n.is("Sub")) return host(1) || (host(0) && n.is("Add"));
  if (n.is("Where")) return host(0) && host(1) != host(2) && hides(n.in[host(1) ? 1 : 2]);
  if (n.is("Mul")) return from_bool(n.in[0]) || from_bool(n.in[1]);  // GPT-2: s * mask - 1e4 * (1 - mask)
  if (n.is("Max") && n.in.size() == 2) return beyond_scores(n.in[0]) || beyond_scores(n.in[1]);
  return false;
}
// Numbers that hide a key, whatever the step. Any other would be told from a score by some scores alone.
bool ScoreRecogniser::hides(ValueId v) {
  if (!prober_.fixed(v)) return false;
  Result<Tensor> t = prober_.host_value(v, tokens_, past_);
  if (!t.is_ok() || !dtype_is_float(t->type())) return false;
  for (float x : floats(*t))
    if (x > kMasked) return false;
  return true;
}
// The lowest float, as guards against infinity have it.
bool ScoreRecogniser::beyond_scores(ValueId v) const {
  const Tensor& t = graph_.values[v].constant;
  return t.present() && t.count() == 1 && dtype_is_float(t.type()) && t.to_f64()[0] <= -60000;
}
// 0 or 1 by position: casts, slices and the like of a host value that is a bool.
bool ScoreRecogniser::from_bool(ValueId v) const {
  while (prober_.host(v) && graph_.values[v].info.type != DType::kBool) {
    const int p = graph_.values[v].producer;
    if (p < 0 || !graph_.nodes[p].def ||
        (graph_.nodes[p].def->placement != Placement::kView && !graph_.nodes[p].is("Cast")))
      return false;
    v = graph_.nodes[p].in[0];
  }
  return prober_.host(v);
}

// What scores are probed with. Where neither rows nor keys follow the step, as in an encoder of thousands of frames,
// two rows do: masks that differ by row cannot be added to them.
std::vector<int64_t> ScoreRecogniser::dims_of(ValueId s, int64_t tokens, int64_t past) const {
  std::vector<int64_t> dims = prober_.dims(s, tokens, past);
  if (few_rows_) dims[dims.size() - 2] = std::min<int64_t>(dims[dims.size() - 2], 2);
  return dims;
}

bool ScoreRecogniser::recognise(ValueId x, ValueId s, int64_t heads, ScoreForm* m) {
  few_rows_ = shape_is_const(shape(s)) && shape(s).size() >= 2;
  if (few_rows_ && x == s) {
    m->scale = 1;
    return true;
  }
  const ScoreForm before = *m;
  if (recognise_form(x, s, heads, m)) return true;
  if (!few_rows_) return false;
  *m = before;
  few_rows_ = false;
  const std::vector<int64_t> all = dims_of(s, tokens_, past_);
  int64_t count = 1;
  for (const int64_t d : all) count *= d;
  return count <= kMostScores && recognise_form(x, s, heads, m);
}

// Softmax input as a function of QK^T: softcap(scale * s) + mask.
bool ScoreRecogniser::recognise_form(ValueId x, ValueId s, int64_t heads, ScoreForm* m) {
  if (x != s) {
    const auto cone = prober_.cone(x, s, kMaxConeNodes);
    if (!cone) return false;
    for (int i : cone->nodes)
      if (!scores_node(graph_.nodes[i])) return false;
  }
  auto evaluate = [&](float fill, uint32_t seed, int64_t tokens, int64_t past) -> Result<std::vector<float>> {
    const std::vector<int64_t> dims = dims_of(s, tokens, past);
    Tensor t = fill == 0 ? Tensor::allocate(DType::kF32, dims) : prober_.random(dims, seed);
    for (int64_t i = 0; i < t.count() && fill != 0; ++i) t.view().as<float>()[i] *= fill;
    Result<Tensor> r = prober_.evaluate(x, {{s, t}}, tokens, past);
    if (!r.is_ok()) return r.status();
    return floats(*r);
  };
  auto bias = evaluate(0, 1, tokens_, past_);
  auto small = evaluate(1e-2f, 1, tokens_, past_), middle = evaluate(4, 1, tokens_, past_),
       large = evaluate(1e6f, 1, tokens_, past_);
  if (!bias.is_ok() || !small.is_ok() || !middle.is_ok() || !large.is_ok()) return false;
  const std::vector<float> input = floats(prober_.random(dims_of(s, tokens_, past_), 1));
  const std::vector<int64_t> dims = dims_of(s, tokens_, past_);
  const int64_t keys = dims.back(), rows = shape_is_const(shape(s)) ? dims[dims.size() - 2] : tokens_;
  if (bias->size() != input.size() || static_cast<int64_t>(input.size()) != heads * rows * keys) return false;
  // The allowed score that moves most tells scale and cap.
  size_t probe = input.size();
  for (size_t i = 0; i < input.size(); ++i)
    if ((*bias)[i] > kMasked && (probe == input.size() || std::fabs(input[i]) > std::fabs(input[probe]))) probe = i;
  if (probe == input.size()) return false;
  const float reach = ((*large)[probe] - (*bias)[probe]) / input[probe];
  const float slope = ((*small)[probe] - (*bias)[probe]) / (input[probe] * 1e-2f);
  m->softcap = std::fabs(reach) < 0.9f * std::fabs(slope) * 1e6f ? std::fabs((*large)[probe] - (*bias)[probe]) : 0;
  m->scale = m->softcap > 0 ? slope : reach / 1e6f;
  if (!std::isfinite(m->scale) || !std::isfinite(m->softcap)) return false;  // a half-precision score overflowed
  const float most = m->softcap > 0 ? m->softcap : std::fabs(m->scale) * kLargestScore;
  for (size_t i = 0; i < input.size(); ++i) {
    if ((*bias)[i] <= kMasked) {  // still, where scores are as large as they may be
      if ((*bias)[i] + 2 * most > kMasked / 2) return false;
      continue;
    }
    const float v = m->scale * input[i] * 4;
    const float expected = (m->softcap > 0 ? m->softcap * std::tanh(v / m->softcap) : v) + (*bias)[i];
    // What is added to scores rounds them, and must not be taken for what is made of them.
    if (!(std::fabs(expected - (*middle)[i]) <= 1e-4f * (1 + std::fabs(v)))) return false;
  }
  // Of other keys than the tokens of the sequence only what is proved for any number of them is known.
  if (!of_sequence(shape(s))) return told_apart(x, s, heads, m) || mask_operand(x, s, m);
  auto probe_mask = [&](int64_t tokens, int64_t past) { return evaluate(0, 1, tokens, past); };
  // Layers that share their masks do not probe them again.
  const std::string key = mask_key(x, s) + std::to_string(heads);
  auto known = masks_.find(key);
  if (known == masks_.end())
    known = masks_
                .emplace(key, fit_mask(graph_, prober_, known_operands(x, s), probe_mask, heads,
                                       context_.context_length, context_.phase))
                .first;
  if (!known->second) return told_apart(x, s, heads, m) || mask_operand(x, s, m);
  m->mask = *known->second;
  return !multiplied(x, s) || hides_what_it_multiplies(x, s, m->scale, heads);
}

// Softmax's input where all scores are 0, and so are `others`.
Result<std::vector<float>> ScoreRecogniser::without_scores(ValueId x, ValueId s, const std::vector<ValueId>& others,
                                                           int64_t tokens, int64_t past) {
  std::map<ValueId, Tensor> leaves;
  leaves[s] = Tensor::allocate(DType::kF32, dims_of(s, tokens, past));
  for (ValueId v : others) leaves[v] = Tensor::allocate(DType::kF32, prober_.dims(v, tokens, past));
  const Result<Tensor> r = prober_.evaluate(x, leaves, tokens, past);
  if (!r.is_ok()) return r.status();
  return floats(*r);
}

// What is added falls into biases by distance, numbers that are the same for all scores, and a mask with a closed form
// or of its own.
bool ScoreRecogniser::told_apart(ValueId x, ValueId s, int64_t heads, ScoreForm* m) {
  const Addends addends = distances_.split(known_operands(x, s), shape(s));
  if (addends.distance && (multiplied(x, s) || !added_as_it_is(x, s, *addends.distance))) return false;
  const auto probe = [&](int64_t tokens, int64_t past) {
    return without_scores(x, s, addends.by_distance(), tokens, past);
  };
  const Result<std::vector<float>> rest = probe(tokens_, past_);
  if (!rest.is_ok() || rest->empty() || (!addends.rest.empty() && !addends.distance)) return false;
  ScoreForm found = *m;
  if (addends.rest.empty()) {
    // One number, which Softmax does not see.
    for (const float b : *rest)
      if (!(b > kMasked) || b != rest->front()) return false;
  } else if (!rest_form(x, s, addends.rest, *rest, probe, heads, &found)) {
    return false;
  }
  if (addends.distance) {
    found.mask.causal = found.mask.causal || addends.distance->hides_future;
    if (!found.mask.causal && !addends.distance->of_future && context_.phase != Phase::kDecode) return false;
    if (addends.distance->matters()) found.distance = addends.distance;
  }
  *m = std::move(found);
  return true;
}

// The mask that is left when biases by distance are 0: its closed form, or itself.
bool ScoreRecogniser::rest_form(ValueId x, ValueId s, const std::vector<ValueId>& rules, const std::vector<float>& now,
                                const MaskProbe& probe, int64_t heads, ScoreForm* m) {
  const auto mask = of_sequence(shape(s))
                        ? fit_mask(graph_, prober_, rules, probe, heads, context_.context_length, context_.phase)
                        : std::nullopt;
  if (mask) return m->mask = *mask, true;
  const ValueId bias = rules.front();
  if (rules.size() != 1 || shape(bias).size() > 4 || !only_adds(x, s)) return false;
  const Result<Tensor> b = prober_.host_value(bias, tokens_, past_);
  if (!b.is_ok() || !equal_rows(floats(*b), now)) return false;
  m->bias = bias;
  return true;
}

// No number that changes with the step does anything to scores but being added to them.
bool ScoreRecogniser::only_adds(ValueId x, ValueId s) const {
  const auto cone = prober_.cone(x, s, kMaxConeNodes);
  return cone && std::all_of(cone->nodes.begin(), cone->nodes.end(), [&](int i) {
           const Node& n = graph_.nodes[i];
           return n.is("Add") || n.def->placement == Placement::kView ||
                  std::none_of(n.in.begin(), n.in.end(), [&](ValueId v) { return prober_.changes(v); });
         });
}

// Between these biases and Softmax nothing is done to them where a key is seen.
bool ScoreRecogniser::added_as_it_is(ValueId x, ValueId s, const DistanceBias& distance) {
  const Result<std::vector<float>> without = without_scores(x, s, distance.values, tokens_, past_);
  std::map<ValueId, Tensor> leaves;
  leaves[s] = Tensor::allocate(DType::kF32, dims_of(s, tokens_, past_));
  std::vector<float> added(without.is_ok() ? without->size() : 0);
  for (ValueId v : distance.values) {
    leaves[v] = prober_.random(prober_.dims(v, tokens_, past_), 7 + static_cast<uint32_t>(leaves.size()));
    const std::vector<float> part = floats(leaves[v]);
    for (size_t i = 0; i < added.size(); ++i) added[i] += part[i % part.size()];
  }
  const Result<Tensor> with = prober_.evaluate(x, leaves, tokens_, past_);
  if (!without.is_ok() || !with.is_ok() || static_cast<size_t>(with->count()) != without->size()) return false;
  const std::vector<float> all = floats(*with);
  for (size_t i = 0; i < all.size(); ++i)
    if (const float b = (*without)[i];
        b > kMasked && !(std::fabs(all[i] - b - added[i]) <= kTolerance * (1 + std::fabs(all[i]))))
      return false;
  return true;
}

TellingSteps ScoreRecogniser::steps_of(ValueId x, ValueId s, int64_t heads) const {
  return telling_steps(graph_, prober_, known_operands(x, s), context_.phase, context_.context_length, Judged::kByValue,
                       kMostStepElements / std::max<int64_t>(1, heads));
}

bool ScoreRecogniser::nothing_for_whole_rows(ValueId x, ValueId s, int64_t heads) {
  const TellingSteps telling = steps_of(x, s, heads);
  if (!telling.told) return false;
  for (const auto& [tokens, past] : telling.steps) {
    const Result<Tensor> bias =
        prober_.evaluate(x, {{s, Tensor::allocate(DType::kF32, dims_of(s, tokens, past))}}, tokens, past);
    if (!bias.is_ok()) return false;
    for (const float b : floats(*bias))
      if (b > kMasked && b != 0) return false;
  }
  return true;
}

// What the nodes between `s` and `x` read besides scores.
std::vector<ValueId> ScoreRecogniser::known_operands(ValueId x, ValueId s) const {
  std::vector<ValueId> operands;
  if (const auto cone = x == s ? std::optional<Cone>() : prober_.cone(x, s, kMaxConeNodes))
    for (int i : cone->nodes)
      for (ValueId v : graph_.nodes[i].in)
        if (prober_.changes(v)) operands.push_back(v);
  return operands;
}

bool ScoreRecogniser::multiplied(ValueId x, ValueId s) const {
  const auto cone = x == s ? std::optional<Cone>() : prober_.cone(x, s, kMaxConeNodes);
  return cone && std::any_of(cone->nodes.begin(), cone->nodes.end(), [&](int i) {
           return graph_.nodes[i].is("Mul") && !scales(graph_, prober_, graph_.nodes[i]);
         });
}
// Where a mask is multiplied in, scores of 0 do not show it: other scores do.
bool ScoreRecogniser::hides_what_it_multiplies(ValueId x, ValueId s, float scale, int64_t heads) {
  if (context_.phase != Phase::kAny) return false;
  const auto [known, fresh] = multiplied_.try_emplace(mask_key(x, s) + std::to_string(heads), false);
  if (!fresh) return known->second;
  const TellingSteps telling = steps_of(x, s, heads);
  if (!telling.told) return false;
  for (const auto& [tokens, past] : telling.steps) {
    const Tensor zero = Tensor::allocate(DType::kF32, dims_of(s, tokens, past)),
                 input = prober_.random(dims_of(s, tokens, past), 5);
    Result<Tensor> a = prober_.evaluate(x, {{s, zero}}, tokens, past),
                   b = prober_.evaluate(x, {{s, input}}, tokens, past);
    if (!a.is_ok() || !b.is_ok() || a->count() != heads * tokens * dims_of(s, tokens, past).back()) return false;
    const std::vector<float> bias = floats(*a), scores = floats(*b), in = floats(input);
    for (size_t i = 0; i < bias.size(); ++i)
      if (bias[i] > kMasked && !(std::fabs(scores[i] - bias[i] - scale * in[i]) <= 1e-4f * (1 + std::fabs(scores[i]))))
        return false;
  }
  return known->second = true;
}

// Equal where the same operators on the same masks stand between scores and Softmax.
std::string ScoreRecogniser::mask_key(ValueId x, ValueId s) const {
  const auto cone = x == s ? std::optional<Cone>() : prober_.cone(x, s, kMaxConeNodes);
  return cone_key(graph_, cone ? cone->nodes : std::vector<int>{}, s, [&](ValueId v) {
    const std::string numbers = numbers_key(graph_.values[v]);
    return numbers.empty() ? "#" + std::to_string(v) : numbers;
  });
}

// A mask without closed form is kept as a value where it is added as one.
bool ScoreRecogniser::mask_operand(ValueId x, ValueId s, ScoreForm* m) {
  const auto cone = prober_.cone(x, s, kMaxConeNodes);
  if (!cone || !only_adds(x, s)) return false;
  ValueId bias = kNoValue;
  for (int i : cone->nodes) {
    const Node& n = graph_.nodes[i];
    if (!n.is("Add")) continue;
    for (ValueId v : n.in)
      if (prober_.host(v) && shape(v).size() <= 4) {
        if (bias != kNoValue) return false;
        bias = v;
      }
  }
  if (bias == kNoValue) return false;
  // It must be all that is added: compare with the scores of zero input.
  Result<Tensor> b = prober_.host_value(bias, tokens_, past_);
  Tensor zero = Tensor::allocate(DType::kF32, dims_of(s, tokens_, past_));
  Result<Tensor> y = prober_.evaluate(x, {{s, zero}}, tokens_, past_);
  if (!b.is_ok() || !y.is_ok() || b->count() == 0) return false;
  if (!equal_rows(floats(*b), floats(*y))) return false;
  m->bias = bias;
  return true;
}

}  // namespace situ
