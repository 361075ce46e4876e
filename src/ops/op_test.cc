// Shape functions on symbols, views, and the operator table.
#include "ops/op.h"

#include <gtest/gtest.h>

#include "ops/infer.h"

namespace situ {
namespace {

const Dim S = Dim::symbol(kSymS), P = Dim::symbol(kSymP);

ValueInfo tensor(Shape shape, DType type = DType::kF32) {
  ValueInfo v;
  v.type = type;
  v.ranked = true;
  v.shape = std::move(shape);
  return v;
}

// A small int64 operand whose elements are known.
ValueInfo ints(std::vector<Dim> elements) {
  ValueInfo v = tensor({Dim(static_cast<int64_t>(elements.size()))}, DType::kI64);
  v.content = std::move(elements);
  return v;
}
ValueInfo scalar(Dim element) {
  ValueInfo v = tensor({}, DType::kI64);
  v.content = std::vector<Dim>{element};
  return v;
}

// One node with the facts about its operands.
struct Probe {
  Node node;
  std::vector<ValueInfo> in, out;
  std::vector<Assumption> assumptions;
  bool assume = true;

  Probe(const std::string& op, std::vector<ValueInfo> operands, int opset = 18, size_t outputs = 1)
      : in(std::move(operands)) {
    node.op = op;
    node.name = "n";
    node.opset = opset;
    for (size_t i = 0; i < in.size(); ++i)
      node.in.push_back(in[i].type == DType::kNone ? kNoValue : static_cast<ValueId>(i));
    for (size_t i = 0; i < outputs; ++i) node.out.push_back(static_cast<ValueId>(100 + i));
    out.resize(outputs);
  }
  std::vector<const ValueInfo*> operands() const {
    std::vector<const ValueInfo*> p;
    for (const ValueInfo& v : in) p.push_back(v.type == DType::kNone ? nullptr : &v);
    return p;
  }
  Status infer() {
    node.def = find_op(node.domain, node.op, node.opset);
    if (node.def == nullptr) return Status::error("no definition");
    InferContext c{node, operands(), std::vector<const Tensor*>(in.size(), nullptr), out};
    if (assume) c.assumptions = &assumptions;
    return node.def->infer(c);
  }
  // The inferred shape of output i, or the error.
  std::string shape(size_t i = 0) {
    const Status s = infer();
    return s.is_ok() ? shape_str(out[i].shape) : "error: " + s.message();
  }
  // Views over `source` (contiguous by default), after inference.
  std::optional<std::vector<SymView>> view(const SymView* source = nullptr) {
    if (!infer().is_ok()) return std::nullopt;
    std::vector<const ValueInfo*> outs;
    for (const ValueInfo& v : out) outs.push_back(&v);
    ViewContext c{node,
                  operands(),
                  std::vector<const Tensor*>(in.size(), nullptr),
                  outs,
                  source ? *source : SymView::contiguous(in[0].shape),
                  {}};
    if (!node.def->view(c)) return std::nullopt;
    return c.result;
  }
};

TEST(Ops, every_line_is_found) {
  for (const OpDef* def : all_ops()) {
    EXPECT_EQ(find_op(def->domain, def->name, def->since), def);
    EXPECT_NE(def->infer, nullptr);
    const bool viewed = def->placement == Placement::kView && std::string(def->domain).empty();
    EXPECT_TRUE(!viewed || def->view != nullptr) << def->name;
  }
  EXPECT_EQ(find_op("", "Gelu", 19), nullptr);
  EXPECT_TRUE(op_name_known("ai.onnx", "Gelu"));
}

TEST(Ops, all_missing_operators_are_listed) {
  Graph g;
  for (const char* op : {"Add", "Frobnicate", "Wibble", "Frobnicate", "Gelu"}) {
    Node n;
    n.op = op;
    n.name = std::string("node_") + op;
    n.opset = 17;
    g.add_node(n);
  }
  const std::string message = resolve_ops(g).message();
  EXPECT_NE(message.find("3 operators"), std::string::npos) << message;
  EXPECT_NE(message.find("Frobnicate (opset 17, 2 nodes, first 'node_Frobnicate')"), std::string::npos) << message;
  EXPECT_NE(message.find("Wibble"), std::string::npos);
  EXPECT_NE(message.find("Gelu (opset 17, known from a newer opset only"), std::string::npos) << message;
}

TEST(Ops, what_to_do_is_said_where_it_is_known) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"BeamSearch", {"loop over tokens", "export encoder and decoder", "--beams"}},
      {"WhisperBeamSearch", {"loop over tokens", "export encoder and decoder"}},
      {"GreedySearch", {"of a decoder-only model the decoder alone"}},
      {"PagedAttention", {"GroupQueryAttention", "-e cpu"}}};
  for (const auto& [op, words] : cases) {
    Graph g;
    for (const char* domain : {"com.microsoft", "another"}) {
      Node n;
      n.op = op;
      n.domain = domain;
      n.opset = 1;
      g.add_node(n);
    }
    const std::string message = resolve_ops(g).message();
    for (const char* word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
    EXPECT_EQ(message.find(words[0]), message.rfind(words[0])) << message;  // of one domain
  }
}

