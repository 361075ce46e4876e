// Whether a prompt may be fed in parts: no token's result may depend on a later one, as it does where attention has no causal
// mask, or where something else is computed across tokens. Told from the graph by what each node does along the axis of
// the new tokens, and by probing the masks of attention that stayed as it was exported.
#include <algorithm>
#include <set>

#include "passes/probe.h"

namespace situ {
namespace {

constexpr int kMaxConeNodes = 32;
constexpr float kMasked = -9000.0f;

class Order {
 public:
  Order(const Graph& graph, const Binding& binding, Evaluator& evaluator, Phase phase)
      : graph_(graph), binding_(binding), prober_(graph, binding, evaluator), users_(graph.users()), tokens_(phase == Phase::kDecode ? 1 : 3), past_(phase == Phase::kFirst ? 0 : 2) {}

  // The first node that mixes tokens; null: none does.
  const Node* mixing_node() {
    if (tokens_ == 1) return nullptr;
    for (const Node& n : graph_.nodes)
      if (n.is("Softmax")) accept_attention(n);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (!accepted_.count(static_cast<int>(i)) && mixes(graph_.nodes[i])) return &graph_.nodes[i];
    return nullptr;
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  bool data(ValueId v) const { return v != kNoValue && !prober_.known(v) && graph_.values[v].info.ranked; }
  static bool many(const Dim& d) { return d.depends_on(kSymS); }
  static int64_t token_axes(const Shape& s) { return std::count_if(s.begin(), s.end(), many); }

  // Scores, Softmax and the product with V, where a mask hides later tokens from earlier ones.
  void accept_attention(const Node& softmax) {
    int qk = -1;
    std::vector<ValueId> candidates = prober_.dominators(softmax.in[0], kMaxConeNodes);
    candidates.insert(candidates.begin(), softmax.in[0]);
    for (ValueId c : candidates) {
      const int p = graph_.values[c].producer;
      if (p >= 0 && graph_.nodes[p].is("MatMul") && data(graph_.nodes[p].in[0]) && data(graph_.nodes[p].in[1])) {
        qk = p;
        break;
      }
    }
    if (qk < 0) return;
    const ValueId scores = graph_.nodes[qk].out[0];
    const auto cone = prober_.cone(softmax.in[0], scores, kMaxConeNodes);
    if (!cone || !hides_later(softmax.in[0], scores)) return;
    accepted_.insert(cone->nodes.begin(), cone->nodes.end());
    ValueId v = softmax.out[0];
    accepted_.insert(graph_.values[v].producer);
    for (int hops = 0; hops < 8 && users_[v].size() == 1; ++hops) {
      const auto [u, operand] = users_[v][0];
      const Node& n = graph_.nodes[u];
      accepted_.insert(u);
      if ((n.is("MatMul") && operand == 0) || n.out.size() != 1) return;
      v = n.out[0];
    }
  }

  // Scores of zero, masked: [.., tokens, past + tokens or more].
  bool hides_later(ValueId x, ValueId scores) {
    const Tensor zero = Tensor::allocate(DType::kF32, prober_.dims(scores, tokens_, past_));
    if (graph_.values[scores].info.type != DType::kF32) return false;
    Result<Tensor> y = prober_.evaluate(x, {{scores, zero}}, tokens_, past_);
    if (!y.is_ok() || y->rank() < 2 || y->dims()[static_cast<size_t>(y->rank()) - 2] != tokens_) return false;
    const int64_t columns = y->dims().back(), rows = y->count() / std::max<int64_t>(1, columns);
    if (columns < tokens_ + past_) return false;
    const std::vector<float> values = floats(*y);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = past_ + r % tokens_ + 1; j < past_ + tokens_; ++j)
        if (values[static_cast<size_t>(r * columns + j)] > kMasked) return false;
    return true;
  }

