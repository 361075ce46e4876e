// MatMul(x, DequantizeLinear(W)), and Gemm with a bias, with a constant W of 4 or 8 bits, scaled by blocks along K, by
// column or as a whole, becomes MatMulNBits, and so does a W that is cast, shifted and scaled by operators of their
// own, (Cast(W) - zero) * scale: the weight is read as the bits it is, never expanded. ONNX stores W [K, N] element by
// element along N; MatMulNBits wants [N, blocks of K]: where W is not stored so, behind a Transpose, its digits are
// laid out anew once, at load, and booked as packed.
#include <algorithm>
#include <cmath>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/lower/passes.h"
#include "passes/pack/stored_matrix.h"

namespace situ {
namespace {

// MatMulNBits knows blocks only: where a scale holds for a whole column, it is written once for each so many weights.
constexpr int64_t kColumnBlock = 128;

class Fuser {
 public:
  explicit Fuser(PassContext& context) : context_(context), graph_(context.graph) {}

  Status run() {
    std::map<int, StoredMatrix> found;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      StoredMatrix q;
      if (product(graph_.nodes[n]) && match(graph_.nodes[n], &q)) found.emplace(static_cast<int>(n), q);
    }
    if (found.empty()) return Status::ok();
    Builder builder(graph_);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t n = 0; n < nodes.size(); ++n) {
      auto it = found.find(static_cast<int>(n));
      if (it == found.end())
        builder.keep(std::move(nodes[n]));
      else
        emit(builder, nodes[n], it->second);
    }
    SITU_RETURN_IF_ERROR(builder.finish());
    graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  bool constant(ValueId v, Tensor* t) const {
    *t = graph_.values[v].constant;
    return t->present();
  }

  // x * W, and x * W + bias with a constant bias [N].
  bool product(const Node& n) const {
    if (n.is("MatMul")) return true;
    if (!n.is("Gemm") || n.attr_int("transA", 0) != 0 || n.attr_float("alpha", 1) != 1 || n.attr_float("beta", 1) != 1)
      return false;
    if (!n.has_input(2)) return true;
    const Value& bias = graph_.values[n.in[2]];
    return bias.constant.present() && bias.info.shape == Shape{graph_.values[n.out[0]].info.shape.back()} &&
           bias.info.type == graph_.values[n.in[0]].info.type;
  }

  bool match(const Node& matmul, StoredMatrix* q) const {
    ValueId w = matmul.in[1];
    int p = graph_.values[w].producer;
    if (p < 0) return false;
    bool transposed = matmul.is("Gemm") && matmul.attr_int("transB", 0) != 0;  // W is [N, K]
    if (graph_.nodes[p].is("Transpose") && graph_.values[w].info.shape.size() == 2) {
      if (graph_.nodes[p].permutation(2) == std::vector<int64_t>{1, 0}) transposed = !transposed;  // else: nothing
      p = graph_.values[graph_.nodes[p].in[0]].producer;
      if (p < 0) return false;
    }
    // Dequantised to halves, which a float graph casts: the same but for their rounding.
    const Node& cast = graph_.nodes[p];
    const bool from_half = cast.is("Cast") && graph_.values[w].info.type == DType::kF32 &&
                           graph_.values[cast.in[0]].info.type == DType::kF16;
    if (from_half) p = graph_.values[cast.in[0]].producer;
    if (p < 0) return false;
    const Node& dq = graph_.nodes[p];
    if (from_half && !dq.is("DequantizeLinear")) return false;
    if (dq.is("Mul")) return match_by_hand(dq, transposed, q) && fits(matmul, *q);
    if (!dq.is("DequantizeLinear") || !integers(dq.in[0], transposed, q) || !constant(dq.in[1], &q->scales.data))
      return false;
    if (dq.has_input(2) && !constant(dq.in[2], &q->zeros.data)) return false;
    if (from_half) q->scales.data = widened(q->scales.data);
    const int64_t block = dq.attr_int("block_size", 0);
    int64_t axis = dq.attr_int("axis", 1);
    if (axis < 0) axis += 2;
    const int64_t k_axis = transposed ? 1 : 0, rank = q->scales.data.rank();
    if (block > 0) {
      const bool power = block >= 16 && block < int64_t{1} << 31 && (block & (block - 1)) == 0;
      // Blocks beyond K would be filled up to their length.
      if (!power || block > std::max<int64_t>(16, 2 * q->form.k) || rank != 2 || axis != k_axis) return false;
      q->form.block = static_cast<int32_t>(block);
      q->scales.column = transposed ? q->form.blocks() : 1;
      q->scales.place = transposed ? 1 : q->form.n;
    } else {
      by_column(q);
      if (rank > 1 || (q->scales.column != 0 && axis != 1 - k_axis)) return false;
    }
    return fits(matmul, *q);
  }

  // W's numbers, [K, N] or [N, K].
  bool integers(ValueId v, bool transposed, StoredMatrix* q) const {
    Tensor& w = q->digits.data;
    if (!constant(v, &w) || w.rank() != 2) return false;
    const DType type = w.type();
    q->is_signed = type == DType::kI4 || type == DType::kI8;
    q->form.bits = type == DType::kI4 || type == DType::kU4 ? 4 : type == DType::kI8 || type == DType::kU8 ? 8 : 0;
    q->form.zeros = ZeroPoints::kIntegers;
    q->form.k = w.dims()[transposed ? 1 : 0];
    q->form.n = w.dims()[transposed ? 0 : 1];
    q->digits.column = transposed ? q->form.k : 1;
    q->digits.place = transposed ? 1 : q->form.n;
    return q->form.bits != 0 && q->form.k > 0 && q->form.n > 0;
  }

