// A state that is the last W rows of all rows so far, as that of a short causal convolution is, appends the rows of the
// new tokens, and no row is written twice:
//   both = Concat(past [1, C, W], x [1, C, S]), present = Slice(both, -W ..), y = last S of Conv(both, w [C, 1, K])
//     ->  present' = Concat(past' [1, C, P], x), y = situ.CausalConv(present', x, w')      W >= K - 1, w' [K, C]
// With dilations, w' has zeros between the weights. In a graph of single tokens y may be ReduceSum(both * w) too.
// What a graph leaves out before it convolves makes no difference, be it of the past, of both or of what Conv gives: a
// cache of K rows, of which Conv reads the last K - 1, is one of K - 1 rows. Nor does padding, if what it gives is left
// out. States may be [1, W, C] too, which is turned before it is convolved.
// Rows before the first token are zeros in both. What the host would hand from step to step, and each step would write
// again, stays where it was computed; forks, rewinds, batches and shared prefixes are those of keys and values.
#include <algorithm>
#include <optional>

#include "base/assign.h"
#include "eval/interpreter.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/host/infer.h"
#include "passes/states/passes.h"
#include "passes/states/unrolled_conv.h"

namespace situ {
namespace {

constexpr size_t kRank = 3, kAxis = 2;  // [1, C, rows], of what is convolved
constexpr int kMostCuts = 4;

// The last rows that there are: some of the past, and all of the new tokens.
struct Tail {
  ValueId value;
  Dim past;  // rows of the past
  size_t axis;
};

struct Window {
  StatePair* state = nullptr;
  size_t axis = kAxis;        // of the state's rows
  ValueId added = kNoValue;   // the rows of the new tokens
  ValueId both = kNoValue;    // behind all of the past; kNoValue: the graph has no such value
  ValueId result = kNoValue;  // rows of the new tokens, of what it gives
  int conv = -1;
  std::vector<int> cuts;       // what makes the result of what conv gives, where that is more,
  std::vector<int> between;    // and what computes number by number between them
  Dim past;                    // rows of the past in what is convolved
  ValueId factors = kNoValue;  // of one token: conv sums the products with these; kNoValue: it is a Conv
  std::vector<Tail> tails;
  std::vector<ValueId> extents;  // known shapes of what changes its shape
};

class Appender {
 public:
  explicit Appender(PassContext& context)
      : context_(context), graph_(context.graph), users_(graph_.users()), builder_(graph_) {}

  Status run() {
    std::vector<Window> windows;
    for (StatePair& s : context_.binding.states)
      if (const std::optional<Window> w = window_of(s)) windows.push_back(*w);
    if (windows.empty()) return Status::ok();
    nodes_ = std::exchange(graph_.nodes, {});
    for (const Window& w : windows) keep_extents(w);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const int at = static_cast<int>(i);
      const auto own = std::find_if(windows.begin(), windows.end(), [&](const Window& w) { return w.conv == at; });
      if (own != windows.end())
        convolve(*own);
      else if (std::none_of(windows.begin(), windows.end(),
                            [&](const Window& w) { return has(w.cuts, at) || has(w.between, at); }))
        builder_.keep(nodes_[i]);
    }
    SITU_RETURN_IF_ERROR(builder_.finish());
    for (const Window& w : windows) append(w);
    graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  static bool has(const std::vector<int>& nodes, int i) {
    return std::find(nodes.begin(), nodes.end(), i) != nodes.end();
  }
  const ValueInfo& info(ValueId v) const { return graph_.values[v].info; }
  const Node& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }
  const Dim& rows(ValueId v, size_t axis) const { return info(v).shape[axis]; }

  std::optional<Window> window_of(StatePair& s) const {
    if (s.rule != StateRule::kReplace || s.past == kNoValue || s.present == kNoValue || graph_.is_output(s.past))
      return std::nullopt;
    const ValueInfo& past = info(s.past);
    if (past.type != DType::kF32 || past.shape.size() != kRank || past.shape[0] != Dim(1) ||
        !shape_is_const(past.shape))
      return std::nullopt;
    for (const size_t axis : {kAxis, size_t{1}})
      if (std::optional<Window> w = window_along(axis, s)) return w;
    return std::nullopt;
  }
  std::optional<Window> window_along(size_t axis, StatePair& s) const {
    Window w{&s, axis};
    if (!follow_past(s.past, &w)) return std::nullopt;
    bool continues = false;
    for (size_t i = 0; i < w.tails.size(); ++i)
      if (!follow_tail(Tail(w.tails[i]), &w, &continues)) return std::nullopt;
    return continues && w.conv >= 0 && gives_new_rows(&w) ? std::optional(w) : std::nullopt;
  }

