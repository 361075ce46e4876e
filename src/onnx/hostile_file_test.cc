// Files that are broken or meant to do harm: an error in one line, bounded memory, never a crash.
#include <gtest/gtest.h>

#include <random>

#include "base/sweep_for_tests.h"

#include "onnx/test_model.h"

namespace situ::onnx::test {
namespace {

class HostileFile : public testing::Test {
 protected:
  HostileFile() { folder_.write("data.bin", "0123456789"); }
  Result<ImportedModel> import(const Bytes& bytes) { return import_onnx(folder_.write("model.onnx", bytes)); }
  TempFolder folder_;
};

TEST_F(HostileFile, TheModelItselfIsFine) {
  const Result<ImportedModel> m = import(everything());
  ASSERT_TRUE(m.is_ok()) << m.status().message();
  expect_consistent(m->graph);
}

TEST_F(HostileFile, TruncationAtEveryByte) {
  const Bytes bytes = everything();
  int accepted = 0;
  for (size_t length = 0; length < bytes.size(); ++length) {
    const Result<ImportedModel> m = import(bytes.substr(0, length));
    if (m.is_ok()) {
      expect_consistent(m->graph);
      ++accepted;
    } else {
      EXPECT_EQ(m.status().message().find('\n'), std::string::npos);
    }
  }
  EXPECT_LE(accepted, 3);  // where a whole field of the model ends
}

TEST_F(HostileFile, TruncationSaysWhere) {
  GraphText g;
  g.nodes = {node("Relu", {}, {}), node("Relu", {}, {}, {Bytes("\x0a\x7f")})};
  expect_refused(model(g.bytes()), {"truncated protobuf in graph.node[1].attribute[0]"});
}

// Random bytes, and bits, changed in a good file. The seed is fixed; SITU_SEED tries another.
TEST_F(HostileFile, MutationsNeverCrash) {
  const char* wanted = std::getenv("SITU_SEED");
  const uint32_t seed = wanted ? static_cast<uint32_t>(std::strtoul(wanted, nullptr, 10)) : 20240607u;
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const Bytes good = everything();
  int accepted = 0;
  const int64_t count = 20000 / sweep_stride(5);
  for (int64_t i = 0; i < count; ++i) {
    Bytes bytes = good;
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.erase(at, 1 + random() % 3);
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(random()));
      }
      if (bytes.empty()) break;
    }
    const Result<ImportedModel> m = import(bytes);
    if (!m.is_ok()) continue;
    ++accepted;
    expect_consistent(m->graph);
    if (HasFatalFailure()) FAIL() << "seed " << seed << ", mutation " << i;
  }
  RecordProperty("accepted", accepted);
}

TEST_F(HostileFile, WrongWireTypes) {
  Bytes m;
  protozero::pbf_writer(m).add_int64(7, 5);  // graph as a number
  expect_refused(m, {"model", "field 7", "varint", "length-delimited"});
  m.clear();
  protozero::pbf_writer(m).add_string(1, "9");  // ir_version as text
  expect_refused(m, {"field 1", "length-delimited", "varint"});
  expect_refused(Bytes("\x0b"), {"malformed protobuf in model"});  // a group
  expect_refused(Bytes("\x3a\xff\xff\xff\xff\x0f", 6), {"truncated protobuf in model", "4294967295"});
  expect_refused(Bytes("\x3a\x80\x80\x80\x80\x10", 6), {"truncated protobuf in model", "4294967296"});  // 2^32: not 0
  expect_refused(Bytes(1000, '\xff'), {"protobuf in model"});
  expect_refused(Bytes("not a model at all"), {"protobuf"});
}

TEST_F(HostileFile, DeepNesting) {
  GraphText g;
  g.nodes = {node("Relu", {"x"}, {"y"})};
  g.outputs = {bare_value("y")};
  for (int i = 0; i < 1000; ++i) {
    GraphText around;
    around.nodes = {node("If", {"x"}, {"y"}, {graph_attribute("then_branch", g.bytes())})};
    around.outputs = {bare_value("y")};
    g = around;
  }
  g.inputs = {value("x", DType::kBool, {})};
  expect_refused(model(g.bytes()), {"deeper than 32"});
}

TEST_F(HostileFile, TooManyNodes) {
  GraphText g;
  g.nodes.assign(1000001, node("A", {}, {}));
  expect_refused(model(g.bytes()), {"malformed protobuf in graph", "more than 1000000 nodes"});
}

TEST_F(HostileFile, LongNamesGiveShortMessages) {
  GraphText g;
  g.nodes = {node("Relu", {std::string(1 << 20, 'x') + "\n"}, {"y"})};
  const Result<ImportedModel> m = import(model(g.bytes()));
  expect_refused(m, {"Relu"});
  EXPECT_LT(m.status().message().size(), 3000u);
}

TEST_F(HostileFile, AttributesThatCannotBeHeld) {
  const auto refused = [](const Bytes& a, const Names& parts) {
    GraphText g;
    g.nodes = {node("Op", {}, {"y"}, {a}, "n")};
    expect_refused(model(g.bytes()), parts);
  };
  refused(attribute("a", 13, [](auto& w) { w.add_message(14, Bytes()); }), {"Op 'n'", "'a'", "TYPE_PROTO"});
  refused(attribute("a", 9, [](auto& w) { w.add_message(10, Bytes()); }), {"Op 'n'", "'a'", "TENSORS"});
  refused(attribute("a", 10, [](auto& w) { w.add_message(11, Bytes()); }), {"Op 'n'", "'a'", "GRAPHS"});
  refused(attribute("a", 99, [](auto&) {}), {"Op 'n'", "'a'", "99"});
  refused(attribute("a", 2, [](auto& w) { w.add_float(2, 1); }), {"'a'", "INT", "another type"});
  refused(attribute("a", 4, [](auto&) {}), {"'a'", "TENSOR", "no value"});
  refused(attribute("a", 0, [](auto&) {}), {"'a'", "no type"});
  refused(attribute("", 2, [](auto&) {}), {"without a name"});
  refused(tensor_attribute("a", tensor("", DType::kString, {1})), {"'a'", "strings"});
  refused(attribute("a", 4,
                    [](auto& w) {
                      w.add_message(5, Bytes());
                      w.add_message(5, Bytes());
                    }),
          {"'t'", "twice"});
}

TEST_F(HostileFile, DimsThatAreNone) {
  const auto refused = [](const Names& dims, const Names& parts) {
    GraphText g;
    g.inputs = {value("x", DType::kF32, dims)};
    expect_refused(model(g.bytes()), parts);
  };
  refused({"2", "-1"}, {"input 'x'", "dim 1", "-1"});
  refused({"1099511627777"}, {"input 'x'", "dim 0", "1099511627777"});
  refused({"1", "1", "1", "1", "1", "1", "1", "1", "1"}, {"input 'x'", "rank 9"});
}

}  // namespace
}  // namespace situ::onnx::test
