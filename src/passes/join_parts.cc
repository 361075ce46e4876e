// Rows that several ScatterND write side by side, all that there are, are a Concat of what they write:
//   ScatterND(ScatterND(x, [[0], [1]], a), [[2], [3], [4]], b)  ->  Concat(a, b)
// So does torch.export spell keys that are made by slices: key[..., :n] = a; key[..., n:] = b. And parts of a Split
// that are put together in their order, as features of pictures are taken apart and joined:
//   Concat(Reshape(Split(x)[0]), Reshape(Split(x)[1]))  ->  Reshape(x)
// The same rows of several values are joined before they are selected, where each can be computed where it is joined:
//   Concat(Slice(a), Slice(b))  ->  Slice(Concat(a, b))     features of two layers without the row of the class
#include <algorithm>
#include <numeric>
#include <optional>

#include "passes/builder.h"
#include "passes/pass.h"

namespace situ {
namespace {

constexpr int kMostWrites = 16;

struct WrittenRows {
  int64_t begin = 0, count = 0;
  ValueId rows = kNoValue;
};

// Integers that no step changes; empty: others.
std::vector<int64_t> known_numbers(const Value& v) {
  if (v.constant.present()) return v.constant.to_i64();
  if (!v.info.content || !shape_is_const(*v.info.content)) return {};
  return shape_values(*v.info.content);
}

// Of a ScatterND by the numbers of rows that follow each other.
std::optional<WrittenRows> written_rows(const Graph& graph, const Node& n) {
  if (!n.is("ScatterND") || n.attr_string("reduction", "none") != "none") return std::nullopt;
  const Shape &all = graph.values[n.in[0]].info.shape, &rows = graph.values[n.in[2]].info.shape,
              &indices = graph.values[n.in[1]].info.shape;
  if (indices.size() != 2 || indices[1] != Dim(1) || all.empty() || !all[0].is_const() || rows.size() != all.size())
    return std::nullopt;
  const std::vector<int64_t> numbers = known_numbers(graph.values[n.in[1]]);
  if (numbers.empty()) return std::nullopt;
  const int64_t begin = numbers[0] < 0 ? numbers[0] + all[0].value() : numbers[0];
  for (size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] != numbers[0] + static_cast<int64_t>(i)) return std::nullopt;
  if (begin < 0 || begin + std::ssize(numbers) > all[0].value()) return std::nullopt;  // [-1, 0] too
  return WrittenRows{begin, std::ssize(numbers), n.in[2]};
}

// The ScatterND that x is, perhaps transposed there and back.
const Node* scatter_of(const Graph& graph, ValueId x) {
  const size_t rank = graph.values[x].info.shape.size();
  std::vector<int64_t> order(rank);  // axes of x, as those of what is looked at
  std::iota(order.begin(), order.end(), int64_t{0});
  const std::vector<int64_t> straight = order;
  const Node* n = graph.producer(x);
  for (; n && n->is("Transpose"); n = graph.producer(n->in[0])) {
    const std::vector<int64_t> perm = n->permutation(rank);
    for (int64_t& axis : order) axis = perm[static_cast<size_t>(axis)];
  }
  return n && n->is("ScatterND") && order == straight ? n : nullptr;
}

// What stands in the result, in order; empty: not all of it is written, or twice.
std::vector<ValueId> all_rows(const Graph& graph, const Node& last) {
  std::vector<WrittenRows> parts;
  int64_t count = 0;
  const Node* n = &last;
  for (int i = 0; i < kMostWrites && n; ++i, n = scatter_of(graph, n->in[0])) {
    const std::optional<WrittenRows> part = written_rows(graph, *n);
    if (!part) return {};
    for (const WrittenRows& p : parts)
      if (part->begin < p.begin + p.count && p.begin < part->begin + part->count) return {};
    parts.push_back(*part);
    count += part->count;
    if (Dim(count) != graph.values[last.out[0]].info.shape[0]) continue;
    std::sort(parts.begin(), parts.end(), [](const WrittenRows& a, const WrittenRows& b) { return a.begin < b.begin; });
    std::vector<ValueId> rows;
    for (const WrittenRows& p : parts) rows.push_back(p.rows);
    return rows;
  }
  return {};
}

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
    ValueId v = concat.in[i];
    const Node* n = graph.producer(v);
    while (n && (n->is("Reshape") || n->is("Squeeze") || n->is("Unsqueeze") || n->is("Flatten") || n->is("Identity"))) {
      v = n->in[0];
      n = graph.producer(v);
    }
    if (!n || !n->is("Split") || (split && n != split) || n->out.size() != concat.in.size() || n->out[i] != v)
      return kNoValue;
    split = n;
  }
  return outermost(graph.values[split->in[0]].info.shape, split->attr_int("axis", 0)) ? split->in[0] : kNoValue;
}

// A Slice by constants, of which `as` is another one along the same axes.
bool slices_alike(const Graph& graph, const Node& n, const Node& as) {
  if (!n.is("Slice") || n.in.size() < 4 || n.in.size() != as.in.size()) return false;
  for (size_t i = 1; i < n.in.size(); ++i) {
    if (n.in[i] == kNoValue || as.in[i] == kNoValue) return false;
    const std::vector<int64_t> a = known_numbers(graph.values[n.in[i]]), b = known_numbers(graph.values[as.in[i]]);
    if (a.empty() || a != b) return false;
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
  const std::vector<int64_t> axes = known_numbers(graph.values[slices[0]->in[3]]);
  const bool along = std::any_of(axes.begin(), axes.end(),
                                 [&](int64_t a) { return (a < 0 ? a + rank : a) == (axis < 0 ? axis + rank : axis); });
  if (along || std::any_of(rest.begin(), rest.end(), [&](const Shape& s) { return s != rest[0]; })) return {};
  return slices;
}

// What takes the place of a node.
struct Joined {
  std::vector<ValueId> parts;  // of a Concat; empty: there is none
  int64_t axis = 0;
  ValueId whole = kNoValue;   // in the result's shape
  std::optional<Node> slice;  // of the parts together
};

std::optional<Joined> joined_at(const Graph& graph, const Node& n,
                                const std::vector<std::vector<std::pair<int, int>>>& users) {
  Joined j;
  if (j.parts = all_rows(graph, n); !j.parts.empty()) return j;
  if (j.whole = whole_of(graph, n); j.whole != kNoValue) return j;
  for (const Node* slice : sliced_alike(graph, n, users)) {
    j.parts.push_back(slice->in[0]);
    j.slice = *slice;
  }
  j.axis = n.attr_int("axis", 0);
  return j.parts.empty() ? std::nullopt : std::optional(j);
}

void emit(Graph& graph, Builder& builder, const Node& n, const Joined& j) {
  builder.start(n);
  const ValueId out = n.out[0];
  if (j.parts.empty()) {
    builder.op("Reshape", {j.whole, graph.add_shape(n.name + "/whole", graph.values[out].info.shape)}, out);
    return;
  }
  const ValueId all = builder.op("Concat", j.parts, j.slice ? kNoValue : out);
  builder.last().set_int("axis", j.axis);
  if (!j.slice) return;
  std::vector<ValueId> in = j.slice->in;
  in[0] = all;
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
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
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