  // All, or the last rows, of the past are followed by the rows of the new tokens, and read by nothing else.
  bool follow_past(ValueId rows_before, Window* w) const {
    for (const auto& [user, operand] : users_[rows_before]) {
      if (is_extent(user, w)) continue;
      if (user < 0 || operand != 0) return false;
      const Node& n = node(user);
      if (is_append(n, w->axis) && (w->added == kNoValue || w->added == n.in[1])) {
        w->added = n.in[1];
        w->tails.push_back({n.out[0], rows(rows_before, w->axis), w->axis});
        if (rows_before == w->state->past) w->both = n.out[0];
      } else if (const ValueId some = last_of(n, w->axis);
                 rows_before != w->state->past || some == kNoValue || graph_.is_output(some) || !follow_past(some, w)) {
        return false;
      }
    }
    return true;
  }

  // `continues`: it is, or the last rows of it are, what the state becomes.
  bool follow_tail(const Tail& t, Window* w, bool* continues) const {
    *continues = *continues || (t.value == w->state->present && t.axis == w->axis);
    if (t.value != w->state->present && graph_.is_output(t.value)) return false;
    for (const auto& [user, operand] : users_[t.value]) {
      if (is_extent(user, w)) continue;
      if (user >= 0 && w->conv < 0 && is_sum_of_products(user, operand, t, w)) continue;
      if (user < 0 || operand != 0) return false;
      if (turns(node(user))) {
        w->tails.push_back({node(user).out[0], t.past, kRank - t.axis});
        continue;
      }
      const ValueId part = last_of(node(user), t.axis);
      const Dim before = part == kNoValue ? Dim(-1) : rows(part, t.axis) - tokens();
      if (part != kNoValue && part == w->state->present && t.axis == w->axis) *continues = true;
      if (before.is_const() && before.value() >= 0) {
        w->tails.push_back({part, before, t.axis});
      } else if (part == kNoValue && w->conv < 0 && t.axis == kAxis && is_causal(node(user), t.value)) {
        w->conv = user;
        w->past = t.past;
      } else if (part != w->state->present || !users_[part].empty()) {
        return false;
      }
    }
    return true;
  }

  // Shape, which the host knows, and which stays what it was.
  bool is_extent(int user, Window* w) const {
    if (user < 0 || !node(user).is("Shape") || !info(node(user).out[0]).content) return false;
    w->extents.push_back(node(user).out[0]);
    return true;
  }
  bool is_append(const Node& n, size_t axis) const {
    return n.is("Concat") && n.in.size() == 2 && n.in[0] != n.in[1] && info(n.out[0]).shape.size() == kRank &&
           is_axis(Dim(n.attr_int("axis", 0)), axis) && rows(n.in[1], axis) == tokens();
  }
  static bool is_axis(const Dim& told, size_t axis) {
    return told == Dim(static_cast<int64_t>(axis)) || told == Dim(static_cast<int64_t>(axis) - int64_t{kRank});
  }
  // [1, C, rows] and [1, rows, C]
  bool turns(const Node& n) const {
    return n.is("Transpose") && info(n.in[0]).shape.size() == kRank &&
           n.permutation(kRank) == std::vector<int64_t>{0, 2, 1};
  }
  Dim tokens() const { return context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS); }
  Dim past() const { return context_.phase == Phase::kFirst ? Dim(0) : Dim::symbol(kSymP); }

  // What takes rows of its operand, some that lie behind each other, and where they begin.
  struct Part {
    ValueId value = kNoValue;
    Dim begin;
  };
  Part part_of(const Node& n, size_t axis) const {
    if (n.in.empty() || n.in[0] == kNoValue || info(n.in[0]).shape.size() != kRank) return {};
    const Dim& all = rows(n.in[0], axis);
    if (n.is("Split")) {
      const bool alone = std::all_of(n.out.begin(), n.out.end() - 1, [&](ValueId v) {
        return v == kNoValue || (users_[v].empty() && !graph_.is_output(v));
      });
      if (!alone || !is_axis(Dim(n.attr_int("axis", 0)), axis)) return {};
      return {n.out.back(), all - rows(n.out.back(), axis)};
    }
    if (n.is("Gather")) {
      const auto at = content_of(graph_, n, 1);
      if (!at || at->empty() || !is_axis(Dim(n.attr_int("axis", 0)), axis) || info(n.out[0]).shape.size() != kRank)
        return {};
      for (size_t i = 1; i < at->size(); ++i)
        if ((*at)[i] != (*at)[0] + Dim(static_cast<int64_t>(i))) return {};
      return {n.out[0], (*at)[0].upper_bound() < 0 ? all + (*at)[0] : (*at)[0]};
    }
    if (!n.is("Slice") || !n.has_input(3)) return {};
    const auto begin = content_of(graph_, n, 1), along = content_of(graph_, n, 3), step = content_of(graph_, n, 4);
    if (!begin || begin->size() != 1 || !along || !is_axis((*along)[0], axis) ||
        (n.has_input(4) && (!step || (*step)[0] != Dim(1))))
      return {};
    return {n.out[0], (*begin)[0].upper_bound() < 0 ? all + (*begin)[0] : (*begin)[0]};
  }
  // What takes the last rows of its operand; kNoValue: the node is another one.
  ValueId last_of(const Node& n, size_t axis) const {
    const Part part = part_of(n, axis);
    const bool last = part.value != kNoValue && part.begin + rows(part.value, axis) == rows(n.in[0], axis);
    return last ? part.value : kNoValue;
  }

