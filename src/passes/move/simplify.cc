// Removes nodes that change nothing: Identity, Dropout at inference, casts to the same type, expands and
// reshapes to the same shape, arithmetic with 0 or 1, parts of a Concat that are its operands; then nodes that nobody
// needs.
#include <algorithm>
#include <map>

#include "eval/interpreter.h"
#include "ops/op.h"
#include "passes/context/builder.h"
#include "passes/context/part.h"
#include "passes/context/pass_context.h"
#include "passes/host/equal_operand.h"
#include "passes/move/gathers_to_views.h"
#include "passes/move/passes.h"
#include "passes/move/scatter_ranges.h"

namespace situ {
namespace {

constexpr int64_t kMostChoices = 4096;  // of a router

// The operand of a Concat that output `o` of a Split or Slice of it is, or kNoValue.
ValueId joined_operand(const Graph& graph, const Node& n, size_t o) {
  if (n.in.empty() || n.in[0] == kNoValue || !n.has_output(o) || graph.values[n.in[0]].producer < 0) return kNoValue;
  const Node& concat = graph.nodes[graph.values[n.in[0]].producer];
  if (!concat.is("Concat")) return kNoValue;
  const std::optional<AxisPart> part = part_of(graph, n, o);
  const int64_t rank = static_cast<int64_t>(graph.values[n.in[0]].info.shape.size()), axis = concat.attr_int("axis", 0);
  if (!part || part->axis != static_cast<size_t>(axis < 0 ? axis + rank : axis)) return kNoValue;
  Dim at = 0;
  for (const ValueId operand : concat.in) {
    if (at == part->begin && alike(graph, operand, n.out[o])) return operand;
    at = at + graph.values[operand].info.shape[part->axis];
  }
  return kNoValue;
}

// Tile along axes of extent 1 repeats what a stride of 0 repeats for nothing: it becomes Expand.
void tile_to_expand(Graph& graph) {
  for (Node& n : graph.nodes) {
    const auto repeats = n.is("Tile") && n.in.size() == 2 ? content_of(graph, n, 1) : std::nullopt;
    if (!repeats) continue;
    const Shape from = graph.values[n.in[0]].info.shape, to = graph.values[n.out[0]].info.shape;
    bool broadcast = repeats->size() == from.size() && to.size() == from.size();
    for (size_t i = 0; broadcast && i < from.size(); ++i)
      broadcast = (*repeats)[i] == Dim(1) || (from[i] == Dim(1) && (*repeats)[i].lower_bound() > 0);
    if (!broadcast) continue;
    const ValueId dims = graph.add_shape(n.name + "/dims", to);
    n.op = "Expand";
    n.opset = 13;
    n.in[1] = dims;
    n.def = find_op("", "Expand", 13);
  }
}

// The one element of an axis, picked by its index, is all of it: Squeeze, whose result may be computed elsewhere.
void gather_to_squeeze(Graph& graph) {
  for (Node& n : graph.nodes) {
    if (!n.is("Gather") || n.in.size() != 2 || graph.values[n.in[0]].constant.present()) continue;
    const Tensor& index = graph.values[n.in[1]].constant;
    const Shape& x = graph.values[n.in[0]].info.shape;
    const int64_t rank = static_cast<int64_t>(x.size()), given = n.attr_int("axis", 0),
                  axis = given < 0 ? given + rank : given;
    if (!index.present() || index.rank() != 0 || axis < 0 || axis >= rank || x[static_cast<size_t>(axis)] != Dim(1))
      continue;
    if (const int64_t at = index.to_i64()[0]; at != 0 && at != -1) continue;
    n.op = "Squeeze";
    n.opset = 13;
    n.attrs.clear();
    n.in[1] = graph.add_shape(n.name + "/axis", {Dim(axis)});
    n.def = find_op("", "Squeeze", 13);
  }
}

// Whether constant indices [.., rank] are all places of `dims` in order, but that along `axis` (-1: none) the last one
// stands for all.
bool names_last_row(const Tensor& indices, const std::vector<int64_t>& dims, int64_t axis) {
  const int64_t rank = std::ssize(dims);
  int64_t count = 1;
  for (int64_t a = 0; a < rank; ++a) count *= a == axis ? 1 : dims[static_cast<size_t>(a)];
  if (!indices.present() || indices.count() != count * rank || indices.dims().empty() || indices.dims().back() != rank)
    return false;
  const std::vector<int64_t> at = indices.to_i64();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (int64_t a = rank; a-- > 0;) {
      const int64_t extent = dims[static_cast<size_t>(a)], place = at[static_cast<size_t>(i * rank + a)],
                    wanted = a == axis ? extent - 1 : rest % extent;
      if ((place < 0 ? place + extent : place) != wanted) return false;
      if (a != axis) rest /= extent;
    }
  }
  return true;
}

// Whether they are all places of the first axes in order, as many as a place has numbers.
bool names_all(const Tensor& indices, std::vector<int64_t> dims) {
  const int64_t axes = indices.present() && indices.rank() > 0 ? indices.dims().back() : 0;
  if (axes == 0 || axes > std::ssize(dims)) return false;
  dims.resize(static_cast<size_t>(axes));
  return names_last_row(indices, dims, -1);
}

// ScatterND that writes the last row of a Concat, as torch.onnx writes state[:, :, -1] = x, whose updates have no such
// axis: they are the last operand. And one that writes all places in order: there is nothing but what it writes.
Status scatter_nd_to_concat(Graph& graph) {
  const auto writes = [](const Node& n) {
    return n.is("ScatterND") && n.in.size() == 3 && n.attr_string("reduction", "none") == "none";
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), writes)) return Status::ok();
  Builder builder(graph);
  for (Node n : graph.nodes) {
    const Shape all = writes(n) ? graph.values[n.in[0]].info.shape : Shape{};
    const Node* concat = writes(n) ? graph.producer(n.in[0], "Concat") : nullptr;
    if (writes(n) && shape_is_const(all) && names_all(graph.values[n.in[1]].constant, shape_values(all))) {
      builder.start(n);
      builder.reshape(n.in[2], shape_values(all), n.out[0]);
      continue;
    }
    if (concat && concat->in.size() > 1 && shape_is_const(all)) {
      const int64_t rank = std::ssize(all), given = concat->attr_int("axis", 0),
                    axis = given < 0 ? given + rank : given;
      Shape row = all;
      if (axis >= 0 && axis < rank) row[static_cast<size_t>(axis)] = Dim(1);
      if (axis >= 0 && axis < rank && graph.values[concat->in.back()].info.shape == row &&
          names_last_row(graph.values[n.in[1]].constant, shape_values(all), axis)) {
        builder.start(n);
        std::vector<ValueId> operands = concat->in;
        operands.back() = builder.reshape(n.in[2], shape_values(row));
        builder.op("Concat", operands, n.out[0]);
        builder.last().set_int("axis", axis);
        continue;
      }
    }
    builder.keep(std::move(n));
  }
  return builder.finish();
}

