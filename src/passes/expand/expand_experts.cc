// com.microsoft.MoE and QMoE become plain operators around products of experts:
//   weights, index = TopK(Softmax(router_probs), k), normalised if asked for, or those of the sparse mixer
//   y = sum over choices of weights * (act(x fc1) fc2), products by situ.ExpertMatMul
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/reasons.h"
#include "ops/quantised.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/expand/passes.h"

namespace situ {
namespace {

// Where operands of one matrix stand.
struct MatrixOperands {
  size_t weights, scales, bias, zeros;
};
constexpr size_t kNone = std::numeric_limits<size_t>::max();
constexpr MatrixOperands kFloats[] = {{2, kNone, 3, kNone}, {4, kNone, 5, kNone}, {6, kNone, 7, kNone}};
constexpr MatrixOperands kDigits[] = {{2, 3, 4, 11}, {5, 6, 7, 12}, {8, 9, 10, 13}};
constexpr size_t kRouterWeights = 14;
// The sparse mixer leaves out experts whose score is further from the best one's than this, relative to the larger.
constexpr float kJitter = 0.01f;

class ExpertExpander {
 public:
  explicit ExpertExpander(PassContext& context) : context_(context), graph_(context.graph), builder_(graph_) {}

  Status run() {
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    ReasonList refused;
    for (Node& n : nodes) {
      if (n.is("MoE", "com.microsoft") || n.is("QMoE", "com.microsoft"))
        refused.add(expand(n), Reason::Kind::kAttribute);
      else
        builder_.keep(std::move(n));
    }
    if (!refused.empty()) return refused.status();
    return builder_.finish();
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }  // until the next value is added
  Status fail(const std::string& what) const { return node_->error(what, Reason::Kind::kAttribute); }
  std::string text(size_t i) const {
    return "input " + std::to_string(i) + " " + shape_str(shape(node_->in[i]), &graph_.symbol_names());
  }

  // Which there may be, ops/known_contrib.inc says.
  Status check_attributes() const {
    if (quantised_ && node_->attr_string("quant_type", "int") != "int")
      return fail("quant_type is '" + node_->attr_string("quant_type", "") + "', only 'int' is supported");
    if (quantised_ && node_->attr_int("weights_prepacked", -1) > 0)
      return fail("weights_prepacked is 1: weights in the order of one execution provider are not supported");
    for (const char* key : {"normalize_routing_weights", "use_sparse_mixer", "swiglu_limit_after_activation"})
      if (const int64_t flag = node_->attr_int(key, 0); flag != 0 && flag != 1)
        return fail(std::string(key) + " should be 0 or 1, is " + std::to_string(flag));
    if (const int64_t fusion = node_->attr_int("swiglu_fusion", 0); fusion < 0 || fusion > 2)
      return fail("swiglu_fusion should be 0, 1 or 2, is " + std::to_string(fusion));
    return Status::ok();
  }

  Status expand(const Node& n) {
    node_ = &n;
    quantised_ = n.op == "QMoE";
    operands_ = quantised_ ? kDigits : kFloats;
    builder_.start(n);
    SITU_RETURN_IF_ERROR(check_attributes());
    const Shape x_shape = shape(n.in[0]);
    type_ = graph_.values[n.in[0]].info.type;
    hidden_ = x_shape.back().value();
    experts_ = shape(n.in[1]).back().value();
    k_ = n.attr_int("k", 1);
    if (k_ < 1 || k_ > experts_)
      return fail("k is " + std::to_string(k_) + " of " + std::to_string(experts_) + " experts");
    ValueId x = x_shape.size() == 3 ? builder_.reshape(n.in[0], {-1, hidden_}) : n.in[0];
    ValueId index = kNoValue, weights = kNoValue;
    SITU_RETURN_IF_ERROR(n.attr_int("use_sparse_mixer", 0) != 0 ? mix_sparsely(&index, &weights)
                                                                : route(&index, &weights));
    ValueId h = kNoValue, y = kNoValue;
    SITU_RETURN_IF_ERROR(inner(x, index, &h));
    SITU_RETURN_IF_ERROR(product(h, index, 1, hidden_, inner_, &y));
    const ValueId weighted = builder_.op("Mul", {y, builder_.op("Unsqueeze", {weights, builder_.constant_i64({-1})})});
    const ValueId flat =
        builder_.op("ReduceSum", {weighted, builder_.constant_i64({-2})}, x_shape.size() == 3 ? kNoValue : n.out[0]);
    builder_.last().set_int("keepdims", 0);
    if (x_shape.size() == 3) builder_.op("Reshape", {flat, builder_.op("Shape", {n.in[0]})}, n.out[0]);
    context_.note("experts", n.name,
                  n.op + ": " + std::to_string(k_) + " of " + std::to_string(experts_) + " experts, " +
                      n.attr_string("activation_type", "relu") + ", " + std::to_string(hidden_) + " x " +
                      std::to_string(inner_) + (quantised_ ? " in " + std::to_string(bits(0)) + " bits" : ""));
    return Status::ok();
  }