  // A constant, or a view of one.
  bool fixed(ValueId v) const {
    while (!graph_.values[v].constant.present()) {
      const Node* n = graph_.producer(v);
      if (!n || !n->def || n->def->placement != Placement::kView || n->in.empty()) return false;
      v = n->in[0];
    }
    return true;
  }

  // Each channel by itself, of constant weights.
  bool is_causal(const Node& n, ValueId both) const {
    if (!n.is("Conv") || n.in[0] != both || n.in.size() < 2) return false;
    const auto each = [&](const char* name, int64_t number) {
      const std::vector<int64_t> list = n.attr_ints(name);
      return std::all_of(list.begin(), list.end(), [&](int64_t x) { return x == number; });
    };
    const Dim& channels = info(both).shape[1];
    const Shape& w = info(n.in[1]).shape;
    const std::string pad = n.attr_string("auto_pad", "NOTSET");
    return each("strides", 1) && (pad == "NOTSET" || pad == "VALID") && Dim(n.attr_int("group", 1)) == channels &&
           w.size() == kRank && w[0] == channels && w[1] == Dim(1) && fixed(n.in[1]) &&
           (!n.has_input(2) || fixed(n.in[2]));
  }

  // ReduceSum over all rows of both * w, w [C, K] and constant: the convolution of one token.
  bool is_sum_of_products(int user, int operand, const Tail& t, Window* w) const {
    const Node& product = node(user);
    if (context_.phase != Phase::kDecode || t.axis != kAxis || !product.is("Mul") || product.in[0] == product.in[1])
      return false;
    const ValueId factors = product.in[1 - static_cast<size_t>(operand)], products = product.out[0];
    const Shape &own = info(t.value).shape, &by = info(factors).shape;
    const bool fits = by.size() >= 2 && by.size() <= kRank && by[by.size() - 2] == own[1] && by.back() == own[kAxis] &&
                      (by.size() == 2 || by[0] == Dim(1));
    if (!fits || !fixed(factors) || info(factors).type != DType::kF32 || graph_.is_output(products) ||
        users_[products].size() != 1 || users_[products][0].first < 0)
      return false;
    const Node& sum = node(users_[products][0].first);
    const auto axes = content_of(graph_, sum, 1);
    const std::vector<int64_t> listed = sum.attr_ints("axes");
    const Dim axis = axes && axes->size() == 1 ? (*axes)[0] : listed.size() == 1 ? Dim(listed[0]) : Dim(0);
    if (!sum.is("ReduceSum") || (axis != Dim(-1) && axis != Dim(static_cast<int64_t>(kAxis)))) return false;
    w->conv = users_[products][0].first;
    w->factors = factors;
    return true;
  }

  // The rows of the new tokens: all that the convolution gives, or some where it reads more than they need.
  bool gives_new_rows(Window* w) const {
    w->result = node(w->conv).out[0];
    if (w->factors != kNoValue) return true;
    // Where the row is that the first new token is the last of.
    const Node& conv = node(w->conv);
    const std::vector<int64_t> dilations = conv.attr_ints("dilations"), pads = conv.attr_ints("pads");
    const int64_t apart = dilations.empty() ? 1 : dilations[0], before = pads.empty() ? 0 : pads[0];
    const Dim more = w->past - Dim((info(conv.in[1]).shape[2].value() - 1) * apart), first = more + Dim(before);
    Dim at = 0;
    while (at != first || rows(w->result, kAxis) != tokens()) {
      const auto& users = users_[w->result];
      if (w->cuts.size() + w->between.size() == kMostCuts || users.size() != 1 || users[0].first < 0 ||
          users[0].second != 0 || graph_.is_output(w->result))
        return false;
      const Node& next = node(users[0].first);
      if (next.def && next.def->placement == Placement::kElementwise && next.in.size() == 1 && next.out.size() == 1) {
        w->between.push_back(users[0].first);
        w->result = next.out[0];
        continue;
      }
      const Part part = part_of(next, kAxis);
      if (part.value == kNoValue) return false;
      at = at + part.begin;
      w->cuts.push_back(users[0].first);
      w->result = part.value;
    }
    return more.is_const() && more.value() >= 0;  // all that is read of the past is there: padding is no row of it
  }

