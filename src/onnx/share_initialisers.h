// Equal initialisers of several files are one constant: a pair of decoder files, or an encoder and a decoder with one
// table of embeddings, hold their weights once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx/importer.h"

namespace situ {

// Constants of the same type, dims and bytes become the first of them, also those of subgraphs. Small ones stay as they
// are. Pages of mapped files that were looked at are given back. Returns the bytes that are read in one place now.
int64_t share_initialisers(const std::vector<ImportedModel*>& models);

// A parameter of both that is not the same in both, after share_initialisers; "": none. Those that go by a module's
// name
// ("model.shared.weight") and have the same type and dims; an exporter's numbers mean something else in each file.
std::string differing_parameter(const Graph& a, const Graph& b);

}  // namespace situ
