#include <algorithm>

#include "passes/pass.h"

namespace situ {
namespace {

// Folding is for tables and shape arithmetic. A weight-sized result is a second copy of the weights in memory, so views of weights
// stay views, dequantised weights stay fused or computed, and casts wait for the passes that know who reads them.
constexpr int64_t kMaxFoldedBytes = 64 << 20;  // or twice the operands
constexpr int64_t kSmallBytes = 4096;
// Of all constants that are made: a small file must not fill the memory. Twice the file's own, and this.
constexpr int64_t kFoldedBytes = 256 << 20;

bool from_storage(const Graph& graph, const Node& node) {
  if (node.op != "Cast" || !node.domain.empty()) return false;
  const Tensor& t = graph.values[node.in[0]].constant;
  const std::vector<int64_t> dims = t.dims();
  const bool vector = dims.empty() || t.count() == *std::max_element(dims.begin(), dims.end());  // scales, zero points, biases
  return dtype_bits(t.type()) <= 16 && t.bytes() > kSmallBytes && !vector;
}

// Bytes of a graph's constants that come from its file.
int64_t stored_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Value& v : graph.values) bytes += v.constant.present() ? v.constant.bytes() : 0;
  return bytes;
}

bool foldable(const PassContext& context, const Node& node, const std::vector<ValueInfo>& infos) {
  const Graph& graph = context.graph;
  if (node.def->placement == Placement::kControl || node.in.empty() || node.op == "DequantizeLinear") return false;
  int64_t in_bytes = 0, out_bytes = 0;
  for (ValueId v : node.in) {
    if (v == kNoValue) continue;
    if (!graph.values[v].constant.present()) return false;
    in_bytes += graph.values[v].constant.bytes();
  }
  for (size_t i = 0; i < infos.size(); ++i) {
    if (!node.has_output(i)) continue;
    if (!infos[i].ranked || !shape_is_const(infos[i].shape) || dtype_bytes(infos[i].type) == 0) return false;
    out_bytes += shape_count(infos[i].shape).value() * dtype_bytes(infos[i].type);
  }
  if (node.def->placement == Placement::kView && out_bytes > kSmallBytes) return false;
  if (context.weights_as_stored && from_storage(graph, node)) return false;
  if (context.folded_bytes + out_bytes > kFoldedBytes + 2 * context.stored_bytes) return false;
  return out_bytes <= std::max(kMaxFoldedBytes, 2 * in_bytes) && (out_bytes <= 1 << 20 || out_bytes <= 4 * in_bytes);
}

// A value that is wholly known through its content becomes a constant.
void materialise(Graph& graph, ValueId id) {
  Value& v = graph.values[id];
  if (v.constant.present() || !v.info.content) return;
  std::vector<int64_t> elements;
  for (const Dim& d : *v.info.content) {
    if (!d.is_const()) return;
    elements.push_back(d.value());
  }
  std::vector<int64_t> dims;
  if (!v.info.shape.empty()) dims.push_back(static_cast<int64_t>(elements.size()));
  Tensor t = Tensor::allocate(v.info.type, dims);
  for (size_t i = 0; i < elements.size(); ++i) {
    switch (v.info.type) {
      case DType::kI64: t.view().as<int64_t>()[i] = elements[i]; break;
      case DType::kI32: t.view().as<int32_t>()[i] = static_cast<int32_t>(elements[i]); break;
      case DType::kBool: t.view().as<uint8_t>()[i] = elements[i] != 0; break;
      default: return;
    }
  }
  v.constant = t;
}

// The id of a dim that is a name of the file and nothing else ("kv_cache_dim"), or -1.
int file_symbol(const Dim& d) {
  if (d.is_const()) return -1;
  for (int s = kFirstFileSymbol; s < kMaxSymbols; ++s)
    if (d == Dim::symbol(s)) return s;
  return -1;
}

