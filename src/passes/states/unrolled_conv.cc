#include "passes/states/unrolled_conv.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "eval/interpreter.h"
#include "passes/context/builder.h"
#include "passes/context/part.h"
#include "passes/context/pass_context.h"

namespace situ {
namespace {

constexpr size_t kTapRank = 3;
constexpr int64_t kMostTapRows = 256;  // from the first tap to the last

// What is summed: rows from `first` on times a number for each channel.
struct Taps {
  ValueId both = kNoValue;
  size_t axis = 0;                        // of the rows
  std::map<int64_t, ValueId> by_first{};  // the constants of the taps
  ValueId bias = kNoValue;
  std::vector<std::pair<ValueId, ValueId>> whole{};  // rows that are no part of others, and their constant
};

class TapJoiner {
 public:
  explicit TapJoiner(PassContext& context) : context_(context), graph_(context.graph) {}

  Result<bool> run() {
    for (const StatePair& s : context_.binding.states)
      if (s.rule == StateRule::kReplace && s.past != kNoValue) pasts_.insert(s.past);
    std::map<int, Taps> found;
    std::set<ValueId> inside;  // sums that are parts of others
    for (int i = static_cast<int>(graph_.nodes.size()); i-- > 0;) {
      const Node& n = graph_.nodes[static_cast<size_t>(i)];
      if (!n.is("Add") || inside.count(n.out[0])) continue;
      Taps taps;
      std::set<ValueId> sums;
      if (!add_to(n.out[0], &taps, &sums) || !add_new_rows(&taps) || !is_convolution(taps)) continue;
      inside.insert(sums.begin(), sums.end());
      found.emplace(i, std::move(taps));
    }
    if (found.empty()) return false;
    Builder builder(graph_);
    const std::vector<Node> nodes = graph_.nodes;
    for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
      const auto own = found.find(i);
      if (own == found.end())
        builder.keep(nodes[static_cast<size_t>(i)]);
      else
        convolve(builder, nodes[static_cast<size_t>(i)], own->second);
    }
    SITU_RETURN_IF_ERROR(builder.finish());
    graph_.remove_dead_nodes();
    return true;
  }

 private:
  const ValueInfo& info(ValueId v) const { return graph_.values[static_cast<size_t>(v)].info; }
  const Tensor& constant(ValueId v) const { return graph_.values[static_cast<size_t>(v)].constant; }
  Dim tokens() const { return context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS); }

  bool add_to(ValueId v, Taps* taps, std::set<ValueId>* sums) const {
    if (constant(v).present()) {
      if (taps->bias != kNoValue) return false;
      taps->bias = v;
      return true;
    }
    const Node* n = graph_.producer(v);
    if (!n || n->in.size() != 2 || info(v).type != DType::kF32 || sums->size() > kMostTapRows) return false;
    if (n->is("Add")) {
      sums->insert(v);
      return add_to(n->in[0], taps, sums) && add_to(n->in[1], taps, sums);
    }
    if (!n->is("Mul")) return false;
    const size_t factor = constant(n->in[0]).present() ? 0 : 1;
    return constant(n->in[factor]).present() && add_tap(n->in[1 - factor], n->in[factor], taps);
  }

  bool add_tap(ValueId rows, ValueId factor, Taps* taps) const {
    const Node* n = graph_.producer(rows);
    if (info(rows).shape.size() != kTapRank) return false;
    if (!n || !n->is("Slice") || !n->has_input(3)) {
      taps->whole.emplace_back(rows, factor);
      return taps->whole.size() == 1;
    }
    const auto begin = content_of(graph_, *n, 1), along = content_of(graph_, *n, 3), step = content_of(graph_, *n, 4);
    if (!begin || begin->size() != 1 || !(*begin)[0].is_const() || (*begin)[0].value() < 0 || !along ||
        !(*along)[0].is_const() || (n->has_input(4) && (!step || (*step)[0] != Dim(1))))
      return false;
    const int64_t given = (*along)[0].value(), axis = given < 0 ? given + int64_t{kTapRank} : given;
    if ((axis != 1 && axis != 2) || (taps->both != kNoValue && (taps->both != n->in[0] || taps->axis != size_t(axis))))
      return false;
    taps->both = n->in[0];
    taps->axis = static_cast<size_t>(axis);
    return info(rows).shape[taps->axis] == tokens() && taps->by_first.emplace((*begin)[0].value(), factor).second;
  }

