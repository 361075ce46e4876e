#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/reasons.h"
#include "graph/fingerprint.h"
#include "ops/op.h"
#include "passes/context/pass_context.h"
#include "passes/host/constants.h"
#include "passes/host/infer.h"

namespace situ {
namespace {

// Folding is for tables and shape arithmetic. A weight-sized result is a second copy of the weights in memory, so views
// of weights stay views, casts and dequantised weights wait for the passes that know who reads them, and the rest is
// computed when it is looked at: most are packed then, one after the other, and let go.
constexpr int64_t kSmallBytes = 4096;
constexpr int64_t kDeferredBytes = 1 << 20;
constexpr int kMostViews = 4;  // of a constant, one of the other
// A small file must not fill the memory: one result beyond kDeferredBytes, by the file's own constants, and all that
// are made and kept, beyond kFoldedBytes. Weights of four bits become eight times as large in float32; their scales,
// repeated for each, too.
constexpr int64_t kMostTimes = 8;
constexpr int64_t kFoldedBytes = 256 << 20;
constexpr double kMostWholeFloat = 1 << 24;  // float holds every whole number up to it

// Of a shape that is known.
int64_t bytes_of(const ValueInfo& info) { return (shape_count(info.shape).value() * dtype_bits(info.type) + 7) / 8; }

int64_t most_bytes(const PassContext& context) { return std::max(kDeferredBytes, kMostTimes * context.stored_bytes); }

// The same at every step: a constant, or views of one.
bool fixed(const PassContext& context, ValueId v, int views = 0) {
  const Graph& graph = context.graph;
  if (v == kNoValue || graph.values[v].constant.present()) return true;
  const Value& value = graph.values[v];
  if (value.producer < 0 || views >= kMostViews || !value.info.ranked || !shape_is_const(value.info.shape))
    return false;
  const Node& n = graph.nodes[value.producer];
  if (!n.def || n.def->placement != Placement::kView || dtype_bytes(value.info.type) == 0) return false;
  if (!std::all_of(n.in.begin(), n.in.end(), [&](ValueId x) { return fixed(context, x, views + 1); })) return false;
  return bytes_of(value.info) <= most_bytes(context);
}

// Weights as the file has them, in a smaller type.
bool from_storage(const Graph& graph, const Node& node) {
  if (node.op == "DequantizeLinear") return true;
  if (!node.is("Cast")) return false;
  const ValueInfo& from = graph.values[node.in[0]].info;
  bool vector = true;  // scales, zero points, biases
  for (const Dim& d : from.shape) vector = vector && (d == Dim(1) || d == shape_count(from.shape));
  return dtype_bits(from.type) <= 16 && bytes_of(from) > kSmallBytes && !vector;
}

// Bytes of a graph's constants that come from its file.
int64_t stored_bytes(const Graph& graph) {
  int64_t bytes = 0;
  for (const Value& v : graph.values) bytes += v.constant.present() ? v.constant.bytes() : 0;
  return bytes;
}

// Weights that a Reshape of a transposed view puts in another order.
bool reorders(const PassContext& context, const Node& node, const std::vector<ValueInfo>& infos) {
  const Node* turn = node.is("Reshape") ? context.graph.producer(node.in[0], "Transpose") : nullptr;
  if (!turn || !infos[0].ranked || !shape_is_const(infos[0].shape) || !fixed(context, node.in[0])) return false;
  const SymView from = SymView::contiguous(context.graph.values[turn->in[0]].info.shape);
  SymView turned, result;
  for (const int64_t axis : turn->permutation(from.dims.size())) {
    turned.dims.push_back(from.dims[static_cast<size_t>(axis)]);
    turned.strides.push_back(from.strides[static_cast<size_t>(axis)]);
  }
  return !reshape_view(turned, infos[0].shape, &result);
}

// `last`: nothing else reads the constant that the node is a view of.
bool foldable(const PassContext& context, const Node& node, const std::vector<ValueInfo>& infos, bool last) {
  const Graph& graph = context.graph;
  if (node.def->placement == Placement::kControl || node.in.empty() || node.computed_in_place) return false;
  const bool view = node.def->placement == Placement::kView && !reorders(context, node, infos);
  if (node.def->placement == Placement::kCompute && !node.def->prepare) return false;  // is written out first
  int64_t out_bytes = 0;
  for (ValueId v : node.in) {
    if (v == kNoValue) continue;
    if (!(view ? graph.values[v].constant.present() : fixed(context, v))) return false;
  }
  for (size_t i = 0; i < infos.size(); ++i) {
    if (!node.has_output(i)) continue;
    if (!infos[i].ranked || !shape_is_const(infos[i].shape) || dtype_bytes(infos[i].type) == 0) return false;
    out_bytes += bytes_of(infos[i]);
  }
  if (view && out_bytes > kSmallBytes &&
      !(last && node.out.size() == 1 && out_bytes <= bytes_of(graph.values[node.in[0]].info)))
    return false;
  if (out_bytes > (node.out.size() > 1 ? Evaluator::kMaxProbeBytes : Evaluator::kMaxNaiveBytes))
    return false;  // Folder::fold
  if (context.weights_as_stored && from_storage(graph, node)) return false;
  if (context.folded_bytes + out_bytes > kFoldedBytes + kMostTimes * context.stored_bytes) return false;
  return out_bytes <= most_bytes(context);
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
      case DType::kI64:
        t.view().as<int64_t>()[i] = elements[i];
        break;
      case DType::kI32:
        t.view().as<int32_t>()[i] = static_cast<int32_t>(elements[i]);
        break;
      case DType::kBool:
        t.view().as<uint8_t>()[i] = elements[i] != 0;
        break;
      default:
        return;
    }
  }
  v.constant = t;
}

