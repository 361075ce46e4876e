// Equal initialisers of several files are one constant: a pair of decoder files, or an encoder and a decoder with one
// table of embeddings, hold their weights once.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx/importer.h"

namespace situ {

// Constants of the same type, dims and bytes become the first of them, also those of subgraphs. Small ones stay as they
// are. Pages of mapped files that were looked at are given back. Returns the bytes that are read in one place now.
int64_t share_initialisers(const std::vector<ImportedModel*>& models);

}  // namespace situ
