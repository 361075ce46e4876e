#include "passes/expand/expand_quantised.h"

#include <algorithm>
#include <numeric>

#include "passes/pack/stored_matrix.h"

namespace situ {
namespace {

class QuantisedWriter {
 public:
  QuantisedWriter(Graph& graph, Builder& builder, const Node& n) : graph_(graph), builder_(builder), n_(n) {}

  Status run(bool* expanded) {
    *expanded = true;
    if (n_.domain.empty() && n_.op == "QLinearMatMul") return linear_matmul();
    if (n_.domain == "com.microsoft") {
      if (n_.op == "QuantizeLinear" || n_.op == "DequantizeLinear") return standard();
      if (n_.op == "DynamicQuantizeMatMul") return dynamic_matmul();
      if (n_.op == "MatMulIntegerToFloat") return integer_matmul();
      if (n_.op == "QGemm") return gemm();
      if (n_.op == "QLinearAdd" || n_.op == "QLinearMul") return binary();
      if (n_.op == "QLinearSigmoid" || n_.op == "QLinearLeakyRelu" || n_.op == "QLinearSoftmax") return unary();
      if (n_.op == "QLinearConcat") return concat();
      if (n_.op == "QLinearWhere") return where();
      if (n_.op == "MatMulBnb4") return bnb4();
    }
    *expanded = false;
    return Status::ok();
  }

 private:
  Status fail(const std::string& what) const { return Status::error(n_.label() + ": " + what); }
  const ValueInfo& info(ValueId v) const { return graph_.values[v].info; }
  ValueId operand(size_t i) const { return n_.has_input(i) ? n_.in[i] : kNoValue; }
  ValueId number(const std::string& name, float x) {
    const Tensor t = Tensor::allocate(DType::kF32, {});
    *t.view().as<float>() = x;
    return graph_.add_constant(n_.name + "/" + name, t);
  }

  // The operator of this node on these operands, with its attributes but these.
  ValueId plain(const char* op, std::vector<ValueId> in, std::initializer_list<const char*> left_out = {},
                ValueId result = kNoValue) {
    const ValueId y = builder_.op(op, std::move(in), result);
    builder_.last().attrs = n_.attrs;
    for (const char* key : left_out) builder_.last().attrs.erase(key);
    return y;
  }

  // com.microsoft: of before ai.onnx had 16 bits.
  Status standard() {
    plain(n_.op.c_str(), n_.in, {}, n_.out[0]);
    return Status::ok();
  }

  // Operands x, scale and zero point from `first` on, as floats.
  ValueId floats(size_t first) {
    return builder_.op("DequantizeLinear", {n_.in[first], n_.in[first + 1], operand(first + 2)});
  }
  // `y` as integers by the scale and the zero point from operand `first` on: the node's result.
  Status integers(ValueId y, size_t first) {
    builder_.op("QuantizeLinear", {y, n_.in[first], operand(first + 1)}, n_.out[0]);
    if (!n_.has_input(first + 1)) builder_.last().set_int("output_dtype", static_cast<int64_t>(info(n_.out[0]).type));
    return Status::ok();
  }

  Status binary() {
    const ValueId a = floats(0), b = floats(3);
    return integers(builder_.op(n_.op == "QLinearAdd" ? "Add" : "Mul", {a, b}), 6);
  }
  Status unary() {
    // Softmax of before opset 13 takes the axes from its own on as one.
    const int64_t opset = n_.op == "QLinearSoftmax" ? n_.attr_int("opset", 13) : 0;
    const int64_t rank = static_cast<int64_t>(info(n_.in[0]).shape.size()), axis = n_.attr_int("axis", -1);
    if (opset != 0 && opset < 13 && axis != -1 && axis != rank - 1)
      return fail("opset is " + std::to_string(opset) + ", axis " + std::to_string(axis) + " of " +
                  std::to_string(rank) + ": only the last axis is supported");
    const ValueId y = plain(n_.op.c_str() + std::string("QLinear").size(), {floats(0)}, {"opset"});
    return integers(y, 3);
  }
  Status where() {
    const ValueId x = floats(1), y = floats(4);
    return integers(builder_.op("Where", {n_.in[0], x, y}), 7);
  }
  // y_scale, y_zero_point, and tensor, scale and zero point of each part.
  Status concat() {
    if (n_.in.size() < 5 || (n_.in.size() - 2) % 3 != 0)
      return fail("has " + std::to_string(n_.in.size()) + " inputs, should have 2 and 3 for each part");
    std::vector<ValueId> parts;
    for (size_t i = 2; i < n_.in.size(); i += 3) parts.push_back(floats(i));
    return integers(plain("Concat", parts), 0);
  }

  // What sums of integers are worth: by row of A one factor, by column of B one or one for each.
  ValueId scaled(ValueId sums, ValueId a_scale, ValueId b_scale) {
    const ValueId y = builder_.op("Cast", {sums});
    builder_.last().set_int("to", static_cast<int64_t>(DType::kF32));
    return builder_.op("Mul", {y, builder_.op("Mul", {a_scale, b_scale})});
  }
  // The last operator's result is the node's, with a bias if there is one.
  Status finish(size_t bias) {
    if (n_.has_input(bias))
      builder_.op("Add", {builder_.last().out[0], n_.in[bias]}, n_.out[0]);
    else
      builder_.last().out[0] = n_.out[0];
    return Status::ok();
  }

