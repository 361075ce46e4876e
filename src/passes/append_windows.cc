// A state that is the last W rows of all rows so far, as that of a short causal convolution is, appends the rows of the
// new tokens, and no row is written twice:
//   both = Concat(past [1, C, W], x [1, C, S]), present = Slice(both, -W ..), y = last S of Conv(both, w [C, 1, K])
//     ->  present' = Concat(past' [1, C, P], x), y = situ.CausalConv(present', x, w')      W >= K - 1, w' [K, C]
// With dilations, w' has zeros between the weights. In a graph of single tokens y may be ReduceSum(both * w) too.
// What a graph leaves out before it convolves makes no difference, be it of the past, of both or of what Conv gives: a
// cache of K rows, of which Conv reads the last K - 1, is one of K - 1 rows.
// Rows before the first token are zeros in both. What the host would hand from step to step, and each step would write
// again, stays where it was computed; forks, rewinds, batches and shared prefixes are those of keys and values.
#include <algorithm>
#include <optional>

#include "eval/interpreter.h"
#include "passes/builder.h"
#include "passes/pass.h"

namespace situ {
namespace {

constexpr size_t kRank = 3, kAxis = 2;  // [1, C, rows]

// The last rows that there are: some of the past, and all of the new tokens.
struct Tail {
  ValueId value;
  Dim past;  // rows of the past
};

struct Window {
  StatePair* state = nullptr;
  ValueId added = kNoValue;    // the rows of the new tokens
  ValueId both = kNoValue;     // behind all of the past; kNoValue: the graph has no such value
  ValueId result = kNoValue;   // rows of the new tokens, of what it gives
  int conv = -1, cut = -1;     // cut: makes the result of what conv gives, where that is more; -1: it is not
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
    nodes_ = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (const Window& w : windows) keep_extents(w);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const auto is = [&](int Window::* part) {
        return std::find_if(windows.begin(), windows.end(),
                            [&](const Window& w) { return w.*part == static_cast<int>(i); });
      };
      if (const auto own = is(&Window::conv); own != windows.end())
        convolve(*own);
      else if (is(&Window::cut) == windows.end())
        builder_.keep(nodes_[i]);
    }
    SITU_RETURN_IF_ERROR(builder_.finish());
    for (const Window& w : windows) append(w);
    graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  const ValueInfo& info(ValueId v) const { return graph_.values[v].info; }
  const Node& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }
  // Of a [1, C, rows].
  const Dim& rows(ValueId v) const { return info(v).shape[kAxis]; }

