// What holds for every model that was imported, whatever its files say.
#pragma once

#include <cstddef>

#include "onnx/importer.h"
#include "onnx/test_model.h"

namespace situ::fuzz {

// Reads the first and the last byte of every constant: both must be there.
inline void read_constants(const Graph& graph) {
  const auto read = [](const Tensor& tensor) {
    if (!tensor.present() || tensor.bytes() == 0) return;
    const volatile std::byte* data = tensor.view().data;
    EXPECT_LE(static_cast<int>(data[0]) + static_cast<int>(data[tensor.bytes() - 1]), 510);
  };
  for (const Value& value : graph.values) read(value.constant);
  for (const Node& node : graph.nodes)
    for (const auto& [name, attribute] : node.attrs) {
      read(attribute.tensor);
      if (attribute.graph) read_constants(*attribute.graph);
    }
}

inline void expect_sound(const ImportedModel& model) {
  onnx::test::expect_consistent(model.graph);
  read_constants(model.graph);
}

}  // namespace situ::fuzz
