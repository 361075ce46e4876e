// Fixed windows without their fixed extents. Inputs get S, P and P + S for W, T - W and T; shapes that the graph
// computes follow. Extents that the exporter wrote down as constants become symbols where they are operands that say
// how far a tensor goes: of Reshape, Expand, Slice, Range and ConstantOfShape. Where a number may be an extent or not
// (4 heads and steps of 4 tokens), the first choice is taken with which every shape of the graph can be inferred, and
// with which the graph is the exporter's own at S = W, P = T - W.
#include <algorithm>
#include <map>

#include "passes/context/pass_context.h"
#include "passes/expand/passes.h"
#include "passes/host/infer.h"
#include "passes/window/fixed_window.h"
#include "passes/window/passes.h"

namespace situ {
namespace {

constexpr int kMostTrials = 64;
constexpr size_t kMostOptions = 16;  // for one node

// Operand `operand` of node `node` has these elements.
struct Replacement {
  size_t node = 0, operand = 0;
  Shape dims;
};
using Option = std::vector<Replacement>;  // of one node; empty: it stays as it is

Dim fixed_extent(const FixedWindow& w, const Dim& d) {
  return d.substitute(kSymS, Dim(w.tokens)).substitute(kSymP, Dim(w.past()));
}

// What a node's constant operands may mean.
class Options {
 public:
  Options(const FixedWindow& window, const Graph& fixed) : window_(window), fixed_(fixed) {}

  // `lifted`: with the shapes of what stands before the node.
  std::vector<Option> of(const Graph& lifted, const Node& n, size_t index) {
    graph_ = &lifted;
    node_ = &n;
    index_ = index;
    if (n.out.empty() || !n.domain.empty()) return {};
    if (n.op == "Reshape") return reshape();
    if (n.op == "Expand") return expand();
    if (n.op == "Slice" && n.in.size() >= 3) return slice();
    if (n.op == "Range") return range();
    if (n.op == "ConstantOfShape") return constant_of_shape();
    return {};
  }

 private:
  const Shape& lifted(size_t i) const { return graph_->values[node_->in[i]].info.shape; }
  const Shape& fixed(size_t i) const { return fixed_.values[node_->in[i]].info.shape; }
  // Elements of an integer operand that the file gives.
  std::optional<std::vector<int64_t>> constant(size_t i) const {
    if (!node_->has_input(i)) return std::nullopt;
    const Tensor& t = graph_->values[node_->in[i]].constant;
    if (!t.present() || (t.type() != DType::kI64 && t.type() != DType::kI32) || t.count() > kMaxContent)
      return std::nullopt;
    return t.to_i64();
  }
  // Extents that are `number` in the fixed graph.
  Shape named(int64_t number) const {
    Shape s;
    if (number == window_.length) s.push_back(Dim::symbol(kSymP) + Dim::symbol(kSymS));
    if (number == window_.past()) s.push_back(Dim::symbol(kSymP));
    if (number == window_.tokens) s.push_back(Dim::symbol(kSymS));
    return s;
  }
  static int64_t product(const Shape& s, size_t end) {
    int64_t p = 1;
    for (size_t i = 0; i < end && i < s.size(); ++i) p *= s[i].value();
    return p;
  }
  // All ways to choose one of each list, the first of each first.
  static std::vector<Shape> combined(const std::vector<Shape>& lists) {
    std::vector<Shape> all{{}};
    for (const Shape& list : lists) {
      std::vector<Shape> longer;
      for (const Shape& begin : all)
        for (const Dim& d : list) {
          if (longer.size() >= kMostOptions) break;
          longer.push_back(begin);
          longer.back().push_back(d);
        }
      all = std::move(longer);
    }
    return all;
  }
  std::vector<Option> one_operand(size_t operand, const std::vector<Shape>& choices,
                                  const std::vector<int64_t>& given) const {
    std::vector<Option> options;
    for (const Shape& dims : choices) {
      bool same = dims.size() == given.size();
      for (size_t i = 0; same && i < dims.size(); ++i) same = dims[i] == Dim(given[i]);
      options.push_back(same ? Option{} : Option{{index_, operand, dims}});
    }
    return options;
  }