  void keep_extents(const Window& w) {
    for (const ValueId extent : w.extents) {
      const Shape dims = *info(extent).content;
      const ValueId known = graph_.add_shape(graph_.values[extent].name + "/known", dims);
      for (Node& n : nodes_) std::replace(n.in.begin(), n.in.end(), extent, known);
    }
  }

  // [C, 1, K] -> [K, C], or with zeros for the rows that dilations leave out between two weights.
  ValueId taps_of(const Node& conv) {
    const Shape taps = info(conv.in[1]).shape;
    const int64_t channels = taps[0].value(), count = taps[2].value();
    const std::vector<int64_t> dilations = conv.attr_ints("dilations");
    const int64_t apart = dilations.empty() ? 1 : dilations[0];
    ValueId weights = conv.in[1];
    if (apart > 1 && count > 1) {
      const ValueId zero = graph_.add_constant(conv.name + "/left_out", Tensor::allocate(DType::kF32, {1})),
                    none = builder_.op("Expand", {zero, builder_.constant_i64({channels, count, apart - 1})});
      weights = builder_.op("Concat", {builder_.reshape(weights, {channels, count, 1}), none});
      builder_.last().set_int("axis", 2);
      const int64_t rows = (count - 1) * apart + 1;
      weights = builder_.op("Slice", {builder_.reshape(weights, {channels, count * apart}), builder_.constant_i64({0}),
                                      builder_.constant_i64({rows}), builder_.constant_i64({1})});
    } else {
      weights = builder_.reshape(weights, {channels, count});
    }
    return builder_.transpose(weights, {1, 0});
  }

  void convolve(Window& w) {
    const Node conv = nodes_[static_cast<size_t>(w.conv)];
    builder_.start(conv);
    if (w.both == kNoValue) {
      w.both = builder_.op("Concat", {w.state->past, w.added});
      builder_.last().set_int("axis", static_cast<int64_t>(w.axis));
    }
    const bool sum = w.factors != kNoValue;
    const Shape taps = info(sum ? w.factors : conv.in[1]).shape;
    const ValueId weights =
        sum ? builder_.transpose(builder_.reshape(w.factors, {taps[taps.size() - 2].value(), taps.back().value()}),
                                 {1, 0})
            : taps_of(conv);
    const auto by_channel = [&](ValueId v) { return w.axis == kAxis ? v : builder_.transpose(v, {0, 2, 1}); };
    std::vector<ValueId> in{by_channel(w.both), by_channel(w.added), weights};
    if (!sum && conv.has_input(2)) in.push_back(conv.in[2]);
    if (sum && info(w.result).shape.size() < kRank)
      builder_.reshape(builder_.op("CausalConv", std::move(in), kNoValue, "situ"), {1, -1}, w.result);
    else
      compute_rows(w, std::move(in));
    context_.note(
        "short convolution", conv.name,
        taps.back().str() + " tokens of " + info(w.added).shape[kRank - w.axis].str() + " channels, of appended rows");
  }

  // Rows of the new tokens alone, and what is computed of each number of them.
  void compute_rows(const Window& w, std::vector<ValueId> in) {
    ValueId rows = builder_.op("CausalConv", std::move(in), w.between.empty() ? w.result : kNoValue, "situ");
    for (const int i : w.between)
      rows = builder_.again(nodes_[static_cast<size_t>(i)], {rows}, i == w.between.back() ? w.result : kNoValue);
  }

  void append(const Window& w) {
    graph_.values[w.state->past].info.shape[w.axis] = past();
    std::replace(graph_.outputs.begin(), graph_.outputs.end(), w.state->present, w.both);
    w.state->present = w.both;
    w.state->rule = StateRule::kAppend;
    w.state->axis = static_cast<int>(w.axis);
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  Builder builder_;
  std::vector<Node> nodes_;
};

}  // namespace

Status append_windows(PassContext& context) {
  SITU_TAKE(joined, join_taps(context));
  if (joined) SITU_RETURN_IF_ERROR(infer_shapes(context));
  return Appender(context).run();
}

}  // namespace situ
