// .onnx file -> Graph. The file and its external data are mapped; initialisers point into the maps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file_identity.h"
#include "base/status.h"
#include "graph/graph.h"

namespace situ {

// One mapped file; initialisers hold it by shared_ptr.
struct MappedBytes {
  std::string path;
  const std::byte* data = nullptr;
  int64_t size = 0;
  FileIdentity identity;  // when it was opened
};

struct ImportedModel {
  Graph graph;           // functions inlined, nodes sorted, symbols named
  std::string producer;  // "optimum-onnx 0.0.1"
  int64_t ir_version = 0;
  std::map<std::string, int> opsets;                      // domain -> version
  std::vector<std::shared_ptr<const MappedBytes>> files;  // the model file first
  int64_t weight_bytes = 0;  // bytes of initialisers and Constant nodes, those of subgraphs too
  // Of these, bytes copied because they stood at an odd address in the file. Float matrices of 64 KiB and more are not
  // among them: `graph` holds them at odd addresses, and passes copy those that they do not lay out anew
  // (align_constants).
  int64_t realigned_bytes = 0;
};

// Whether a node, whose attributes have names alone, is an operator that need not be written out.
using IsOperator = bool (*)(const Node& node);

// Reads `path`. Errors name the file, the node or initialiser, the field and both values. `changed`: takes the one
// about operators that mean something else in the file's opset, and the graph comes all the same; null: it is an error
// too. `is_operator`: calls of a function of the file that is an operator are nodes of that operator, as in ONNX
// Runtime; null: all functions are inlined.
Result<ImportedModel> import_onnx(const std::filesystem::path& path, Status* changed = nullptr,
                                  IsOperator is_operator = nullptr);

}  // namespace situ