  // Every extent of the input that is a symbol goes where as many elements stand before it; the same axis first.
  std::vector<Option> reshape() const {
    const auto target = constant(1);
    const Shape &x = fixed(0), &lifted_x = lifted(0), &y = fixed_.values[node_->out[0]].info.shape;
    if (!target || target->size() != y.size() || !shape_is_const(y) || !shape_is_const(x)) return {};
    std::vector<std::pair<size_t, std::vector<size_t>>> places;
    for (size_t a = 0; a < lifted_x.size(); ++a) {
      if (lifted_x[a].is_const()) continue;
      std::vector<size_t> at;
      const int64_t extent = x[a].value(), before = product(x, a);
      if (a < y.size() && y[a] == x[a] && product(y, a) == before) at.push_back(a);
      for (size_t j = y.size(); j-- > 0;)
        if (j != a && y[j] == x[a] && product(y, j) == before) at.push_back(j);
      for (size_t j = 0; j < y.size(); ++j)
        if (y[j] != x[a] && extent > 0 && y[j].value() % extent == 0 && product(y, j) <= before) at.push_back(j);
      places.emplace_back(a, at);
    }
    if (places.empty()) return {};
    std::vector<Shape> shapes{y};
    for (const auto& [a, at] : places) {
      std::vector<Shape> next;
      for (const Shape& s : shapes)
        for (const size_t j : at) {
          if (next.size() >= kMostOptions) break;
          const std::optional<Dim> rest = dim_exact_div(s[j], Dim(x[a].value()));
          if (!rest) continue;
          next.push_back(s);
          next.back()[j] = *rest * lifted_x[a];
        }
      shapes = std::move(next);
    }
    std::vector<Option> options;
    for (const Shape& s : shapes) {
      if (shape_count(s) != shape_count(lifted_x)) continue;
      bool follows = true;  // what it computes or copies itself
      for (size_t j = 0; j < s.size(); ++j) follows = follows && (s[j] == y[j] || (*target)[j] <= 0);
      options.push_back(follows ? Option{} : Option{{index_, 1, s}});
    }
    return options;
  }

  std::vector<Option> expand() const {
    const auto target = constant(1);
    if (!target) return {};
    const Shape &x = fixed(0), &lifted_x = lifted(0);
    std::vector<Shape> lists;
    for (size_t j = 0; j < target->size(); ++j) {
      const int64_t given = (*target)[j];
      const size_t behind = target->size() - j;  // axes from the end
      const bool there = behind <= x.size();
      const Dim extent = there ? lifted_x[x.size() - behind] : Dim(1);
      if (given == 1) {
        lists.push_back({Dim(1)});
      } else if (!extent.is_const() && x[x.size() - behind] == Dim(given)) {
        lists.push_back({extent});
      } else {
        Shape list = named(given);
        const bool first = behind == 2 && !list.empty() && extent == Dim(1);  // the queries of a mask
        list.insert(first || given == window_.length ? list.end() : list.begin(), Dim(given));
        lists.push_back(list);
      }
    }
    return one_operand(1, combined(lists), *target);
  }