  // Rows of a state, with those of the new tokens behind them, or some of these.
  const Node* joined_with_state(ValueId both) const {
    const Node* n = both == kNoValue ? nullptr : graph_.producer(both);
    if (n && n->is("Slice")) n = graph_.producer(n->in[0]);
    return n && n->is("Concat") && n->in.size() == 2 && pasts_.count(n->in[0]) ? n : nullptr;
  }
  bool ends_with_new_rows(const Taps& taps, const Node& join) const {
    const int64_t axis = join.attr_int("axis", 0);
    if ((axis < 0 ? axis + int64_t{kTapRank} : axis) != static_cast<int64_t>(taps.axis)) return false;
    const Node* slice = graph_.producer(taps.both, "Slice");
    const std::optional<AxisPart> part = slice ? part_of(graph_, *slice, 0) : AxisPart{taps.axis, 0};
    return part && part->axis == taps.axis &&
           part->begin + info(taps.both).shape[taps.axis] == info(join.out[0]).shape[taps.axis];
  }
  // Those of the new tokens, as they are: the last ones.
  bool add_new_rows(Taps* taps) const {
    if (taps->whole.empty()) return true;
    const Node* both = joined_with_state(taps->both);
    const auto& [rows, factor] = taps->whole[0];
    if (!both || both->in[1] != rows || info(rows).shape[taps->axis] != tokens() || !ends_with_new_rows(*taps, *both))
      return false;
    const Dim before = info(taps->both).shape[taps->axis] - tokens();
    return before.is_const() && taps->by_first.emplace(before.value(), factor).second;
  }
  bool by_channel(ValueId v, const Taps& taps) const {
    const Shape& s = info(v).shape;
    const size_t channels = kTapRank - taps.axis;
    const Dim& count = info(taps.both).shape[channels];
    if (s.size() > kTapRank || s.size() < kTapRank - channels || shape_count(s) != count) return false;
    return s[channels + s.size() - kTapRank] == count;
  }
  bool is_convolution(const Taps& taps) const {
    if (taps.by_first.size() < 2 || !joined_with_state(taps.both)) return false;
    const Shape& both = info(taps.both).shape;
    if (both[0] != Dim(1) || !both[kTapRank - taps.axis].is_const() ||
        taps.by_first.rbegin()->first - taps.by_first.begin()->first >= kMostTapRows)
      return false;
    return (taps.bias == kNoValue || by_channel(taps.bias, taps)) &&
           std::all_of(taps.by_first.begin(), taps.by_first.end(),
                       [&](const auto& t) { return by_channel(t.second, taps); });
  }

  void convolve(Builder& b, const Node& sum, const Taps& taps) {
    b.start(sum);
    const bool turned = taps.axis == 1;
    const int64_t channels = info(taps.both).shape[kTapRank - taps.axis].value(), first = taps.by_first.begin()->first,
                  rows = taps.by_first.rbegin()->first - first + 1;
    Tensor w = Tensor::allocate(DType::kF32, {channels, 1, rows});
    for (const auto& [at, factor] : taps.by_first) {
      const std::vector<double> numbers = constant(factor).to_f64();
      for (int64_t c = 0; c < channels; ++c)
        w.view().as<float>()[c * rows + at - first] = static_cast<float>(numbers[static_cast<size_t>(c)]);
    }
    std::vector<ValueId> in{turned ? b.transpose(taps.both, {0, 2, 1}) : taps.both,
                            graph_.add_constant(sum.name + "/taps", w)};
    if (taps.bias != kNoValue) in.push_back(b.reshape(taps.bias, {channels}));
    const bool all = first == 0 && info(taps.both).shape[taps.axis] - Dim(rows - 1) == tokens();
    ValueId y = b.op("Conv", in, all && !turned ? sum.out[0] : kNoValue);
    b.last().set_int("group", channels);
    b.last().set_ints("kernel_shape", {rows});
    if (!all)
      y = b.op("Slice",
               {y, b.constant_i64({first}), graph_.add_shape(sum.name + "/end", {Dim(first) + tokens()}),
                b.constant_i64({2})},
               turned ? kNoValue : sum.out[0]);
    if (turned) b.transpose(y, {0, 2, 1}, sum.out[0]);
  }

  PassContext& context_;
  Graph& graph_;
  std::set<ValueId> pasts_;
};

}  // namespace

Result<bool> join_taps(PassContext& context) { return TapJoiner(context).run(); }

}  // namespace situ