TEST(Ops, flags_are_0_or_1) {
  Graph g;
  for (int64_t value : {1, 5, -2}) {
    Node n;
    n.op = "RotaryEmbedding";
    n.domain = "com.microsoft";
    n.name = "with " + std::to_string(value);
    n.opset = 1;
    n.set_int("interleaved", value);
    g.add_node(n);
  }
  EXPECT_EQ(resolve_ops(g).message(),
            "com.microsoft.RotaryEmbedding 'with 5': interleaved should be 0 or 1, is 5; com.microsoft.RotaryEmbedding "
            "'with -2': interleaved should be 0 or 1, is -2");
}

TEST(Reshape, on_symbols) {
  EXPECT_EQ(Probe("Reshape", {tensor({1, S, 192}), ints({0, 0, 3, 64})}).shape(), "[1, S, 3, 64]");
  EXPECT_EQ(Probe("Reshape", {tensor({1, S, 192}), ints({1, -1, 3, 64})}).shape(), "[1, S, 3, 64]");
  EXPECT_EQ(Probe("Reshape", {tensor({1, S, 3, 64}), ints({1, S, -1})}).shape(), "[1, S, 192]");
  EXPECT_EQ(Probe("Reshape", {tensor({2, S + P, 64}), ints({-1, 64})}).shape(), "[2*P + 2*S, 64]");
  EXPECT_EQ(Probe("Reshape", {tensor({S + P, S, 64}), ints({S, -1})}).shape(), "[S, 64*P + 64*S]");
  EXPECT_EQ(Probe("Reshape", {tensor({2, 0, 4}), ints({0, 0, 4})}).shape(), "[2, 0, 4]");
  EXPECT_NE(Probe("Reshape", {tensor({2, 3}), ints({4, -1})}).shape().find("error"), std::string::npos);
  EXPECT_NE(Probe("Reshape", {tensor({2, 3}), ints({-1, -1})}).shape().find("more than one -1"), std::string::npos);
  EXPECT_NE(Probe("Reshape", {tensor({2, 3}), ints({7})}).shape().find("error"), std::string::npos);
  EXPECT_NE(Probe("Reshape", {tensor({2, 3}), tensor({2}, DType::kI64)}).shape().find("input 1 (shape)"),
            std::string::npos);
  Probe zero("Reshape", {tensor({0, 3}), ints({3, 0})});
  zero.node.set_int("allowzero", 1);
  EXPECT_EQ(zero.shape(), "[3, 0]");
}