// A file's symbol turns out to be `by`: what an operator needs tells more than the declaration.
void learn(Graph& graph, int symbol, const Dim& by) {
  for (Value& v : graph.values) {
    for (Dim& d : v.info.shape) d = d.substitute(symbol, by);
    if (v.info.content)
      for (Dim& d : *v.info.content) d = d.substitute(symbol, by);
  }
}

Status infer_node(PassContext& context, Node& node, std::vector<ValueInfo>& infos) {
  Graph& graph = context.graph;
  if (!node.def) return Status::error(node.label() + ": unknown operator");
  InferContext infer{node, {}, {}, infos};
  for (ValueId v : node.in) {
    infer.in.push_back(v == kNoValue ? nullptr : &graph.values[v].info);
    infer.constants.push_back(v == kNoValue || !graph.values[v].constant.present() ? nullptr
                                                                                   : &graph.values[v].constant);
  }
  const Status strict = node.def->infer(infer);
  if (!node.attribute_error.empty()) return Status::error(node.attribute_error);
  if (strict.is_ok()) return strict;
  // Once more, with what would have to hold: a name of the file for a dim may turn out to be another dim.
  std::vector<Assumption> assumptions;
  infer.assumptions = &assumptions;
  if (!node.def->infer(infer).is_ok()) return strict;
  for (const Assumption& a : assumptions) {
    int symbol = -1;
    Dim by;
    for (const auto& [from, to] : {std::pair<Dim, Dim>{a.a, a.b}, {a.b, a.a}})
      if (a.equal && symbol < 0 && (symbol = file_symbol(from)) >= 0) by = to;
    if (symbol < 0 || by.depends_on(symbol)) return strict;
    learn(graph, symbol, by);
    for (ValueInfo& info : infos)
      for (Dim& d : info.shape) d = d.substitute(symbol, by);
  }
  return Status::ok();
}

Status fold(PassContext& context, const Node& node) {
  std::vector<Tensor> operands;
  for (ValueId v : node.in) operands.push_back(v == kNoValue ? Tensor() : context.graph.values[v].constant);
  Result<std::vector<Tensor>> results = context.evaluator.node(node, operands);
  if (!results.is_ok()) return results.status();
  for (size_t i = 0; i < node.out.size(); ++i) {
    if (!node.has_output(i)) continue;
    Value& v = context.graph.values[node.out[i]];
    v.constant = (*results)[i];
    v.info = info_of(v.constant);
    context.folded_bytes += v.constant.bytes();
  }
  return Status::ok();
}

}  // namespace

Status infer_shapes(PassContext& context) {
  Graph& graph = context.graph;
  context.at_control = false;
  if (context.stored_bytes == 0) context.stored_bytes = stored_bytes(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    if (node.is("If")) {
      context.at_control = true;
      break;
    }
    std::vector<ValueInfo> infos(node.out.size());
    try {
      SITU_RETURN_IF_ERROR(infer_node(context, node, infos));
    } catch (const DimTooLong& e) {
      return Status::error(node.label() + ": " + e.what());
    }
    if (foldable(context, node, infos)) {
      SITU_RETURN_IF_ERROR(fold(context, node));
      continue;
    }
    try {
      infer_content(graph, node, context.evaluator, infos);
    } catch (const DimTooLong&) {  // the step computes it
      for (ValueInfo& info : infos) info.content.reset();
    }
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (!node.has_output(i)) continue;
      graph.values[node.out[i]].info = std::move(infos[i]);
      materialise(graph, node.out[i]);
    }
  }
  // Folded nodes have no users left that need them to run.
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    const bool folded = std::all_of(node.out.begin(), node.out.end(), [&](ValueId v) {
      return v == kNoValue || graph.values[v].constant.present();
    });
    if (!folded || node.out.empty()) kept.push_back(std::move(node));
  }
  graph.nodes = std::move(kept);
  graph.rebuild_links();
  return Status::ok();
}

}  // namespace situ
