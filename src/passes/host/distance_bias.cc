#include "passes/host/distance_bias.h"

#include <algorithm>
#include <cstring>

#include "passes/context/pass_context.h"
#include "passes/host/mask.h"

namespace situ {
namespace {

constexpr int kMostAddends = 16;

// The sum's operands, where it is one.
std::optional<std::vector<ValueId>> summands(const Graph& graph, const Prober& prober, ValueId v) {
  if (graph.values[v].constant.present() || graph.values[v].info.content) return std::nullopt;
  const Node* n = graph.producer(v);
  if (!n || !n->domain.empty()) return std::nullopt;
  if (n->is("Identity")) return std::vector<ValueId>{n->in[0]};
  if (!n->is("Add") && !n->is("Sum")) return std::nullopt;
  const auto known = [&](ValueId x) { return x != kNoValue && prober.known(x); };
  return std::all_of(n->in.begin(), n->in.end(), known) ? std::optional(n->in) : std::nullopt;
}

float column(const DistanceBias& bias, int64_t head, int64_t distance) {
  const int64_t count = bias.table.dims()[1], row = bias.table.dims()[0] == 1 ? 0 : head;
  return bias.table.view().as<const float>()[row * count + std::clamp<int64_t>(distance - bias.least, 0, count - 1)];
}

// Without the columns at both ends that are as their neighbours.
void trim(DistanceBias* bias) {
  const int64_t heads = bias->table.dims()[0], count = bias->table.dims()[1];
  const float* x = bias->table.view().as<const float>();
  auto same = [&](int64_t a, int64_t b) {
    for (int64_t h = 0; h < heads; ++h)
      if (std::memcmp(x + h * count + a, x + h * count + b, sizeof(float)) != 0) return false;
    return true;
  };
  int64_t first = 0, last = count - 1;
  while (first < last && same(first, first + 1)) ++first;
  if (first == last) first = last = std::clamp<int64_t>(-bias->least, 0, last);  // all the same: distance 0
  while (first < last && same(last, last - 1)) --last;
  Tensor t = Tensor::allocate(DType::kF32, {heads, last - first + 1});
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = first; i <= last; ++i) t.view().as<float>()[h * (last - first + 1) + i - first] = x[h * count + i];
  bias->table = std::move(t);
  bias->least += first;
}

DistanceBias sum(const DistanceBias& a, const DistanceBias& b) {
  const int64_t least = std::min(a.least, b.least),
                end = std::max(a.least + a.table.dims()[1], b.least + b.table.dims()[1]),
                heads = std::max(a.table.dims()[0], b.table.dims()[0]);
  DistanceBias both{a.values, Tensor::allocate(DType::kF32, {heads, end - least}), least, a.of_future && b.of_future,
                    a.hides_future || b.hides_future};
  both.values.insert(both.values.end(), b.values.begin(), b.values.end());
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t d = least; d < end; ++d)
      both.table.view().as<float>()[h * (end - least) + d - least] = column(a, h, d) + column(b, h, d);
  trim(&both);
  return both;
}

}  // namespace

DistanceBiases::DistanceBiases(const PassContext& context, const Prober& prober)
    : graph_(context.graph),
      prober_(prober),
      known_(context.endless || context.context_length <= kMostDistances),
      all_(context.graph, context.binding, prober, context.evaluator,
           1 - std::min(context.context_length, kMostDistances), std::min(context.context_length, kMostDistances) - 1),
      past_(context.graph, context.binding, prober, context.evaluator, all_.first(), 0) {}

bool DistanceBiases::uniform(ValueId v) {
  const std::optional<IndexForm> form = all_.find(v);
  return form && form->uniform();
}