TEST(Reshape, views) {
  // Heads split off the last axis, of a slice of a wider row.
  SymView row{Dim(64), {1, S, 192}, {S * 300, 300, 1}};
  auto v = Probe("Reshape", {tensor({1, S, 192}), ints({0, 0, 3, 64})}).view(&row);
  ASSERT_TRUE(v);
  EXPECT_EQ((*v)[0].offset, Dim(64));
  EXPECT_EQ(shape_str((*v)[0].dims), "[1, S, 3, 64]");
  EXPECT_EQ((*v)[0].strides[1], Dim(300));
  EXPECT_EQ((*v)[0].strides[2], Dim(64));
  // And merged again.
  SymView heads{Dim(0), {1, S, 3, 64}, {S * 192, 192, 64, 1}};
  v = Probe("Reshape", {tensor({1, S, 3, 64}), ints({0, 0, 192})}).view(&heads);
  ASSERT_TRUE(v);
  EXPECT_EQ((*v)[0].strides[2], Dim(1));
  // Of a transposed tensor: not a view.
  SymView transposed{Dim(0), {1, S, 3, 64}, {S * 192, 64, S * 64, 1}};
  EXPECT_FALSE(Probe("Reshape", {tensor({1, S, 3, 64}), ints({0, 0, 192})}).view(&transposed));
  // Extents of 1 stand in no one's way.
  SymView one{Dim(0), {1, 1, 3, 64}, {7, 9, 64, 1}};
  v = Probe("Reshape", {tensor({1, 1, 3, 64}), ints({1, 192, 1})}).view(&one);
  ASSERT_TRUE(v);
  EXPECT_EQ((*v)[0].strides[1], Dim(1));
}

TEST(Squeeze, and_its_relatives) {
  Probe attribute("Squeeze", {tensor({1, S, 1})}, 11);
  attribute.node.set_ints("axes", {-1});
  EXPECT_EQ(attribute.shape(), "[1, S]");
  EXPECT_EQ(Probe("Squeeze", {tensor({1, S, 1}), ints({0})}).shape(), "[S, 1]");
  EXPECT_EQ(Probe("Squeeze", {tensor({1, 5, 1})}).shape(), "[5]");
  EXPECT_NE(Probe("Squeeze", {tensor({1, 5, 1}), ints({1})}).shape().find("error"), std::string::npos);
  EXPECT_EQ(Probe("Unsqueeze", {tensor({S}), ints({0, -1})}).shape(), "[1, S, 1]");
  EXPECT_NE(Probe("Unsqueeze", {tensor({S}), ints({0, 0})}).shape().find("twice"), std::string::npos);
  EXPECT_NE(Probe("Unsqueeze", {tensor({1, 1, 1, 1, 1, 1, 1, 1}), ints({0})}).shape().find("rank 9"),
            std::string::npos);
  Probe flatten("Flatten", {tensor({2, S, 64})});
  flatten.node.set_int("axis", 2);
  EXPECT_EQ(flatten.shape(), "[2*S, 64]");
}

TEST(Slice, on_symbols) {
  const auto slice = [](Dim extent, Dim start, Dim end, int64_t step = 1) {
    return Probe("Slice", {tensor({2, extent}), ints({start}), ints({end}), ints({1}), ints({step})});
  };
  EXPECT_EQ(slice(S + P, P, INT64_MAX).shape(), "[2, S]");
  EXPECT_EQ(slice(S + P, 0, INT64_MAX).shape(), "[2, P + S]");
  EXPECT_EQ(slice(S + P, -1, INT64_MAX).shape(), "[2, 1]");
  EXPECT_EQ(slice(S + P, 0, P).shape(), "[2, P]");
  EXPECT_EQ(slice(S, -1, INT32_MAX).shape(), "[2, 1]");
  EXPECT_EQ(slice(64, 32, INT64_MAX).shape(), "[2, 32]");
  EXPECT_EQ(slice(64, 0, -32).shape(), "[2, 32]");
  EXPECT_EQ(slice(64, 1, INT64_MAX, 2).shape(), "[2, 32]");
  EXPECT_EQ(slice(S + P, -1, INT64_MIN, -1).shape(), "[2, P + S]");
  EXPECT_EQ(slice(7, 9, 2).shape(), "[2, 0]");
  EXPECT_NE(slice(7, 0, 2, 0).shape().find("step 0"), std::string::npos);
  // Rows of a table: within it by assumption, which is noted.
  Probe table = slice(1024, P, S + P);
  EXPECT_EQ(table.shape(), "[2, S]");
  ASSERT_EQ(table.assumptions.size(), 2u);
  EXPECT_FALSE(table.assumptions[1].equal);
  EXPECT_EQ(table.assumptions[1].a, S + P);
  EXPECT_EQ(table.assumptions[1].b, Dim(1024));
  auto v = table.view();
  ASSERT_TRUE(v);
  EXPECT_EQ((*v)[0].offset, P);
  // Without assumptions the clamp stays.
  table.assume = false;
  ASSERT_TRUE(table.infer().is_ok());
  SymbolValues long_past;
  long_past[kSymS] = 1;
  long_past[kSymP] = 5000;
  EXPECT_EQ(table.out[0].shape[1].eval(long_past), 0);
}

