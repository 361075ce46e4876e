// Every operator of ops.inc on random operands and attributes, sensible or not: infer and prepare give an
// error or a shape, and the kernel then stays inside of its tensors (run under the sanitizer presets).
// SITU_FUZZ_ROUNDS makes it run longer; SITU_TEST_SEED repeats a run; SITU_FUZZ_VERBOSE prints every call.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "base/scratch.h"
#include "base/sweep_for_tests.h"
#include "ops/infer.h"

namespace situ {
namespace {

class Fuzz {
 public:
  explicit Fuzz(unsigned seed) : random_(seed), scratch_(kThreadScratchBytes, 1) {}

  // One node: returns true when its kernel ran.
  bool round(const OpDef& def) {
    Node node;
    node.domain = def.domain;
    node.op = def.name;
    node.name = "n";
    node.opset = std::max(def.since, static_cast<int>(pick(1, 24)));
    node.def = find_op(node.domain, node.op, node.opset);
    add_attributes(&node);
    std::vector<Tensor> operands;
    const DType type = any_type();
    for (int64_t i = pick(0, 5); i > 0; --i)
      operands.push_back(operand(operands.empty() ? type : pick(0, 2) ? type : any_type()));
    for (int64_t i = pick(1, 3); i > 0; --i) node.out.push_back(static_cast<ValueId>(50 + i));
    return run(node, operands);
  }