  // A part of an axis that is a symbol ends as far from its end as before; all of it stays all of it.
  std::vector<Option> slice() const {
    const auto starts = constant(1), ends = constant(2), axes = constant(3), steps = constant(4);
    const Shape &x = fixed(0), &lifted_x = lifted(0);
    if (!starts || !ends || starts->size() != ends->size() || (node_->has_input(3) && !axes) ||
        (node_->has_input(4) && !steps) || !shape_is_const(x))
      return {};
    std::vector<Shape> lists;
    const size_t count = starts->size();
    for (size_t k = 0; k < count; ++k) {
      const int64_t rank = static_cast<int64_t>(x.size()), given = axes ? (*axes)[k] : static_cast<int64_t>(k),
                    a = given < 0 ? given + rank : given;
      if (a < 0 || a >= rank) return {};
      const bool single = !steps || (*steps)[k] == 1;
      const auto [first, last] =
          bounds((*starts)[k], (*ends)[k], x[static_cast<size_t>(a)].value(), lifted_x[static_cast<size_t>(a)]);
      lists.push_back(single ? first : Shape{Dim((*starts)[k])});
      lists.push_back(single ? last : Shape{Dim((*ends)[k])});
    }
    std::vector<Option> options;
    for (const Shape& c : combined(lists)) {
      Option option;
      for (size_t operand : {size_t{1}, size_t{2}}) {
        Shape dims;
        bool same = true;
        for (size_t k = 0; k < count; ++k) {
          dims.push_back(c[2 * k + operand - 1]);
          same = same && dims.back() == Dim(operand == 1 ? (*starts)[k] : (*ends)[k]);
        }
        if (!same) option.push_back({index_, operand, dims});
      }
      options.push_back(option);
    }
    return options;
  }
  // Choices for a begin and an end on an axis of `extent` elements, which is `lifted` now.
  std::pair<Shape, Shape> bounds(int64_t begin, int64_t end, int64_t extent, const Dim& lifted) const {
    const auto choices = [&](int64_t number, bool literal_first) {
      Shape list = number == 0 ? Shape{} : named(number < 0 ? -number : number);
      if (number < 0)
        for (Dim& d : list) d = Dim(0) - d;
      list.insert(literal_first ? list.begin() : list.end(), Dim(number));
      return list;
    };
    if (lifted.is_const()) {  // of a table that is longer than the window
      const bool window =
          (end == window_.length && (begin == window_.past() || begin == 0)) || (end == window_.past() && begin == 0);
      if (window) return {choices(begin, false), choices(end, false)};
      return {{Dim(begin)}, choices(end, true)};
    }
    if (begin == 0 && end == extent) return {{Dim(0)}, {lifted}};
    const bool keys = lifted.depends_on(kSymP);
    return {choices(begin, begin < 0 && !keys), end > extent ? Shape{Dim(end)} : choices(end, end < 0 && !keys)};
  }

  std::vector<Option> range() const {
    std::vector<Option> options;
    std::vector<Shape> lists;
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const auto given = constant(i);
      Shape list;
      if (given && given->size() == 1) {
        const int64_t number = (*given)[0];
        if (number > 0) list = named(number);
        list.insert(number > 1 ? list.end() : list.begin(), Dim(number));
      }
      lists.push_back(list);
    }
    if (lists[0].empty() || lists[1].empty()) return {};
    for (const Shape& c : combined(lists)) {
      Option option;
      for (const size_t i : {size_t{0}, size_t{1}})
        if (!c[i].is_const()) option.push_back({index_, i, {c[i]}});
      options.push_back(option);
    }
    return options;
  }

  std::vector<Option> constant_of_shape() const {
    const auto given = constant(0);
    if (!given) return {};
    std::vector<Shape> lists;
    for (const int64_t number : *given) {
      Shape list = number > 1 ? named(number) : Shape{};
      list.push_back(Dim(number));
      lists.push_back(list);
    }
    return one_operand(0, combined(lists), *given);
  }

  const FixedWindow& window_;
  const Graph& fixed_;
  const Graph* graph_ = nullptr;
  const Node* node_ = nullptr;
  size_t index_ = 0;
};

class Lifter {
 public:
  Lifter(PassContext& context, FixedWindow window)
      : context_(context), window_(std::move(window)), original_(context.graph), fixed_(context.graph) {}

  Status run() {
    SITU_RETURN_IF_ERROR(infer(fixed_, {}));
    SITU_RETURN_IF_ERROR(choose());
    Graph fixed = original_;
    apply(fixed, true);
    SITU_RETURN_IF_ERROR(infer(fixed, {}, true));
    apply(context_.graph, false);
    Graph lifted = context_.graph;
    SITU_RETURN_IF_ERROR(infer(lifted, {}, true));
    SITU_RETURN_IF_ERROR(prove_lifted(window_, fixed, lifted, context_.evaluator));
    const auto text = [](int64_t n) { return std::to_string(n); };
    context_.note("fixed window", original_.values[window_.ids].name,
                  "steps of " + text(window_.tokens) + " and " + text(window_.length) +
                      " keys -> steps of any length, " + text(replacements_.size()) + " constants are extents");
    context_.lifted = window_.tokens;
    return Status::ok();
  }

