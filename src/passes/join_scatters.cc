// Rows that several ScatterND write side by side, all that there are, are a Concat of what they write:
//   ScatterND(ScatterND(x, [[0], [1]], a), [[2], [3], [4]], b)  ->  Concat(a, b)
// So does torch.export spell keys that are made by slices: key[..., :n] = a; key[..., n:] = b.
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

}  // namespace

Status join_scatters(PassContext& context) {
  Graph& graph = context.graph;
  graph.rebuild_links();
  std::map<size_t, std::vector<ValueId>> joined;  // by node
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (std::vector<ValueId> rows = all_rows(graph, graph.nodes[i]); !rows.empty()) joined[i] = std::move(rows);
  if (joined.empty()) return Status::ok();
  Builder builder(graph);
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto at = joined.find(i);
    if (at == joined.end()) {
      builder.keep(std::move(nodes[i]));
      continue;
    }
    builder.start(nodes[i]);
    builder.op("Concat", at->second, nodes[i].out[0]);
    builder.last().set_int("axis", 0);
  }
  SITU_RETURN_IF_ERROR(builder.finish());
  graph.remove_dead_nodes();
  return Status::ok();
}

}  // namespace situ