  // A, B, b_scale, b_zero_point?, bias?
  Status dynamic_matmul() {
    const ValueId q = builder_.op("DynamicQuantizeLinear", {n_.in[0]}), scale = builder_.new_value("scale"),
                  zero = builder_.new_value("zero");
    builder_.last().out = {q, scale, zero};
    scaled(builder_.op("MatMulInteger", {q, n_.in[1], zero, operand(3)}), scale, n_.in[2]);
    return finish(4);
  }
  // A, B, a_scale, b_scale, a_zero_point?, b_zero_point?, bias?
  Status integer_matmul() {
    scaled(builder_.op("MatMulInteger", {n_.in[0], n_.in[1], operand(4), operand(5)}), n_.in[2], n_.in[3]);
    return finish(6);
  }
  // a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point: sums * (a_scale * b_scale / y_scale),
  // rounded, and y_zero_point.
  Status linear_matmul() {
    const ValueId sums = builder_.op("MatMulInteger", {n_.in[0], n_.in[3], operand(2), operand(5)});
    return requantised(sums, {n_.in[1], n_.in[4], n_.in[6], operand(7)});
  }
  struct Scales {
    ValueId a, b, y, y_zero;
  };
  Status requantised(ValueId sums, const Scales& s) {
    const ValueId factor = builder_.op("Div", {builder_.op("Mul", {s.a, s.b}), s.y});
    const ValueId real = builder_.op("Cast", {sums});
    builder_.last().set_int("to", static_cast<int64_t>(DType::kF32));
    builder_.op("QuantizeLinear", {builder_.op("Mul", {real, factor}), number("one", 1), s.y_zero}, n_.out[0]);
    return Status::ok();
  }
  // A, a_scale, a_zero_point, B, b_scale, b_zero_point, C? int32, y_scale?, y_zero_point?: floats without the last two.
  Status gemm() {
    if (n_.attr_float("alpha", 1) != 1) return fail("alpha is " + std::to_string(n_.attr_float("alpha", 1)));
    ValueId in[2] = {n_.in[0], n_.in[3]};
    const char* const keys[2] = {"transA", "transB"};
    for (int i = 0; i < 2; ++i)
      if (n_.attr_int(keys[i], 0) != 0) in[i] = builder_.transpose(in[i], {1, 0});
    ValueId sums = builder_.op("MatMulInteger", {in[0], in[1], operand(2), operand(5)});
    if (n_.has_input(6)) sums = builder_.op("Add", {sums, n_.in[6]});
    if (n_.has_input(7)) return requantised(sums, {n_.in[1], n_.in[4], n_.in[7], operand(8)});
    scaled(sums, n_.in[1], n_.in[4]);
    return finish(n_.in.size());
  }

  // MatMulBnb4: Y = A * W^T, W[n][k] = table[digit] * absmax[(n * K + k) / block_size]: digits of all of W one after
  // the other, the first of a byte in its high half, so that a block may begin in one row and end in another. W [K, N]
  // if transB is 0.
  Status bnb4() {
    const int64_t k = n_.attr_int("K", 0), n = n_.attr_int("N", 0), block = n_.attr_int("block_size", 0),
                  type = n_.attr_int("quant_type", 1);
    const Tensor &digits = graph_.values[n_.in[1]].constant, &scales = graph_.values[n_.in[2]].constant;
    if (!digits.present() || !scales.present()) return fail("B or absmax is no constant");
    const DigitTable table = type == 0 ? DigitTable::kFp4 : DigitTable::kNf4;
    // Parts of a row that have one scale each, if rows are whole ones of them.
    const int64_t part = std::gcd(k, block);
    if (n_.attr_int("transB", 1) == 0 || part < 16 || (part & (part - 1)) != 0) return bnb4_floats(k, n, block, table);
    StoredMatrix w = stored_matrix({k, n, 4, static_cast<int32_t>(part), ZeroPoints::kTable, table, true});
    w.digits.data = digits;
    w.scales = {scales, k / part, 1, block / part};
    write_product(graph_, builder_, n_.name, n_.in[0], laid_out(w), kNoValue, n_.out[0]);
    return Status::ok();
  }

  // Rows that no blocks of 16 and more divide: the numbers as floats, [K, N].
  Status bnb4_floats(int64_t k, int64_t n, int64_t block, DigitTable table) {
    std::vector<float> numbers(static_cast<size_t>(k * n));
    write_numbers(table, true, block, graph_.values[n_.in[1]].constant, graph_.values[n_.in[2]].constant, numbers);
    const bool rows_of_k = n_.attr_int("transB", 1) != 0;
    const Tensor w = Tensor::allocate(DType::kF32, {k, n});
    for (int64_t i = 0; i < k * n; ++i)
      w.view().as<float>()[rows_of_k ? i % k * n + i / k : i] = numbers[static_cast<size_t>(i)];
    ValueId v = graph_.add_constant(n_.name + "/floats", w);
    if (const DType type = info(n_.in[0]).type; type != DType::kF32) v = builder_.cast(v, type);
    builder_.op("MatMul", {n_.in[0], v}, n_.out[0]);
    return Status::ok();
  }

  Graph& graph_;
  Builder& builder_;
  const Node& n_;
};

}  // namespace

Status expand_quantised(Graph& graph, Builder& builder, const Node& n, bool* expanded) {
  return QuantisedWriter(graph, builder, n).run(expanded);
}

}  // namespace situ