  // One scale for each column, or one of all.
  static void by_column(StoredMatrix* q) {
    q->form.block = kColumnBlock;
    q->scales.column = q->scales.data.count() == 1 ? 0 : 1;
  }

  static Tensor widened(const Tensor& halves) {
    Tensor t = Tensor::allocate(DType::kF32, halves.dims());
    const std::vector<double> numbers = halves.to_f64();
    for (size_t i = 0; i < numbers.size(); ++i) t.view().as<float>()[i] = static_cast<float>(numbers[i]);
    return t;
  }

  // Scales and zero points, which stand alike, are as many as there should be.
  bool fits(const Node& matmul, StoredMatrix& q) const {
    const DType x = graph_.values[matmul.in[0]].info.type;
    const int64_t count = q.scales.place != 0 ? q.form.n * q.form.blocks() : q.scales.column != 0 ? q.form.n : 1;
    q.zeros.column = q.scales.column;
    q.zeros.place = q.scales.place;
    const Tensor &scale = q.scales.data, &zero = q.zeros.data;
    if (zero.present() && (zero.type() != q.digits.data.type() || zero.count() != count)) return false;
    return (scale.type() == x || matmul.mixed_floats) && (x == DType::kF32 || x == DType::kF16) &&
           scale.count() == count;
  }

  // scale * Cast(W) or scale * (Cast(W) - zero), scale and zero one number or one for each column.
  bool match_by_hand(const Node& mul, bool transposed, StoredMatrix* q) const {
    for (size_t i : {0u, 1u}) {
      const int p = graph_.values[mul.in[i]].producer;
      Tensor& scale = q->scales.data;
      if (p < 0 || !constant(mul.in[1 - i], &scale)) continue;
      const Node* cast = &graph_.nodes[p];
      ValueId zero = kNoValue;
      if (cast->is("Sub")) {
        zero = cast->in[1];
        const int made = graph_.values[cast->in[0]].producer;
        if (made < 0) return false;
        cast = &graph_.nodes[made];
      }
      if (!cast->is("Cast") || graph_.values[cast->out[0]].info.type != DType::kF32 || scale.type() != DType::kF32 ||
          !integers(cast->in[0], transposed, q) || q->form.bits != 8)
        return false;
      if (!of_columns(q->form, transposed, scale) || (zero != kNoValue && !integer_zeros(zero, transposed, q)))
        return false;
      by_column(q);
      return true;
    }
    return false;
  }

  // Broadcast over W as one number for all of it, or one for each column of the product.
  static bool of_columns(const QuantisedMatrix& w, bool transposed, const Tensor& t) {
    if (t.count() == 1) return t.rank() <= 2;
    if (t.count() != w.n || t.rank() > 2 || !t.contiguous()) return false;
    return transposed ? t.rank() == 2 && t.dims()[0] == w.n : t.dims().back() == w.n;
  }

  // Zero points that W's type can hold, as many as there are scales.
  bool integer_zeros(ValueId v, bool transposed, StoredMatrix* q) const {
    Tensor given, &scale = q->scales.data;
    if (!constant(v, &given) || !of_columns(q->form, transposed, given)) return false;
    const std::vector<double> zeros = given.to_f64();
    const int64_t low = q->is_signed ? -128 : 0, high = low + 255;
    for (double z : zeros)
      if (!(z >= static_cast<double>(low) && z <= static_cast<double>(high)) || z != std::trunc(z)) return false;
    if (given.count() > scale.count()) {  // one scale, but a zero point for each column
      Tensor each = Tensor::allocate(DType::kF32, {q->form.n});
      for (int64_t n = 0; n < q->form.n; ++n) each.view().as<float>()[n] = scale.view().as<float>()[0];
      scale = each;
    }
    q->zeros.data = Tensor::allocate(q->digits.data.type(), {scale.count()});
    for (int64_t n = 0; n < scale.count(); ++n)
      q->zeros.data.view().as<uint8_t>()[n] =
          static_cast<uint8_t>(static_cast<int64_t>(zeros[zeros.size() == 1 ? 0 : static_cast<size_t>(n)]));
    return true;
  }

  void emit(Builder& builder, const Node& matmul, const StoredMatrix& q) {
    const StoredMatrix w = laid_out(q, &context_);
    builder.start(matmul);
    write_product(graph_, builder, matmul.name, matmul.in[0], w,
                  matmul.is("Gemm") && matmul.has_input(2) ? matmul.in[2] : kNoValue, matmul.out[0]);
    context_.note("quantised weight", matmul.name,
                  std::to_string(w.form.bits) + " bits, " +
                      (q.scales.place != 0    ? "block " + std::to_string(w.form.block)
                       : q.scales.column != 0 ? "a scale for each column"
                                              : "one scale"));
  }

  PassContext& context_;
  Graph& graph_;
};

}  // namespace

Status fuse_dequantize(PassContext& context) { return Fuser(context).run(); }

}  // namespace situ