 private:
  // Shapes of all values. `expanded`: with fused operators as plain ones.
  Status infer(Graph& graph, std::function<void(Node&)> before, bool expanded = false) {
    Binding binding;
    PassContext context{graph, context_.evaluator, binding, context_.names, context_.context_length, context_.length};
    binding.inputs[window_.ids] = InputRole::kTokenIds;
    for (const ValueId v : window_.positions) binding.inputs[v] = InputRole::kPositions;
    for (const FixedWindow::State& s : window_.states) binding.inputs[s.past] = InputRole::kState;
    context.weights_as_stored = true;
    context.before_infer = std::move(before);
    SITU_RETURN_IF_ERROR(infer_shapes(context));
    if (context.at_control) return Status::error("it has an If");
    if (!expanded) return Status::ok();
    SITU_RETURN_IF_ERROR(expand_fused(context));
    return infer_shapes(context);
  }

  void lift_inputs(Graph& graph) const {
    const Dim tokens = Dim::symbol(kSymS), past = Dim::symbol(kSymP);
    graph.values[window_.ids].info.shape[1] = tokens;
    graph.values[window_.mask].info.shape[1] = past + tokens;
    for (const ValueId v : window_.positions) graph.values[v].info.shape.back() = tokens;
    for (const FixedWindow::State& s : window_.states) {
      graph.values[s.past].info.shape[static_cast<size_t>(s.axis)] = past;
      graph.values[s.present].info.shape[static_cast<size_t>(s.axis)] = past + tokens;
    }
  }

  void replace(Graph& graph, Node& n, const Replacement& r, bool literal) const {
    const ValueInfo info = graph.values[n.in[r.operand]].info;
    const ValueId v = graph.add_value(n.name + "/extents_" + std::to_string(r.operand), info.type);
    Value& value = graph.values[v];
    value.info.ranked = true;
    value.info.shape = info.shape;
    value.info.content = r.dims;
    if (literal) {
      std::vector<int64_t> numbers;
      for (const Dim& d : r.dims) numbers.push_back(fixed_extent(window_, d).value());
      for (size_t i = 0; i < numbers.size(); ++i) (*value.info.content)[i] = Dim(numbers[i]);
      value.constant = Tensor::allocate(info.type, shape_values(info.shape));
      for (size_t i = 0; i < numbers.size(); ++i)
        if (info.type == DType::kI32)
          value.constant.view().as<int32_t>()[i] = static_cast<int32_t>(numbers[i]);
        else
          value.constant.view().as<int64_t>()[i] = numbers[i];
    }
    n.in[r.operand] = v;
  }

  // `literal`: with the numbers that stood there.
  void apply(Graph& graph, bool literal) const {
    if (!literal) lift_inputs(graph);
    for (const Replacement& r : replacements_) replace(graph, graph.nodes[r.node], r, literal);
  }

  // A question that nodes of the same kind answer alike.
  struct Choice {
    size_t options = 1, taken = 0;
  };
  std::string question(const Graph& lifted, const Node& n) const {
    std::string key = n.op;
    for (const ValueId v : n.in) {
      if (v == kNoValue) continue;
      key += "|" + shape_str(lifted.values[v].info.shape) + shape_str(fixed_.values[v].info.shape);
      const Tensor& t = lifted.values[v].constant;
      if (t.present() && t.count() <= kMaxContent && (t.type() == DType::kI64 || t.type() == DType::kI32))
        for (const int64_t x : t.to_i64()) key += "," + std::to_string(x);
    }
    return key;
  }

  Status choose() {
    Status first = Status::ok();
    std::vector<std::string> order;  // of choices, as they were met
    std::map<std::string, Choice> choices;
    for (int trial = 0; trial < kMostTrials; ++trial) {
      const Status done = attempt(choices, order);
      if (done.is_ok()) return done;
      if (trial == 0) first = done;
      while (!order.empty() && choices[order.back()].taken + 1 >= choices[order.back()].options) {
        choices.erase(order.back());
        order.pop_back();
      }
      if (order.empty()) return first;
      ++choices[order.back()].taken;
    }
    return first;
  }

