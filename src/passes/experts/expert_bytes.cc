// Experts whose products are of bytes, as dynamic quantisation writes them:
//   q, s, z = DynamicQuantizeLinear(x[rows of e]);  Cast(MatMulInteger(q, W_e, z, w_zero)) * (s * w_scale)
// Rows of one expert have one range. s and z become numbers of each choice, [S, choices, 1]: those of the expert that
// is chosen. The rounded rows, less their zero point, are multiplied by the bytes of W_e as floats, which is exact
// while sums are below 2^24. Who reads these as integers (a division) would compute something else.
// Static quantisation rounds rows by constants, of which each expert has its own:
//   DequantizeLinear(QuantizeLinear(x[rows of e], scale_e, zero_e), scale_e, zero_e)
#include <algorithm>

#include "passes/experts/expert_rows.h"
#include "passes/host/constants.h"

namespace situ {
namespace {

Tensor float_scalar(float value) {
  Tensor t = Tensor::allocate(DType::kF32, {});
  t.view().as<float>()[0] = value;
  return t;
}

Tensor filled_columns(DType type, int64_t count, uint8_t byte) {
  Tensor t = Tensor::allocate(type, {count});
  for (int64_t i = 0; i < count; ++i)
    if (type == DType::kU8)
      t.view().as<uint8_t>()[i] = byte;
    else
      t.view().as<float>()[i] = byte;
  return t;
}

}  // namespace

// The numbers of x, a value of each choice, reduced over the rows of each expert: [experts]. 0 is among them.
ValueId ExpertRows::over_rows_of_expert(const char* reduce, ValueId of_choices) {
  std::vector<int64_t> numbers(facts_.nonzeros.size());
  for (size_t e = 0; e < numbers.size(); ++e) numbers[e] = static_cast<int64_t>(e);
  const ValueId column = builder_.op("Unsqueeze", {emit_.index(), builder_.constant_i64({2})});
  const ValueId chosen = builder_.op("Equal", {builder_.cast(column, DType::kI64), builder_.constant_i64(numbers)});
  const ValueId zero = graph_.add_constant("expert_rows/zero", float_scalar(0));
  const ValueId y =
      builder_.op(reduce, {builder_.op("Where", {chosen, of_choices, zero}), builder_.constant_i64({0, 1})});
  builder_.last().set_int("keepdims", 0);
  return y;
}

// The range of the rows of each expert, as DynamicQuantizeLinear has it, where the expert is chosen.
std::optional<ExpertRows::Rounding> ExpertRows::rounding(const Values& of_experts) {
  const Node& n = producer(of_experts[0]);
  const auto known = roundings_.find(n.out[0]);
  const auto x = lift(operands(of_experts, 0));  // refuses rows of other experts than those of the known rounding
  if (x && known != roundings_.end()) return known->second;
  if (!x) return std::nullopt;
  if (x->rest.size() != 1 || graph_.values[n.in[0]].info.type != DType::kF32) {
    no("rows go through " + n.label());
    return std::nullopt;
  }
  const auto number = [&](float value) { return graph_.add_constant("expert_rows/number", float_scalar(value)); };
  const ValueId rows = emit_.by_choice(*x), last = builder_.constant_i64({2});
  const ValueId high = over_rows_of_expert("ReduceMax", builder_.op("ReduceMax", {rows, last})),
                low = over_rows_of_expert("ReduceMin", builder_.op("ReduceMin", {rows, last}));
  const ValueId steps = builder_.op("Div", {builder_.op("Sub", {high, low}), number(255)});
  const ValueId scales =
      builder_.op("Where", {builder_.op("Equal", {steps, number(0)}), number(1), steps});  // where all is 0
  const ValueId zeros = builder_.op(
      "Clip",
      {builder_.op("Round", {builder_.op("Neg", {builder_.op("Div", {low, scales})})}), number(0), number(255)});
  Rounding r;
  r.scale = builder_.op("Unsqueeze", {builder_.op("Gather", {scales, emit_.index()}), last});
  const ValueId zero = builder_.op("Unsqueeze", {builder_.op("Gather", {zeros, emit_.index()}), last});
  const ValueId q = builder_.op("Add", {builder_.op("Round", {builder_.op("Div", {rows, r.scale})}), zero});
  r.rows = {builder_.op("Sub", {builder_.op("Clip", {q, number(0), number(255)}), zero}), true, x->rest};
  return roundings_.emplace(n.out[0], std::move(r)).first->second;
}

// w int8 or uint8 [K, N] of one expert as bytes [N, K] that are read as uint8.
Tensor ExpertRows::bytes_by_column(const Tensor& stored) const {
  const int64_t k = stored.dims()[0], columns = stored.dims()[1];
  return computed_later(context_, {stored}, DType::kU8, {columns, k}, [k, columns](const std::vector<Tensor>& of) {
    const Tensor& w = of[0];
    Tensor turned = Tensor::allocate(DType::kU8, {columns, k});
    const auto* from = w.view().as<const uint8_t>();
    const uint8_t flip = w.type() == DType::kI8 ? 128 : 0;
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t i = 0; i < k; ++i) turned.view().as<uint8_t>()[c * k + i] = from[i * columns + c] ^ flip;
    return turned;
  });
}