  std::optional<Window> window_of(StatePair& s) const {
    if (s.rule != StateRule::kReplace || s.past == kNoValue || s.present == kNoValue || graph_.is_output(s.past))
      return std::nullopt;
    const ValueInfo& past = info(s.past);
    if (past.type != DType::kF32 || past.shape.size() != kRank || past.shape[0] != Dim(1) ||
        !shape_is_const(past.shape))
      return std::nullopt;
    Window w{&s};
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
      if (is_append(n) && (w->added == kNoValue || w->added == n.in[1])) {
        w->added = n.in[1];
        w->tails.push_back({n.out[0], rows(rows_before)});
        if (rows_before == w->state->past) w->both = n.out[0];
      } else if (const ValueId some = last_of(n);
                 rows_before != w->state->past || some == kNoValue || graph_.is_output(some) || !follow_past(some, w)) {
        return false;
      }
    }
    return true;
  }

  // `continues`: it is, or the last rows of it are, what the state becomes.
  bool follow_tail(const Tail& t, Window* w, bool* continues) const {
    *continues = *continues || t.value == w->state->present;
    if (t.value != w->state->present && graph_.is_output(t.value)) return false;
    for (const auto& [user, operand] : users_[t.value]) {
      if (is_extent(user, w)) continue;
      if (user >= 0 && w->conv < 0 && is_sum_of_products(user, operand, t, w)) continue;
      if (user < 0 || operand != 0) return false;
      const ValueId part = last_of(node(user));
      const Dim before = part == kNoValue ? Dim(-1) : rows(part) - tokens();
      if (part != kNoValue && part == w->state->present) *continues = true;
      if (before.is_const() && before.value() >= 0) {
        w->tails.push_back({part, before});
      } else if (part == kNoValue && w->conv < 0 && is_causal(node(user), t.value)) {
        w->conv = user;
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
  bool is_append(const Node& n) const {
    const int64_t axis = n.attr_int("axis", 0);
    return n.is("Concat") && n.in.size() == 2 && n.in[0] != n.in[1] && info(n.out[0]).shape.size() == kRank &&
           (axis == static_cast<int64_t>(kAxis) || axis == -1) && rows(n.in[1]) == tokens();
  }
  Dim tokens() const { return context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS); }
  Dim past() const { return context_.phase == Phase::kFirst ? Dim(0) : Dim::symbol(kSymP); }

  // What takes the last rows of its operand; kNoValue: the node is another one.
  ValueId last_of(const Node& n) const {
    const auto along = [&](const Dim& axis) { return axis == Dim(static_cast<int64_t>(kAxis)) || axis == Dim(-1); };
    if (n.in.empty() || info(n.in[0]).shape.size() != kRank) return kNoValue;
    if (n.is("Split")) {
      const bool alone =
          std::all_of(n.out.begin(), n.out.end() - 1, [&](ValueId v) { return v == kNoValue || users_[v].empty(); });
      return alone && along(Dim(n.attr_int("axis", 0))) ? n.out.back() : kNoValue;
    }
    if (!n.is("Slice") || !n.has_input(3)) return kNoValue;
    const auto begin = content_of(graph_, n, 1), axis = content_of(graph_, n, 3), step = content_of(graph_, n, 4);
    if (!begin || begin->size() != 1 || !axis || !along((*axis)[0])) return kNoValue;
    const bool from_end = (*begin)[0].upper_bound() < 0,
               last = (*begin)[0] + rows(n.out[0]) == (from_end ? Dim(0) : rows(n.in[0]));
    return last && (!n.has_input(4) || (step && (*step)[0] == Dim(1))) ? n.out[0] : kNoValue;
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

  // Each channel by itself, without padding, of constant weights.
  bool is_causal(const Node& n, ValueId both) const {
    if (!n.is("Conv") || n.in[0] != both || n.in.size() < 2) return false;
    const auto each = [&](const char* name, int64_t number) {
      const std::vector<int64_t> list = n.attr_ints(name);
      return std::all_of(list.begin(), list.end(), [&](int64_t x) { return x == number; });
    };
    const Dim& channels = info(both).shape[1];
    const Shape& w = info(n.in[1]).shape;
    const std::string pad = n.attr_string("auto_pad", "NOTSET");
    return each("pads", 0) && each("strides", 1) && (pad == "NOTSET" || pad == "VALID") &&
           Dim(n.attr_int("group", 1)) == channels && w.size() == kRank && w[0] == channels && w[1] == Dim(1) &&
           fixed(n.in[1]) && (!n.has_input(2) || fixed(n.in[2]));
  }

  // ReduceSum over all rows of both * w, w [C, K] and constant: the convolution of one token.
  bool is_sum_of_products(int user, int operand, const Tail& t, Window* w) const {
    const Node& product = node(user);
    if (context_.phase != Phase::kDecode || !product.is("Mul") || product.in[0] == product.in[1]) return false;
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

  // The rows of the new tokens: all that the convolution gives, or the last ones where it reads more than they need.
  bool gives_new_rows(Window* w) const {
    const ValueId y = node(w->conv).out[0];
    w->result = y;
    if (w->factors != kNoValue || rows(y) == tokens()) return true;
    if (users_[y].size() != 1 || users_[y][0].first < 0 || graph_.is_output(y)) return false;
    w->cut = users_[y][0].first;
    w->result = last_of(node(w->cut));
    return w->result != kNoValue && rows(w->result) == tokens();
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
      builder_.last().set_int("axis", static_cast<int64_t>(kAxis));
    }
    const bool sum = w.factors != kNoValue;
    const Shape taps = info(sum ? w.factors : conv.in[1]).shape;
    const ValueId weights =
        sum ? builder_.transpose(builder_.reshape(w.factors, {taps[taps.size() - 2].value(), taps.back().value()}),
                                 {1, 0})
            : taps_of(conv);
    std::vector<ValueId> in{w.both, w.added, weights};
    if (!sum && conv.has_input(2)) in.push_back(conv.in[2]);
    if (sum && info(w.result).shape.size() < kRank)
      builder_.reshape(builder_.op("CausalConv", std::move(in), kNoValue, "situ"), {1, -1}, w.result);
    else
      builder_.op("CausalConv", std::move(in), w.result, "situ");
    context_.note("short convolution", conv.name,
                  taps.back().str() + " tokens of " + info(w.added).shape[1].str() + " channels, of appended rows");
  }

  void append(const Window& w) {
    graph_.values[w.state->past].info.shape[kAxis] = past();
    std::replace(graph_.outputs.begin(), graph_.outputs.end(), w.state->present, w.both);
    w.state->present = w.both;
    w.state->rule = StateRule::kAppend;
    w.state->axis = static_cast<int>(kAxis);
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  Builder builder_;
  std::vector<Node> nodes_;
};

}  // namespace

Status append_windows(PassContext& context) { return Appender(context).run(); }

}  // namespace situ
