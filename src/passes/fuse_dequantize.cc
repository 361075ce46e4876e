// MatMul(x, DequantizeLinear(W)), and Gemm with a bias, with a constant W of 4 or 8 bits, scaled by blocks along K, by
// column or as a whole, becomes MatMulNBits, and so does a W that is cast, shifted and scaled by operators of their
// own, (Cast(W) - zero) * scale: the weight is read as the bits it is, never expanded. ONNX stores W [K, N] element by
// element along N; MatMulNBits wants [N, blocks of K]: where W is not stored so, behind a Transpose, its digits are
// laid out anew once, at load, and booked as packed.
#include <algorithm>
#include <cmath>

#include "passes/builder.h"
#include "passes/pack_store.h"
#include "passes/pass.h"

namespace situ {
namespace {

struct Quantised {
  Tensor weight, scale, zero;  // zero may be absent. By value: emit() adds values to the graph
  bool transposed = false;     // W is [N, K] behind a Transpose
  int64_t k = 0, n = 0, block = 0;
  int bits = 0;
  bool is_signed = false;
  enum class Scales { kBlocks, kColumns, kOne } scales = Scales::kBlocks;

  int64_t blocks() const { return (k + block - 1) / block; }
  // Where the scale and the zero point of block b of column n are.
  int64_t scale_index(int64_t column, int64_t b) const {
    if (scales != Scales::kBlocks) return scales == Scales::kColumns ? column : 0;
    return transposed ? column * blocks() + b : b * n + column;
  }
  int64_t scale_count() const { return scales == Scales::kBlocks ? n * blocks() : scales == Scales::kColumns ? n : 1; }
};
// MatMulNBits knows blocks only: where a scale holds for a whole column, it is written once for each so many weights.
constexpr int64_t kColumnBlock = 128;
constexpr int64_t kColumnsAtOnce = 64;

// Element i of an integer tensor of 4 or 8 bits, shifted to be unsigned.
int unsigned_element(const Tensor& t, int64_t i, int bits, bool is_signed) {
  const uint8_t* bytes = t.view().as<uint8_t>();
  const int raw = bits == 8 ? bytes[i] : (bytes[i / 2] >> (4 * (i % 2))) & 15;
  const int half = 1 << (bits - 1);
  return is_signed ? (raw ^ half) : raw;  // two's complement plus half the range
}

class Fuser {
 public:
  explicit Fuser(PassContext& context) : context_(context), graph_(context.graph) {}

  Status run() {
    std::map<int, Quantised> found;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      Quantised q;
      if (product(graph_.nodes[n]) && match(graph_.nodes[n], &q)) found.emplace(static_cast<int>(n), q);
    }
    if (found.empty()) return Status::ok();
    Builder builder(graph_);
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
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

