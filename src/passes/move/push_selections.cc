// A Slice, Split or Gather that selects columns of a projection is pushed above it: the projection is
// split into parts, each of which can be written straight to its own place (Q to the arena, K and V
// to the state). It applies where every user of the projection is such a selection, so nothing is
// computed twice. Weights are selected as views, never copied.
//   Select(MatMul(x, W)) -> MatMul(x, Select(W)),  Select(x + b) -> Select(x) + Select(b)
#include <algorithm>
#include <numeric>
#include <optional>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/host/constants.h"
#include "passes/host/infer.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

// One part of a packed value: an optional reshape of the last axis into `inner`, then one selection.
struct Selection {
  std::vector<int64_t> inner;  // dims that the last axis is split into; empty: not split
  Node select;                 // Slice, Split (one output of it) or Gather of a constant index
  size_t output = 0;           // which output of `select`
  int64_t axis = -1;           // selected axis before `perm`, counted from the end
  std::vector<int64_t> perm;   // transposition between the reshape and the selection; empty: none
};

// Selections by axis counted from the end, so that they mean the same on x [1,S,N] and on W [K,N].
std::optional<int64_t> selected_axis(const Graph& graph, const Node& n, int64_t rank) {
  int64_t axis;
  if (n.is("Split") || n.is("Gather")) {
    axis = n.attr_int("axis", 0);
  } else if (n.is("Slice") && n.in.size() >= 4 && n.in[3] != kNoValue && graph.values[n.in[3]].constant.present()) {
    const std::vector<int64_t> axes = graph.values[n.in[3]].constant.to_i64();
    if (axes.size() != 1) return std::nullopt;
    axis = axes[0];
  } else {
    return std::nullopt;
  }
  for (size_t i = 1; i < n.in.size(); ++i)
    if (n.in[i] != kNoValue && !graph.values[n.in[i]].constant.present()) return std::nullopt;
  if (n.is("Gather") && graph.values[n.in[1]].constant.count() != 1) return std::nullopt;
  if (n.is("Gather") && graph.values[n.in[1]].constant.rank() != 0) return std::nullopt;
  return axis < 0 ? axis : axis - rank;
}

class Pusher {
 public:
  explicit Pusher(PassContext& context) : context_(context), graph_(context.graph) {}

