// What a program calls in a step, and where the blocks of its arena lie and when, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "runtime/compile.h"
#include "runtime/program.h"

namespace situ {

// "MatMul"; "com.microsoft.X" outside ai.onnx.
std::string operator_name(const Node& node);

// Bytes that are moved or duplicated in a step of these symbols: what no view could place.
int64_t copied_bytes(const Graph& graph, const Plan& plan, const SymbolValues& step);

// Kernel calls in the order of a step: [{op, node, writes: [{region, block | state | value}]}]. `block`: index into
// blocks_json; `state`, `value`: names. A move is of op "copy".
nlohmann::ordered_json calls_json(const Graph& graph, const Plan& plan);

// Blocks of the arena: [{value, offset, bytes, first, last}]. `value`: whose layout the block has; [offset, offset +
// bytes): its bytes in the arena; [first, last]: the calls between which it holds live values; `last` is the number of
// calls where the host reads it after the step.
nlohmann::ordered_json blocks_json(const Graph& graph, const Plan& plan);

}  // namespace situ