  // -- routing

  ValueId real(float x) {
    const Tensor t = Tensor::allocate(DType::kF32, {});
    t.view().as<float>()[0] = x;
    const ValueId v = graph_.add_constant(node_->name + "/number", t);
    return type_ == DType::kF32 ? v : builder_.cast(v, type_);
  }
  ValueId softmax(ValueId x) {
    const ValueId y = builder_.op("Softmax", {x});
    builder_.last().set_int("axis", -1);
    return y;
  }
  ValueId top(ValueId x, int64_t k, ValueId* index) {
    const ValueId values = builder_.op("TopK", {x, builder_.constant_i64({k})});
    builder_.last().set_int("axis", -1);
    *index = builder_.new_value("index");
    builder_.last().out.push_back(*index);
    return values;
  }
  ValueId gather(ValueId x, ValueId index) {
    const ValueId y = builder_.op("GatherElements", {x, index});
    builder_.last().set_int("axis", -1);
    return y;
  }

  Status route(ValueId* index, ValueId* weights) {
    const bool given = quantised_ && node_->has_input(kRouterWeights);
    if (given && !(shape(node_->in[kRouterWeights]) == shape(node_->in[1])))
      return fail(text(kRouterWeights) + " (router_weights) should be as router_probs " +
                  shape_str(shape(node_->in[1])));
    *weights = top(given ? node_->in[1] : softmax(node_->in[1]), k_, index);
    if (given) *weights = gather(node_->in[kRouterWeights], *index);
    if (node_->attr_int("normalize_routing_weights", 0) == 0) return Status::ok();
    ValueId sum = builder_.op("ReduceSum", {*weights, builder_.constant_i64({-1})});
    builder_.last().set_int("keepdims", 1);
    // Weights that are all 0 stay 0.
    if (given) sum = builder_.op("Where", {builder_.op("Equal", {sum, real(0)}), real(1), sum});
    *weights = builder_.op("Div", {*weights, sum});
    return Status::ok();
  }

  // Two experts: each has its share of a softmax over those whose score is near its own; the second one without the
  // first.
  Status mix_sparsely(ValueId* index, ValueId* weights) {
    if (k_ != 2) return fail("use_sparse_mixer takes k 2, is " + std::to_string(k_));
    if (node_->has_input(kRouterWeights)) return fail("use_sparse_mixer with router_weights is not supported");
    const ValueId scores = node_->in[1], low = real(-INFINITY);
    const ValueId best = top(scores, 2, index);
    const auto part = [&](ValueId v, int64_t i) {
      return builder_.op("Slice",
                         {v, builder_.constant_i64({i}), builder_.constant_i64({i + 1}), builder_.constant_i64({-1})});
    };
    std::vector<ValueId> shares;
    ValueId left = scores;
    for (int64_t i = 0; i < 2; ++i) {
      const ValueId most = part(best, i), place = part(*index, i);
      const ValueId size = builder_.op("Max", {builder_.op("Abs", {scores}), most});
      const ValueId distance = builder_.op("Div", {builder_.op("Sub", {most, scores}), size});
      const ValueId far = builder_.op("Greater", {distance, real(2 * kJitter)});
      shares.push_back(gather(softmax(builder_.op("Where", {far, low, left})), place));
      if (i > 0) break;
      Tensor all = Tensor::allocate(DType::kI64, {1, experts_});
      for (int64_t e = 0; e < experts_; ++e) all.view().as<int64_t>()[e] = e;
      const ValueId taken = builder_.op("Equal", {graph_.add_constant(node_->name + "/experts", all), place});
      left = builder_.op("Where", {taken, low, scores});
    }
    *weights = builder_.op("Concat", shares);
    builder_.last().set_int("axis", -1);
    return Status::ok();
  }

