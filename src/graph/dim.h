// Dim: an integer that may depend on symbols (graph/symbols.h: new tokens S, past P, ...). Shapes, strides, offsets
// and the elements of shape tensors are Dims. A constant Dim is a plain int64 and costs no allocation.
//
// A symbolic Dim is a polynomial with integer coefficients over atoms; an atom is a symbol or one of
// floordiv, mod, min, max, select applied to Dims. Polynomials are kept in a canonical order, so
// structural equality is equality of polynomials: S + P == P + S holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "graph/symbols.h"

namespace situ {

// Thrown by arithmetic on Dims whose text would be longer than kLongestDim: a file can square a length again and again.
// Shapes of real exports stay below 200 characters. infer_shapes catches it for each node, the engine elsewhere.
constexpr size_t kLongestDim = 4096;
struct DimTooLong : std::length_error {
  DimTooLong() : std::length_error("shape arithmetic of more than " + std::to_string(kLongestDim) + " characters") {}
};

class Dim {
 public:
  struct Poly;
  Dim() = default;
  Dim(int64_t value) : value_(value) {}  // NOLINT: implicit on purpose
  static Dim symbol(int id);

  bool is_const() const { return poly_ == nullptr; }
  // Precondition: is_const().
  int64_t value() const { return value_; }
  int64_t eval(const SymbolValues& symbols) const;
  // Bounds over all that the current symbols (ScopedSymbols) may be. INT64_MIN / INT64_MAX: unbounded.
  int64_t lower_bound() const;
  int64_t upper_bound() const;
  bool depends_on(int symbol) const;
  std::set<int> symbols() const;  // ids of all that it depends on
  int lone_symbol() const;        // its id, if it is one symbol and nothing else; else -1
  // "S + P", "64", "3*S*P". File symbols print through `names` where given (index = id).
  std::string str(const std::vector<std::string>* names = nullptr) const;
  uint64_t fingerprint() const;  // equal Dims have the same; others by accident alone
  // No products of symbols, divisions or remainders. Appends the numbers that occur, coefficients of 1 and -1 excepted.
  bool piecewise_linear(std::vector<int64_t>* numbers) const;
  // A sum of multiples of symbols and a number: largest and smallest at corners of what the symbols may be.
  bool linear() const;
  // This Dim with every occurrence of symbol `id` replaced.
  Dim substitute(int id, const Dim& by) const;

  friend Dim operator+(const Dim& a, const Dim& b);
  friend Dim operator-(const Dim& a, const Dim& b);
  friend Dim operator*(const Dim& a, const Dim& b);
  friend bool operator==(const Dim& a, const Dim& b);
  friend bool operator!=(const Dim& a, const Dim& b) { return !(a == b); }

 private:
  friend struct DimOps;
  std::shared_ptr<const Poly> poly_;
  int64_t value_ = 0;
};

// Whether it is another one for each sequence of a step: by its past, its slots or its source.
bool of_sequence(const Dim& d);

// Integer division as ONNX does on int64: towards zero. Division by a constant 0 gives 0.
Dim dim_div(const Dim& a, const Dim& b);
// Remainder with the sign of the divisor (ONNX Mod, fmod=0).
Dim dim_mod(const Dim& a, const Dim& b);
Dim dim_min(const Dim& a, const Dim& b);
Dim dim_max(const Dim& a, const Dim& b);
// condition != 0 ? a : b.
Dim dim_select(const Dim& condition, const Dim& a, const Dim& b);
// 1 when a < b, else 0; folds when the bounds decide.
Dim dim_less(const Dim& a, const Dim& b);
// 1 when a == b, else 0; folds when the bounds decide.
Dim dim_equal(const Dim& a, const Dim& b);
// a / b when b divides a exactly as polynomials (8*S / 8, S*P / S), else nothing.
std::optional<Dim> dim_exact_div(const Dim& a, const Dim& b);

using Shape = std::vector<Dim>;

// Product of the dims (1 for rank 0).
Dim shape_count(const Shape& shape);
std::string shape_str(const Shape& shape, const std::vector<std::string>* names = nullptr);
bool shape_is_const(const Shape& shape);
// Precondition: shape_is_const.
std::vector<int64_t> shape_values(const Shape& shape);
std::vector<int64_t> shape_eval(const Shape& shape, const SymbolValues& symbols);

}  // namespace situ
