// Bounds on what a model file may ask for. Real exports stay far below all of them; a hostile file
// meets them before it has cost much memory or time.
#pragma once

#include <cstdint>

namespace situ::onnx {

// Opsets of ai.onnx whose operators are known: all of them up to kLastWholeOpset; up to kLastOpset those that did not
// change behind it (changed_operators.inc).
constexpr int64_t kFirstOpset = 7, kLastWholeOpset = 24, kLastOpset = 28;
// Nodes after function inlining, calls included. The largest exports (unrolled MoE) have about 100,000.
constexpr int64_t kMaxNodes = 1'000'000;
// Values of all graphs together; each costs about 300 bytes.
constexpr int64_t kMaxValues = 4'000'000;
// Inputs of a graph, initialisers that are listed as inputs not counted. Exports of 126 layers have 256; passes pair
// inputs and outputs by name, each with each.
constexpr size_t kMaxInputs = 1024;
// If in If in Loop ...: each level is a few stack frames here and in every pass.
constexpr int kMaxGraphDepth = 32;
// Functions that call functions; onnxscript libraries nest about 6 deep.
constexpr int kMaxCallDepth = 64;
// Names and attributes that inlining duplicates. Doubling calls reach it long before memory ends.
constexpr int64_t kMaxInlinedBytes = int64_t{256} << 20;
// One dim, and the product of all dims of a tensor (so that bytes and strides fit an int64).
constexpr int64_t kMaxDim = int64_t{1} << 40;
constexpr int64_t kMaxElements = int64_t{1} << 48;
// Sparse tensors are stored dense; their claimed size is not backed by bytes of the file.
constexpr int64_t kMaxDenseBytes = int64_t{256} << 20;

}  // namespace situ::onnx