// ScatterElements that writes all of the last row of a Concat, as of a cache that was rolled by one: what it writes
// is the last operand.
void scatter_to_concat(Graph& graph) {
  for (Node& n : graph.nodes) {
    const Node* concat = n.is("ScatterElements") && n.in.size() == 3 ? graph.producer(n.in[0], "Concat") : nullptr;
    if (!concat || concat->in.size() < 2 || n.attr_string("reduction", "none") != "none") continue;
    const Shape all = graph.values[n.in[0]].info.shape;
    const int64_t rank = static_cast<int64_t>(all.size());
    const auto axis_of = [&](const Node& node) {
      const int64_t axis = node.attr_int("axis", 0);
      return axis < 0 ? axis + rank : axis;
    };
    const int64_t axis = axis_of(n);
    if (axis < 0 || axis >= rank || axis_of(*concat) != axis) continue;
    const Tensor& places = graph.values[n.in[1]].constant;
    const Dim& rows = all[static_cast<size_t>(axis)];
    if (!alike(graph, concat->in.back(), n.in[2]) || !places.present() || !rows.is_const() ||
        graph.values[n.in[1]].info.shape != graph.values[n.in[2]].info.shape ||
        graph.values[n.in[2]].info.shape[static_cast<size_t>(axis)] != Dim(1))
      continue;
    const std::vector<int64_t> at = places.to_i64();
    if (!std::all_of(at.begin(), at.end(), [&](int64_t i) { return i == -1 || i == rows.value() - 1; })) continue;
    std::vector<ValueId> operands = concat->in;
    operands.back() = n.in[2];
    n.op = "Concat";
    n.opset = 13;
    n.in = operands;
    n.attrs.clear();
    n.set_int("axis", axis);
    n.def = find_op("", "Concat", 13);
  }
}

