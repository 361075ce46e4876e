// Shape arithmetic on symbols: Shape -> Gather -> Mul -> Concat -> Reshape chains and their like are
// evaluated element by element on Dims, so that they never run on the token path.
#include <algorithm>
#include <cmath>

#include "passes/context/pass_context.h"
#include "passes/host/infer.h"

namespace situ {
namespace {

using Content = std::vector<Dim>;

bool in(const std::string& op, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return op == n; });
}

std::optional<Dim> apply_unary(const std::string& op, DType to, const Dim& a) {
  if (op == "Cast" && to == DType::kBool) return Dim(1) - dim_equal(a, 0);
  if (in(op, {"Cast", "Identity"})) return a;
  if (op == "Neg") return Dim(0) - a;
  if (op == "Not") return Dim(1) - a;
  if (op == "Abs") return dim_max(a, Dim(0) - a);
  return std::nullopt;
}

std::optional<Dim> apply_binary(const Node& node, const Dim& a, const Dim& b) {
  const std::string& op = node.op;
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul" || op == "And") return a * b;
  if (op == "Div") return dim_div(a, b);
  if (op == "Mod" && node.attr_int("fmod", 0) != 0) return a - dim_div(a, b) * b;  // the sign of the dividend
  if (op == "Mod") return dim_mod(a, b);
  if (op == "Min") return dim_min(a, b);
  if (op == "Max" || op == "Or") return dim_max(a, b);
  if (op == "Equal") return dim_equal(a, b);
  if (op == "Less") return dim_less(a, b);
  if (op == "Greater") return dim_less(b, a);
  if (op == "LessOrEqual") return Dim(1) - dim_less(b, a);
  if (op == "GreaterOrEqual") return Dim(1) - dim_less(a, b);
  return std::nullopt;
}

bool moves(const Node& n) {
  return n.domain.empty() && in(n.op, {"Gather", "Slice", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Split",
                                       "Expand", "Flatten", "Tile", "Concat", "GatherElements", "GatherND"});
}

// Operands of a node that moves elements: the first `data_operands` as the numbers that their elements have in `all`,
// where they are added; others are constants. Of a matrix no content is kept: the elements are those of what it was
// moved from, as torch.onnx turns pads into the order of ONNX.
std::optional<std::vector<Tensor>> element_numbers(const Graph& graph, const Node& node, Evaluator& evaluator,
                                                   size_t data_operands, Content* all, int depth = 0) {
  constexpr int kMostMoves = 8;
  std::vector<Tensor> operands;
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (node.in[i] == kNoValue) {
      operands.emplace_back();
      continue;
    }
    const Value& v = graph.values[static_cast<size_t>(node.in[i])];
    if (i >= data_operands) {
      if (!v.constant.present()) return std::nullopt;
      operands.push_back(v.constant);
      continue;
    }
    if (const auto content = content_of(graph, node, i)) {
      std::vector<int64_t> ids(content->size());
      for (size_t k = 0; k < ids.size(); ++k) ids[k] = static_cast<int64_t>(all->size() + k);
      all->insert(all->end(), content->begin(), content->end());
      Tensor t = Tensor::vector_i64(ids);
      operands.push_back(v.info.shape.empty() ? t.reshaped({}) : t);
      continue;
    }
    if (v.producer < 0 || depth == kMostMoves || v.info.shape.size() < 2) return std::nullopt;
    const Node& before = graph.nodes[static_cast<size_t>(v.producer)];
    if (!moves(before) || before.op == "Concat") return std::nullopt;
    const auto of_it = element_numbers(graph, before, evaluator, 1, all, depth + 1);
    if (!of_it) return std::nullopt;
    const Result<std::vector<Tensor>> moved = evaluator.node(before, *of_it);
    if (!moved.is_ok()) return std::nullopt;
    const auto at = std::find(before.out.begin(), before.out.end(), node.in[i]) - before.out.begin();
    operands.push_back((*moved)[static_cast<size_t>(at)]);
  }
  return operands;
}

// Movement (Gather, Slice, Concat ...) of symbolic elements: run the operator on element numbers.
std::optional<std::vector<Content>> move_elements(const Graph& graph, const Node& node, Evaluator& evaluator) {
  Content all;
  const auto operands = element_numbers(graph, node, evaluator, node.op == "Concat" ? node.in.size() : 1, &all);
  if (!operands) return std::nullopt;
  Result<std::vector<Tensor>> moved = evaluator.node(node, *operands);
  if (!moved.is_ok()) return std::nullopt;
  std::vector<Content> results;
  for (const Tensor& t : *moved) {
    Content c;
    if (t.present())
      for (int64_t k : t.to_i64()) c.push_back(all[static_cast<size_t>(k)]);
    results.push_back(std::move(c));
  }
  return results;
}