TEST(Slice, views) {
  auto v = Probe("Slice", {tensor({2, 64}), ints({-1}), ints({INT64_MIN}), ints({1}), ints({-2})}).view();
  ASSERT_TRUE(v);
  EXPECT_EQ((*v)[0].offset, Dim(63));
  EXPECT_EQ((*v)[0].strides[1], Dim(-2));
  EXPECT_EQ((*v)[0].dims[1], Dim(32));
  // Opset 9: attributes.
  Probe old("Slice", {tensor({2, S, 64})}, 9);
  old.node.set_ints("axes", {2});
  old.node.set_ints("starts", {32});
  old.node.set_ints("ends", {INT64_MAX});
  v = old.view();
  ASSERT_TRUE(v);
  EXPECT_EQ((*v)[0].offset, Dim(32));
  EXPECT_EQ(shape_str((*v)[0].dims), "[2, S, 32]");
}

TEST(Split, shapes_and_views) {
  Probe equal("Split", {tensor({1, S, 192})}, 11, 3);
  equal.node.set_int("axis", 2);
  EXPECT_EQ(equal.shape(2), "[1, S, 64]");
  Probe sizes("Split", {tensor({1, S, 192}), ints({128, 64})}, 13, 2);
  sizes.node.set_int("axis", -1);
  auto v = sizes.view();
  ASSERT_TRUE(v);
  EXPECT_EQ((*v)[1].offset, Dim(128));
  EXPECT_EQ(shape_str((*v)[1].dims), "[1, S, 64]");
  Probe uneven("Split", {tensor({7})}, 18, 3);
  uneven.node.set_int("num_outputs", 3);
  EXPECT_EQ(uneven.shape(2), "[1]");
  EXPECT_NE(Probe("Split", {tensor({7})}, 11, 3).shape().find("cannot split"), std::string::npos);
  EXPECT_NE(Probe("Split", {tensor({7}), ints({3, 3})}, 13, 2).shape().find("error"), std::string::npos);
}

TEST(InstanceNormalization, has_a_number_for_each_channel) {
  const Dim s = Dim::symbol(kSymS);
  EXPECT_EQ(Probe("InstanceNormalization", {tensor({1, 6, s}), tensor({6}), tensor({6})}).shape(), "[1, 6, S]");
  EXPECT_EQ(Probe("InstanceNormalization", {tensor({1, 6, s}), tensor({5}), tensor({6})}).shape().substr(0, 6),
            "error:");
  EXPECT_EQ(Probe("InstanceNormalization", {tensor({1, 6}), tensor({6}), tensor({6})}).shape().substr(0, 6), "error:");
}

TEST(Concat, adds_along_its_axis) {
  Probe cache("Concat", {tensor({1, 3, P, 64}), tensor({1, 3, S, 64})});
  cache.node.set_int("axis", -2);
  EXPECT_EQ(cache.shape(), "[1, 3, P + S, 64]");
  Probe wrong("Concat", {tensor({1, 3}), tensor({2, 4})});
  wrong.node.set_int("axis", 1);
  EXPECT_NE(wrong.shape().find("dim 0"), std::string::npos);
}

TEST(Expand, repeats_with_stride_zero) {
  auto v = Probe("Expand", {tensor({1, 3, 1, S, 64}), ints({1, 3, 3, S, 64})}).view();
  ASSERT_TRUE(v);
  EXPECT_EQ(shape_str((*v)[0].dims), "[1, 3, 3, S, 64]");
  EXPECT_EQ((*v)[0].strides[2], Dim(0));
  EXPECT_EQ((*v)[0].strides[1], S * 64);
}

