// Attention of one token is split over the keys: each thread reads a part of every head's rows, front to back, and a
// second kernel merges what the parts give (flash decoding; the sums are those of the online softmax). Splitting over
// heads instead reads the heads that two threads share twice, and every head with gaps.
#include "passes/builder.h"
#include "passes/pass.h"

namespace situ {
namespace {

// Rows of one KV head that a split works on at once, and their size: both fit a thread's scratch
// (kernels/attention.cc).
constexpr int64_t kMaxGroup = 48, kMaxHeadSize = 256;

// Whether the attention `n` of one token may be split over the keys.
bool splits_well(const Graph& graph, const Node& n) {
  if (!n.is("Attention", "situ")) return false;
  const Shape &q = graph.values[n.in[0]].info.shape, &k = graph.values[n.in[1]].info.shape,
              &y = graph.values[n.out[0]].info.shape;
  const bool known = q[1].is_const() && k[1].is_const() && q[3].is_const() && y[3].is_const();
  return known && q[0] == Dim(1) && q[1].value() / k[1].value() <= kMaxGroup && q[3].value() <= kMaxHeadSize &&
         y[3].value() <= kMaxHeadSize;
}

}  // namespace

void add_attention_workspaces(Graph& graph, int splits, int64_t tokens) {
  if (pass_disabled("split_attention") || tokens <= 0) return;
  for (Node& n : graph.nodes) {
    if (!splits_well(graph, n)) continue;
    const Shape y = graph.values[n.out[0]].info.shape;
    const ValueId workspace = graph.add_value(n.name + "/workspace", DType::kF32);
    graph.values[workspace].info = {DType::kF32, true, {Dim(tokens), Dim(splits), y[1], y[3] + Dim(2)}, {}};
    n.out.push_back(workspace);
  }
  graph.rebuild_links();
}

ValueId attention_workspace(const Node& node) {
  return node.is("Attention", "situ") && node.has_output(1) ? node.out[1] : kNoValue;
}

Status split_attention(Graph& graph, int splits) {
  if (pass_disabled("split_attention")) return Status::ok();
  Builder builder(graph);
  const std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  for (const Node& n : nodes) {
    if (!splits_well(graph, n) || graph.values[n.in[0]].info.shape[2] != Dim(1)) {
      builder.keep(n);
      continue;
    }
    builder.start(n);
    const ValueInfo y = graph.values[n.out[0]].info;
    const ValueId partial = builder.op("AttentionPartial", n.in, kNoValue, "situ");
    builder.last().attrs = n.attrs;
    builder.last().set_int("splits", splits);
    graph.values[partial].info = {DType::kF32, true, {Dim(splits), y.shape[1], y.shape[3] + Dim(2)}, {}};
    builder.op("AttentionMerge", {partial}, n.out[0], "situ");
    builder.last().set_int("to", static_cast<int64_t>(y.type));
  }
  return builder.finish();
}

}  // namespace situ