std::optional<LiftedRows> ExpertRows::product_of_bytes(const Values& of_experts) {
  const std::string label = producer(of_experts[0]).label();
  Values rounded, weights;
  int64_t k = 0, columns = 0;
  for (const ValueId v : of_experts) {
    const Node& n = producer(v);
    const Node* round = graph_.producer(n.in[0], "DynamicQuantizeLinear");
    if (!round || round->out.size() != 3 || n.in[0] != round->out[0] || !n.has_input(2) || n.in[2] != round->out[2])
      return no("rows that go through " + label + " are not rounded by their own range");
    for (const auto& [u, operand] : readers_(v))
      if (const Node& reader = graph_.nodes[static_cast<size_t>(u)]; !reader.is("Cast"))
        return no("integers of " + n.label() + " are read by " + reader.label() + ", which is no Cast");
    rounded.push_back(round->out[0]);
    const Tensor& w = graph_.values[n.in[1]].constant;
    if (!w.present() || !w.contiguous() || w.rank() != 2 || (w.type() != DType::kU8 && w.type() != DType::kI8))
      return no("the weights of " + label + " are no constant [K, N] of bytes");
    k = w.dims()[0];
    columns = w.dims()[1];
  }
  const auto r = rounding(rounded);
  if (!r || r->rows.rest != std::vector<int64_t>{k}) return no("rows go through " + label);
  const ValueId ones = graph_.add_constant(label + "/ones", filled_columns(DType::kF32, columns, 1));
  for (const ValueId v : of_experts) {
    const Node& n = producer(v);
    const uint8_t middle = bytes_middle(n);
    Tensor zeros = filled_columns(DType::kU8, columns, middle);
    if (n.has_input(3)) {
      const Tensor& given = graph_.values[n.in[3]].constant;
      if (!given.present() || !given.contiguous() ||
          (given.count() != 1 && given.dims() != std::vector<int64_t>{columns}))
        return no("the zero points of " + label + " are no numbers of columns");
      for (int64_t c = 0; c < columns; ++c)
        zeros.view().as<uint8_t>()[c] = given.view().as<const uint8_t>()[given.count() == 1 ? 0 : c] ^ middle;
    }
    weights.push_back(graph_.add_constant(n.name + "/columns", bytes_by_column(graph_.values[n.in[1]].constant)));
    weights.push_back(ones);
    weights.push_back(graph_.add_constant(n.name + "/zeros", zeros));
  }
  return emit_.product(r->rows, kNoValue, weights, {k, columns, 8, 0, ZeroPoints::kIntegers});
}

std::optional<LiftedRows> ExpertRows::rounded_and_back(const Values& of_experts) {
  const Node back = producer(of_experts[0]);
  const Values digits = operands(of_experts, 0);
  const bool rounds = std::all_of(digits.begin(), digits.end(), [&](ValueId v) {
    return v != kNoValue && graph_.producer(v, "QuantizeLinear") != nullptr;
  });
  if (!rounds || !alike(digits)) return no("rows go through " + back.label());
  const Node there = producer(digits[0]);
  const DType type = graph_.values[digits[0]].info.type;
  const bool is_signed = type == DType::kI8 || type == DType::kI16, bytes = type == DType::kU8 || type == DType::kI8;
  if ((!bytes && type != DType::kU16 && type != DType::kI16) || graph_.values[there.in[0]].info.type != DType::kF32)
    return no("rows go through " + back.label());
  // One number each, the same there and back.
  Values numbers[2];
  for (size_t i = 0; i < 2; ++i) {
    const Values before = operands(digits, i + 1);
    const Values behind = operands(of_experts, i + 1);
    for (size_t e = 0; e < before.size(); ++e) {
      if (before[e] == kNoValue && behind[e] == kNoValue) continue;
      if (before[e] == kNoValue || behind[e] == kNoValue || !same_numbers({before[e], behind[e]}) ||
          graph_.values[before[e]].constant.count() != 1 || !graph_.values[before[e]].constant.present())
        return no(back.label() + " has another scale than what rounds its rows");
    }
    numbers[i] = before;
  }
  const auto x = lift(operands(digits, 0));
  if (!x) return std::nullopt;
  const bool has_zero = numbers[1][0] != kNoValue;
  if (same_numbers(numbers[0]) && (!has_zero || same_numbers(numbers[1]))) {
    const auto again = [&](const Node& n, ValueId v) {
      return builder_.again(n, has_zero ? Values{v, numbers[0][0], numbers[1][0]} : Values{v, numbers[0][0]});
    };
    return LiftedRows{again(back, again(there, x->value)), x->per_choice, x->rest};
  }
  const std::vector<int64_t> ones(x->rest.size(), 1);
  const auto chosen = [&](ValueId stack) { return builder_.op("Gather", {stack, emit_.index()}); };
  const ValueId scales = stacked(numbers[0], ones), zeros = has_zero ? stacked(numbers[1], ones) : kNoValue;
  if (scales == kNoValue || (has_zero && zeros == kNoValue)) return no("rows go through " + back.label());
  const auto number = [&](float value) { return graph_.add_constant("expert_rows/number", float_scalar(value)); };
  const float low = is_signed ? (bytes ? -128.0f : -32768.0f) : 0.0f, high = low + (bytes ? 255.0f : 65535.0f);
  const ValueId scale = chosen(scales), zero = has_zero ? builder_.cast(chosen(zeros), DType::kF32) : number(0);
  const ValueId q =
      builder_.op("Add", {builder_.op("Round", {builder_.op("Div", {emit_.by_choice(*x), scale})}), zero});
  const ValueId kept = builder_.op("Clip", {q, number(low), number(high)});
  return LiftedRows{builder_.op("Mul", {builder_.op("Sub", {kept, zero}), scale}), true, x->rest};
}

// Added to a weight so that it is read as uint8.
uint8_t ExpertRows::bytes_middle(const Node& product) const {
  return graph_.values[product.in[1]].info.type == DType::kI8 ? 128 : 0;
}

}  // namespace situ