Addends DistanceBiases::split(const std::vector<ValueId>& values, const Shape& scores) {
  Addends found;
  std::vector<ValueId> open = values;
  for (int taken = 0; !open.empty(); ++taken) {
    const ValueId v = open.back();
    open.pop_back();
    std::optional<DistanceBias> bias = by_distance(v, scores, all_, true);
    if (!bias) bias = by_distance(v, scores, past_, false);
    if (bias) {
      found.distance = found.distance ? sum(*found.distance, *bias) : std::move(*bias);
      continue;
    }
    if (uniform(v)) continue;
    if (const auto parts = taken < kMostAddends ? summands(graph_, prober_, v) : std::nullopt)
      open.insert(open.end(), parts->begin(), parts->end());
    else
      found.rest.push_back(v);
  }
  return found;
}

std::optional<DistanceBias> DistanceBiases::by_distance(ValueId v, const Shape& scores, IndexForms& forms,
                                                        bool of_future) {
  if (!known_ || graph_.values[v].info.type != DType::kF32) return std::nullopt;
  const std::optional<IndexForm> form = forms.find(v);
  const size_t rank = scores.size();
  if (!form || !form->has_table() || form->table.dims()[0] == 1 || form->steps.size() < 2 || form->steps.size() > rank)
    return std::nullopt;
  // Keys step forward, queries back, and the last query stands at the last key.
  const Dim &queries = scores[rank - 2], &keys = scores[rank - 1];
  const size_t axes = form->steps.size();
  const int64_t by_query = form->steps[axes - 2], by_key = form->steps[axes - 1];
  if (by_key != 1 || by_query != (queries == Dim(1) ? 0 : -1) || !(form->offset + keys - queries == Dim(0)))
    return std::nullopt;
  for (size_t a = 0; a + 2 < axes; ++a)
    if (form->steps[a] != 0) return std::nullopt;
  // Along the axes of heads all have numbers of their own, or none.
  int64_t heads = 1;
  for (size_t a = 0; a + 2 < rank; ++a) {
    const size_t missing = rank - axes;
    const int64_t own = a < missing ? 1 : form->table.dims()[a - missing + 1];
    if (own != 1 && !(scores[a] == Dim(own))) return std::nullopt;
    heads *= own;
  }
  Dim all(1);
  for (size_t a = 0; a + 2 < rank; ++a) all = all * scores[a];
  if ((heads != 1 && !(all == Dim(heads))) || form->table.dims()[axes - 1] != 1 || form->table.dims()[axes] != 1)
    return std::nullopt;
  const int64_t lines = form->table.dims()[0];
  const std::vector<float> numbers = floats(form->table);  // [lines, heads]
  DistanceBias bias{{v}, Tensor::allocate(DType::kF32, {heads, lines}), forms.first(), of_future};
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < lines; ++i)
      bias.table.view().as<float>()[h * lines + i] = numbers[static_cast<size_t>(i * heads + h)];
  const auto future = [&](auto body) {  // of all heads' columns of later keys
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = std::clamp<int64_t>(1 - bias.least, 0, lines); i < lines; ++i)
        body(bias.table.view().as<float>() + h * lines + i);
  };
  bias.hides_future = bias.least + lines > 1;
  future([&](const float* x) { bias.hides_future = bias.hides_future && !(*x > kMasked); });
  if (bias.hides_future) future([](float* x) { *x = x[-1]; });
  trim(&bias);
  return bias;
}

const std::vector<ValueId>& Addends::by_distance() const {
  static const std::vector<ValueId> none;
  return distance ? distance->values : none;
}

ValueId DistanceBiases::constant(Graph& graph, const DistanceBias& bias) {
  for (const auto& [made, v] : constants_)
    if (made.least == bias.least && made.table.dims() == bias.table.dims() &&
        std::memcmp(made.table.view().data, bias.table.view().data, static_cast<size_t>(bias.table.bytes())) == 0)
      return v;
  const ValueId v = graph.add_constant(graph.values[bias.values.front()].name + "/by_distance", bias.table);
  constants_.emplace_back(bias, v);
  return v;
}

}  // namespace situ