TEST(Transpose, permutes) {
  Probe t("Transpose", {tensor({1, S, 3, 64})});
  t.node.set_ints("perm", {0, 2, 1, 3});
  auto v = t.view();
  ASSERT_TRUE(v);
  EXPECT_EQ(shape_str((*v)[0].dims), "[1, 3, S, 64]");
  EXPECT_EQ((*v)[0].strides[2], Dim(192));
  t.node.set_ints("perm", {0, 2, 2, 3});
  EXPECT_NE(t.shape().find("twice"), std::string::npos);
}

TEST(Gather, shapes_and_views) {
  EXPECT_EQ(Probe("Gather", {tensor({49152, 576}), tensor({1, S}, DType::kI64)}).shape(), "[1, S, 576]");
  EXPECT_FALSE(Probe("Gather", {tensor({49152, 576}), tensor({1, S}, DType::kI64)}).view());
  Probe last("Gather", {tensor({1, S, 576}), scalar(-1)});
  last.node.set_int("axis", 1);
  auto v = last.view();
  ASSERT_TRUE(v);
  EXPECT_EQ((*v)[0].offset, (S - Dim(1)) * Dim(576));
  EXPECT_EQ(shape_str((*v)[0].dims), "[1, 576]");
  Probe beyond("Gather", {tensor({3, 4}), scalar(3)});
  EXPECT_FALSE(beyond.view());
  EXPECT_NE(Probe("Gather", {tensor({3}), tensor({2})}).shape().find("indices are float32"), std::string::npos);
}

TEST(Shape, content_is_the_dims) {
  Probe p("Shape", {tensor({2, S + P, 64})}, 15);
  p.node.set_int("start", 1);
  ASSERT_TRUE(p.infer().is_ok());
  ASSERT_TRUE(p.out[0].content);
  EXPECT_EQ(*p.out[0].content, (std::vector<Dim>{S + P, 64}));
}

TEST(Range, length_in_symbols) {
  EXPECT_EQ(Probe("Range", {scalar(P), scalar(S + P), scalar(1)}).shape(), "[S]");
  EXPECT_EQ(Probe("Range", {scalar(0), scalar(9), scalar(2)}).shape(), "[5]");
  EXPECT_EQ(Probe("Range", {scalar(9), scalar(0), scalar(-2)}).shape(), "[5]");
  EXPECT_EQ(Probe("Range", {scalar(9), scalar(0), scalar(2)}).shape(), "[0]");
  EXPECT_NE(Probe("Range", {scalar(0), scalar(9), scalar(0)}).shape().find("delta 0"), std::string::npos);
}

TEST(Broadcast, of_symbols) {
  EXPECT_EQ(Probe("Add", {tensor({1, 9, S, S + P}), tensor({1, 1, S, S + P})}).shape(), "[1, 9, S, P + S]");
  EXPECT_EQ(Probe("Add", {tensor({S, 64}), tensor({})}).shape(), "[S, 64]");
  EXPECT_NE(Probe("Add", {tensor({3}), tensor({4})}).shape().find("differ"), std::string::npos);
  Probe unsure("Add", {tensor({S}), tensor({7})});
  EXPECT_EQ(unsure.shape(), "[7]");
  EXPECT_EQ(unsure.assumptions.size(), 1u);
  unsure.assume = false;
  EXPECT_NE(unsure.shape().find("cannot tell"), std::string::npos);
  EXPECT_NE(Probe("Add", {tensor({3}), tensor({3}, DType::kI64)}).shape().find("float32 and int64"), std::string::npos);
}

TEST(Reduce, axes_by_opset) {
  Probe old("ReduceMean", {tensor({1, S, 576})}, 13);
  old.node.set_ints("axes", {-1});
  EXPECT_EQ(old.shape(), "[1, S, 1]");
  Probe input("ReduceMean", {tensor({1, S, 576}), ints({1})}, 18);
  input.node.set_int("keepdims", 0);
  EXPECT_EQ(input.shape(), "[1, 576]");
  EXPECT_EQ(Probe("ReduceSum", {tensor({1, S})}, 13).shape(), "[1, 1]");
  Probe none("ReduceSum", {tensor({1, S})}, 13);
  none.node.set_int("noop_with_empty_axes", 1);
  EXPECT_EQ(none.shape(), "[1, S]");
  EXPECT_NE(Probe("ReduceSum", {tensor({1, S}), ints({2})}, 13).shape().find("axis 2"), std::string::npos);
}

