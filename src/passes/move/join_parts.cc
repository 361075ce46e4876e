// Parts of a Split that are put together in their order, as features of pictures are taken apart and joined:
//   Concat(Reshape(Split(x)[0]), Reshape(Split(x)[1]))  ->  Reshape(x)
// The same rows of several values are joined before they are selected, where each can be computed where it is joined:
//   Concat(Slice(a), Slice(b))  ->  Slice(Concat(a, b))     features of two layers without the row of the class
#include <algorithm>
#include <optional>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

// Nothing stands before this axis of a shape: parts along it lie one behind the other.
bool outermost(const Shape& shape, int64_t axis) {
  if (axis < 0) axis += std::ssize(shape);
  return axis >= 0 && axis < std::ssize(shape) &&
         std::all_of(shape.begin(), shape.begin() + axis, [](const Dim& d) { return d == Dim(1); });
}

// What is split into the operands of a Concat, in their order; kNoValue: something else is joined.
ValueId whole_of(const Graph& graph, const Node& concat) {
  if (!concat.is("Concat") || concat.in.size() < 2 ||
      !outermost(graph.values[concat.out[0]].info.shape, concat.attr_int("axis", 0)))
    return kNoValue;
  const Node* split = nullptr;
  for (size_t i = 0; i < concat.in.size(); ++i) {
    const ValueId v = graph.behind(concat.in[i], {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"});
    const Node* n = graph.producer(v, "Split");
    if (!n || (split && n != split) || n->out.size() != concat.in.size() || n->out[i] != v) return kNoValue;
    split = n;
  }
  return outermost(graph.values[split->in[0]].info.shape, split->attr_int("axis", 0)) ? split->in[0] : kNoValue;
}

// A Slice by constants, of which `as` is another one along the same axes.
bool slices_alike(const Graph& graph, const Node& n, const Node& as) {
  if (!n.is("Slice") || n.in.size() < 4 || n.in.size() != as.in.size()) return false;
  for (size_t i = 1; i < n.in.size(); ++i) {
    if (n.in[i] == kNoValue || as.in[i] == kNoValue) return false;
    const auto a = fixed_integers(graph, n.in[i]), b = fixed_integers(graph, as.in[i]);
    if (!a || a->empty() || a != b) return false;
  }
  return true;
}

// The Slices that a Concat joins along an axis which they leave alone, each of another value; empty: others are joined.
std::vector<const Node*> sliced_alike(const Graph& graph, const Node& concat,
                                      const std::vector<std::vector<std::pair<int, int>>>& users) {
  if (!concat.is("Concat") || concat.in.size() < 2 || !shape_is_const(graph.values[concat.out[0]].info.shape))
    return {};
  const int64_t rank = std::ssize(graph.values[concat.out[0]].info.shape), axis = concat.attr_int("axis", 0);
  std::vector<const Node*> slices;
  std::vector<Shape> rest;
  for (const ValueId v : concat.in) {
    const Node* n = users[v].size() == 1 && !graph.is_output(v) ? graph.producer(v, "Slice") : nullptr;
    if (!n || !slices_alike(graph, *n, slices.empty() ? *n : *slices[0]) || graph.values[n->in[0]].producer < 0)
      return {};
    for (const Node* other : slices)
      if (other->in[0] == n->in[0]) return {};
    slices.push_back(n);
    Shape dims = graph.values[n->in[0]].info.shape;
    dims[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = Dim(1);
    rest.push_back(std::move(dims));
  }
  const std::vector<int64_t> axes = fixed_integers(graph, slices[0]->in[3]).value();
  const bool along = std::any_of(axes.begin(), axes.end(),
                                 [&](int64_t a) { return (a < 0 ? a + rank : a) == (axis < 0 ? axis + rank : axis); });
  if (along || std::any_of(rest.begin(), rest.end(), [&](const Shape& s) { return s != rest[0]; })) return {};
  return slices;
}

// What takes the place of a node.
struct Joined {
  ValueId whole = kNoValue;    // in the result's shape; kNoValue:
  std::vector<ValueId> parts;  // joined along an axis,
  std::optional<Node> slice;   // of which this is taken
};

std::optional<Joined> joined_at(const Graph& graph, const Node& n,
                                const std::vector<std::vector<std::pair<int, int>>>& users) {
  Joined j;
  if (j.whole = whole_of(graph, n); j.whole != kNoValue) return j;
  for (const Node* slice : sliced_alike(graph, n, users)) {
    j.parts.push_back(slice->in[0]);
    j.slice = *slice;
  }
  return j.slice ? std::optional(j) : std::nullopt;
}

void emit(Graph& graph, Builder& builder, const Node& n, const Joined& j) {
  builder.start(n);
  const ValueId out = n.out[0];
  if (!j.slice) {
    builder.op("Reshape", {j.whole, graph.add_shape(n.name + "/whole", graph.values[out].info.shape)}, out);
    return;
  }
  std::vector<ValueId> in = j.slice->in;
  in[0] = builder.op("Concat", j.parts);
  builder.last().set_int("axis", n.attr_int("axis", 0));
  builder.again(*j.slice, in, out);
}

}  // namespace

Status join_parts(PassContext& context) {
  Graph& graph = context.graph;
  graph.rebuild_links();
  const auto users = graph.users();
  std::map<size_t, Joined> joined;  // by node
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (std::optional<Joined> j = joined_at(graph, graph.nodes[i], users)) joined[i] = std::move(*j);
  if (joined.empty()) return Status::ok();
  Builder builder(graph);
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (const auto at = joined.find(i); at != joined.end())
      emit(graph, builder, nodes[i], at->second);
    else
      builder.keep(std::move(nodes[i]));
  }
  SITU_RETURN_IF_ERROR(builder.finish());
  graph.remove_dead_nodes();
  return Status::ok();
}

}  // namespace situ