  Status attempt(std::map<std::string, Choice>& choices, std::vector<std::string>& order) {
    Graph graph = original_;
    lift_inputs(graph);
    replacements_.clear();
    Options options(window_, fixed_);
    const Status inferred = infer(graph, [&](Node& n) {
      const size_t index = static_cast<size_t>(&n - graph.nodes.data());
      const std::vector<Option> all = options.of(graph, n, index);
      if (all.empty()) return;
      const std::string key = question(graph, n);
      if (!choices.count(key)) {
        choices[key].options = all.size();
        order.push_back(key);
      }
      for (const Replacement& r : all[std::min(choices[key].taken, all.size() - 1)]) {
        replace(graph, n, r, false);
        replacements_.push_back(r);
      }
    });
    SITU_RETURN_IF_ERROR(inferred);
    return check_shapes(graph);
  }

  // At S = W and P = T - W all shapes are the exporter's; presents have a row for each token.
  Status check_shapes(const Graph& lifted) const {
    for (size_t v = 0; v < fixed_.values.size(); ++v) {
      const ValueInfo &before = fixed_.values[v].info, &after = lifted.values[v].info;
      if (!before.ranked || !after.ranked || !shape_is_const(before.shape)) continue;
      bool same = before.shape.size() == after.shape.size();
      for (size_t i = 0; same && i < before.shape.size(); ++i)
        same = fixed_extent(window_, after.shape[i]) == before.shape[i];
      if (!same)
        return Status::error("'" + fixed_.values[v].name + "' " + shape_str(before.shape) + " would be " +
                             shape_str(after.shape));
    }
    for (const FixedWindow::State& s : window_.states) {
      const Value& present = lifted.values[s.present];
      if (present.info.shape[static_cast<size_t>(s.axis)] != Dim::symbol(kSymP) + Dim::symbol(kSymS))
        return Status::error("output '" + present.name + "' " + shape_str(present.info.shape) +
                             " has not a row for each token");
    }
    return Status::ok();
  }

  PassContext& context_;
  const FixedWindow window_;
  const Graph original_;
  Graph fixed_;  // with all shapes
  std::vector<Replacement> replacements_;
};

}  // namespace

// Before -> after, in the shapes of inputs and in the constants that are extents: W -> S, T - W -> P, T -> P + S.
// Leaves other graphs as they are.
// Error: the graph depends on these extents, or cannot be told not to (prove_lifted).
Status lift_extents(PassContext& context) {
  if (context.encoder || !context.sources.empty()) return Status::ok();  // extents of an encoder are those of its input
  if (context.encoder || !context.sources.empty()) return Status::ok();
  Result<std::optional<FixedWindow>> found = find_fixed_window(context.graph, context.names);
  if (!found.is_ok()) return found.status();
  if (!*found) return Status::ok();
  if (context.phase != Phase::kAny) return Status::error("steps of a fixed window have any number of tokens, or none");
  return Lifter(context, std::move(**found)).run().with_context("the graph depends on its fixed extents");
}

// A window of one token needs no causal mask: there are no later tokens. Steps of S tokens are S steps of one:
//
//   Attention(q, k, v) over P + S keys  ->  Attention(q, k, v), causal
Status order_single_tokens(PassContext& context) {
  if (context.lifted != 1) return Status::ok();
  const Dim keys = Dim::symbol(kSymP) + Dim::symbol(kSymS);
  for (Node& n : context.graph.nodes) {
    if (!n.is("Attention", "situ") || n.attr_int("causal", 0) != 0) continue;
    const Shape& k = context.graph.values[n.in[1]].info.shape;
    if (k.size() < 2 || k[k.size() - 2] != keys) continue;
    n.set_int("causal", 1);
    context.note("causal", n.name, "steps of one token, any number of them at once");
  }
  return Status::ok();
}

}  // namespace situ