// The one value that a tensor holds throughout: the attention mask is all ones.
std::optional<int64_t> uniform_value(const Graph& graph, ValueId id) {
  const Value& v = graph.values[id];
  if (v.producer < 0) return std::nullopt;
  const Node& p = graph.nodes[v.producer];
  if (p.is("Cast") || p.is("Identity")) {
    const auto x = uniform_value(graph, p.in[0]);
    return x && v.info.type == DType::kBool ? std::optional<int64_t>(*x != 0) : x;
  }
  if (!p.is("ConstantOfShape")) return std::nullopt;
  const Attribute* a = p.attr("value");
  const double value = a && a->tensor.present() ? a->tensor.to_f64()[0] : 0.0;
  if (!(value >= 0 && value <= 127) || value != std::trunc(value)) return std::nullopt;  // what every type can hold
  return static_cast<int64_t>(value);
}

// The first and the last number of a Range that has a number for each new token at least, or of the positions that the
// host writes, in any shape; `rank` is the one that it has to have, or 0.
std::optional<std::pair<Dim, Dim>> ends_of_range(const Graph& graph, const PassContext* context, ValueId id,
                                                 size_t rank) {
  if (id == kNoValue || (rank && graph.values[id].info.shape.size() != rank)) return std::nullopt;
  for (int moves = 0; id != kNoValue && moves < 4; ++moves) {
    const Value& v = graph.values[id];
    if (v.info.type != DType::kI64 && v.info.type != DType::kI32) return std::nullopt;
    if (context && v.producer < 0) {
      const auto role = context->binding.inputs.find(id);
      if (role == context->binding.inputs.end() || role->second != InputRole::kPositions) return std::nullopt;
      if (shape_count(v.info.shape) != v.info.shape.back()) return std::nullopt;  // places in pictures (M-RoPE)
      const Dim first = context->phase == Phase::kFirst ? Dim(0) : Dim::symbol(kSymP);
      return std::pair(first, first + v.info.shape.back() - Dim(1));
    }
    const Node* n = graph.producer(id);
    if (!n) return std::nullopt;
    if (n->is("Range")) {
      const auto start = content_of(graph, *n, 0), step = content_of(graph, *n, 2);
      if (!start || !step || !v.info.shape[0].depends_on(kSymS)) return std::nullopt;
      return std::pair((*start)[0], (*start)[0] + (*step)[0] * (v.info.shape[0] - Dim(1)));
    }
    // The one row of [1, S].
    const bool row = n->is("Gather") && n->attr_int("axis", 0) == 0 && graph.values[n->in[0]].info.shape[0] == Dim(1) &&
                     shape_count(graph.values[n->in[1]].info.shape) == Dim(1);
    if (!row && (!n->domain.empty() || !in(n->op, {"Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze"})))
      return std::nullopt;
    id = n->in[0];
  }
  return std::nullopt;
}

// Gather or Slice of the first or the last of such numbers.
std::optional<Content> taken_from_range(const Graph& graph, const PassContext* context, const Node& node,
                                        const ValueInfo& out) {
  const auto at = content_of(graph, node, 1);
  const auto ends = ends_of_range(graph, context, node.in[0], 1);
  if (!ends || !at || at->size() != 1 || shape_count(out.shape) != Dim(1)) return std::nullopt;
  if ((*at)[0] == Dim(0)) return Content{ends->first};
  if ((*at)[0] == Dim(-1)) return Content{ends->second};
  return std::nullopt;
}

