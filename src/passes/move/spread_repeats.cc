// A repetition whose axis was merged with another one, Reshape(Expand(x)), has no strides that name its elements, and
// would be copied. Who reads it is computed with the two axes apart, of which one has stride 0, and the result merged,
// which moves nothing:
//   f(Reshape(Expand(x)), y)  ->  Reshape(f(Expand(x), Reshape(y)))
// f is a product whose batches these axes are (split_products), as of attention that is not recognised, which reads
// each head where it stands once; or elementwise (spread_repeats).
#include <algorithm>
#include <optional>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

constexpr int kMostViews = 8;  // in a row
constexpr size_t kMostAxes = kMaxRank;

std::vector<size_t> axes_of_many(const Shape& shape) {
  std::vector<size_t> axes;
  for (size_t a = 0; a < shape.size(); ++a)
    if (shape[a] != Dim(1)) axes.push_back(a);
  return axes;
}

// A value whose axis `axis` is two axes of `source`, one of which repeats: [.., outer * inner, ..].
struct Merged {
  ValueId source = kNoValue;
  std::vector<const Node*> views;   // from the source on; the first one merges
  size_t first_axis = 0, axis = 0;  // of what the first view gives, and of the value
  Dim outer, inner;
};

class RepeatSpreader {
 public:
  RepeatSpreader(Graph& graph, bool products) : graph_(graph), products_(products) {}