// The id of a dim that is a name of the file and nothing else ("kv_cache_dim"), or -1.
int file_symbol(const Dim& d) {
  const int id = d.lone_symbol();
  return id >= kFirstFileSymbol ? id : -1;
}

// A file's symbol turns out to be `by`: what an operator needs tells more than the declaration.
void learn(Graph& graph, int symbol, const Dim& by) {
  for (Value& v : graph.values) {
    for (Dim& d : v.info.shape) d = d.substitute(symbol, by);
    if (v.info.content)
      for (Dim& d : *v.info.content) d = d.substitute(symbol, by);
  }
}

// A float operand that counts, as torch.onnx writes arange(n, dtype=float): a whole number of the file, or the cast of
// an integer that is known.
std::optional<std::vector<Dim>> whole_number(const Graph& graph, ValueId v) {
  const Tensor& constant = graph.values[v].constant;
  if (constant.present() && constant.count() == 1) {
    const double number = constant.to_f64()[0];
    if (number == std::trunc(number) && std::abs(number) <= kMostWholeFloat)
      return std::vector<Dim>{Dim(static_cast<int64_t>(number))};
  }
  const Node* cast = graph.producer(v, "Cast");
  if (!cast || dtype_is_float(graph.values[cast->in[0]].info.type)) return std::nullopt;
  std::optional<std::vector<Dim>> content = content_of(graph, *cast, 0);
  const auto rounded = [](const Dim& d) {
    return d.is_const() && std::abs(static_cast<double>(d.value())) > kMostWholeFloat;
  };
  return content && std::any_of(content->begin(), content->end(), rounded) ? std::nullopt : content;
}

