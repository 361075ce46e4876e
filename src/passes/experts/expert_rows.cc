#include "passes/experts/expert_rows.h"

#include <algorithm>
#include <numeric>

#include "ops/op.h"
#include "passes/context/node_key.h"
#include "passes/context/pass_context.h"
#include "passes/host/constants.h"
#include "passes/host/row_sample.h"
#include "passes/pack/pack_store.h"
#include "passes/pack/stored_matrix.h"

namespace situ {
namespace {

int64_t count_of(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

Tensor numbered(DType type, const std::vector<int64_t>& dims) {
  Tensor t = Tensor::allocate(DType::kF32, dims);
  for (int64_t i = 0; i < t.count(); ++i) t.view().as<float>()[i] = static_cast<float>(i);
  return type == DType::kF16 ? rounded_to_half(t) : t;
}

ValueId ExpertEmitter::by_choice(const LiftedRows& rows) {
  return rows.per_choice ? rows.value : builder_.op("Unsqueeze", {rows.value, builder_.constant_i64({1})});
}

LiftedRows ExpertEmitter::product(const LiftedRows& x, ValueId bias, const std::vector<ValueId>& weights,
                                  const QuantisedMatrix& w, bool transposed) {
  std::vector<ValueId> in{x.value, index_, bias};
  in.insert(in.end(), weights.begin(), weights.end());
  const LiftedRows y{builder_.op("ExpertMatMul", in, kNoValue, "situ"), true, {w.n}};
  Node& node = builder_.last();
  set_quantised_matrix(&node, w);
  node.set_int("experts", experts_);
  node.set_int("transposed", transposed);
  ++products_;
  return y;
}

bool ExpertEmitter::add_bias(const LiftedRows& rows, ValueId bias) {
  const auto made = std::find_if(builder_.nodes().rbegin(), builder_.nodes().rend(),
                                 [&](const Node& node) { return node.out[0] == rows.value; });
  if (made == builder_.nodes().rend() || !made->is("ExpertMatMul", "situ") || made->has_input(2) || bias == kNoValue ||
      graph_.values[bias].info.shape != Shape{Dim(experts_), Dim(made->attr_int("N", 0))})
    return false;
  made->in[2] = bias;
  return true;
}

GridRows grid_rows(const RowFacts& facts, int64_t tokens) {
  GridRows rows;
  const int64_t outer = facts.by_choice ? facts.choices : tokens, inner = facts.by_choice ? tokens : facts.choices;
  std::vector<int64_t> first, second;
  for (int64_t a = 0; a < outer; ++a)
    for (int64_t b = 0; b < inner; ++b) {
      first.push_back(a);
      second.push_back(b);
      rows.tokens.push_back(facts.by_choice ? b : a);
      rows.choice.push_back(facts.by_choice ? a : b);
    }
  const int64_t count = static_cast<int64_t>(first.size());
  if (!facts.flat) first.insert(first.end(), second.begin(), second.end());
  rows.coordinates = Tensor::vector_i64(first).reshaped({facts.flat ? 1 : 2, count});
  return rows;
}

std::optional<LiftedRows> ExpertRows::no(const std::string& why) {
  if (reason_.empty()) reason_ = why;
  return std::nullopt;
}

// A number of all rows of an expert, or one for each column, such as the scale that its rows are rounded by.
bool ExpertRows::of_expert(ValueId v) const {
  const Shape& shape = graph_.values[v].info.shape;
  return shape.size() <= 1 && shape_is_const(shape) && of_rows_(v);
}

// The dims behind the one of rows, in front of which is nothing.
std::optional<std::vector<int64_t>> ExpertRows::rest_of(ValueId v) const {
  const Shape& shape = graph_.values[v].info.shape;
  if (of_expert(v)) return shape.empty() ? std::vector<int64_t>{1} : shape_values(shape);
  size_t a = 0;
  while (a < shape.size() && shape[a] == Dim(1)) ++a;
  if (a == shape.size() || shape[a] != Dim::symbol(kSymN)) return std::nullopt;
  const Shape rest(shape.begin() + static_cast<ptrdiff_t>(a) + 1, shape.end());
  if (!shape_is_const(rest)) return std::nullopt;
  return shape_values(rest);
}

// The same operator with the same attributes, on operands that are there or not.
bool ExpertRows::alike(const Values& of_experts) const {
  const auto key = [&](ValueId v) {
    const Node& n = producer(v);
    const auto out = std::find(n.out.begin(), n.out.end(), v) - n.out.begin();
    return node_key(n, [](ValueId) { return std::string("x"); }) + "#" + std::to_string(out);
  };
  const std::string first = key(of_experts[0]);
  const ValueInfo& info = graph_.values[of_experts[0]].info;
  return std::all_of(of_experts.begin(), of_experts.end(), [&](ValueId v) {
    return graph_.values[v].info.shape == info.shape && graph_.values[v].info.type == info.type && key(v) == first;
  });
}

ExpertRows::Values ExpertRows::operands(const Values& of_experts, size_t i) const {
  Values list;
  for (const ValueId v : of_experts) list.push_back(producer(v).has_input(i) ? producer(v).in[i] : kNoValue);
  return list;
}

std::optional<LiftedRows> ExpertRows::lift(const Values& of_experts) {
  const auto known = lifted_.find(of_experts[0]);
  if (known != lifted_.end())
    return known->second.first == of_experts ? known->second.second : no("experts read each other's rows");
  const std::optional<LiftedRows> rows = lift_node(of_experts);
  lifted_.insert_or_assign(of_experts[0], std::pair(of_experts, rows));
  return rows;
}

std::optional<LiftedRows> ExpertRows::lift_node(const Values& of_experts) {
  if (!std::all_of(of_experts.begin(), of_experts.end(), of_rows_))
    return no("what is added is not of an expert's rows");
  const Node& n = producer(of_experts[0]);
  if (!rest_of(of_experts[0]))
    return no(n.label() + " gives " + shape_str(graph_.values[of_experts[0]].info.shape) + ", which are no rows");
  if (!alike(of_experts)) return no("experts differ in " + n.label());
  const bool gathers = n.is("Gather") || n.is("GatherND") || n.is("GatherElements");
  if (gathers && !of_rows_(n.in[0])) return gathered(of_experts);
  if (n.is("MatMul") || n.is("Gemm")) return product(of_experts);
  if (n.is("MatMulNBits", "com.microsoft")) return product_of_digits(of_experts);
  if (n.is("MatMulInteger")) return product_of_bytes(of_experts);
  if (n.is("DequantizeLinear")) return rounded_and_back(of_experts);
  if (n.is("DynamicQuantizeLinear") && n.out.size() == 3 && of_experts[0] == n.out[1]) {
    const auto r = rounding(of_experts);
    return r ? std::optional(LiftedRows{r->scale, true, {1}}) : std::nullopt;
  }
  if (of_expert(of_experts[0]) && (!n.def || n.def->placement != Placement::kElementwise))
    return no("rows of an expert are put together by " + n.label());
  if (n.is("Slice") || n.is("Split")) return part(of_experts);
  if (!n.def) return no(n.label() + " is not of rows");
  if (n.def->placement == Placement::kElementwise) return elementwise(of_experts);
  if (n.def->placement == Placement::kRowwise) return rowwise(of_experts);
  if (n.def->placement == Placement::kView) return moved(of_experts);
  return no("rows go through " + n.label());
}

// Rows of tokens, or of tokens' choices, which are what the file gathers them from in another shape.
std::optional<LiftedRows> ExpertRows::gathered(const Values& of_experts) {
  const auto base_of = [&](ValueId v) {
    for (const Node* n = graph_.producer(v); n && n->def && n->def->placement == Placement::kView;
         n = graph_.producer(v))
      v = n->in[0];
    return v;
  };
  const std::string label = producer(of_experts[0]).label();
  const ValueId base = base_of(producer(of_experts[0]).in[0]);
  const DType type = graph_.values[base].info.type;
  if (graph_.values[base].constant.present() || (type != DType::kF32 && type != DType::kF16))
    return no(label + " gathers what is no activation");
  LiftedRows rows{kNoValue, false, *rest_of(of_experts[0])};
  const int64_t width = count_of(rows.rest);
  std::optional<bool> per_choice;
  for (const int64_t tokens : {3, 5}) {
    const GridRows grid = grid_rows(facts_, tokens);
    const int64_t count = static_cast<int64_t>(grid.tokens.size());
    RowSample sample(graph_, context_.evaluator, tokens, count);
    const Tensor numbers = numbered(type, sample.dims(base));
    sample.set(base, numbers);
    const bool by_choice = numbers.count() != tokens * width;
    if ((by_choice && numbers.count() != tokens * facts_.choices * width) ||
        per_choice.value_or(by_choice) != by_choice)
      return no(label + " gathers rows of another width");
    per_choice = by_choice;
    for (size_t e = 0; e < of_experts.size(); ++e) {
      if (base_of(producer(of_experts[e]).in[0]) != base) return no("experts gather rows of different values");
      sample.set(facts_.nonzeros[e], grid.coordinates);
      const Result<Tensor> found = sample.value(of_experts[e]);
      if (!found.is_ok()) return no(found.status().message());
      const std::vector<double> values = found->to_f64();
      if (static_cast<int64_t>(values.size()) != count * width) return no(label + " gathers other rows");
      for (int64_t r = 0; r < count; ++r) {
        const int64_t token = grid.tokens[static_cast<size_t>(r)], choice = grid.choice[static_cast<size_t>(r)],
                      from = (by_choice ? token * facts_.choices + choice : token) * width;
        for (int64_t i = 0; i < width; ++i)
          if (values[static_cast<size_t>(r * width + i)] != static_cast<double>(from + i))
            return no(label + " gathers other rows than those of the tokens that chose the expert");
      }
    }
  }
  rows.per_choice = *per_choice;
  std::vector<int64_t> dims{-1};
  if (rows.per_choice) dims.push_back(facts_.choices);
  dims.insert(dims.end(), rows.rest.begin(), rows.rest.end());
  const Shape& shape = graph_.values[base].info.shape;
  bool same = shape.size() == dims.size();
  for (size_t i = 1; i < dims.size() && same; ++i) same = shape[i] == Dim(dims[i]);
  rows.value = same ? base : builder_.reshape(base, dims);
  return rows;
}

// Views that leave every row what it is.
std::optional<LiftedRows> ExpertRows::moved(const Values& of_experts) {
  const Node& n = producer(of_experts[0]);
  const auto x = lift(operands(of_experts, 0));
  if (!x) return std::nullopt;
  LiftedRows y{x->value, x->per_choice, *rest_of(of_experts[0])};
  if (n.is("Transpose")) {
    const Shape& from = graph_.values[n.in[0]].info.shape;
    int64_t last = -1;
    for (const int64_t axis : n.permutation(from.size())) {
      if (from[static_cast<size_t>(axis)] == Dim(1)) continue;
      if (axis < last) return no(n.label() + " turns rows");
      last = axis;
    }
  }
  if (count_of(y.rest) != count_of(x->rest)) return no(n.label() + " makes other rows");
  if (y.rest == x->rest) return x;
  std::vector<int64_t> dims(x->per_choice ? 2 : 1, 0);
  dims.insert(dims.end(), y.rest.begin(), y.rest.end());
  y.value = builder_.reshape(x->value, dims);
  return y;
}

bool ExpertRows::same_numbers(const Values& values) const {
  const std::string first = numbers_key(graph_.values[values[0]]);
  return std::all_of(values.begin(), values.end(), [&](ValueId v) {
    return v == values[0] || (!first.empty() && numbers_key(graph_.values[v]) == first);
  });
}

// [experts, dims..] of constants of so many numbers each.
ValueId ExpertRows::stacked(const Values& values, const std::vector<int64_t>& dims) {
  const Tensor& first = graph_.values[values[0]].constant;
  std::vector<int64_t> all{static_cast<int64_t>(values.size())};
  all.insert(all.end(), dims.begin(), dims.end());
  for (const ValueId v : values) {
    const Tensor& t = graph_.values[v].constant;
    if (!t.present() || !t.contiguous() || t.type() != first.type() || t.count() != count_of(dims)) return kNoValue;
  }
  Tensor stack = Tensor::allocate(first.type(), all);
  std::byte* to = stack.view().data;
  for (const ValueId v : values) {
    const Tensor& t = graph_.values[v].constant;
    for (int64_t b = 0; b < t.bytes(); ++b) *to++ = t.view().data[b];
  }
  return graph_.add_constant(graph_.values[values[0]].name + "/of_experts", stack);
}

// An operand that is no row: the same of all experts, or the number of each expert where it is chosen.
ValueId ExpertRows::constant_of(const Values& values, const std::vector<int64_t>& rest, bool* per_choice) {
  const Tensor& t = graph_.values[values[0]].constant;
  if (!t.present()) return kNoValue;
  std::vector<int64_t> dims = t.dims();
  while (dims.size() > rest.size() && dims[0] == 1) dims.erase(dims.begin());
  if (dims.size() > rest.size()) return kNoValue;
  if (same_numbers(values))
    return dims == t.dims() ? values[0] : graph_.add_constant(graph_.values[values[0]].name + "/row", t.reshaped(dims));
  dims.insert(dims.begin(), rest.size() - dims.size(), 1);
  const ValueId stack = stacked(values, dims);
  if (stack == kNoValue) return kNoValue;
  *per_choice = true;
  return builder_.op("Gather", {stack, emit_.index()});
}

std::optional<LiftedRows> ExpertRows::elementwise(const Values& of_experts) {
  const Node n = producer(of_experts[0]);
  LiftedRows y{kNoValue, false, *rest_of(of_experts[0])};
  std::vector<LiftedRows> rows(n.in.size());
  for (size_t i = 0; i < n.in.size(); ++i) {
    if (n.in[i] == kNoValue) continue;
    const Values values = operands(of_experts, i);
    if (std::any_of(values.begin(), values.end(), of_rows_)) {
      const auto x = lift(values);
      if (!x) return std::nullopt;
      if (x->rest.size() != y.rest.size()) return no(n.label() + " puts rows beside each other");
      rows[i] = *x;
    }
  }
  // A bias is added by the product.
  for (size_t i = 0; i < 2 && n.is("Add"); ++i)
    if (rows[i].value != kNoValue && rows[1 - i].value == kNoValue && rows[i].rest.size() == 1 &&
        readers_(n.in[i]).size() == 1 && emit_.add_bias(rows[i], stacked(operands(of_experts, 1 - i), rows[i].rest)))
      return rows[i];
  for (size_t i = 0; i < n.in.size(); ++i) {
    if (n.in[i] == kNoValue || rows[i].value != kNoValue) {
      y.per_choice = y.per_choice || rows[i].per_choice;
      continue;
    }
    rows[i].value = constant_of(operands(of_experts, i), y.rest, &rows[i].per_choice);
    if (rows[i].value == kNoValue) return no(n.label() + " reads what is neither a row nor a constant");
    if (rows[i].per_choice) y.per_choice = true;
    rows[i].rest.clear();
  }
  std::vector<ValueId> in;
  for (size_t i = 0; i < n.in.size(); ++i)
    in.push_back(n.in[i] == kNoValue                 ? kNoValue
                 : y.per_choice && of_rows_(n.in[i]) ? emit_.by_choice(rows[i])
                                                     : rows[i].value);
  y.value = builder_.again(n, in);
  return y;
}

std::optional<LiftedRows> ExpertRows::rowwise(const Values& of_experts) {
  const Node n = producer(of_experts[0]);
  const auto x = lift(operands(of_experts, 0));
  if (!x) return std::nullopt;
  const int64_t rank = static_cast<int64_t>(graph_.values[n.in[0]].info.shape.size());
  const int64_t axis = n.attr_int("axis", n.is("Softmax") && n.opset < 13 ? 1 : -1);
  if ((axis != -1 && axis != rank - 1) || n.is("Trilu") || n.out.size() > 1) return no("rows go through " + n.label());
  std::vector<ValueId> in{x->value};
  for (size_t i = 1; i < n.in.size(); ++i) {
    if (n.in[i] != kNoValue && !same_numbers(operands(of_experts, i))) return no("experts differ in " + n.label());
    in.push_back(n.in[i]);
  }
  LiftedRows y = *x;
  y.value = builder_.again(n, in);
  builder_.last().opset = std::max(n.opset, 13);
  builder_.last().set_int("axis", -1);
  return y;
}

// Of rows, along one axis that is not theirs.
std::optional<LiftedRows> ExpertRows::part(const Values& of_experts) {
  const Node n = producer(of_experts[0]);
  const Shape from = graph_.values[n.in[0]].info.shape, to = graph_.values[of_experts[0]].info.shape;
  const int64_t rank = static_cast<int64_t>(from.size());
  for (size_t i = 1; i < n.in.size(); ++i)
    if (n.in[i] != kNoValue && !same_numbers(operands(of_experts, i))) return no("experts differ in " + n.label());
  const auto x = lift(operands(of_experts, 0));
  if (!x) return std::nullopt;
  const auto content = [&](size_t i) {
    const auto list = content_of(graph_, n, i);
    return list && shape_is_const(*list) ? shape_values(*list) : std::vector<int64_t>{};
  };
  int64_t axis = 0, begin = 0, end = 0, step = 1;
  if (n.is("Split")) {
    axis = n.attr_int("axis", 0);
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis >= rank) return no("rows go through " + n.label());
    for (const ValueId v : n.out) {
      if (!from[static_cast<size_t>(axis)].is_const()) return no("rows go through " + n.label());
      end = begin + graph_.values[v].info.shape[static_cast<size_t>(axis)].value();
      if (v == of_experts[0]) break;
      begin = end;
    }
  } else {
    const std::vector<int64_t> begins = content(1), ends = content(2), axes = content(3), steps = content(4);
    if (begins.size() != 1 || ends.size() != 1 || axes.size() > 1) return no("rows go through " + n.label());
    axis = axes.empty() ? 0 : axes[0] < 0 ? axes[0] + rank : axes[0];
    begin = begins[0];
    end = ends[0];
    step = steps.empty() ? 1 : steps[0];
  }
  if (axis < rank - static_cast<int64_t>(x->rest.size())) return no(n.label() + " takes some of the rows");
  LiftedRows y{kNoValue, x->per_choice, *rest_of(of_experts[0])};
  y.value = builder_.op("Slice", {x->value, builder_.constant_i64({begin}), builder_.constant_i64({end}),
                                  builder_.constant_i64({axis - rank}), builder_.constant_i64({step})});
  return y;
}

std::optional<LiftedRows> ExpertRows::product(const Values& of_experts) {
  const Node n = producer(of_experts[0]);
  const Values matrices = operands(of_experts, 1);
  if (std::any_of(matrices.begin(), matrices.end(), of_rows_) || !of_rows_(n.in[0]))
    return no("rows are multiplied by rows in " + n.label());
  const bool gemm = n.is("Gemm");
  if (gemm && (n.attr_int("transA", 0) != 0 || n.attr_float("alpha", 1) != 1 || n.attr_float("beta", 1) != 1))
    return no("rows go through " + n.label());
  auto x = lift(operands(of_experts, 0));
  if (!x) return std::nullopt;
  const Shape& w = graph_.values[matrices[0]].info.shape;
  if (x->rest.size() != 1 || w.size() != 2 || !shape_is_const(w)) return no("rows go through " + n.label());
  bool transposed = gemm && n.attr_int("transB", 0) != 0;
  const int64_t k = x->rest[0], columns = w[transposed ? 0 : 1].value();
  // Behind a Transpose, and of a stack.
  Values stored;
  const bool turned = graph_.producer(matrices[0], "Transpose") != nullptr;
  for (const ValueId v : matrices) {
    const Node* p = graph_.producer(v, "Transpose");
    if ((p != nullptr) != turned || (p && p->permutation(2) != std::vector<int64_t>{1, 0}))
      return no("experts differ in the weights of " + n.label());
    stored.push_back(p ? p->in[0] : v);
  }
  transposed = transposed != turned;
  const Node* stack = graph_.producer(stored[0], "Gather");
  for (size_t e = 0; e < stored.size() && stack; ++e) {
    const Node* part = graph_.producer(stored[e], "Gather");
    const auto at = part ? content_of(graph_, *part, 1) : std::nullopt;
    const bool one = part && part->in[0] == stack->in[0] && part->attr_int("axis", 0) == 0 && at && at->size() == 1 &&
                     (*at)[0] == Dim(static_cast<int64_t>(e)) &&
                     graph_.values[part->in[0]].info.shape[0] == Dim(static_cast<int64_t>(stored.size()));
    if (!one) stack = nullptr;
  }
  if (stack) stored = {stack->in[0]};
  ValueId bias = kNoValue;
  if (gemm && n.has_input(2)) {
    bias = stacked(operands(of_experts, 2), {columns});
    if (bias == kNoValue) return no("the bias of " + n.label() + " has no number for each column");
  }
  return emit_.product(*x, bias, stored, {k, columns}, transposed);
}

// [N, K] of a product whose digits are numbers of a table.
Tensor ExpertRows::numbers_of_table(const Node& n, const QuantisedMatrix& w) const {
  return computed_later(context_, {graph_.values[n.in[1]].constant, graph_.values[n.in[2]].constant}, DType::kF32,
                        {w.n, w.k}, [w](const std::vector<Tensor>& of) {
                          Tensor numbers = Tensor::allocate(DType::kF32, {w.n, w.k});
                          write_numbers(w.table, w.high_first, w.block, of[0], of[1],
                                        {numbers.view().as<float>(), static_cast<size_t>(numbers.count())});
                          return numbers;
                        });
}

std::optional<LiftedRows> ExpertRows::product_of_digits(const Values& of_experts) {
  const Node n = producer(of_experts[0]);
  if (n.has_input(4)) return no(n.label() + " has its weights in another order");
  const auto x = lift(operands(of_experts, 0));
  if (!x) return std::nullopt;
  const QuantisedMatrix w = quantised_matrix(n, n.has_input(3) ? graph_.values[n.in[3]].info.type : DType::kNone);
  if (x->rest != std::vector<int64_t>{w.k}) return no("rows go through " + n.label());
  ValueId bias = kNoValue;
  if (n.has_input(5)) {
    bias = stacked(operands(of_experts, 5), {w.n});
    if (bias == kNoValue) return no("the bias of " + n.label() + " is no constant");
  }
  Values weights;
  // Digits of a table (MatMulBnb4) that no pack takes: the numbers that they stand for.
  const auto scales = [&](ValueId v) { return graph_.values[producer(v).in[2]].info.type; };
  const bool alike =
      std::all_of(of_experts.begin(), of_experts.end(), [&](ValueId v) { return scales(v) == scales(of_experts[0]); });
  const bool as_numbers = w.table != DigitTable::kNone && (!packs_expert(w) || !alike || pass_disabled("pack_experts"));
  for (size_t e = 0; e < of_experts.size() && as_numbers; ++e) {
    const Node& own = producer(of_experts[e]);
    weights.push_back(graph_.add_constant(own.name + "/numbers", numbers_of_table(own, w)));
  }
  if (as_numbers) return emit_.product(*x, bias, weights, {w.k, w.n});
  for (const ValueId v : of_experts)
    for (size_t i = 1; i < 4; ++i) weights.push_back(producer(v).has_input(i) ? producer(v).in[i] : kNoValue);
  const LiftedRows y = emit_.product(*x, bias, weights, w);
  builder_.last().set_int("accuracy_level", n.attr_int("accuracy_level", 0));
  return y;
}

}  // namespace situ