  // Splits all projections and additions that can be as the graph is; false when there are none.
  Result<bool> step() {
    const auto users = graph_.users();
    std::map<int, std::vector<std::pair<int, Selection>>> splits;  // by node
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!splittable(node) || graph_.is_output(node.out[0])) continue;
      std::vector<std::pair<int, Selection>> parts;
      if (!collect(users, node.out[0], {}, {}, &parts) || parts.empty()) continue;
      const auto empty = [&](const auto& part) {
        const Shape& y = graph_.values[part.second.select.out[part.second.output]].info.shape;
        return std::find(y.begin(), y.end(), Dim(0)) != y.end();
      };
      if (std::any_of(parts.begin(), parts.end(), empty)) continue;
      splits[static_cast<int>(n)] = std::move(parts);
    }
    if (splits.empty()) return false;
    SITU_RETURN_IF_ERROR(split(splits));
    return true;
  }

 private:
  bool constant(ValueId v) const { return graph_.values[v].constant.present(); }

  bool splittable(const Node& n) const {
    if (n.out.size() != 1 || graph_.values[n.out[0]].info.shape.size() < 2) return false;
    if (n.is("MatMul") || n.is("Project", "situ"))
      return constant_weight(n.in[1]) && graph_.values[n.in[1]].info.shape.size() == 2;
    if (n.is("Gemm") && n.has_input(2) &&
        !(graph_.values[n.in[2]].info.shape == Shape{graph_.values[n.out[0]].info.shape.back()}))
      return false;
    if (n.is("Gemm"))
      return constant_weight(n.in[1]) && n.attr_int("transA", 0) == 0 && n.attr_float("alpha", 1) == 1 &&
             n.attr_float("beta", 1) == 1;
    if (n.is("MatMulNBits", "com.microsoft")) return constant(n.in[1]) && constant(n.in[2]) && n.attr_int("N", 0) > 0;
    if (n.is("IntegerMatMul", "situ")) return constant(n.in[1]) && graph_.values[n.in[1]].info.shape.size() == 2;
    if (n.is("Add") || n.is("Mul")) return constant(n.in[0]) != constant(n.in[1]) && bias(n) != kNoValue;
    return clips(n);
  }
  // A constant or views of one (a transposed tied embedding).
  bool constant_weight(ValueId v) const {
    while (!constant(v)) {
      if (graph_.values[v].producer < 0) return false;
      const Node& p = graph_.nodes[graph_.values[v].producer];
      if (!p.def || p.def->placement != Placement::kView) return false;
      v = p.in[0];
    }
    return true;
  }
  // A function of single numbers: what else it reads are constants of one.
  bool clips(const Node& n) const {
    return n.is("Clip") && std::all_of(n.in.begin() + 1, n.in.end(), [&](ValueId v) {
             return v == kNoValue || (constant(v) && graph_.values[v].constant.count() == 1);
           });
  }
  // The constant vector operand of an elementwise node ([N], [1, 1, N]), as long as its last axis, which the other
  // operand has too.
  ValueId bias(const Node& n) const {
    const bool first = constant(n.in[0]);
    const Shape &b = graph_.values[n.in[first ? 0 : 1]].info.shape, &x = graph_.values[n.in[first ? 1 : 0]].info.shape,
                &y = graph_.values[n.out[0]].info.shape;
    const bool vector = !b.empty() && b.size() <= x.size() && shape_count(b) == b.back();
    return vector && b.back() == y.back() && x.back() == y.back() ? n.in[first ? 0 : 1] : kNoValue;
  }

  // All users of v are selections of columns (perhaps behind one reshape of the last axis). The packed
  // node's reshape drops or adds leading unit axes freely.
  bool collect(const std::vector<std::vector<std::pair<int, int>>>& users, ValueId v, const std::vector<int64_t>& inner,
               const std::vector<int64_t>& perm, std::vector<std::pair<int, Selection>>* parts) const {
    const Shape& shape = graph_.values[v].info.shape;
    if (graph_.is_output(v) || users[v].empty()) return false;
    for (const auto& [u, operand] : users[v]) {
      const Node& n = graph_.nodes[u];
      if (operand != 0) return false;
      if (n.is("Transpose") && perm.empty()) {
        if (!collect(users, n.out[0], inner, n.attr_ints("perm"), parts) || n.attr_ints("perm").empty()) return false;
        continue;
      }
      if (perm.empty() && (n.is("Reshape") || n.is("Unsqueeze") || n.is("Squeeze"))) {
        const Shape& target = graph_.values[n.out[0]].info.shape;
        if (!collect_reshaped(users, shape, target, n.out[0], inner, parts)) return false;
        continue;
      }
      const int64_t rank = static_cast<int64_t>(shape.size());
      auto axis = selected_axis(graph_, n, rank);
      const int64_t columns = inner.empty() ? 1 : static_cast<int64_t>(inner.size());
      // Gather drops its axis, after which a transposition would mean another one, and a single column has none left.
      if (!axis || (n.is("Gather") && (!perm.empty() || columns == 1))) return false;
      if (!perm.empty()) axis = perm[static_cast<size_t>(rank + *axis)] - rank;
      if (*axis < -columns) return false;
      for (size_t o = 0; o < n.out.size(); ++o)
        if (n.has_output(o)) parts->push_back({u, Selection{inner, n, o, *axis, perm}});
    }
    return true;
  }

  bool collect_reshaped(const std::vector<std::vector<std::pair<int, int>>>& users, const Shape& from, const Shape& to,
                        ValueId v, const std::vector<int64_t>& inner,
                        std::vector<std::pair<int, Selection>>* parts) const {
    if (!inner.empty() || from.empty() || to.empty() || !from.back().is_const()) return false;
    // The longest tail of `to` whose product is the last axis of `from`.
    std::vector<int64_t> tail;
    int64_t product = 1;
    for (size_t i = to.size(); i-- > 0 && product < from.back().value();) {
      if (!to[i].is_const()) return false;
      tail.insert(tail.begin(), to[i].value());
      product *= to[i].value();
    }
    if (product != from.back().value()) return false;
    return collect(users, v, tail.size() > 1 ? tail : std::vector<int64_t>{}, {}, parts);
  }

  Status split(const std::map<int, std::vector<std::pair<int, Selection>>>& splits) {
    Builder builder(graph_);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    std::vector<char> replaced(nodes.size(), 0);
    for (const auto& [index, parts] : splits)
      for (const auto& [u, part] : parts) replaced[u] = 1;
    for (size_t n = 0; n < nodes.size(); ++n) {
      if (const auto here = splits.find(static_cast<int>(n)); here != splits.end()) {
        for (const auto& [u, part] : here->second) SITU_RETURN_IF_ERROR(emit(builder, nodes[n], part));
        context_.note("split projection", nodes[n].name, std::to_string(here->second.size()) + " parts");
      } else if (!replaced[n]) {
        builder.keep(std::move(nodes[n]));
      }
    }
    SITU_RETURN_IF_ERROR(builder.finish());
    graph_.remove_dead_nodes();  // the reshape between is left without users
    return Status::ok();
  }

  // Applies the reshape and selection to the last axis of `v` (rank `leading` + 1).
  ValueId select(Builder& builder, ValueId v, const Selection& part, ValueId result = kNoValue) {
    const Shape shape = graph_.values[v].info.shape;
    Shape target(shape.begin(), shape.end() - 1);
    if (!part.inner.empty()) {
      for (int64_t d : part.inner) target.push_back(d);
      v = builder.op("Reshape", {v, graph_.add_shape(graph_.values[v].name + "/dims", target)});
      graph_.values[v].info = {graph_.values[part.select.in[0]].info.type, true, target, {}};
    } else {
      target.push_back(shape.back());
    }
    Node n = part.select;
    const int64_t axis = part.axis;
    n.in[0] = v;
    builder.op(n.op, n.in);
    Node& made = builder.last();
    const std::vector<ValueId> fresh = made.out;
    made.attrs = n.attrs;
    made.opset = n.opset;
    if (n.is("Slice"))
      made.in[3] = builder_constant(builder, axis);
    else
      made.set_int("axis", axis);
    made.out.clear();
    for (size_t o = 0; o < part.select.out.size(); ++o)
      made.out.push_back(o == part.output ? fresh[0] : graph_.add_value(graph_.values[fresh[0]].name + "/unused"));
    if (result != kNoValue) made.out[part.output] = result;
    // Shape of the selected part, for what is built on it before inference runs again.
    const size_t at = target.size() - static_cast<size_t>(-axis);
    Shape y = target;
    if (n.is("Gather"))
      y.erase(y.begin() + static_cast<int64_t>(at));
    else
      y[at] = selected_extent(part);
    ValueInfo& info = graph_.values[made.out[part.output]].info;
    info = {graph_.values[v].info.type, true, y, {}};
    return made.out[part.output];
  }
  // Columns that the selection leaves of its axis.
  Dim selected_extent(const Selection& part) const {
    const Shape& whole = graph_.values[part.select.in[0]].info.shape;
    const size_t axis =
        whole.size() - static_cast<size_t>(-*selected_axis(graph_, part.select, static_cast<int64_t>(whole.size())));
    return graph_.values[part.select.out[part.output]].info.shape[axis];
  }
  ValueId builder_constant(Builder& builder, int64_t axis) { return builder.constant_i64({axis}); }

  // The packed node for one part; its result is reshaped to the part's declared shape.
  Status emit(Builder& builder, const Node& packed, const Selection& part) {
    builder.start(part.select);
    const ValueId result = part.select.out[part.output];
    const ValueInfo result_info = graph_.values[result].info;
    ValueId y = kNoValue;
    if (packed.is("Add") || packed.is("Mul")) {
      const ValueId b = bias(packed), x = packed.in[0] == b ? packed.in[1] : packed.in[0];
      const ValueId px = select(builder, x, part), pb = select(builder, b, part);
      y = builder.op(packed.op, {px, pb});
      graph_.values[y].info = graph_.values[px].info;
    } else if (clips(packed)) {
      std::vector<ValueId> in = packed.in;
      in[0] = select(builder, packed.in[0], part);
      const ValueInfo info = graph_.values[in[0]].info;
      y = builder.again(packed, in);
      graph_.values[y].info = info;
    } else if (packed.is("MatMulNBits", "com.microsoft")) {
      SITU_RETURN_IF_ERROR(emit_nbits(builder, packed, part, &y));
    } else if (packed.is("IntegerMatMul", "situ")) {
      SITU_RETURN_IF_ERROR(emit_integer(builder, packed, part, &y));
    } else {
      y = emit_matmul(builder, packed, part);
    }
    // Leading unit axes (the reshape before the selection may have dropped or added some), then the order.
    Shape shape = result_info.shape;
    for (size_t i = 0; i < part.perm.size(); ++i) shape[static_cast<size_t>(part.perm[i])] = result_info.shape[i];
    const ValueId dims = graph_.add_shape(graph_.values[result].name + "/dims", shape);
    if (part.perm.empty())
      builder.op("Reshape", {y, dims}, result);
    else
      builder.transpose(builder.op("Reshape", {y, dims}), part.perm, result);
    return Status::ok();
  }

  ValueId emit_matmul(Builder& builder, const Node& packed, const Selection& part) {
    ValueId w = packed.in[1];
    if (packed.is("Gemm") && packed.attr_int("transB", 0)) {
      w = builder.transpose(w, {1, 0});
      const Shape& s = graph_.values[packed.in[1]].info.shape;
      graph_.values[w].info = {graph_.values[packed.in[1]].info.type, true, {s[1], s[0]}, {}};
    }
    const ValueId pw = select(builder, w, part);
    ValueId y = builder.op("Project", {packed.in[0], pw}, kNoValue, "situ");
    builder.last().mixed_floats = packed.mixed_floats;
    Shape shape = graph_.values[packed.in[0]].info.shape;
    shape.pop_back();
    const Shape& ws = graph_.values[pw].info.shape;
    shape.insert(shape.end(), ws.begin() + 1, ws.end());
    graph_.values[y].info = {graph_.values[packed.in[0]].info.type, true, shape, {}};
    if (packed.is("Gemm") && packed.has_input(2)) {
      const ValueInfo info = graph_.values[y].info;
      y = builder.op("Add", {y, select(builder, packed.in[2], part)});
      // The bias selection was appended after the Project and before this Add.
      graph_.values[y].info = info;
    }
    return y;
  }

  // Columns of the weight, and of what it has for each column.
  Status emit_integer(Builder& builder, const Node& packed, const Selection& part, ValueId* y) {
    const int64_t k = packed.attr_int("K", 0), n = packed.attr_int("N", 0);
    const Result<Tensor> columns = columns_of(part, n);
    if (!columns.is_ok()) return columns.status();
    const int64_t count = columns->count();
    std::vector<ValueId> in = packed.in;
    for (const size_t i : {1, 2, 4}) {
      if (i >= in.size() || in[i] == kNoValue || (i != 1 && graph_.values[in[i]].info.shape != Shape{Dim(n)})) continue;
      const Tensor& t = graph_.values[in[i]].constant;
      if (!t.present())
        return Status::error(packed.label() + ": operand " + std::to_string(i) + " cannot be split by columns");
      in[i] = graph_.add_constant(graph_.values[in[i]].name + "/columns",
                                  i == 1 ? gathered(t, {k, n}, 1, *columns) : gathered(t, {n}, 0, *columns));
    }
    *y = builder.op("IntegerMatMul", in, kNoValue, "situ");
    builder.last().attrs = packed.attrs;
    builder.last().set_int("N", count);
    Shape shape = graph_.values[packed.in[0]].info.shape;
    shape.back() = Dim(count);
    graph_.values[*y].info = {DType::kF32, true, shape, {}};
    return Status::ok();
  }

  // Rows of the quantised weight: views of the constants where they stand side by side, else gathered when they are
  // packed.
  Status emit_nbits(Builder& builder, const Node& packed, const Selection& part, ValueId* y) {
    const int64_t n = packed.attr_int("N", 0);
    const Result<Tensor> columns = columns_of(part, n);
    if (!columns.is_ok()) return columns.status();
    const std::vector<int64_t> numbers = columns->to_i64();
    const int64_t begin = numbers.empty() ? 0 : numbers[0], count = static_cast<int64_t>(numbers.size());
    bool side_by_side = true;
    for (int64_t i = 0; i < count; ++i) side_by_side = side_by_side && numbers[static_cast<size_t>(i)] == begin + i;
    std::vector<ValueId> in = packed.in;
    for (size_t i = 1; i < in.size(); ++i) {
      if (in[i] == kNoValue || i == 4) continue;  // groups are of K
      const Tensor& t = graph_.values[in[i]].constant;
      if (!t.present() || t.rank() == 0 || t.count() % n != 0)
        return Status::error(packed.label() + ": operand " + std::to_string(i) + " cannot be split by rows");
      const int64_t row = t.count() / n;
      std::vector<int64_t> dims = t.dims();
      if (dims.size() == 1)
        dims[0] = count * row;
      else
        dims[0] = count;
      const Tensor rows =
          side_by_side ? Tensor::borrow(t.type(), dims, t.view().data + begin * row * dtype_bytes(t.type()), t.owner())
                       : gathered(t, {n, row}, 0, *columns).reshaped(dims);
      in[i] = graph_.add_constant(graph_.values[in[i]].name + "/rows_" + std::to_string(begin), rows);
    }
    *y = builder.op("MatMulNBits", in, kNoValue, "com.microsoft");
    builder.last().attrs = packed.attrs;
    builder.last().set_int("N", count);
    Shape shape = graph_.values[packed.in[0]].info.shape;
    shape.back() = Dim(count);
    graph_.values[*y].info = {graph_.values[packed.out[0]].info.type, true, shape, {}};
    return Status::ok();
  }

  // The numbers of the selected columns, in order.
  Result<Tensor> columns_of(const Selection& part, int64_t n) {
    std::vector<int64_t> all(static_cast<size_t>(n));
    std::iota(all.begin(), all.end(), int64_t{0});
    Node select = part.select;
    std::vector<Tensor> operands{
        Tensor::vector_i64(all).reshaped(part.inner.empty() ? std::vector<int64_t>{n} : part.inner)};
    for (size_t i = 1; i < select.in.size(); ++i)
      operands.push_back(select.in[i] == kNoValue ? Tensor() : graph_.values[select.in[i]].constant);
    if (select.is("Slice"))
      operands[3] = Tensor::vector_i64({part.axis});
    else
      select.set_int("axis", part.axis);
    Result<std::vector<Tensor>> found = context_.evaluator.node(select, operands);
    if (!found.is_ok()) return found.status();
    return (*found)[part.output];
  }

  // Those elements of t, as [dims], along an axis.
  Tensor gathered(const Tensor& t, std::vector<int64_t> dims, int64_t axis, const Tensor& columns) {
    Node gather;
    gather.op = "Gather";
    gather.opset = 13;
    gather.def = find_op("", "Gather", 13);
    gather.in = {0, 1};
    gather.out = {0};
    gather.set_int("axis", axis);
    const Tensor whole = t.reshaped(dims), numbers = columns.reshaped({columns.count()});
    dims[static_cast<size_t>(axis)] = columns.count();
    return deferred_result(context_, gather, 0, {whole, numbers}, t.type(), dims);
  }

  PassContext& context_;
  Graph& graph_;
};

}  // namespace

Status push_selections(PassContext& context) {
  while (true) {
    Result<bool> changed = Pusher(context).step();
    if (!changed.is_ok()) return changed.status();
    if (!*changed) return Status::ok();
    SITU_RETURN_IF_ERROR(infer_shapes(context));
  }
}

}  // namespace situ
