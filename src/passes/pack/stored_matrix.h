// A quantised matrix (QuantisedMatrix) in the constants of a graph, in whatever order its spelling
// has: every spelling is written down as one of these, and becomes what MatMulNBits and the packs read.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "ops/quantised.h"
#include "passes/context/pass_context.h"

namespace situ {

class Builder;
struct PassContext;

// One of a matrix's tensors, and where in it stands what belongs to column n and place p, a k or a block of them:
// element (n * column + p * place) / shared.
struct MatrixPart {
  Tensor data;  // absent: none
  int64_t column = 0, place = 0, shared = 1;
  const std::vector<int32_t>* order = nullptr;  // p is order[p]; 0 stands where that is -1
};

struct StoredMatrix {
  QuantisedMatrix form;
  MatrixPart digits, scales, zeros;  // zero points that are integers and absent: those of digits that are 0
  bool is_signed = false;            // integers are in two's complement
};

// `form` with parts as MatMulNBits has them, without data.
StoredMatrix stored_matrix(const QuantisedMatrix& form);
// That of a MatMulNBits; parts that are no constants are absent.
StoredMatrix stored_matrix(const Graph& graph, const Node& product);

// The same as MatMulNBits has it: parts that lie so already as they are, others written anew; with a context what is
// written is booked, and pages of the file behind it are given back.
StoredMatrix laid_out(const StoredMatrix& w, PassContext* context = nullptr);

// What digits of a table stand for, one after the other, as many as `numbers` takes: of two in a byte the higher one
// first if `high_first`, a scale for each `block` of them.
void write_numbers(DigitTable table, bool high_first, int64_t block, const Tensor& digits, const Tensor& scales,
                   std::span<float> numbers);

// y = x * w^T + bias: writes a MatMulNBits on `w`, which is laid out. Constants are called after `name`.
void write_product(Graph& graph, Builder& builder, const std::string& name, ValueId x, const StoredMatrix& w,
                   ValueId bias, ValueId y);

}  // namespace situ