TEST(Prepare, refuses_types_without_a_kernel) {
  Probe p("Add", {tensor({3}, DType::kBool), tensor({3}, DType::kBool)});
  ASSERT_TRUE(p.infer().is_ok());
  PrepareContext c{p.node, p.operands(), {nullptr, nullptr}, {&p.out[0]}};
  Prepared prepared;
  EXPECT_NE(p.node.def->prepare(c, &prepared).message().find("bool is not supported"), std::string::npos);
}

TEST(Pad, and_tile_and_top_k) {
  EXPECT_EQ(Probe("Pad", {tensor({1, S}), ints({0, 3, 0, 0})}).shape(), "[1, S + 3]");
  EXPECT_EQ(Probe("Tile", {tensor({1, S}), ints({2, 3})}).shape(), "[2, 3*S]");
  EXPECT_EQ(Probe("TopK", {tensor({1, 100}), ints({7})}, 11, 2).shape(1), "[1, 7]");
  EXPECT_NE(Probe("TopK", {tensor({1, 100}), ints({101})}, 11, 2).shape().find("larger"), std::string::npos);
  EXPECT_NE(Probe("Pad", {tensor({1, 2}), ints({0, -2, 0, -1})}).shape().find("negative shape"), std::string::npos);
}

TEST(DynamicQuantizeLinear, has_one_scale) {
  Probe p("DynamicQuantizeLinear", {tensor({1, S, 64})}, 18, 3);
  EXPECT_EQ(p.shape(0), "[1, S, 64]");
  EXPECT_EQ(p.shape(1), "[]");
  EXPECT_EQ(p.shape(2), "[]");
  EXPECT_EQ(p.out[0].type, DType::kU8);
  EXPECT_EQ(p.out[1].type, DType::kF32);
}

TEST(MatMulInteger, shapes_and_zero_points) {
  const ValueInfo a = tensor({1, S, 64}, DType::kU8), b = tensor({64, 32}, DType::kI8), one = tensor({}, DType::kU8);
  Probe plain("MatMulInteger", {a, b, one, tensor({32}, DType::kI8)});
  EXPECT_EQ(plain.shape(), "[1, S, 32]");
  EXPECT_EQ(plain.out[0].type, DType::kI32);
  EXPECT_EQ(Probe("MatMulInteger", {a, b, tensor({1, S, 1}, DType::kU8), tensor({1, 32}, DType::kI8)}).shape(),
            "[1, S, 32]");
  EXPECT_NE(Probe("MatMulInteger", {a, b, one, tensor({31}, DType::kI8)}).shape().find("b_zero_point [31]"),
            std::string::npos);
  EXPECT_NE(Probe("MatMulInteger", {a, b, tensor({}, DType::kI8)}).shape().find("type"), std::string::npos);
  EXPECT_NE(Probe("MatMulInteger", {a, tensor({63, 32}, DType::kI8)}).shape().find("inner dims"), std::string::npos);
}

TEST(ConvInteger, has_the_shape_of_conv) {
  const ValueInfo x = tensor({1, 3, 30}, DType::kU8), w = tensor({8, 3, 3}, DType::kU8), one = tensor({}, DType::kU8);
  Probe p("ConvInteger", {x, w, one, tensor({8}, DType::kU8)});
  p.node.set_ints("pads", {1, 1});
  p.node.set_ints("strides", {2});
  EXPECT_EQ(p.shape(), "[1, 8, 15]");
  EXPECT_EQ(p.out[0].type, DType::kI32);
  EXPECT_NE(Probe("ConvInteger", {x, w, tensor({3}, DType::kU8)}).shape().find("zero point [3]"), std::string::npos);
}