  // -- what an expert computes

  int64_t bits(size_t matrix) const {
    static constexpr const char* kOwn[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
                                           "fc3_expert_weight_bits"};
    return node_->attr_int(kOwn[matrix], node_->attr_int("expert_weight_bits", 4));
  }
  // The columns of a matrix of depth k.
  Status columns(size_t matrix, int64_t k, int64_t* n) const {
    const size_t i = operands_[matrix].weights;
    if (!node_->has_input(i)) return fail("input " + std::to_string(i) + " (weights of experts) is missing");
    const Shape& w = shape(node_->in[i]);
    if (w.size() != 3 || !shape_is_const(w) || w[0] != Dim(experts_))
      return fail(text(i) + " should be [" + std::to_string(experts_) + ", columns, depth]");
    const int64_t bytes = w[1].value() * w[2].value(), width = bits(matrix);
    if (quantised_ && width != 2 && width != 4 && width != 8)
      return fail("weights of " + std::to_string(width) + " bits are not supported");
    if (k < 1) return fail("rows of " + std::to_string(k) + " numbers are not supported");
    *n = quantised_ ? bytes * 8 / (width * k) : bytes / k;
    return Status::ok();
  }

  // x [.., K] or [.., choices, K] times matrix 0, 1 or 2 of the experts in index.
  Status product(ValueId x, ValueId index, size_t matrix, int64_t n, int64_t k, ValueId* y) {
    const MatrixOperands& o = operands_[matrix];
    const auto operand = [&](size_t i) { return i != kNone && node_->has_input(i) ? node_->in[i] : kNoValue; };
    const int64_t width = quantised_ ? bits(matrix) : 0, block = quantised_ ? node_->attr_int("block_size", 0) : 0;
    ValueId w = operand(o.weights);
    if (w == kNoValue) return fail("input " + std::to_string(o.weights) + " (weights of experts) is missing");
    if (quantised_ && width != 2 && width != 4 && width != 8)
      return fail("weights of " + std::to_string(width) + " bits are not supported");
    if (quantised_ && (k * width % 8 != 0 || (block > 0 && k % block != 0)))
      return fail("block_size " + std::to_string(block) + " does not divide rows of " + std::to_string(k) +
                  " weights of " + std::to_string(width) + " bits");
    const Shape as_told = shape(w), own{Dim(experts_), Dim(n), Dim(quantised_ ? k * width / 8 : k)},
                named{Dim(experts_), Dim(k), Dim(quantised_ ? n * width / 8 : n)};
    if (as_told != own && as_told != named) return fail(text(o.weights) + " should be " + shape_str(own));
    // Older files name the dims of the same bytes the other way round.
    if (as_told != own) w = builder_.reshape(w, {experts_, n, own[2].value()});
    std::vector<ValueId> in{x, index, operand(o.bias), w};
    if (quantised_) {
      if (operand(o.scales) == kNoValue) return fail("input " + std::to_string(o.scales) + " (scales) is missing");
      in.push_back(operand(o.scales));
      if (operand(o.zeros) != kNoValue) in.push_back(operand(o.zeros));
    }
    *y = builder_.op("ExpertMatMul", in, kNoValue, "situ");
    Node& node = builder_.last();
    node.set_int("experts", experts_);
    set_quantised_matrix(&node, {k, n, static_cast<int32_t>(width), static_cast<int32_t>(block)});
    if (quantised_) node.set_int("accuracy_level", node_->attr_int("accuracy_level", 0));
    return Status::ok();
  }

