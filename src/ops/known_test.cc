// What nodes may have.
#include "ops/known.h"

#include <gtest/gtest.h>

#include "ops/op.h"

namespace situ {
namespace {

Node node(const char* op, int opset, std::initializer_list<const char*> attributes, const char* domain = "") {
  Node n;
  n.op = op;
  n.domain = domain;
  n.opset = opset;
  n.name = "n";
  n.in = {0};
  n.out = {1};
  for (const char* a : attributes) n.set_int(a, 0);
  return n;
}

std::string unknown(const Node& n) {
  ReasonList list;
  check_known(n, &list);
  std::string text;
  for (const Reason& r : list.reasons()) text += (text.empty() ? "" : "; ") + r.detail;
  return text;
}

TEST(Known, AttributesOfAnOpset) {
  EXPECT_EQ(unknown(node("Softmax", 13, {"axis"})), "");
  EXPECT_EQ(unknown(node("Softmax", 13, {"axis", "scale"})), "attribute scale is not supported");
  EXPECT_EQ(unknown(node("Shape", 13, {"start"})), "attribute start is not supported");
  EXPECT_EQ(unknown(node("Shape", 15, {"start"})), "");
  EXPECT_EQ(unknown(node("ReduceMean", 18, {"axes"})), "") << "as older versions have it";
  EXPECT_EQ(unknown(node("Softmax", 13, {"__of_the_exporter"})), "");
  EXPECT_EQ(unknown(node("LayerNormalization", 14, {"axis", "stash_type"})), "") << "onnxruntime has it before onnx";
}

TEST(Known, AttributesOfContribOperators) {
  EXPECT_EQ(unknown(node("MatMulNBits", 1, {"K", "bits"}, "com.microsoft")), "");
  EXPECT_EQ(unknown(node("MatMulNBits", 1, {"axis"}, "com.microsoft")), "attribute axis is not supported");
  EXPECT_EQ(unknown(node("Softmax", 1, {"anything"}, "of.somebody")), "");
}

TEST(Known, OperandsAndOutputs) {
  Node n = node("Relu", 14, {});
  n.in = {0, kNoValue, 2};
  EXPECT_EQ(unknown(n), "operand 2 is not supported: there are 1");
  n.in = {0};
  n.out = {1, 2};
  EXPECT_EQ(unknown(n), "output 1 is not supported: there are 1");
  Node any = node("Concat", 13, {"axis"});
  any.in.assign(100, 0);
  EXPECT_EQ(unknown(any), "");
}

TEST(Known, NumbersThatNothingIsComputedWith) {
  Graph g;
  const Tensor scales = Tensor::allocate(DType::kF32, {3});
  for (int64_t i = 0; i < 3; ++i) scales.view().as<float>()[i] = i == 2 ? __builtin_nanf("") : 1.0f;
  Node n = node("MatMulNBits", 1, {}, "com.microsoft");
  n.in = {kNoValue, kNoValue, g.add_constant("s", scales)};
  const auto wrong = [&](const Node& of, int64_t most) {
    ReasonList list;
    check_numbers(g, of, most, &list);
    return list.empty() ? "" : list.reasons()[0].detail;
  };
  EXPECT_EQ(wrong(n, 3), "operand 2 (scales) has nan at element 2");
  EXPECT_EQ(wrong(n, 2), "") << "more are left to who packs them";
  Node attention = node("Softmax", 13, {});
  attention.set_float("scale", __builtin_nanf(""));
  EXPECT_EQ(wrong(attention, 3), "attribute scale is not a number");
  attention.set_float("scale", __builtin_inff());
  EXPECT_EQ(wrong(attention, 3), "") << "a limit that is none";
}

TEST(Known, EveryOperatorHasItsAttributes) {
  for (const OpDef* op : all_ops())
    EXPECT_TRUE(std::string(op->domain) == "situ" || has_known_attributes(op->domain, op->name))
        << op->domain << "." << op->name << ": a line of ops/known_contrib.inc says what it may have";
}

TEST(Known, TheSameOfSeveralNodesIsOneReason) {
  Graph g;
  const ValueId x = g.add_value("x"), y = g.add_value("y"), z = g.add_value("z");
  for (const ValueId out : {y, z}) {
    Node n = node("Relu", 14, {"flavour"});
    n.name = out == y ? "first" : "second";
    n.in = {x};
    n.out = {out};
    g.add_node(n);
  }
  const Status status = resolve_ops(g, NodesOf::kFile);
  EXPECT_EQ(status.message(), "Relu 'first': attribute flavour is not supported (2 nodes, first 'first')");
  ASSERT_EQ(status.reasons().size(), 1u);
  const Reason& r = status.reasons()[0];
  EXPECT_EQ(r.kind, Reason::Kind::kAttribute);
  EXPECT_EQ(r.op + " " + r.domain + " " + r.first_node, "Relu ai.onnx first");
  EXPECT_EQ(r.count, 2);
  EXPECT_TRUE(holds_for_any_step(status));
  EXPECT_TRUE(resolve_ops(g).is_ok()) << "what passes write is not held against the file's opset";
}

}  // namespace
}  // namespace situ