Status infer_node(PassContext& context, Node& node, std::vector<ValueInfo>& infos) {
  Graph& graph = context.graph;
  if (!node.def) return node.error("unknown operator", Reason::Kind::kOperator);
  InferContext infer{node, {}, {}, infos};
  for (ValueId v : node.in) {
    infer.in.push_back(v == kNoValue ? nullptr : &graph.values[v].info);
    infer.constants.push_back(v == kNoValue || !graph.values[v].constant.present() ? nullptr
                                                                                   : &graph.values[v].constant);
  }
  std::array<ValueInfo, 3> counts;
  for (size_t i = 0; i < counts.size() && node.is("Range"); ++i) {
    // Halves do not hold all whole numbers of the lengths that there are.
    if (!infer.has(i) || (infer.in[i]->type != DType::kF32 && infer.in[i]->type != DType::kF64)) continue;
    counts[i] = *infer.in[i];
    counts[i].content = whole_number(graph, node.in[i]);
    infer.in[i] = &counts[i];
  }
  const Status strict = node.def->infer(infer);
  SITU_RETURN_IF_ERROR(node.check_attribute_kinds());
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

// The same, with an error where shapes have no end.
Status try_infer(PassContext& context, Node& node, std::vector<ValueInfo>& infos) {
  try {
    return infer_node(context, node, infos);
  } catch (const DimTooLong& e) {
    return node.error(e.what());
  }
}

// Where a cut bends at some length, as at the end of a table or of a cache, shorter sequences may be all that is right:
// who reads the part shows it.
void note_cut(PassContext& context, const Node& node, const std::vector<ValueInfo>& infos) {
  if (!node.is("Slice") || infos.empty()) return;
  for (const Dim& d : infos[0].shape) {
    std::vector<int64_t> numbers;
    if (!d.is_const()) d.piecewise_linear(&numbers);
    for (const int64_t n : numbers) {
      const int64_t at = std::abs(std::max(n, -INT64_MAX));
      for (const int64_t tokens : {at, at - 1})
        if (tokens > 1 && !context.holds.count(tokens))
          context.holds[tokens] = node.label() + " cuts at " + std::to_string(at);
    }
  }
}

// Results of nodes whose operands are constants, as constants. Those that only folded nodes read are let go.
class Folder {
 public:
  explicit Folder(PassContext& context) : context_(context), graph_(context.graph) {}

  // Throws FoldingFailed.
  void fold(const Node& node, const std::vector<ValueInfo>& infos) {
    count_readers();
    std::vector<Tensor> operands;
    for (ValueId v : node.in) operands.push_back(constant(v));
    if (node.out.size() == 1 && bytes_of(infos[0]) >= kDeferredBytes) {
      keep(node.out[0], deferred(node, 0, operands, infos[0]));
    } else {
      const std::vector<Tensor> results = computed_results(context_, context_.evaluator, node, operands);
      for (size_t i = 0; i < node.out.size(); ++i)
        if (node.has_output(i)) keep(node.out[i], results[i]);
    }
    for (ValueId v : node.in) let_go(v);
  }

  // Of a constant that was folded.
  bool last_view(const Node& node) {
    if (node.in.empty() || node.in[0] == kNoValue || !context_.folded.count(node.in[0])) return false;
    count_readers();
    return readers_[node.in[0]] == 1;
  }

  bool was_folded(const Node& node) const {
    return std::all_of(node.out.begin(), node.out.end(), [&](ValueId v) {
      return v == kNoValue || graph_.values[v].constant.present() || context_.folded.count(v);
    });
  }

 private:
  Tensor deferred(const Node& node, size_t output, const std::vector<Tensor>& operands, const ValueInfo& info) {
    return deferred_result(context_, node, output, operands, info.type, shape_values(info.shape));
  }

  // Of a value that is `fixed`.
  Tensor constant(ValueId v) {
    if (v == kNoValue) return Tensor();
    const Value& value = graph_.values[v];
    if (value.constant.present()) return value.constant;
    const Node& n = graph_.nodes[value.producer];
    std::vector<Tensor> operands;
    for (ValueId x : n.in) operands.push_back(constant(x));
    const size_t output = static_cast<size_t>(std::find(n.out.begin(), n.out.end(), v) - n.out.begin());
    return deferred(n, output, operands, value.info);
  }

  void count_readers() {
    if (!readers_.empty()) return;
    for (const auto& readers : graph_.users()) readers_.push_back(readers.size());
    for (ValueId v : graph_.outputs) ++readers_[v];
  }

  void keep(ValueId id, const Tensor& t) {
    Value& v = graph_.values[id];
    v.constant = t;
    v.info = info_of(t);
    context_.folded[id] = t.bytes();
    context_.folded_bytes += t.bytes();
  }

  // One reader of a value less.
  void let_go(ValueId id) {
    if (id == kNoValue || --readers_[id] > 0) return;
    if (const auto made = context_.folded.find(id); made != context_.folded.end()) {
      graph_.drop_constant(id);
      context_.folded_bytes -= made->second;
    } else if (!graph_.values[id].constant.present()) {  // a view: its node goes, with the last of its results
      const Node& view = graph_.nodes[graph_.values[id].producer];
      if (std::any_of(view.out.begin(), view.out.end(), [&](ValueId v) { return v != kNoValue && readers_[v] > 0; }))
        return;
      for (ValueId v : view.out)
        if (v != kNoValue) context_.folded[v] = 0;
      for (ValueId x : view.in) let_go(x);
    }
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<size_t> readers_;  // that are left, by value
};

// Of all that shapes are inferred from, and of what is inferred.
uint64_t state_of(const PassContext& context) {
  Fingerprint sum;
  sum.add(fingerprint(context.graph));
  sum.add(context.weights_as_stored + 2u * context.at_control);
  sum.add(static_cast<uint64_t>(context.folded_bytes));
  for (const auto& [v, bytes] : context.folded) {
    sum.add(static_cast<uint64_t>(v));
    sum.add(static_cast<uint64_t>(bytes));
  }
  return sum.sum();
}

Status infer_all(PassContext& context) {
  Graph& graph = context.graph;
  context.at_control = false;
  if (context.stored_bytes == 0) context.stored_bytes = stored_bytes(graph);
  Folder folder(context);
  ReasonList refused;
  std::set<ValueId> unknown;  // what refused nodes make, and what is made of it: not worth a word of its own
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    if (node.is("If")) {
      context.at_control = true;
      break;
    }
    const auto reads_unknown = [&] {
      return std::any_of(node.in.begin(), node.in.end(), [&](ValueId v) { return unknown.count(v) != 0; });
    };
    if (!unknown.empty() && reads_unknown()) {
      unknown.insert(node.out.begin(), node.out.end());
      unknown.erase(kNoValue);
      continue;
    }
    if (context.before_infer) context.before_infer(node);
    std::vector<ValueInfo> infos(node.out.size());
    if (const Status inferred = try_infer(context, node, infos); !inferred.is_ok()) {
      refused.add(inferred, Reason::Kind::kShape);
      unknown.insert(node.out.begin(), node.out.end());
      unknown.erase(kNoValue);
      continue;
    }
    note_cut(context, node, infos);
    if (foldable(context, node, infos, folder.last_view(node))) {
      folder.fold(node, infos);
      continue;
    }
    try {
      infer_content(graph, node, context.evaluator, infos, &context);
    } catch (const DimTooLong&) {  // the step computes it
      for (ValueInfo& info : infos) info.content.reset();
    }
    for (size_t i = 0; i < node.out.size(); ++i) {
      if (!node.has_output(i)) continue;
      graph.values[node.out[i]].info = std::move(infos[i]);
      materialise(graph, node.out[i]);
    }
  }
  if (!refused.empty()) return refused.status();
  // Folded nodes have no users left that need them to run.
  std::vector<Node> kept;
  for (Node& node : graph.nodes)
    if (node.out.empty() || !folder.was_folded(node)) kept.push_back(std::move(node));
  graph.nodes = std::move(kept);
  graph.rebuild_links();
  return Status::ok();
}

}  // namespace

Status infer_shapes(PassContext& context) {
  if (context.before_infer) {  // may do what it likes
    context.settled.reset();
    return infer_all(context);
  }
  const uint64_t before = state_of(context);
  if (context.settled == before) return Status::ok();
  SITU_RETURN_IF_ERROR(infer_all(context));
  const uint64_t after = state_of(context);
  context.settled = after == before ? std::optional(after) : std::nullopt;
  return Status::ok();
}

}  // namespace situ