TEST(IntegerMatMul, takes_rows_with_what_belongs_to_them) {
  const auto probe = [](ValueInfo rows, ValueInfo w) {
    Probe p("IntegerMatMul", {std::move(rows), std::move(w), tensor({1})}, 1);
    p.node.domain = "situ";
    p.node.set_int("K", 100);
    p.node.set_int("N", 40);
    return p.shape();
  };
  Probe rows("RoundRows", {tensor({1, S, 100})}, 1);
  rows.node.domain = "situ";
  EXPECT_EQ(rows.shape(), "[1, S, 192]");  // 128 bytes, what belongs to them, and as many lines as make an odd number
  const ValueInfo bytes = tensor({1, S, 192}, DType::kU8);
  EXPECT_EQ(probe(bytes, tensor({100, 40}, DType::kU8)), "[1, S, 40]");
  EXPECT_EQ(probe(bytes, tensor({2 * (128 * 32 + 128)}, DType::kU8)), "[1, S, 40]");
  EXPECT_NE(probe(bytes, tensor({7}, DType::kU8)).find("w [7]"), std::string::npos);
  EXPECT_NE(probe(tensor({1, S, 100}), tensor({100, 40}, DType::kU8)).find("rows [1, S, 100]"), std::string::npos);
}

// Rows that are said to be nothing have no type.
TEST(EncodeRows, says_how) {
  Probe p("EncodeRows", {tensor({Dim(1), Dim(2), S, Dim(8)}), tensor({Dim(1), Dim(1)})}, 1);
  p.node.domain = "situ";
  EXPECT_NE(p.shape().find("bits is 0, should be 4 or 8"), std::string::npos) << p.shape();
  p.node.set_int("bits", 4);
  EXPECT_EQ(p.shape(), "[1, 2, S, 4]");
  EXPECT_EQ(p.out[0].type, DType::kU8);
}

TEST(CausalConvWithState, keeps_rows_before_the_new_ones) {
  const ValueInfo x = tensor({1, 8, S}), w = tensor({8, 1, 4}), past = tensor({1, 8, 6}), none;
  Probe p("CausalConvWithState", {x, w, none, past}, 1, 2);
  p.node.domain = "com.microsoft";
  EXPECT_NE(p.shape().find("past_state should be [1, 8, 3], is [1, 8, 6]"), std::string::npos) << p.shape();
  p.node.set_int("dilation", 2);
  EXPECT_EQ(p.shape(0), "[1, 8, S]");
  EXPECT_EQ(p.shape(1), "[1, 8, 6]");
  p.node.set_int("ndim", 2);
  EXPECT_NE(p.shape().find("ndim 2 is not supported"), std::string::npos) << p.shape();
  Probe last("CausalConvWithState", {tensor({1, S, 8}), w}, 1, 2);
  last.node.domain = "com.microsoft";
  last.node.set_int("channels_last", 1);
  EXPECT_EQ(last.shape(1), "[1, 3, 8]");
  EXPECT_EQ(Probe("CausalConvWithState", {x, w}, 27, 2).shape(1), "[1, 8, 3]");
}

TEST(LinearAttention, has_a_state_for_each_head_of_values) {
  const auto probe = [](const std::string& rule, ValueInfo key, ValueInfo decay, ValueInfo beta) {
    Probe p("LinearAttention",
            {tensor({1, S, 32}), std::move(key), tensor({1, S, 24}), {}, std::move(decay), std::move(beta)}, 27, 2);
    p.node.set_int("q_num_heads", 2);
    p.node.set_int("kv_num_heads", 4);
    p.node.set_string("update_rule", rule);
    return p.shape(0) + " " + p.shape(1);
  };
  const ValueInfo k = tensor({1, S, 32}), g = tensor({1, S, 4}), none;
  EXPECT_EQ(probe("gated_delta", k, g, g), "[1, S, 24] [1, 4, 16, 6]");
  EXPECT_EQ(probe("gated", tensor({1, S, 64}), tensor({1, S, 64}), none), "[1, S, 24] [1, 4, 16, 6]");
  EXPECT_NE(probe("gated_delta", k, g, none).find("beta"), std::string::npos);
  EXPECT_NE(probe("gated", k, tensor({1, S, 5}), none).find("decay [1, S, 5]"), std::string::npos);
  EXPECT_NE(probe("delta", tensor({1, S, 48}), none, g).find("no multiples"), std::string::npos);
  EXPECT_NE(probe("rwkv", k, g, g).find("update_rule 'rwkv'"), std::string::npos);
}

