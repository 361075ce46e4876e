// Functions whose constants are another function's but for a little: what half precision rounds is forgiven where it
// was rounded, and there alone.
#include "passes/test_graph.h"

namespace situ {
namespace {

using test::S, test::TestGraph;

constexpr int64_t kWidth = 24;

class Functions {
 public:
  explicit Functions(DType type) : type_(type) {}

  ValueId op(const std::string& name, const std::vector<ValueId>& in) { return g.op(name, in); }
  // As the file has it: in its own type, rounded.
  ValueId number(float x) {
    if (type_ == DType::kF32) return g.number(x);
    Tensor one = Tensor::allocate(DType::kF32, {});
    one.view().as<float>()[0] = x;
    ThreadPool pool(1);
    return g.constant(*Evaluator(pool).cast(one, type_));
  }
  // Operators that are left where `make` was applied to x. `table`: another value of the graph is in half precision.
  std::string recognised(const std::function<ValueId(Functions&, ValueId)>& make, bool table = false) {
    g = TestGraph();
    const ValueId x = g.input("x", {Dim(1), rows, Dim(kWidth)}, type_);
    g.graph_.outputs = {make(*this, x)};
    if (table) {
      const ValueId rows = g.constant(Tensor::allocate(DType::kF16, {7, kWidth}));
      g.graph_.outputs.push_back(g.op("Add", {x, g.cast(g.op("Gather", {rows, g.integer(3)}), DType::kF32)}));
    }
    test::TestContext at(g.graph_, 64);
    g.infer(at.context);
    for (Status (*pass)(PassContext&) : {widen_half, recognise_functions}) {
      const Status passed = pass(at.context);
      EXPECT_TRUE(passed.is_ok()) << passed.message();
      const Status inferred = infer_shapes(at.context);
      EXPECT_TRUE(inferred.is_ok()) << inferred.message();
    }
    std::string found;
    for (const Finding& f : at.context.found) found += (found.empty() ? "" : ", ") + f.what;
    return found;
  }

  static auto sigmoid(float slope) {
    return [slope](Functions& f, ValueId x) {
      return f.op("Mul", {x, f.op("Sigmoid", {f.op("Mul", {x, f.number(slope)})})});
    };
  }
  static auto erf(float root) {
    return [root](Functions& f, ValueId x) {
      const ValueId y = f.op("Add", {f.op("Erf", {f.op("Div", {x, f.number(root)})}), f.number(1)});
      return f.op("Mul", {f.op("Mul", {x, y}), f.number(0.5f)});
    };
  }
  static auto tanh(float root, float cube) {
    return [root, cube](Functions& f, ValueId x) {
      const ValueId third = f.op("Mul", {f.op("Pow", {x, f.number(3)}), f.number(cube)});
      const ValueId y = f.op("Tanh", {f.op("Mul", {f.op("Add", {x, third}), f.number(root)})});
      return f.op("Mul", {f.op("Mul", {x, f.number(0.5f)}), f.op("Add", {y, f.number(1)})});
    };
  }
  static auto rms(float epsilon) {
    return [epsilon](Functions& f, ValueId x) {
      const ValueId mean = f.op("ReduceMean", {f.op("Pow", {x, f.number(2)})});
      f.g.graph_.nodes.back().set_ints("axes", {-1});
      return f.op("Div", {x, f.op("Sqrt", {f.op("Add", {mean, f.number(epsilon)})})});
    };
  }

  TestGraph g;
  Dim rows = S();

 private:
  DType type_;
};

TEST(RecogniseFunctions, HalfElsewhereForgivesNothing) {
  Functions f(DType::kF32);
  for (const bool table : {false, true}) {
    EXPECT_EQ(f.recognised(Functions::sigmoid(1.702f), table), "QuickGelu");
    EXPECT_EQ(f.recognised(Functions::sigmoid(1.7f), table), "");
    EXPECT_EQ(f.recognised(Functions::erf(1.41421356f), table), "Gelu");
    EXPECT_EQ(f.recognised(Functions::erf(1.4141f), table), "");
    EXPECT_EQ(f.recognised(Functions::tanh(0.7978845608f, 0.044715f), table), "Gelu (tanh)");
    EXPECT_EQ(f.recognised(Functions::tanh(0.798f, 0.0447f), table), "");
    EXPECT_EQ(f.recognised(Functions::rms(1e-5f), table), "RMSNormalization");
  }
}

TEST(RecogniseFunctions, WhatIsRoundedIsForgiven) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    Functions f(type);
    EXPECT_EQ(f.recognised(Functions::sigmoid(1)), "Swish");
    EXPECT_EQ(f.recognised(Functions::sigmoid(1.702f)), "QuickGelu");
    EXPECT_EQ(f.recognised(Functions::erf(1.41421356f)), "Gelu");
    EXPECT_EQ(f.recognised(Functions::rms(1e-5f)), "RMSNormalization");
  }
  EXPECT_EQ(Functions(DType::kF16).recognised(Functions::tanh(0.7978845608f, 0.044715f)), "Gelu (tanh)");
}

// More than a rounding away.
TEST(RecogniseFunctions, WhatIsNotRoundedIsNot) {
  Functions f(DType::kF16);
  EXPECT_EQ(f.recognised(Functions::sigmoid(1.7f)), "");
  EXPECT_EQ(f.recognised(Functions::sigmoid(1.001f)), "");
  EXPECT_EQ(f.recognised(Functions::erf(1.41f)), "");
  EXPECT_EQ(f.recognised(Functions::tanh(0.797f, 0.044715f)), "");
}

// A row for sixteen tokens, say: a small step has none, and no rows are like those of any function.
TEST(RecogniseFunctions, RowsThatASmallStepHasNot) {
  Functions f(DType::kF32);
  f.rows = dim_div(S(), Dim(16));
  EXPECT_EQ(f.recognised(Functions::rms(1e-5f)), "RMSNormalization");
  EXPECT_EQ(f.recognised(Functions::sigmoid(1.7f)), "");
}

}  // namespace
}  // namespace situ
