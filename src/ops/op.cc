#include "ops/op.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "ops/infer.h"
#include "ops/known.h"
#include "ops/ops.h"

namespace situ {

Status no_prepare(const PrepareContext& c, Prepared*) { return c.fail("has no kernel of its own"); }
bool no_view(ViewContext&) { return false; }

namespace {

using PrepareFn = Status (*)(const PrepareContext&, Prepared*);
using ViewFn = bool (*)(ViewContext&);

constexpr PrepareFn given(PrepareFn f) { return f == no_prepare ? nullptr : f; }
constexpr ViewFn given(ViewFn f) { return f == no_view ? nullptr : f; }

#define SITU_OP(domain, name, since, placement, infer, prepare, view) \
  {domain, #name, since, placement, infer, given(prepare), given(view)},
const OpDef kOps[] = {
#include "ops/ops.inc"
};
#undef SITU_OP

// Definitions by (domain, name), oldest first. Built at first use; reads only afterwards.
using OpKey = std::pair<std::string, std::string>;
const std::map<OpKey, std::vector<const OpDef*>>& op_index() {
  static const auto* const index = [] {
    auto* m = new std::map<OpKey, std::vector<const OpDef*>>;
    for (const OpDef& def : kOps) (*m)[{def.domain, def.name}].push_back(&def);
    for (auto& [key, defs] : *m)
      std::sort(defs.begin(), defs.end(), [](const OpDef* a, const OpDef* b) { return a->since < b->since; });
    return m;
  }();
  return *index;
}

// "ai.onnx" and "" are the same domain.
std::string domain_key(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

// What to do about operators that are left out on purpose; "": nothing is known.
std::string advice_for(const std::string& domain, const std::string& op) {
  static constexpr const char* kLoop =
      "holds the loop over tokens inside the file: export encoder and decoder as graphs of their own, with past (of a "
      "decoder-only model the decoder alone), and search with --beams";
  static constexpr const char* kAdvice[][2] = {
      {"BeamSearch", kLoop},
      {"WhisperBeamSearch", kLoop},
      {"GreedySearch", kLoop},
      {"Sampling", kLoop},
      {"PagedAttention",
       "reads pages that a server deals out: export for CPUs, with GroupQueryAttention and a past of [batch, heads, "
       "tokens, size] (onnxruntime-genai's builder: -e cpu)"},
      {"EPContext",
       "is a program that was compiled for one device, and holds no operators: take the export for CPUs "
       "(onnxruntime-genai's builder: -e cpu)"}};
  if (domain != "com.microsoft") return "";
  for (const auto& [name, advice] : kAdvice)
    if (op == name) return op + " " + advice;
  return "";
}

// Attributes that are 0 or 1. What another number means is told by no specification, and implementations differ.
bool is_flag(const std::string& attribute) {
  static const std::set<std::string> flags{"allowzero",
                                           "channels_last",
                                           "do_rotary",
                                           "exclusive",
                                           "interleaved",
                                           "is_causal",
                                           "is_packed_batching",
                                           "keepdims",
                                           "largest",
                                           "noop_with_empty_axes",
                                           "reverse",
                                           "rotary_interleaved",
                                           "sorted",
                                           "transA",
                                           "transB",
                                           "unidirectional",
                                           "upper"};
  return flags.count(attribute) != 0;
}

// What is refused: operators that are missing, and what nodes have that is not known or no flag.
struct Refused {
  ReasonList missing, wrong;
};

constexpr int64_t kFewScales = 4096;  // that a load looks at

std::string why_missing(const Node& node) {
  if (op_name_known(node.domain, node.op)) return "known from a newer opset only";
  const std::string source = node.op == "EPContext" ? node.attr_string("source", "") : "";
  return source.empty() ? "not supported" : "compiled for " + source;
}

void resolve_into(Graph& graph, NodesOf nodes, Refused& refused) {
  for (Node& node : graph.nodes) {
    node.def = find_op(node.domain, node.op, node.opset);
    if (node.def != nullptr && nodes == NodesOf::kFile) {
      check_known(node, &refused.wrong);
      check_numbers(graph, node, kFewScales, &refused.wrong);
    }
    if (node.def == nullptr) refused.missing.add(node.reason(Reason::Kind::kOperator, why_missing(node)));
    for (auto& [name, attribute] : node.attrs) {
      if (attribute.graph) resolve_into(*attribute.graph, nodes, refused);
      if (!is_flag(name) || attribute.kind != Attribute::Kind::kInt || attribute.i == 0 || attribute.i == 1) continue;
      refused.wrong.add(
          node.reason(Reason::Kind::kAttribute, name + " should be 0 or 1, is " + std::to_string(attribute.i)));
    }
  }
}

// "MatMul", "com.microsoft.X".
std::string full_name(const Reason& r) { return (r.domain == "ai.onnx" ? "" : r.domain + ".") + r.op; }

// "3 nodes, first 'n'"
std::string nodes_text(const Reason& r) {
  return std::to_string(r.count) + (r.count == 1 ? " node" : " nodes") + ", first '" + r.first_node + "'";
}

}  // namespace

SymView SymView::contiguous(const Shape& dims) {
  SymView view;
  view.dims = dims;
  view.strides.assign(dims.size(), Dim(1));
  for (size_t i = dims.size(); i-- > 1;) view.strides[i - 1] = view.strides[i] * dims[i];
  return view;
}

std::optional<std::vector<Dim>> InferContext::content(size_t i) const { return operand_content(*this, i); }
std::optional<std::vector<int64_t>> InferContext::content_i64(size_t i) const { return operand_i64(*this, i); }
std::optional<std::vector<Dim>> ViewContext::content(size_t i) const { return operand_content(*this, i); }
std::optional<std::vector<int64_t>> ViewContext::content_i64(size_t i) const { return operand_i64(*this, i); }

void InferContext::set(size_t i, DType type, Shape shape) {
  if (i >= out.size()) return;
  out[i].type = type;
  out[i].ranked = true;
  out[i].shape = std::move(shape);
  out[i].content.reset();
}

Status InferContext::need(size_t i, const char* operand) const {
  const std::string which = "input " + std::to_string(i) + " (" + operand + ")";
  if (!has(i)) return fail(which + " is missing");
  if (!input(i).ranked) return fail(which + " has no known shape");
  if (input(i).shape.size() > static_cast<size_t>(kMaxRank))
    return fail(which + " has rank " + std::to_string(input(i).shape.size()) + ", at most " + std::to_string(kMaxRank) +
                " is supported");
  return Status::ok();
}

const OpDef* find_op(const std::string& domain, const std::string& name, int opset) {
  const auto it = op_index().find({domain_key(domain), name});
  if (it == op_index().end()) return nullptr;
  const OpDef* found = nullptr;
  for (const OpDef* def : it->second)
    if (def->since <= opset) found = def;
  return found;
}

bool op_name_known(const std::string& domain, const std::string& name) {
  return op_index().count({domain_key(domain), name}) != 0;
}

Status resolve_ops(Graph& graph, NodesOf nodes) {
  Refused refused;
  resolve_into(graph, nodes, refused);
  Reasons missing = refused.missing.reasons();
  const Reasons& wrong = refused.wrong.reasons();
  if (missing.empty() && wrong.empty()) return Status::ok();
  std::sort(missing.begin(), missing.end(), [](const Reason& a, const Reason& b) {
    return std::tuple(a.domain != "ai.onnx", a.domain, a.op, a.opset) <
           std::tuple(b.domain != "ai.onnx", b.domain, b.op, b.opset);
  });
  std::string text;
  for (const Reason& r : missing) {
    text += text.empty()
                ? std::to_string(missing.size()) + " operator" + (missing.size() == 1 ? "" : "s") + " not supported: "
                : "; ";
    text += full_name(r) + " (opset " + std::to_string(r.opset) + (r.detail == "not supported" ? "" : ", " + r.detail) +
            ", " + nodes_text(r) + ")";
  }
  for (const Reason& r : wrong)
    text += (text.empty() ? "" : "; ") + full_name(r) + " '" + r.first_node + "': " + r.detail +
            (r.count == 1 ? "" : " (" + nodes_text(r) + ")");
  for (Reason& r : missing)
    if (const std::string advice = advice_for(r.domain, r.op); !advice.empty()) {
      text += "; " + advice;
      r.advice = advice;
    }
  missing.insert(missing.end(), wrong.begin(), wrong.end());
  return Status::error(Code::kUnsupportedModel, text).because(std::move(missing));
}

void leave_out_unread(Graph& graph) {
  static const std::set<std::string> optional{"Attention",
                                              "Dropout",
                                              "GroupQueryAttention",
                                              "LayerNormalization",
                                              "MultiHeadAttention",
                                              "SimplifiedLayerNormalization",
                                              "SkipLayerNormalization",
                                              "SkipSimplifiedLayerNormalization"};
  const std::vector<std::vector<std::pair<int, int>>> users = graph.users();
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attrs)
      if (attribute.graph) {
        attribute.graph = std::make_shared<Graph>(*attribute.graph);  // copies of the node share it
        leave_out_unread(*attribute.graph);
      }
    if (!optional.count(node.op)) continue;
    for (size_t i = 1; i < node.out.size(); ++i)
      if (node.has_output(i) && users[static_cast<size_t>(node.out[i])].empty() && !graph.is_output(node.out[i]))
        node.out[i] = kNoValue;
    while (node.out.size() > 1 && node.out.back() == kNoValue) node.out.pop_back();
  }
}

std::vector<const OpDef*> all_ops() {
  std::vector<const OpDef*> result;
  for (const OpDef& def : kOps) result.push_back(&def);
  return result;
}

Result<int> normalize_axis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    return Status::error("axis " + std::to_string(axis) + " is outside of [-" + std::to_string(rank) + ", " +
                         std::to_string(rank) + ")");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace situ
