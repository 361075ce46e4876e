// Small ONNX files for tests, written field by field so that broken ones can be made too.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/importer.h"

namespace situ::onnx::test {

using Bytes = std::string;  // one serialised message
using Names = std::vector<std::string>;

// The raw bytes of a list of numbers.
template <typename T>
Bytes raw(const std::vector<T>& values) {
  return Bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

inline Bytes tensor(const std::string& name, DType type, const std::vector<int64_t>& dims) {
  Bytes out;
  protozero::pbf_writer w(out);
  w.add_packed_int64(1, dims.begin(), dims.end());
  w.add_int32(2, static_cast<int32_t>(type));
  if (!name.empty()) w.add_string(8, name);
  return out;
}

inline Bytes raw_tensor(const std::string& name, DType type, const std::vector<int64_t>& dims, const Bytes& data) {
  Bytes out = tensor(name, type, dims);
  protozero::pbf_writer(out).add_bytes(9, data);
  return out;
}

inline Bytes i64_tensor(const std::string& name, const std::vector<int64_t>& dims, const std::vector<int64_t>& values) {
  return raw_tensor(name, DType::kI64, dims, raw(values));
}

inline Bytes external_tensor(const std::string& name, DType type, const std::vector<int64_t>& dims,
                             const std::vector<std::pair<std::string, std::string>>& entries) {
  Bytes out = tensor(name, type, dims);
  protozero::pbf_writer w(out);
  for (const auto& [key, value] : entries) {
    protozero::pbf_writer entry(w, 13);
    entry.add_string(1, key);
    entry.add_string(2, value);
  }
  w.add_int32(14, 1);
  return out;
}

// Attributes. `type` numbers are those of AttributeProto.AttributeType.
template <typename Write>
Bytes attribute(const std::string& name, int type, Write write) {
  Bytes out;
  protozero::pbf_writer w(out);
  w.add_string(1, name);
  write(w);
  if (type) w.add_int32(20, type);
  return out;
}
inline Bytes int_attribute(const std::string& name, int64_t v) {
  return attribute(name, 2, [&](auto& w) { w.add_int64(3, v); });
}
inline Bytes ints_attribute(const std::string& name, const std::vector<int64_t>& v) {
  return attribute(name, 7, [&](auto& w) {
    for (int64_t i : v) w.add_int64(8, i);
  });
}
inline Bytes float_attribute(const std::string& name, float v) {
  return attribute(name, 1, [&](auto& w) { w.add_float(2, v); });
}
inline Bytes string_attribute(const std::string& name, const std::string& v) {
  return attribute(name, 3, [&](auto& w) { w.add_bytes(4, v); });
}
inline Bytes tensor_attribute(const std::string& name, const Bytes& t) {
  return attribute(name, 4, [&](auto& w) { w.add_message(5, t); });
}
inline Bytes graph_attribute(const std::string& name, const Bytes& g) {
  return attribute(name, 5, [&](auto& w) { w.add_message(6, g); });
}
// Takes the value of the function's attribute `ref`.
inline Bytes ref_attribute(const std::string& name, const std::string& ref, int type) {
  return attribute(name, type, [&](auto& w) { w.add_string(21, ref); });
}

inline Bytes node(const std::string& op, const Names& in, const Names& out, const std::vector<Bytes>& attributes = {},
                  const std::string& name = "", const std::string& domain = "", const std::string& overload = "") {
  Bytes bytes;
  protozero::pbf_writer w(bytes);
  for (const std::string& n : in) w.add_string(1, n);
  for (const std::string& n : out) w.add_string(2, n);
  if (!name.empty()) w.add_string(3, name);
  w.add_string(4, op);
  for (const Bytes& a : attributes) w.add_message(5, a);
  if (!domain.empty()) w.add_string(7, domain);
  if (!overload.empty()) w.add_string(8, overload);
  return bytes;
}

// A dim is a number, a name ("=3": that of digits), or "" for neither.
inline Bytes value(const std::string& name, DType type, const Names& dims) {
  Bytes shape, tensor_type, value_type, out;
  protozero::pbf_writer shape_writer(shape);
  for (const std::string& d : dims) {
    Bytes dim_bytes;
    protozero::pbf_writer dim(dim_bytes);
    char* end = nullptr;
    const int64_t number = std::strtoll(d.c_str(), &end, 10);
    if (!d.empty() && *end == 0)
      dim.add_int64(1, number);
    else if (!d.empty())
      dim.add_string(2, d[0] == '=' ? d.substr(1) : d);
    shape_writer.add_message(1, dim_bytes);
  }
  protozero::pbf_writer t(tensor_type);
  t.add_int32(1, static_cast<int32_t>(type));
  t.add_message(2, shape);
  protozero::pbf_writer(value_type).add_message(1, tensor_type);
  protozero::pbf_writer w(out);
  w.add_string(1, name);
  w.add_message(2, value_type);
  return out;
}
// Without a type, as in subgraphs.
inline Bytes bare_value(const std::string& name) {
  Bytes out;
  protozero::pbf_writer(out).add_string(1, name);
  return out;
}

struct GraphText {
  std::vector<Bytes> nodes, initializers, inputs, outputs, sparse_initializers;
  std::string name = "g";

  Bytes bytes() const {
    Bytes out;
    protozero::pbf_writer w(out);
    for (const Bytes& n : nodes) w.add_message(1, n);
    w.add_string(2, name);
    for (const Bytes& t : initializers) w.add_message(5, t);
    for (const Bytes& v : inputs) w.add_message(11, v);
    for (const Bytes& v : outputs) w.add_message(12, v);
    for (const Bytes& t : sparse_initializers) w.add_message(15, t);
    return out;
  }
};

using OpsetList = std::vector<std::pair<std::string, int64_t>>;
inline void add_opsets(protozero::pbf_writer& w, uint32_t field, const OpsetList& opsets) {
  for (const auto& [domain, version] : opsets) {
    protozero::pbf_writer entry(w, field);
    entry.add_string(1, domain);
    entry.add_int64(2, version);
  }
}

struct FunctionText {
  std::string name, domain = "local", overload;
  Names inputs, outputs, attributes;
  std::vector<Bytes> nodes, defaults;
  OpsetList opsets = {{"", 18}};

  Bytes bytes() const {
    Bytes out;
    protozero::pbf_writer w(out);
    w.add_string(1, name);
    for (const std::string& n : inputs) w.add_string(4, n);
    for (const std::string& n : outputs) w.add_string(5, n);
    for (const std::string& n : attributes) w.add_string(6, n);
    for (const Bytes& n : nodes) w.add_message(7, n);
    add_opsets(w, 9, opsets);
    w.add_string(10, domain);
    for (const Bytes& a : defaults) w.add_message(11, a);
    if (!overload.empty()) w.add_string(13, overload);
    return out;
  }
};

inline Bytes model(const Bytes& graph, const std::vector<FunctionText>& functions = {},
                   const OpsetList& opsets = {{"", 18}}, int64_t ir_version = 9) {
  Bytes out;
  protozero::pbf_writer w(out);
  w.add_int64(1, ir_version);
  w.add_string(2, "test");
  w.add_string(3, "1.0");
  w.add_message(7, graph);
  add_opsets(w, 8, opsets);
  for (const FunctionText& f : functions) w.add_message(25, f.bytes());
  return out;
}

// A model with some of everything that the importer reads; data.bin beside it has 6 bytes or more.
inline Bytes everything() {
  GraphText branch;
  branch.initializers = {i64_tensor("one", {1}, {1})};
  branch.nodes = {node("F", {"x", "w"}, {"r"}, {float_attribute("alpha", 2)}, "call", "local")};
  branch.outputs = {bare_value("r")};
  FunctionText f;
  f.name = "F";
  f.inputs = {"a", "b"};
  f.outputs = {"c"};
  f.attributes = {"alpha"};
  f.defaults = {int_attribute("k", 3)};
  f.nodes = {node("Constant", {}, {"s"}, {ref_attribute("value_float", "alpha", 1)}),
             node("Op", {"a", "b", "s"}, {"c"}, {ref_attribute("k", "k", 2)})};
  Bytes floats = tensor("f", DType::kF32, {2});
  protozero::pbf_writer floats_writer(floats);
  const float values[] = {1, 2};
  floats_writer.add_packed_float(4, values, values + 2);
  Bytes halves = tensor("h", DType::kF16, {2});
  protozero::pbf_writer halves_writer(halves);
  halves_writer.add_int32(5, 0x3c00);
  halves_writer.add_int32(5, 0x4000);
  Bytes sparse;
  protozero::pbf_writer sparse_writer(sparse);
  sparse_writer.add_message(1, raw_tensor("sp", DType::kF32, {1}, raw<float>({5})));
  sparse_writer.add_message(2, i64_tensor("", {1}, {2}));
  const int64_t sparse_dims[] = {2, 2};
  sparse_writer.add_packed_int64(3, sparse_dims, sparse_dims + 2);
  GraphText g;
  g.inputs = {value("x", DType::kF32, {"B", "", "4"}), value("c", DType::kBool, {})};
  g.outputs = {value("y", DType::kF32, {"B", "4"})};
  g.initializers = {
      raw_tensor("w", DType::kF32, {2, 2}, raw<float>({1, 2, 3, 4})), floats, halves,
      external_tensor("e", DType::kU8, {4}, {{"location", "data.bin"}, {"offset", "2"}, {"length", "4"}})};
  g.sparse_initializers = {sparse};
  g.nodes = {
      node("If", {"c"}, {"t"},
           {graph_attribute("then_branch", branch.bytes()), graph_attribute("else_branch", branch.bytes())}, "if"),
      node("Op", {"t", "", "f", "h", "sp", "e"}, {"y"},
           {ints_attribute("axes", {0, -1}), string_attribute("mode", "m")}, "op")};
  return model(g.bytes(), {f}, {{"", 18}, {"local", 1}});
}

// A folder that is gone after the test; in memory where that is offered, since some tests write 20,000 files.
class TempFolder {
 public:
  TempFolder() {
    const bool memory = access("/dev/shm", W_OK | X_OK) == 0;
    const std::filesystem::path parent = memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string pattern = (parent / "situ_onnx_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline Result<ImportedModel> import_bytes(const Bytes& bytes) {
  const TempFolder folder;
  return import_onnx(folder.write("model.onnx", bytes));
}

// The model must be accepted.
inline ImportedModel import_ok(const Bytes& bytes) {
  Result<ImportedModel> result = import_bytes(bytes);
  EXPECT_TRUE(result.is_ok()) << result.status().message();
  return result.is_ok() ? std::move(*result) : ImportedModel{};
}

// The model must be refused, in one line that holds all of `parts`.
inline void expect_refused(const Result<ImportedModel>& result, const Names& parts) {
  ASSERT_FALSE(result.is_ok());
  const std::string message = result.status().message();
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}
inline void expect_refused(const Bytes& bytes, const Names& parts) { expect_refused(import_bytes(bytes), parts); }

// "Add(x, w) -> y; ..." with value names; omitted ones are "-".
inline std::string listing(const Graph& graph) {
  const auto names = [&](const std::vector<ValueId>& ids) {
    std::string text;
    for (ValueId v : ids) text += (text.empty() ? "" : ", ") + (v == kNoValue ? "-" : graph.value(v).name);
    return text;
  };
  std::string text;
  for (const Node& n : graph.nodes)
    text += (text.empty() ? "" : "; ") + n.op + "(" + names(n.in) + ") -> " + names(n.out);
  return text;
}

// Structure that every importer result must have; used on what mutated files turn into.
inline void expect_consistent(const Graph& graph) {
  const auto valid = [&](ValueId v) { return v >= 0 && v < static_cast<ValueId>(graph.values.size()); };
  for (ValueId v : graph.inputs) ASSERT_TRUE(valid(v));
  for (ValueId v : graph.outputs) ASSERT_TRUE(valid(v));
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    for (ValueId v : node.in) ASSERT_TRUE(v == kNoValue || (valid(v) && graph.value(v).producer < static_cast<int>(n)));
    for (ValueId v : node.out)
      ASSERT_TRUE(v == kNoValue || (valid(v) && graph.value(v).producer == static_cast<int>(n)));
    for (const auto& [key, a] : node.attrs) {
      if (!a.graph) continue;
      for (const auto& [inner, outer] : a.graph->captures) {
        ASSERT_TRUE(valid(outer));
        ASSERT_LT(inner, static_cast<ValueId>(a.graph->values.size()));
      }
      expect_consistent(*a.graph);
    }
  }
}

// A decoder that says after token i what row i of `table` [rows, vocabulary] has. Its state is nobody's.
inline Bytes table_model(const std::vector<float>& table, int64_t vocabulary) {
  GraphText g;
  g.inputs.push_back(value("input_ids", DType::kI64, {"batch", "sequence"}));
  g.outputs.push_back(value("logits", DType::kF32, {"batch", "sequence", std::to_string(vocabulary)}));
  const int64_t rows = static_cast<int64_t>(table.size()) / vocabulary;
  g.initializers = {raw_tensor("table", DType::kF32, {rows, vocabulary}, raw(table)),
                    raw_tensor("embed", DType::kF32, {vocabulary, 4},
                               raw(std::vector<float>(static_cast<size_t>(vocabulary) * 4, 1))),
                    i64_tensor("one", {1}, {1})};
  g.nodes = {node("Gather", {"table", "input_ids"}, {"logits"}), node("Gather", {"embed", "input_ids"}, {"x"}),
             node("Unsqueeze", {"x", "one"}, {"rows"})};
  for (const std::string kind : {"key", "value"}) {
    const std::string past = "past_key_values.0." + kind, present = "present.0." + kind;
    g.inputs.push_back(value(past, DType::kF32, {"batch", "1", "past", "4"}));
    g.outputs.push_back(value(present, DType::kF32, {"batch", "1", "total", "4"}));
    g.nodes.push_back(node("Concat", {past, "rows"}, {present}, {int_attribute("axis", 2)}));
  }
  return model(g.bytes());
}

}  // namespace situ::onnx::test