  bool match(const Node& matmul, Quantised* q) const {
    ValueId w = matmul.in[1];
    int p = graph_.values[w].producer;
    if (p < 0) return false;
    q->transposed = matmul.is("Gemm") && matmul.attr_int("transB", 0) != 0;
    if (graph_.nodes[p].is("Transpose") && graph_.values[w].info.shape.size() == 2) {
      if (graph_.nodes[p].permutation(2) == std::vector<int64_t>{1, 0})
        q->transposed = !q->transposed;  // else: nothing
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
    if (dq.is("Mul")) return match_by_hand(dq, q) && fits(matmul, *q);
    if (!dq.is("DequantizeLinear") || !constant(dq.in[0], &q->weight) || !constant(dq.in[1], &q->scale)) return false;
    if (dq.has_input(2) && !constant(dq.in[2], &q->zero)) return false;
    if (from_half) q->scale = widened(q->scale);
    const DType type = q->weight.type();
    q->bits = type == DType::kI4 || type == DType::kU4 ? 4 : type == DType::kI8 || type == DType::kU8 ? 8 : 0;
    q->is_signed = type == DType::kI4 || type == DType::kI8;
    if (q->bits == 0 || q->weight.rank() != 2) return false;
    q->k = q->weight.dims()[q->transposed ? 1 : 0];
    q->n = q->weight.dims()[q->transposed ? 0 : 1];
    q->block = dq.attr_int("block_size", 0);
    int64_t axis = dq.attr_int("axis", 1);
    if (axis < 0) axis += 2;
    const int64_t k_axis = q->transposed ? 1 : 0;
    if (q->block > 0) {
      const bool power = q->block >= 16 && (q->block & (q->block - 1)) == 0;
      // Blocks beyond K would be filled up to their length.
      if (!power || q->block > std::max<int64_t>(16, 2 * q->k) || q->scale.rank() != 2 || axis != k_axis) return false;
    } else {
      q->scales = q->scale.count() == 1 ? Quantised::Scales::kOne : Quantised::Scales::kColumns;
      if (q->scale.rank() > 1 || (q->scales == Quantised::Scales::kColumns && axis != 1 - k_axis)) return false;
      q->block = kColumnBlock;
    }
    return fits(matmul, *q);
  }

  static Tensor widened(const Tensor& halves) {
    Tensor t = Tensor::allocate(DType::kF32, halves.dims());
    const std::vector<double> numbers = halves.to_f64();
    for (size_t i = 0; i < numbers.size(); ++i) t.view().as<float>()[i] = static_cast<float>(numbers[i]);
    return t;
  }

  bool fits(const Node& matmul, const Quantised& q) const {
    const DType x = graph_.values[matmul.in[0]].info.type;
    if (q.zero.present() && (q.zero.type() != q.weight.type() || q.zero.count() != q.scale_count())) return false;
    return (q.scale.type() == x || matmul.mixed_floats) && (x == DType::kF32 || x == DType::kF16) &&
           q.scale.count() == q.scale_count();
  }

  // scale * Cast(W) or scale * (Cast(W) - zero), scale and zero one number or one for each column.
  bool match_by_hand(const Node& mul, Quantised* q) const {
    for (size_t i : {0u, 1u}) {
      const int p = graph_.values[mul.in[i]].producer;
      if (p < 0 || !constant(mul.in[1 - i], &q->scale)) continue;
      const Node* cast = &graph_.nodes[p];
      ValueId zero = kNoValue;
      if (cast->is("Sub")) {
        zero = cast->in[1];
        const int made = graph_.values[cast->in[0]].producer;
        if (made < 0) return false;
        cast = &graph_.nodes[made];
      }
      if (!cast->is("Cast") || graph_.values[cast->out[0]].info.type != DType::kF32 || q->scale.type() != DType::kF32 ||
          !constant(cast->in[0], &q->weight))
        return false;
      const DType type = q->weight.type();
      q->is_signed = type == DType::kI8;
      q->bits = type == DType::kI8 || type == DType::kU8 ? 8 : 0;
      if (q->bits == 0 || q->weight.rank() != 2) return false;
      q->k = q->weight.dims()[q->transposed ? 1 : 0];
      q->n = q->weight.dims()[q->transposed ? 0 : 1];
      q->block = kColumnBlock;
      q->scales = q->scale.count() == 1 ? Quantised::Scales::kOne : Quantised::Scales::kColumns;
      return by_column(*q, q->scale) && (zero == kNoValue || integer_zeros(zero, q));
    }
    return false;
  }

  // Broadcast over W as one number for all of it, or one for each column of the product.
  static bool by_column(const Quantised& q, const Tensor& t) {
    if (t.count() == 1) return t.rank() <= 2;
    if (t.count() != q.n || t.rank() > 2 || !t.contiguous()) return false;
    return q.transposed ? t.rank() == 2 && t.dims()[0] == q.n : t.dims().back() == q.n;
  }

  // Zero points that W's type can hold, as many as there are scales.
  bool integer_zeros(ValueId v, Quantised* q) const {
    Tensor given;
    if (!constant(v, &given) || !by_column(*q, given)) return false;
    const std::vector<double> zeros = given.to_f64();
    const int64_t low = q->is_signed ? -128 : 0, high = low + 255;
    for (double z : zeros)
      if (!(z >= static_cast<double>(low) && z <= static_cast<double>(high)) || z != std::trunc(z)) return false;
    if (given.count() > q->scale.count()) {  // one scale, but a zero point for each column
      Tensor each = Tensor::allocate(DType::kF32, {q->n});
      for (int64_t n = 0; n < q->n; ++n) each.view().as<float>()[n] = q->scale.view().as<float>()[0];
      q->scale = each;
      q->scales = Quantised::Scales::kColumns;
    }
    q->zero = Tensor::allocate(q->weight.type(), {q->scale.count()});
    for (int64_t n = 0; n < q->scale.count(); ++n)
      q->zero.view().as<uint8_t>()[n] =
          static_cast<uint8_t>(static_cast<int64_t>(zeros[zeros.size() == 1 ? 0 : static_cast<size_t>(n)]));
    return true;
  }

  // W [N, K] may be what MatMulNBits reads as the file has it: unsigned, in rows of whole blocks.
  static Tensor as_bytes(const Tensor& t, std::vector<int64_t> dims) {
    return Tensor::borrow(DType::kU8, std::move(dims), t.view().data, t.owner());
  }

  Tensor weights(const Quantised& q) {
    const int64_t blob = q.block * q.bits / 8, row = q.blocks() * blob;
    if (q.transposed && !q.is_signed && q.k % q.block == 0) return as_bytes(q.weight, {q.n, q.blocks(), blob});
    Tensor weight = Tensor::allocate(DType::kU8, {q.n, q.blocks(), blob});
    uint8_t* bytes = weight.view().as<uint8_t>();
    // Some columns at a time, so that what is written stays in the cache while W [K, N] is read row by row.
    for (int64_t first = 0; first < q.n; first += kColumnsAtOnce)
      for (int64_t k = 0; k < q.k; ++k)
        for (int64_t n = first; n < std::min(first + kColumnsAtOnce, q.n); ++n)
          put(bytes + n * row, k, q.bits,
              unsigned_element(q.weight, q.transposed ? n * q.k + k : k * q.n + n, q.bits, q.is_signed));
    return copied(q.weight, weight);
  }

  Tensor scales(const Quantised& q) {
    if (q.transposed && q.scales == Quantised::Scales::kBlocks) return q.scale;
    Tensor scale = Tensor::allocate(q.scale.type(), {q.n, q.blocks()});
    const int64_t element = dtype_bytes(scale.type());
    std::byte* to = scale.view().data;
    for (int64_t n = 0; n < q.n; ++n)
      for (int64_t b = 0; b < q.blocks(); ++b)
        for (int64_t i = 0; i < element; ++i) *to++ = q.scale.view().data[q.scale_index(n, b) * element + i];
    return copied(q.scale, scale);
  }

  Tensor zero_points(const Quantised& q) {
    const int64_t row = (q.blocks() * q.bits + 7) / 8;
    if (q.transposed && q.zero.present() && q.scales == Quantised::Scales::kBlocks && !q.is_signed &&
        q.blocks() * q.bits % 8 == 0)
      return as_bytes(q.zero, {q.n, row});
    Tensor zero = Tensor::allocate(DType::kU8, {q.n, row});
    const int without = q.is_signed ? 1 << (q.bits - 1) : 0;
    for (int64_t n = 0; n < q.n; ++n)
      for (int64_t b = 0; b < q.blocks(); ++b)
        put(zero.view().as<uint8_t>() + n * row, b, q.bits,
            q.zero.present() ? unsigned_element(q.zero, q.scale_index(n, b), q.bits, q.is_signed) : without);
    return copied(q.zero, zero);
  }

  // Digit i of `bytes`, which are 0.
  static void put(uint8_t* bytes, int64_t i, int bits, int digit) {
    if (bits == 8)
      bytes[i] = static_cast<uint8_t>(digit);
    else
      bytes[i / 2] = static_cast<uint8_t>(bytes[i / 2] | (digit << (4 * (i % 2))));
  }

  Tensor copied(const Tensor& from, const Tensor& to) {
    if (context_.packs && from.present()) context_.packs->release(from);
    context_.evaluator.ledger().packed += to.bytes();
    return to;
  }

  void emit(Builder& builder, const Node& matmul, const Quantised& q) {
    const Tensor weight = weights(q), scale = scales(q), zero = zero_points(q);
    builder.start(matmul);
    const ValueId w = graph_.add_constant(matmul.name + "/packed", weight),
                  s = graph_.add_constant(matmul.name + "/scales", scale),
                  z = graph_.add_constant(matmul.name + "/zero_points", zero);
    std::vector<ValueId> in{matmul.in[0], w, s, z};
    if (matmul.is("Gemm") && matmul.has_input(2)) in.insert(in.end(), {kNoValue, matmul.in[2]});
    builder.op("MatMulNBits", in, matmul.out[0], "com.microsoft");
    Node& node = builder.last();
    node.set_int("K", q.k);
    node.set_int("N", q.n);
    node.set_int("bits", q.bits);
    node.set_int("block_size", q.block);
    context_.note("quantised weight", matmul.name,
                  std::to_string(q.bits) + " bits, " +
                      (q.scales == Quantised::Scales::kBlocks    ? "block " + std::to_string(q.block)
                       : q.scales == Quantised::Scales::kColumns ? "a scale for each column"
                                                                 : "one scale"));
  }

  PassContext& context_;
  Graph& graph_;
};

}  // namespace

Status fuse_dequantize(PassContext& context) { return Fuser(context).run(); }

}  // namespace situ