  Status run() {
    const auto reads = [&](const Node& n) { return read_by(n).has_value(); };
    for (int round = 0; round < kMostViews; ++round) {
      if (std::none_of(graph_.nodes.begin(), graph_.nodes.end(), reads)) break;
      Builder builder(graph_);
      const std::vector<Node> nodes = graph_.nodes;
      for (const Node& n : nodes) {
        const std::optional<Merged> found = read_by(n);
        if (found) emit(builder, n, *found);
        if (!found) builder.keep(n);
      }
      SITU_RETURN_IF_ERROR(builder.finish());
      graph_.rebuild_links();
      graph_.remove_dead_nodes();
      graph_.rebuild_links();
    }
    return Status::ok();
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  bool one_number(ValueId v) const { return shape_count(shape(v)) == Dim(1); }

  // Whether a view only adds and drops axes of extent 1.
  bool keeps_axes(const Node& n) const {
    if (!n.is("Reshape") && !n.is("Unsqueeze") && !n.is("Squeeze")) return false;
    const Shape &from = shape(n.in[0]), &to = shape(n.out[0]);
    const std::vector<size_t> before = axes_of_many(from), after = axes_of_many(to);
    return before.size() == after.size() && std::equal(before.begin(), before.end(), after.begin(),
                                                       [&](size_t a, size_t b) { return from[a] == to[b]; });
  }

  // Along which axes the elements of a value repeat.
  std::vector<char> repeated_axes(ValueId v, int depth = 0) const {
    std::vector<char> repeated(shape(v).size(), 0);
    const Node* n = depth < kMostViews ? graph_.producer(v) : nullptr;
    if (!n) return repeated;
    if (n->is("Expand") && graph_.producer(n->in[0])) {
      const std::vector<char> before = repeated_axes(n->in[0], depth + 1);
      const Shape& from = shape(n->in[0]);
      for (size_t a = 0; a < from.size(); ++a) {
        const size_t at = a + repeated.size() - from.size();
        repeated[at] = before[a] != 0 || (from[a] == Dim(1) && shape(v)[at] != Dim(1));
      }
    } else if (n->is("Transpose")) {
      const std::vector<char> before = repeated_axes(n->in[0], depth + 1);
      const std::vector<int64_t> perm = n->permutation(before.size());
      for (size_t a = 0; a < perm.size(); ++a) repeated[a] = before[static_cast<size_t>(perm[a])];
    } else if (keeps_axes(*n)) {
      const std::vector<char> before = repeated_axes(n->in[0], depth + 1);
      const std::vector<size_t> from = axes_of_many(shape(n->in[0])), to = axes_of_many(shape(v));
      for (size_t i = 0; i < to.size(); ++i) repeated[to[i]] = before[from[i]];
    }
    return repeated;
  }

  // What a Reshape merges that no strides name.
  std::optional<Merged> merges(const Node& n) const {
    const Shape &apart = shape(n.in[0]), &joined = shape(n.out[0]);
    const std::vector<char> repeated = repeated_axes(n.in[0]);
    const std::vector<size_t> axes = axes_of_many(apart);
    size_t at = 0;
    for (const size_t j : axes_of_many(joined)) {
      size_t end = at, between = 0;  // where what repeats meets what does not
      Dim all(1);
      do {
        if (end == axes.size()) return std::nullopt;
        if (between == 0 && end > at && repeated[axes[end]] != repeated[axes[end - 1]]) between = end;
        all = all * apart[axes[end++]];
      } while (all != joined[j]);
      if (between > 0) {
        Merged m{n.in[0], {&n}, j, j, Dim(1), Dim(1)};
        for (size_t i = at; i < end; ++i)
          (i < between ? m.outer : m.inner) = (i < between ? m.outer : m.inner) * apart[axes[i]];
        return m;
      }
      at = end;
    }
    return std::nullopt;
  }

  std::optional<Merged> merged(ValueId v) const {
    std::vector<const Node*> views;
    for (const Node* n = graph_.producer(v); n && std::ssize(views) < kMostViews; n = graph_.producer(n->in[0])) {
      if (shape(n->out[0]).size() >= kMostAxes) return std::nullopt;  // it gets one more
      if (n->is("Transpose") || keeps_axes(*n)) {
        views.insert(views.begin(), n);
        continue;
      }
      std::optional<Merged> m = n->is("Reshape") ? merges(*n) : std::nullopt;
      if (!m) return std::nullopt;
      for (const Node* view : views) m->axis = behind(*view, m->axis);
      m->views.insert(m->views.end(), views.begin(), views.end());
      return m;
    }
    return std::nullopt;
  }

  // The axis of a view's result that axis `a` of its operand, of more than one, is.
  size_t behind(const Node& view, size_t a) const {
    if (view.is("Transpose")) {
      const std::vector<int64_t> perm = view.permutation(shape(view.in[0]).size());
      return static_cast<size_t>(std::find(perm.begin(), perm.end(), static_cast<int64_t>(a)) - perm.begin());
    }
    const std::vector<size_t> from = axes_of_many(shape(view.in[0])), to = axes_of_many(shape(view.out[0]));
    return to[static_cast<size_t>(std::find(from.begin(), from.end(), a) - from.begin())];
  }

  // How many operands have the axes of the result, and how many of its last axes are not theirs.
  size_t operands(const Node& n) const { return products_ ? 2 : n.in.size(); }
  size_t own_axes() const { return products_ ? 2 : 0; }

  bool takes(const Node& n) const {
    if (n.out.size() != 1 || n.in.size() < (products_ ? 2u : 1u) || graph_.values[n.out[0]].info.content ||
        shape(n.out[0]).size() >= kMostAxes)
      return false;
    if (!products_) return n.domain.empty() && n.def && n.def->placement == Placement::kElementwise;
    if (!n.is("MatMul") && !n.is("MatMulInteger")) return false;
    for (size_t i = 2; i < n.in.size(); ++i)  // zero points
      if (n.has_input(i) && !one_number(n.in[i])) return false;
    return shape(n.in[0]).size() >= 2 && shape(n.in[1]).size() >= 2;
  }

  // The merged repetition among the operands; `axis` is that of the result.
  std::optional<Merged> read_by(const Node& n) const {
    if (!takes(n)) return std::nullopt;
    const Shape& y = shape(n.out[0]);
    for (size_t i = 0; i < operands(n); ++i) {
      if (!n.has_input(i)) continue;
      std::optional<Merged> m = merged(n.in[i]);
      if (!m || shape(n.in[i]).size() > y.size()) continue;
      m->axis += y.size() - shape(n.in[i]).size();
      if (m->axis + own_axes() < y.size() && y[m->axis] == m->outer * m->inner && broadcast_along(n, m->axis)) return m;
    }
    return std::nullopt;
  }

  // Whether each operand has that axis of the result, or repeats along it.
  bool broadcast_along(const Node& n, size_t axis) const {
    const Shape& y = shape(n.out[0]);
    for (size_t i = 0; i < operands(n); ++i) {
      if (!n.has_input(i)) continue;
      const Shape& s = shape(n.in[i]);
      if (s.size() > y.size()) return false;
      const size_t missing = y.size() - s.size();
      if (axis >= missing && s[axis - missing] != Dim(1) && s[axis - missing] != y[axis]) return false;
    }
    return true;
  }

  static Shape apart(Shape s, size_t axis, const Merged& m) {
    const bool one = s[axis] == Dim(1);
    s[axis] = one ? Dim(1) : m.outer;
    s.insert(s.begin() + static_cast<std::ptrdiff_t>(axis) + 1, one ? Dim(1) : m.inner);
    return s;
  }

  ValueId described(ValueId v, ValueId like, Shape s) {
    graph_.values[v].info = {graph_.values[like].info.type, true, std::move(s), {}};
    return v;
  }
  ValueId reshaped(Builder& builder, ValueId v, const Shape& s) {
    return described(builder.op("Reshape", {v, graph_.add_shape("dims", s)}), v, s);
  }

  // `v` with its axis apart.
  ValueId split(Builder& builder, ValueId v, size_t axis, const Merged& wanted) {
    const std::optional<Merged> m = merged(v);
    if (!m || m->axis != axis || m->outer != wanted.outer || m->inner != wanted.inner)
      return reshaped(builder, v, apart(shape(v), axis, wanted));
    size_t at = m->first_axis;
    ValueId x = reshaped(builder, m->source, apart(shape(m->views[0]->out[0]), at, *m));
    for (size_t i = 1; i < m->views.size(); ++i) {
      const Node& view = *m->views[i];
      const size_t next = behind(view, at);
      const Shape s = apart(shape(view.out[0]), next, *m);
      if (view.is("Transpose")) {
        std::vector<int64_t> perm = view.permutation(shape(view.in[0]).size());
        for (int64_t& p : perm) p += p > static_cast<int64_t>(at);
        perm.insert(perm.begin() + static_cast<std::ptrdiff_t>(next) + 1, static_cast<int64_t>(at) + 1);
        x = described(builder.transpose(x, perm), x, s);
      } else {
        x = reshaped(builder, x, s);
      }
      at = next;
    }
    return x;
  }

  void emit(Builder& builder, const Node& n, const Merged& m) {
    builder.start(n);
    const Shape y = shape(n.out[0]);
    std::vector<ValueId> in = n.in;
    for (size_t i = 0; i < operands(n); ++i) {
      if (!n.has_input(i)) continue;
      const size_t missing = y.size() - shape(n.in[i]).size();
      if (m.axis >= missing && !(one_number(n.in[i]) && !products_))
        in[i] = split(builder, n.in[i], m.axis - missing, m);
    }
    const ValueId whole = described(builder.again(n, in), n.out[0], apart(y, m.axis, m));
    builder.op("Reshape", {whole, graph_.add_shape("dims", y)}, n.out[0]);
  }

  Graph& graph_;
  const bool products_;
};

}  // namespace

Status split_products(PassContext& context) { return RepeatSpreader(context.graph, true).run(); }
Status spread_repeats(PassContext& context) { return RepeatSpreader(context.graph, false).run(); }

}  // namespace situ
