#include "onnx/external_names.h"

#include "onnx/mapped_file.h"
#include "onnx/wire.h"

namespace situ {
namespace {

using onnx::WirePath;
using onnx::WireReader;

constexpr int kMostNested = 64;  // graphs in attributes of nodes in graphs

class Finder {
 public:
  void model(std::string_view bytes) {
    each(bytes, "model", [&](WireReader& r) {
      if (r.tag() == 7) return graph(r.bytes(), 0);         // ModelProto.graph
      if (r.tag() == 25) return nodes_of(r.bytes(), 7, 0);  // ModelProto.functions, FunctionProto.node
      r.skip();
    });
  }

  std::set<std::string> names;

 private:
  template <typename Take>
  void each(std::string_view bytes, const char* what, Take take) {
    const WirePath path{what, -1, nullptr};
    WireReader r(bytes, path);
    while (r.next()) take(r);
  }

  void graph(std::string_view bytes, int depth) {
    if (depth > kMostNested)
      throw onnx::ImportError("graphs are nested more than " + std::to_string(kMostNested) + " deep");
    each(bytes, "graph", [&](WireReader& r) {
      if (r.tag() == 1) return node(r.bytes(), depth);
      if (r.tag() == 5) return tensor(r.bytes());
      if (r.tag() == 15) return tensors_of(r.bytes());  // sparse_initializer: values, indices
      r.skip();
    });
  }

  void nodes_of(std::string_view bytes, uint32_t tag, int depth) {
    each(bytes, "function", [&](WireReader& r) { r.tag() == tag ? node(r.bytes(), depth) : r.skip(); });
  }

  void node(std::string_view bytes, int depth) {
    each(bytes, "node", [&](WireReader& r) { r.tag() == 5 ? attribute(r.bytes(), depth) : r.skip(); });
  }

  void attribute(std::string_view bytes, int depth) {
    each(bytes, "attribute", [&](WireReader& r) {
      if (r.tag() == 5 || r.tag() == 10) return tensor(r.bytes());
      if (r.tag() == 6 || r.tag() == 11) return graph(r.bytes(), depth + 1);
      r.skip();
    });
  }

  void tensors_of(std::string_view bytes) {
    each(bytes, "sparse_initializer", [&](WireReader& r) { r.tag() <= 2 ? tensor(r.bytes()) : r.skip(); });
  }

  void tensor(std::string_view bytes) {
    each(bytes, "tensor", [&](WireReader& r) {
      if (r.tag() != 13) return r.skip();
      std::string key, value;
      each(r.bytes(), "external_data", [&](WireReader& entry) {
        if (entry.tag() == 1)
          key = entry.bytes();
        else if (entry.tag() == 2)
          value = entry.bytes();
        else
          entry.skip();
      });
      if (key == "location") names.insert(value);
    });
  }
};

}  // namespace

Result<std::set<std::string>> external_names(const std::filesystem::path& file) {
  const Result<std::shared_ptr<const onnx::MappedFile>> mapped = onnx::MappedFile::open(file);
  if (!mapped.is_ok()) return mapped.status().with_context(file.string());
  Finder finder;
  try {
    finder.model(
        std::string_view(reinterpret_cast<const char*>((*mapped)->data), static_cast<size_t>((*mapped)->size)));
  } catch (const onnx::ImportError& e) {
    return Status::error(e.code(), file.string() + ": " + e.message());
  }
  return std::move(finder.names);
}

}  // namespace situ