// The number that a constant, or what repeats one, has throughout.
std::optional<Tensor> repeated_number(const Graph& graph, ValueId v) {
  const Tensor& constant = graph.values[v].constant;
  if (!constant.present()) {
    const Node* expand = graph.producer(v, "Expand");
    const Tensor number = expand ? graph.values[expand->in[0]].constant : Tensor();
    return number.present() && number.count() == 1 ? std::optional(number.reshaped({1})) : std::nullopt;
  }
  const int64_t size = dtype_bytes(constant.type()), bytes = constant.count() * size;
  if (size == 0 || constant.count() == 0 || !constant.contiguous()) return std::nullopt;
  const std::byte* const first = constant.view().data;
  if (!std::equal(first + size, first + bytes, first)) return std::nullopt;
  return Tensor::borrow(constant.type(), {1}, first, std::make_shared<Tensor>(constant));
}

// One number, repeated, of which an update (a scatter) changes some: computed where the result is, since a view of one
// number, or a constant, is no place.
Status fill_for_updates(Graph& graph) {
  Builder builder(graph);
  for (Node n : graph.nodes) {
    const std::optional<Tensor> number = n.def && n.def->placement == Placement::kUpdate && n.has_input(0)
                                             ? repeated_number(graph, n.in[0])
                                             : std::nullopt;
    if (number && graph.values[n.in[0]].info.ranked) {
      ValueInfo info = graph.values[n.in[0]].info;
      info.content.reset();
      builder.start(n);
      n.in[0] = builder.op("ConstantOfShape", {graph.add_shape(n.name + "/dims", info.shape)});
      Attribute value;
      value.kind = Attribute::Kind::kTensor;
      value.tensor = *number;
      builder.last().attrs["value"] = value;
      builder.last().computed_in_place = true;
      graph.values[n.in[0]].info = info;
    }
    builder.keep(std::move(n));
  }
  return builder.finish();
}

// The number that all elements of a value are; nothing: they differ, or it is not told.
std::optional<Tensor> number_everywhere(const PassContext& context, ValueId v, int depth = 0) {
  const Graph& graph = context.graph;
  const Tensor& constant = graph.values[v].constant;
  if (constant.present()) return constant.count() == 1 ? std::optional(constant) : std::nullopt;
  const Node* n = depth < kMaxRank ? graph.producer(v) : nullptr;
  if (!n || n->in.empty()) return std::nullopt;
  if (n->is("ConstantOfShape")) {
    const Attribute* value = n->attr("value");
    return value && value->tensor.present() ? std::optional(value->tensor) : std::nullopt;
  }
  const bool view = n->def && (n->def->placement == Placement::kView || n->is("Cast"));
  const std::optional<Tensor> number = view ? number_everywhere(context, n->in[0], depth + 1) : std::nullopt;
  if (!number || !n->is("Cast")) return number;
  Result<std::vector<Tensor>> cast = context.evaluator.node(*n, {*number});
  return cast.is_ok() ? std::optional(cast->front()) : std::nullopt;
}

// What is gathered of one number is that number, wherever it stands: of a mask that is all ones.
Status gathers_of_one_number(PassContext& context) {
  Graph& graph = context.graph;
  const auto gathered = [&](const Node& n) -> std::optional<Tensor> {
    if (!n.is("Gather") && !n.is("GatherND") && !n.is("GatherElements")) return std::nullopt;
    const ValueInfo& info = graph.values[n.out[0]].info;
    if (!info.ranked || info.content || graph.is_output(n.out[0])) return std::nullopt;
    return number_everywhere(context, n.in[0]);
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return gathered(n).has_value(); }))
    return Status::ok();
  Builder builder(graph);
  for (Node n : graph.nodes) {
    const std::optional<Tensor> number = gathered(n);
    if (!number) {
      builder.keep(std::move(n));
      continue;
    }
    builder.start(n);
    builder.op("ConstantOfShape", {graph.add_shape(n.name + "/dims", graph.values[n.out[0]].info.shape)}, n.out[0]);
    Attribute value;
    value.kind = Attribute::Kind::kTensor;
    value.tensor = number->reshaped({1});
    builder.last().attrs["value"] = value;
  }
  return builder.finish();
}