  bool hides_later(const Node& attention) {
    if (attention.attr_int("causal", 0) != 0) return true;
    if (!attention.has_input(3) || !prober_.host(attention.in[3])) return false;
    Result<Tensor> bias = prober_.host_value(attention.in[3], tokens_, past_);
    if (!bias.is_ok() || bias->rank() < 2 || bias->dims()[static_cast<size_t>(bias->rank()) - 2] != tokens_ || bias->dims().back() != tokens_ + past_) return false;
    const std::vector<float> values = floats(*bias);
    const bool keep = bias->type() == DType::kBool;
    for (int64_t i = 0; i < bias->count(); ++i) {
      const int64_t row = i / (tokens_ + past_) % tokens_, key = i % (tokens_ + past_);
      if (key > past_ + row && (keep ? values[static_cast<size_t>(i)] != 0 : values[static_cast<size_t>(i)] > kMasked)) return false;
    }
    return true;
  }

  bool mixes(const Node& n) {
    if (n.out.empty() || !std::any_of(n.out.begin(), n.out.end(), [&](ValueId v) { return data(v); })) return false;
    if (n.is("Attention", "situ")) return !hides_later(n);
    int64_t most = 0;
    for (ValueId v : n.in)
      if (data(v)) most = std::max(most, token_axes(shape(v)));
    if (most == 0) return false;  // one row, or rows of states alone
    const Shape& y = shape(n.out[0]);
    static const std::set<std::string> kProducts{"MatMul", "Gemm", "Project", "FusedMatMul", "MatMulNBits", "DenseMatMul", "PackedMatMul", "PackedProjections"};
    if (kProducts.count(n.op)) return data(n.in[0]) && many(shape(n.in[0]).back());
    if (!n.def) return true;
    if (n.is("Concat")) return !is_state(n.out[0]) && many(y[static_cast<size_t>(axis_of(n, y, 0))]);
    if (n.is("Slice") || n.is("Split") || n.is("Tile")) {
      // Of all tokens one is left (the last, for the logits), or the axis is not touched.
      const Shape& x = shape(n.in[0]);
      for (size_t i = 0; i < x.size() && i < y.size(); ++i)
        if (many(x[i]) && x[i] != y[i] && many(y[i])) return true;
      return false;
    }
    if (n.op.rfind("Gather", 0) == 0) return data(n.in[0]) && token_axes(shape(n.in[0])) > 0 && token_axes(y) > 0 && many(shape(n.in[0])[static_cast<size_t>(axis_of(n, shape(n.in[0]), 0))]);
    if (n.op.rfind("Reduce", 0) == 0 || n.op.rfind("Arg", 0) == 0) return token_axes(y) < most;
    if (n.is("ScatterElements")) return many(shape(n.in[0])[static_cast<size_t>(axis_of(n, shape(n.in[0]), 0))]);
    if (n.is("TopK")) return many(shape(n.in[0])[static_cast<size_t>(axis_of(n, shape(n.in[0]), -1))]);
    if (n.is("Rotary", "situ") || n.def->placement == Placement::kElementwise || n.def->placement == Placement::kView) return false;
    if (n.def->placement == Placement::kRowwise && !n.is("Trilu")) {
      const Shape& x = shape(n.in[0]);
      const int first = axis_of(n, x, -1);
      const bool one = n.is("Softmax") || n.is("LogSoftmax") || n.is("LpNormalization");
      for (int i = first; i < static_cast<int>(x.size()) && (i == first || !one || (n.opset < 13 && !n.is("LpNormalization"))); ++i)
        if (many(x[static_cast<size_t>(i)])) return true;
      return false;
    }
    return true;
  }

  int axis_of(const Node& n, const Shape& s, int64_t fallback) const {
    const int64_t a = n.attr_int("axis", n.is("Softmax") && n.opset < 13 ? 1 : fallback), rank = static_cast<int64_t>(s.size());
    return static_cast<int>(std::clamp<int64_t>(a < 0 ? a + rank : a, 0, std::max<int64_t>(0, rank - 1)));
  }
  bool is_state(ValueId v) const {
    return std::any_of(binding_.states.begin(), binding_.states.end(), [&](const StatePair& s) { return s.present == v; });
  }

  const Graph& graph_;
  const Binding& binding_;
  Prober prober_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  int64_t tokens_, past_;
  std::set<int> accepted_;
};

}  // namespace

std::string token_mixing_node(const Graph& graph, const Binding& binding, Evaluator& evaluator, Phase phase) {
  const Node* n = Order(graph, binding, evaluator, phase).mixing_node();
  return n ? n->label() : "";
}

}  // namespace situ