  ValueId every_second(ValueId v, int64_t first) {
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    return builder_.op("Slice", {v, builder_.constant_i64({first}), builder_.constant_i64({kEnd}),
                                 builder_.constant_i64({-1}), builder_.constant_i64({2})});
  }
  ValueId half_of(ValueId v, int64_t i) {
    return builder_.op("Slice", {v, builder_.constant_i64({i * inner_}), builder_.constant_i64({(i + 1) * inner_}),
                                 builder_.constant_i64({-1})});
  }
  ValueId swish(ValueId x, float alpha) {
    const ValueId y = builder_.op("Swish", {x});
    builder_.last().set_float("alpha", alpha);
    return y;
  }
  ValueId gelu(ValueId x) {
    const ValueId y = builder_.op("Gelu", {x});
    builder_.last().set_string("approximate", "tanh");
    return y;
  }

  // act(x fc1), gated by fc3 where there is one: what fc2 reads. Sets inner_.
  Status inner(ValueId x, ValueId index, ValueId* h) {
    const std::string activation = node_->attr_string("activation_type", "relu");
    const bool gated = activation == "swiglu" || activation == "geglu", beside = node_->has_input(operands_[2].weights);
    const int64_t fusion = gated ? node_->attr_int("swiglu_fusion", 0) : 0;
    if (gated && (fusion == 0) != beside)
      return fail(activation + " with swiglu_fusion " + std::to_string(fusion) +
                  (beside ? " and weights of fc3" : " and without weights of fc3"));
    int64_t n = 0;
    SITU_RETURN_IF_ERROR(columns(0, hidden_, &n));
    inner_ = fusion > 0 ? n / 2 : n;
    ValueId first = kNoValue, third = kNoValue;
    SITU_RETURN_IF_ERROR(product(x, index, 0, n, hidden_, &first));
    if (beside) SITU_RETURN_IF_ERROR(product(x, index, 2, inner_, hidden_, &third));
    if (fusion > 0) {
      third = fusion == 1 ? every_second(first, 1) : half_of(first, 1);
      first = fusion == 1 ? every_second(first, 0) : half_of(first, 0);
    }
    if (activation == "swiglu") return swiglu(first, third, h);
    if (activation == "relu" || activation == "relu2")
      *h = builder_.op("Relu", {first});
    else if (activation == "gelu" || activation == "geglu")
      *h = gelu(first);
    else if (activation == "silu")
      *h = swish(first, 1);
    else if (activation == "identity")
      *h = first;
    else
      return fail("activation_type '" + activation + "' is not supported");
    if (activation == "relu2") *h = builder_.op("Mul", {*h, *h});
    if (third != kNoValue) *h = builder_.op("Mul", {*h, third});
    return Status::ok();
  }

  // G * sigmoid(alpha * G) * (L + beta) with G = min(g, limit), L = clamp(l, -limit, limit).
  Status swiglu(ValueId g, ValueId l, ValueId* h) {
    const float alpha = node_->attr_float("activation_alpha", 1), beta = node_->attr_float("activation_beta", 0),
                limit = node_->attr_float("swiglu_limit", INFINITY);
    const bool limited = limit < INFINITY, after = node_->attr_int("swiglu_limit_after_activation", 0) != 0;
    const auto at_most = [&](ValueId v) { return builder_.op("Clip", {v, kNoValue, real(limit)}); };
    if (limited && !after) g = at_most(g);
    g = swish(g, alpha);
    if (limited && after) g = at_most(g);
    if (limited) l = builder_.op("Clip", {l, real(-limit), real(limit)});
    if (beta != 0) l = builder_.op("Add", {l, real(beta)});
    *h = builder_.op("Mul", {g, l});
    return Status::ok();
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
  const Node* node_ = nullptr;
  bool quantised_ = false;
  const MatrixOperands* operands_ = nullptr;
  DType type_ = DType::kF32;
  int64_t hidden_ = 0, inner_ = 0, experts_ = 0, k_ = 0;
};

}  // namespace

Status expand_experts(PassContext& context) {
  const auto mixture = [](const Node& n) { return n.is("MoE", "com.microsoft") || n.is("QMoE", "com.microsoft"); };
  if (std::none_of(context.graph.nodes.begin(), context.graph.nodes.end(), mixture)) return Status::ok();
  return ExpertExpander(context).run();
}

}  // namespace situ
