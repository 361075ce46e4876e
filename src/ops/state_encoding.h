// How keys and values are stored: every way is written as the same attributes of the nodes that write such rows and
// that attend to them, from which shapes and what kernels are told are made. Bytes alone do not say what they
// are: a node that says nothing has floats.
#pragma once

#include <compare>
#include <string>

#include "kernels/row_encoding.h"
#include "ops/op.h"

namespace situ {

// What has a number of its own that its integers are worth. Of a row, the number lies behind the integers; the others'
// are constants of the graph, which queries and weighted sums of values are multiplied by.
enum class ScaleOf : int32_t { kNothing, kRow, kHead, kChannel, kTensor };

struct StateEncoding {
  int64_t size = 0;  // numbers of a row; of floats, and of a node that writes rows, as many as the shape has
  int32_t bits = 0;  // of an integer: 8 or 4; 0: floats
  ScaleOf scale = ScaleOf::kNothing;

  bool plain() const { return bits == 0; }
  // What kernels are told.
  RowEncoding rows() const;
  // Elements of a row of so many numbers, and their type; kNone: any float type.
  Dim stored_size(const Dim& numbers) const;
  DType type() const;
  // "floats", "8 bits, scale per row"
  std::string str() const;
  auto operator<=>(const StateEncoding&) const = default;
};

// That of an operand of situ.Attention: 1, keys, or 2, values; and of what situ.EncodeRows writes: 0.
StateEncoding state_encoding(const Node& node, size_t operand);
// Attributes of floats are none.
void set_state_encoding(Node* node, size_t operand, const StateEncoding& encoding);

}  // namespace situ