// ScatterElements at one place of each row that ArgMax found, as routers strike out what they chose, writes every
// number but one as it was: Where(place == 0, 1, .., x, data), whose data others may read, too.
Status scatter_to_where(Graph& graph) {
  Builder builder(graph);
  for (Node n : graph.nodes) {
    const auto shape = [&](size_t i) { return graph.values[n.in[i]].info.shape; };
    if (n.is("ScatterElements") && n.in.size() == 3 && graph.producer(n.in[1], "ArgMax") &&
        n.attr_string("reduction", "none") == "none") {
      Shape rows = shape(0);
      const int64_t rank = static_cast<int64_t>(rows.size()), axis = n.attr_int("axis", 0);
      const Dim count = rank > 0 ? rows.back() : Dim(0);
      if (rank > 0) rows.back() = Dim(1);
      if ((axis == -1 || axis == rank - 1) && count.is_const() && count.value() <= kMostChoices && shape(1) == rows &&
          shape(2) == rows) {
        builder.start(n);
        std::vector<int64_t> places;
        for (int64_t i = 0; i < count.value(); ++i) places.push_back(i);
        builder.op("Where", {builder.op("Equal", {n.in[1], builder.constant_i64(places)}), n.in[2], n.in[0]}, n.out[0]);
        continue;
      }
    }
    builder.keep(std::move(n));
  }
  return builder.finish();
}

// Softmax of x - max(x) is that of x.
void softmax_as_it_is(Graph& graph) {
  for (Node& n : graph.nodes) {
    const Node* sub = n.is("Softmax") ? graph.producer(n.in[0], "Sub") : nullptr;
    const Node* largest = sub ? graph.producer(sub->in[1]) : nullptr;
    if (!largest) continue;
    const Shape &x = graph.values[sub->in[0]].info.shape, &rows = graph.values[sub->in[1]].info.shape;
    const int64_t rank = static_cast<int64_t>(x.size()), axis = n.attr_int("axis", n.opset < 13 ? 1 : -1);
    const bool last = axis == -1 || axis == rank - 1;
    // One number for each row, whatever axis ReduceMax names: it has taken the last one alone.
    if (last && largest->is("ReduceMax") && largest->in[0] == sub->in[0] && rank > 0 && rows.size() == x.size() &&
        rows.back() == Dim(1) && std::equal(x.begin(), x.end() - 1, rows.begin()))
      n.in[0] = sub->in[0];
  }
}

// A value whose elements are known on the host at every step needs no node: its users read the elements. The
// Shape, Gather, Concat chains that led to it die with its last use.
void detach_host_values(Graph& graph) {
  std::map<ValueId, ValueId> detached;
  for (Node& n : graph.nodes)
    for (ValueId& v : n.in) {
      if (v == kNoValue || !graph.values[v].info.content || graph.values[v].producer < 0 ||
          graph.values[v].constant.present())
        continue;
      auto [it, fresh] = detached.try_emplace(v, kNoValue);
      if (fresh) {
        it->second = graph.add_value(graph.values[v].name);
        graph.values[it->second].info = graph.values[v].info;
      }
      v = it->second;
    }
}

}  // namespace

Status simplify(PassContext& context) {
  Graph& graph = context.graph;
  // replacement[v]: what v became; chains are followed to their end.
  std::vector<ValueId> replacement(graph.values.size(), kNoValue);
  auto resolve = [&](ValueId v) {
    while (v != kNoValue && replacement[v] != kNoValue) v = replacement[v];
    return v;
  };
  for (Node& n : graph.nodes) {
    for (ValueId& v : n.in) v = resolve(v);
    for (auto& [key, a] : n.attrs)
      if (a.graph)
        for (auto& [inner, outer] : a.graph->captures) outer = resolve(outer);
    const ValueId equal = equal_operand(graph, n);
    for (size_t o = 0; o < n.out.size(); ++o) {
      const ValueId x = o == 0 && equal != kNoValue ? equal : joined_operand(graph, n, o);
      // A state's output must stay a value of its own when its origin is an input.
      if (x == kNoValue || (graph.is_output(n.out[o]) && graph.values[x].producer < 0)) continue;
      replacement[n.out[o]] = x;
    }
  }
  for (ValueId& v : graph.outputs) v = resolve(v);
  for (StatePair& s : context.binding.states) s.present = resolve(s.present);
  context.binding.logits = resolve(context.binding.logits);
  tile_to_expand(graph);
  scatter_to_concat(graph);
  SITU_RETURN_IF_ERROR(scatter_nd_to_concat(graph));
  SITU_RETURN_IF_ERROR(scatter_ranges(context));
  gather_to_squeeze(graph);
  SITU_RETURN_IF_ERROR(gathers_of_one_number(context));
  SITU_RETURN_IF_ERROR(gathers_to_views(graph));
  SITU_RETURN_IF_ERROR(fill_for_updates(graph));
  SITU_RETURN_IF_ERROR(scatter_to_where(graph));
  softmax_as_it_is(graph);
  detach_host_values(graph);
  graph.remove_dead_nodes();
  return Status::ok();
}

}  // namespace situ