TEST(Ops, quantised_activations) {
  const ValueInfo number = tensor({}), byte = tensor({}, DType::kU8), x = tensor({Dim(1), S, Dim(8)});
  Probe bytes("QuantizeLinear", {x, number, byte});
  EXPECT_EQ(bytes.shape(), "[1, S, 8]");
  EXPECT_EQ(bytes.out[0].type, DType::kU8);
  Probe words("QuantizeLinear", {x, tensor({Dim(8)})}, 21);
  words.node.set_int("axis", -1);
  words.node.set_int("output_dtype", static_cast<int64_t>(DType::kI16));
  EXPECT_EQ(words.shape(), "[1, S, 8]");
  EXPECT_EQ(words.out[0].type, DType::kI16);
  Probe wrong("QuantizeLinear", {x, tensor({Dim(7)}), tensor({Dim(7)}, DType::kU8)}, 21);
  wrong.node.set_int("axis", -1);
  EXPECT_NE(wrong.shape().find("y_scale"), std::string::npos) << wrong.shape();
  Probe product("QLinearMatMul", {tensor({Dim(1), S, Dim(8)}, DType::kU8), number, byte,
                                  tensor({Dim(8), Dim(5)}, DType::kI8), number, tensor({}, DType::kI8), number, byte});
  EXPECT_EQ(product.shape(), "[1, S, 5]");
  EXPECT_EQ(product.out[0].type, DType::kU8);
  Probe concat("QLinearConcat", {number, byte, tensor({S, Dim(2)}, DType::kU8), number, byte,
                                 tensor({S, Dim(3)}, DType::kU8), number, byte});
  concat.node.domain = "com.microsoft";
  concat.node.opset = 1;
  concat.node.set_int("axis", 1);
  EXPECT_EQ(concat.shape(), "[S, 5]");
}

// A file may name situ's own operators: kernels are given no sizes that they have no room for.
TEST(Ops, packed_weights_are_those_that_kernels_have_room_for) {
  const auto product = [](int64_t k, int64_t bits, int64_t block, int64_t zeros, int64_t table) {
    Probe p("PackedMatMul", {tensor({S, Dim(k)}), tensor({Dim(32 * k * bits / 8 + 32 * k / block * 4)}, DType::kU8)},
            1);
    p.node.domain = "situ";
    for (const auto& [key, value] : {std::pair<const char*, int64_t>{"K", k},
                                     {"N", 32},
                                     {"bits", bits},
                                     {"block_size", block},
                                     {"zeros", zeros},
                                     {"table", table}})
      p.node.set_int(key, value);
    return p.shape();
  };
  EXPECT_EQ(product(65536, 4, 256, 0, 0), "[S, 32]");
  EXPECT_EQ(product(256, 4, 64, 0, 2), "[S, 32]");
  EXPECT_NE(product(4096, 4, 512, 0, 0).find("block_size is 512"), std::string::npos);
  EXPECT_NE(product(131072, 4, 256, 0, 0).find("K is 131072"), std::string::npos);
  EXPECT_NE(product(256, 2, 64, 0, 0).find("bits is 2"), std::string::npos);
  EXPECT_NE(product(256, 4, 64, 3, 0).find("table is 0"), std::string::npos);
  EXPECT_NE(product(256, 8, 64, 0, 2).find("table is 2"), std::string::npos);
}

TEST(Ops, weights_of_bitsandbytes) {
  const auto product = [](int64_t k, int64_t n, int64_t block, int64_t type, int64_t scales) {
    Probe p("MatMulBnb4",
            {tensor({Dim(1), S, Dim(k)}), tensor({Dim((k * n + 1) / 2)}, DType::kU8), tensor({Dim(scales)})}, 1);
    p.node.domain = "com.microsoft";
    for (const auto& [key, value] :
         {std::pair<const char*, int64_t>{"K", k}, {"N", n}, {"block_size", block}, {"quant_type", type}})
      p.node.set_int(key, value);
    return p.shape();
  };
  EXPECT_EQ(product(24, 5, 64, 1, 2), "[1, S, 5]");
  EXPECT_NE(product(24, 5, 64, 1, 3).find("absmax"), std::string::npos);
  EXPECT_NE(product(24, 5, 48, 1, 3).find("block_size"), std::string::npos);
  EXPECT_NE(product(24, 5, 64, 2, 2).find("quant_type"), std::string::npos);
}

}  // namespace
}  // namespace situ
