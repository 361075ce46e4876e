// Equal initialisers of several files are one constant: a pair of decoder files, or an encoder and a decoder with one
// table of embeddings, hold their weights once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx/importer.h"

namespace situ {

// A parameter that two files of one decoder hold, by the same name, type and dims, with different numbers; "": none.
// After share_initialisers: what it looked at is not compared again. Names that exporters number ("onnx::MatMul_12",
// "_v_3") and those that quantisation makes beside a weight say nothing.
std::string different_parameter(const ImportedModel& a, const ImportedModel& b);

// Constants of the same type, dims and bytes become the first of them, also those of subgraphs. Small ones stay as they
// are. Pages of mapped files that were looked at are given back. Returns the bytes that are read in one place now.
int64_t share_initialisers(const std::vector<ImportedModel*>& models);

}  // namespace situ
