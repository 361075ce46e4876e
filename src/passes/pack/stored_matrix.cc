#include "passes/pack/stored_matrix.h"

#include <algorithm>

#include "kernels/packed_layout.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/pack/pack_store.h"

namespace situ {
namespace {

constexpr int64_t kColumnsAtOnce = 64;

bool same_places(const MatrixPart& a, const MatrixPart& b) {
  return a.column == b.column && a.place == b.place && a.shared == b.shared && a.order == b.order;
}

// Where column n, place p stands; -1: nowhere.
int64_t element_of(const MatrixPart& part, int64_t n, int64_t p) {
  if (part.order != nullptr) p = (*part.order)[static_cast<size_t>(p)];
  if (p < 0) return -1;
  const int64_t i = n * part.column + p * part.place;
  return part.shared == 1 ? i : i / part.shared;
}

// Some columns at a time, so that what is written stays in the cache while W [K, N] is read row by row.
template <typename Visit>
void each_element(int64_t columns, int64_t places, Visit visit) {
  for (int64_t first = 0; first < columns; first += kColumnsAtOnce)
    for (int64_t p = 0; p < places; ++p)
      for (int64_t n = first; n < std::min(first + kColumnsAtOnce, columns); ++n) visit(n, p);
}

template <int Bits>
void write_digits(const StoredMatrix& w, const MatrixPart& from, int64_t places, const Tensor& to) {
  constexpr int kMask = (1 << Bits) - 1;
  const int flip = w.is_signed ? 1 << (Bits - 1) : 0;  // two's complement plus half the range
  const int64_t row = to.bytes() / w.form.n, swap = w.form.high_first && &from == &w.digits ? 1 : 0;
  const auto* bytes = from.data.present() ? from.data.view().as<const uint8_t>() : nullptr;
  auto* out = to.view().as<uint8_t>();
  each_element(w.form.n, places, [&](int64_t n, int64_t p) {
    int64_t i = element_of(from, n, p);
    if (i < 0) return;
    i ^= swap;
    p ^= swap;
    const int raw = bytes == nullptr ? 0 : bytes[i * Bits / 8] >> (i * Bits % 8);
    uint8_t& byte = out[n * row + p * Bits / 8];
    byte = static_cast<uint8_t>(byte | ((raw & kMask) ^ flip) << (p * Bits % 8));
  });
}

Tensor written_digits(const StoredMatrix& w, const MatrixPart& from, int64_t places, std::vector<int64_t> dims) {
  const Tensor to = Tensor::allocate(DType::kU8, std::move(dims));
  w.form.bits == 8   ? write_digits<8>(w, from, places, to)
  : w.form.bits == 4 ? write_digits<4>(w, from, places, to)
                     : write_digits<2>(w, from, places, to);
  return to;
}

Tensor written_floats(const StoredMatrix& w, const MatrixPart& from) {
  const Tensor to = Tensor::allocate(from.data.type(), {w.form.n, w.form.blocks()});
  const int64_t size = dtype_bytes(to.type());
  each_element(w.form.n, w.form.blocks(), [&](int64_t n, int64_t b) {
    const std::byte* in = from.data.view().data + element_of(from, n, b) * size;
    std::byte* out = to.view().data + (n * w.form.blocks() + b) * size;
    for (int64_t i = 0; i < size; ++i) out[i] = in[i];
  });
  return to;
}

// Unsigned, whatever the type is called.
Tensor as_bytes(const Tensor& t, std::vector<int64_t> dims) {
  return Tensor::borrow(DType::kU8, std::move(dims), t.view().data, t.owner());
}

}  // namespace

StoredMatrix stored_matrix(const QuantisedMatrix& form) {
  const int64_t blocks = form.blocks(), zero_row = form.column_zero_bytes() * 8 / form.bits;
  return {form,
          {{}, form.column_bytes() * 8 / form.bits, 1},
          {{}, blocks, 1},
          {{}, form.zeros == ZeroPoints::kIntegers ? zero_row : blocks, 1}};
}

StoredMatrix stored_matrix(const Graph& graph, const Node& product) {
  const auto constant = [&](size_t i) {
    return product.has_input(i) ? graph.values[static_cast<size_t>(product.in[i])].constant : Tensor();
  };
  const DType zeros = product.has_input(3) ? graph.values[static_cast<size_t>(product.in[3])].info.type : DType::kNone;
  StoredMatrix w = stored_matrix(quantised_matrix(product, zeros));
  w.digits.data = constant(1);
  w.scales.data = constant(2);
  w.zeros.data = constant(3);
  return w;
}

StoredMatrix laid_out(const StoredMatrix& w, PassContext* context) {
  const QuantisedMatrix& form = w.form;
  StoredMatrix to = stored_matrix(form);
  const auto booked = [&](const MatrixPart& from, const Tensor& written) {
    if (context == nullptr) return written;
    if (context->packs && from.data.present()) context->packs->release(from.data);
    context->evaluator.ledger().packed += written.bytes();
    return written;
  };
  const auto digits = [&](const MatrixPart& from, const MatrixPart& wanted, int64_t places, std::vector<int64_t> dims) {
    const bool lies = !w.is_signed && from.data.present() && same_places(from, wanted);
    return lies ? as_bytes(from.data, dims) : booked(from, written_digits(w, from, places, dims));
  };
  const auto floats = [&](const MatrixPart& from, const MatrixPart& wanted) {
    return same_places(from, wanted) ? from.data : booked(from, written_floats(w, from));
  };
  to.digits.data = digits(w.digits, to.digits, form.k, {form.n, form.blocks(), int64_t{form.block} * form.bits / 8});
  to.scales.data = floats(w.scales, to.scales);
  if (form.zeros == ZeroPoints::kIntegers)
    to.zeros.data = digits(w.zeros, to.zeros, form.blocks(), {form.n, form.column_zero_bytes()});
  if (form.zeros == ZeroPoints::kFloats) to.zeros.data = floats(w.zeros, to.zeros);
  return to;
}

void write_numbers(DigitTable table, bool high_first, int64_t block, const Tensor& digits, const Tensor& scales,
                   std::span<float> numbers) {
  const auto* bytes = digits.view().as<const uint8_t>();
  const std::vector<double> of_blocks = scales.to_f64();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int digit = bytes[i / 2] >> ((i % 2 == 0) == high_first ? 4 : 0) & 15;
    numbers[i] = digits_of(table)[digit] * static_cast<float>(of_blocks[i / static_cast<size_t>(block)]);
  }
}

void write_product(Graph& graph, Builder& builder, const std::string& name, ValueId x, const StoredMatrix& w,
                   ValueId bias, ValueId y) {
  std::vector<ValueId> in{x, graph.add_constant(name + "/packed", w.digits.data),
                          graph.add_constant(name + "/scales", w.scales.data)};
  if (w.zeros.data.present()) in.push_back(graph.add_constant(name + "/zero_points", w.zeros.data));
  if (bias != kNoValue) {
    in.resize(5, kNoValue);
    in.push_back(bias);
  }
  builder.op("MatMulNBits", in, y, "com.microsoft");
  set_quantised_matrix(&builder.last(), w.form);
}

}  // namespace situ