std::optional<Content> reduce(const Graph& graph, const PassContext* context, const Node& node, const ValueInfo& out) {
  if (shape_count(out.shape) != Dim(1)) return std::nullopt;
  if (const auto ends = ends_of_range(graph, context, node.in[0], 0); ends && in(node.op, {"ReduceMax", "ReduceMin"}))
    return Content{node.op == "ReduceMax" ? dim_max(ends->first, ends->second) : dim_min(ends->first, ends->second)};
  if (node.op == "ReduceSum" && !content_of(graph, node, 0)) {
    const auto value = uniform_value(graph, node.in[0]);
    if (value) return Content{shape_count(graph.values[node.in[0]].info.shape) * Dim(*value)};
    return std::nullopt;
  }
  auto a = content_of(graph, node, 0);
  if (!a || a->empty()) return std::nullopt;
  Dim r = (*a)[0];
  for (size_t i = 1; i < a->size(); ++i) {
    const Dim& x = (*a)[i];
    r = node.op == "ReduceSum"    ? r + x
        : node.op == "ReduceProd" ? r * x
        : node.op == "ReduceMax"  ? dim_max(r, x)
                                  : dim_min(r, x);
  }
  return Content{r};
}

// All sums and products are those of 64 bits; int32 wraps where they leave it.
bool wraps(const ValueInfo& info) {
  return info.type == DType::kI32 && info.content &&
         std::any_of(info.content->begin(), info.content->end(), [](const Dim& d) {
           const int64_t low = d.lower_bound(), high = d.upper_bound();
           return (low < INT32_MIN && low != INT64_MIN) || (high > INT32_MAX && high != INT64_MAX);
         });
}

std::optional<Content> elementwise(const Graph& graph, const Node& node, const ValueInfo& out) {
  const int64_t n = shape_count(out.shape).value();
  std::vector<Content> args;
  for (size_t i = 0; i < node.in.size(); ++i) {
    auto c = content_of(graph, node, i);
    if (!c || (static_cast<int64_t>(c->size()) != n && c->size() != 1)) return std::nullopt;
    args.push_back(std::move(*c));
  }
  Content result;
  for (int64_t k = 0; k < n; ++k) {
    auto at = [&](size_t i) -> const Dim& { return args[i].size() == 1 ? args[i][0] : args[i][k]; };
    std::optional<Dim> d;
    if (args.size() == 1)
      d = apply_unary(node.op, out.type, at(0));
    else if (node.op == "Where" && args.size() == 3)
      d = dim_select(at(0), at(1), at(2));
    else if (args.size() == 2)
      d = apply_binary(node, at(0), at(1));
    if (!d) return std::nullopt;
    result.push_back(*d);
  }
  return result;
}

void find_content(const Graph& graph, const PassContext* context, const Node& node, Evaluator& evaluator,
                  std::vector<ValueInfo>& infos) {
  if (!node.domain.empty() || infos.empty() || node.computed_in_place) return;
  for (const ValueInfo& info : infos) {
    const bool integer = info.type == DType::kI64 || info.type == DType::kI32 || info.type == DType::kBool;
    if (!integer || !info.ranked || info.content || info.shape.size() > 1) return;
    const Dim n = shape_count(info.shape);
    if (!n.is_const() || n.value() > kMaxContent) return;
  }
  if (node.op == "ConstantOfShape") {
    const Attribute* a = node.attr("value");
    const int64_t fill = a && a->tensor.present() ? a->tensor.to_i64()[0] : 0;
    infos[0].content = Content(static_cast<size_t>(shape_count(infos[0].shape).value()), Dim(fill));
    return;
  }
  if (node.op == "Range") {
    auto start = content_of(graph, node, 0), step = content_of(graph, node, 2);
    if (!start || !step) return;
    Content c;
    for (int64_t k = 0; k < shape_count(infos[0].shape).value(); ++k) c.push_back((*start)[0] + (*step)[0] * Dim(k));
    infos[0].content = std::move(c);
    return;
  }
  if (in(node.op, {"ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"})) {
    infos[0].content = reduce(graph, context, node, infos[0]);
    return;
  }
  if (in(node.op, {"Gather", "Slice"}) && !content_of(graph, node, 0)) {
    infos[0].content = taken_from_range(graph, context, node, infos[0]);
    if (infos[0].content) return;
  }
  if (moves(node)) {
    auto moved = move_elements(graph, node, evaluator);
    for (size_t i = 0; moved && i < infos.size(); ++i) infos[i].content = (*moved)[i];
    return;
  }
  infos[0].content = elementwise(graph, node, infos[0]);
}

}  // namespace

void infer_content(const Graph& graph, const Node& node, Evaluator& evaluator, std::vector<ValueInfo>& infos,
                   const PassContext* context) {
  find_content(graph, context, node, evaluator, infos);
  for (ValueInfo& info : infos)
    if (wraps(info)) info.content.reset();  // the step computes it
}

}  // namespace situ