 private:
  int64_t pick(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  DType any_type() {
    const DType types[] = {DType::kF32, DType::kI64, DType::kI64, DType::kI32, DType::kBool,
                           DType::kF16, DType::kU8,  DType::kF64, DType::kU4};
    return types[pick(0, 8)];
  }
  int64_t any_integer() {
    const int64_t odd[] = {INT64_MIN, INT64_MAX, INT32_MAX, -1, 0, 1, INT64_MIN + 1, int64_t{1} << 40};
    return pick(0, 9) == 0 ? odd[pick(0, 7)] : pick(-3, 4);
  }
  std::vector<int64_t> any_integers() {
    std::vector<int64_t> v(static_cast<size_t>(pick(0, 4)));
    for (int64_t& x : v) x = any_integer();
    return v;
  }
  void add_attributes(Node* node) {
    for (const char* name : {"axis",
                             "keepdims",
                             "to",
                             "batch_dims",
                             "allowzero",
                             "num_outputs",
                             "k",
                             "upper",
                             "start",
                             "end",
                             "exclusive",
                             "reverse",
                             "largest",
                             "fmod",
                             "noop_with_empty_axes",
                             "num_heads",
                             "kv_num_heads",
                             "bits",
                             "block_size",
                             "K",
                             "N"})
      if (pick(0, 2) == 0) node->set_int(name, any_integer());
    for (const char* name : {"axes", "perm", "starts", "ends", "split", "pads", "shape", "steps"})
      if (pick(0, 3) == 0) node->set_ints(name, any_integers());
    if (pick(0, 2) == 0) node->set_string("mode", pick(0, 1) ? "reflect" : "wrap");
    if (pick(0, 1) == 0) node->set_string("direction", pick(0, 1) ? "LEFT" : "RIGHT");
    if (pick(0, 3) == 0) node->set_string("reduction", pick(0, 1) ? "add" : "mul");
  }
  // Absent, or a small tensor of small numbers (also used as shapes, axes and indices).
  Tensor operand(DType type) {
    if (pick(0, 9) == 0) return Tensor();
    std::vector<int64_t> dims(static_cast<size_t>(pick(0, 3)));
    for (int64_t& d : dims) d = pick(0, 8) == 0 ? 0 : pick(1, 4);
    Tensor t = Tensor::allocate(type, dims);
    for (int64_t i = 0; i < t.bytes(); ++i) t.view().data[i] = std::byte{0};
    for (int64_t i = 0; i < t.count(); ++i) {
      if (type == DType::kI64)
        t.view().as<int64_t>()[i] = any_integer();
      else if (type == DType::kI32)
        t.view().as<int32_t>()[i] = static_cast<int32_t>(any_integer());
      else if (type == DType::kF32)
        t.view().as<float>()[i] = static_cast<float>(pick(-4, 4)) / 2;
      else if (type == DType::kBool || type == DType::kU8)
        t.view().as<uint8_t>()[i] = static_cast<uint8_t>(pick(0, 1));
    }
    return t;
  }

  static ValueInfo info_of(const Tensor& t) {
    ValueInfo info;
    info.type = t.type();
    info.ranked = true;
    for (int64_t d : t.dims()) info.shape.push_back(d);
    return info;
  }

  // A context of `Context` with the operands filled in.
  template <typename Context>
  void fill(Context* c, const std::vector<Tensor>& operands, const std::vector<ValueInfo>& infos) {
    for (size_t i = 0; i < operands.size(); ++i) {
      c->in.push_back(operands[i].present() ? &infos[i] : nullptr);
      c->constants.push_back(operands[i].present() ? &operands[i] : nullptr);
    }
  }

  bool run(Node& node, const std::vector<Tensor>& operands) {
    std::vector<ValueInfo> infos, outs(node.out.size());
    for (const Tensor& t : operands) {
      infos.push_back(t.present() ? info_of(t) : ValueInfo{});
      node.in.push_back(t.present() ? static_cast<ValueId>(infos.size()) : kNoValue);
    }
    InferContext infer{node, {}, {}, outs};
    fill(&infer, operands, infos);
    if (!node.def->infer(infer).is_ok()) return false;
    std::vector<Tensor> results(outs.size());
    std::vector<const ValueInfo*> out_infos;
    for (size_t i = 0; i < outs.size(); ++i) {
      out_infos.push_back(outs[i].ranked ? &outs[i] : nullptr);
      if (!outs[i].ranked) continue;
      const Dim count = shape_count(outs[i].shape);
      if (!count.is_const() || count.value() > 4096) return false;
      EXPECT_GE(count.value(), 0) << node.label();
      results[i] = Tensor::allocate(outs[i].type, shape_values(outs[i].shape));
    }
    if (node.def->view != nullptr && !operands.empty() && operands[0].present())
      check_view(node, operands, infos, out_infos);
    if (node.def->prepare == nullptr) return false;
    PrepareContext prepare{node, {}, {}, out_infos};
    fill(&prepare, operands, infos);
    Prepared prepared;
    if (!node.def->prepare(prepare, &prepared).is_ok()) return false;
    call(node, prepared, operands, results);
    return true;
  }

  // Every element of a view lies inside of its source.
  void check_view(const Node& node, const std::vector<Tensor>& operands, const std::vector<ValueInfo>& infos,
                  const std::vector<const ValueInfo*>& outs) {
    ViewContext view{node, {}, {}, outs, SymView::contiguous(infos[0].shape), {}};
    fill(&view, operands, infos);
    for (const ValueInfo* out : outs)
      if (out == nullptr) return;
    if (!node.def->view(view)) return;
    for (const SymView& v : view.result) {
      if (shape_count(v.dims) == Dim(0)) continue;
      int64_t low = v.offset.value(), high = low;
      for (size_t i = 0; i < v.dims.size(); ++i) {
        const int64_t reach = (v.dims[i].value() - 1) * (v.dims[i] == Dim(1) ? 0 : v.strides[i].value());
        (reach < 0 ? low : high) += reach;
      }
      EXPECT_GE(low, 0) << node.label();
      EXPECT_LT(high, operands[0].count()) << node.label();
    }
  }

  static std::string describe(const Node& node, const std::vector<Tensor>& operands,
                              const std::vector<Tensor>& results) {
    std::string text = node.label() + " opset " + std::to_string(node.opset);
    const auto add = [&](const std::vector<Tensor>& tensors) {
      for (const Tensor& t : tensors)
        text += std::string(" ") + dtype_name(t.type()) + shape_str(Shape(t.view().dims, t.view().dims + t.rank()));
    };
    add(operands);
    text += " ->";
    add(results);
    for (const auto& [name, a] : node.attrs) {
      text += " " + name + "=" + a.s + (a.kind == Attribute::Kind::kInt ? std::to_string(a.i) : "");
      for (int64_t i : a.ints) text += std::to_string(i) + ",";
    }
    return text;
  }

  void call(const Node& node, const Prepared& prepared, const std::vector<Tensor>& operands,
            const std::vector<Tensor>& results) {
    if (std::getenv("SITU_FUZZ_VERBOSE") != nullptr) std::cerr << describe(node, operands, results) << std::endl;
    std::vector<View> in, out;
    for (const Tensor& t : operands) in.push_back(t.view());
    for (const Tensor& t : results) out.push_back(t.view());
    Ledger ledger;
    Fault fault;
    KernelCall c;
    c.in = in.data();
    c.in_count = static_cast<int>(in.size());
    c.out = out.data();
    c.out_count = static_cast<int>(out.size());
    c.params = prepared.params.get();
    c.scratch = scratch_.of(0);
    c.ledger = &ledger;
    c.fault = &fault;
    for (int t = 0; t < 2; ++t) (kernels().*prepared.kernel)(c, t, 2);
  }

  std::mt19937 random_;
  Scratch scratch_;
};

// Operators whose shape functions do not yet check the number of operands and every attribute;
// SITU_FUZZ_ALL runs them too.
bool left_out(const OpDef& def) {
  for (const char* name :
       {"MatMul", "Gemm", "FusedMatMul", "MatMulNBits", "LayerNormalization", "RMSNormalization",
        "SimplifiedLayerNormalization", "LpNormalization", "GroupQueryAttention", "MultiHeadAttention", "Attention",
        "RotaryEmbedding", "MRotaryEmbedding", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
        "DequantizeLinear", "GatherBlockQuantized"})
    if (std::string(def.name) == name) return true;
  return std::string(def.domain) == "situ";
}

TEST(OpFuzz, random_operands_never_crash) {
  const char* seed_text = std::getenv("SITU_TEST_SEED");
  const char* rounds_text = std::getenv("SITU_FUZZ_ROUNDS");
  const unsigned seed = seed_text ? static_cast<unsigned>(std::atoll(seed_text)) : std::random_device{}();
  const int rounds = rounds_text ? std::atoi(rounds_text) : static_cast<int>(300 / sweep_stride(3));
  std::cout << "SITU_TEST_SEED=" << seed << std::endl;
  Fuzz fuzz(seed);
  const bool all = std::getenv("SITU_FUZZ_ALL") != nullptr;
  for (const OpDef* def : all_ops())
    for (int i = 0; i < rounds && (all || !left_out(*def)); ++i) fuzz.round(*def);
}

}  // namespace
}  // namespace situ
