// Packed products of the same rows become one kernel call, as the projections of q, k and v are: the rows are
// normalised and rounded once, and threads meet once. Of two products there is nothing to gain but the meeting, so that
// a gate and its product are left to fuse_matmuls, which runs before.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "ops/quantised.h"
#include "passes/context/pass_context.h"
#include "passes/lower/passes.h"

namespace situ {
namespace {

enum Operand { kX, kWeights, kBias, kResidual, kNorm, kGate, kOrder };

ValueId operand(const Node& n, Operand o) { return n.has_input(o) ? n.in[o] : kNoValue; }

// Products that may be joined have the same key: rows, their norm and its epsilon, how rows are rounded, and the matrix
// but for its columns.
using Key = std::tuple<ValueId, ValueId, float, int64_t, QuantisedMatrix>;
std::optional<Key> key_of(const Graph& graph, const Node& n) {
  const ValueId bias = operand(n, kBias);
  const bool joins = n.is("PackedMatMul", "situ") && operand(n, kResidual) == kNoValue &&
                     operand(n, kGate) == kNoValue && operand(n, kOrder) == kNoValue &&
                     (bias == kNoValue || graph.values[bias].constant.present());
  if (!joins) return std::nullopt;
  QuantisedMatrix w = quantised_matrix(n);
  w.n = 0;
  return Key{n.in[kX], operand(n, kNorm), n.attr_float("epsilon", 0), n.attr_int("accuracy_level", 0), w};
}

Node join(const Graph& graph, const std::vector<int>& group) {
  const Node& first = graph.nodes[group[0]];
  Node joined = first;
  joined.op = "PackedProjections";
  joined.in = {first.in[kX], operand(first, kNorm)};
  joined.out.clear();
  std::vector<int64_t> columns, half_scales, types;
  for (int i : group) {
    const Node& n = graph.nodes[i];
    joined.in.push_back(n.in[kWeights]);
    joined.in.push_back(operand(n, kBias));
    joined.out.push_back(n.out[0]);
    columns.push_back(n.attr_int("N", 0));
    half_scales.push_back(n.attr_int("half_scales", 0));
    types.push_back(n.attr_int("to", 0));
  }
  joined.set_ints("columns", columns);
  joined.set_ints("half_scales_of", half_scales);
  joined.set_ints("types", types);
  return joined;
}

}  // namespace

Status join_products(PassContext& context) {
  Graph& graph = context.graph;
  std::map<Key, std::vector<int>> groups;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (const auto key = key_of(graph, graph.nodes[i])) groups[*key].push_back(static_cast<int>(i));
  int count = 0;
  std::vector<uint8_t> gone(graph.nodes.size(), 0);
  for (const auto& [key, all] : groups) {
    for (size_t at = 0; at + 1 < all.size(); at += kMaxProjections) {
      const std::vector<int> group(all.begin() + static_cast<int64_t>(at),
                                   all.begin() + static_cast<int64_t>(std::min(at + kMaxProjections, all.size())));
      if (group.size() < 2) continue;
      const Node joined = join(graph, group);
      for (int i : group) gone[i] = 1;
      gone[group[0]] = 0;
      graph.nodes[group[0]] = joined;
      count += static_cast<int>(group.size());
    }
  }
  if (count == 0) return Status::ok();
  std::vector<Node> kept;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (!gone[i]) kept.push_back(std::move(graph.nodes[i]));
  graph.nodes = std::move(kept);
  graph.rebuild_links();
  context.note("joined", "", std::to_string(count) + " products that share their rows");
  SITU_RETURN_IF_ERROR(resolve_ops(graph));
  return graph.sort();
}

}  // namespace situ
