#include "passes/module/float_activations.h"

#include <map>
#include <set>

#include "ops/op.h"

namespace situ {
namespace {

bool moves_only(const Node& n) {
  return n.is("Reshape") || n.is("Transpose") || n.is("Identity") || n.is("Squeeze") || n.is("Unsqueeze") ||
         n.is("Flatten");
}

class Floats {
 public:
  explicit Floats(Graph* graph) : graph_(*graph) {}

  int run() {
    find_rounded();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& n : nodes) rewrite(std::move(n));
    graph_.rebuild_links();
    return count_;
  }

 private:
  // Values that are rounded activations: what a quantising node makes, and what is moved of it. One whose readers all
  // take floats as well can be the activation itself.
  void find_rounded() {
    const auto users = graph_.users();
    for (const Node& n : graph_.nodes) {
      const bool makes = n.is("DynamicQuantizeLinear") ||
                         (n.is("QuantizeLinear") && n.has_input(0) && !graph_.values[n.in[0]].constant.present());
      if (!makes || !n.has_output(0)) continue;
      std::set<ValueId> same;
      if (readers_take_floats(users, n.out[0], &same)) rounded_.insert(same.begin(), same.end());
    }
  }
  bool readers_take_floats(const std::vector<std::vector<std::pair<int, int>>>& users, ValueId v,
                           std::set<ValueId>* same) const {
    same->insert(v);
    if (graph_.is_output(v)) return false;
    for (const auto& [index, operand] : users[static_cast<size_t>(v)]) {
      const Node& n = graph_.nodes[static_cast<size_t>(index)];
      const bool takes = operand == 0 && (n.is("MatMulInteger") || n.is("ConvInteger") || n.is("DequantizeLinear") ||
                                          n.is("MatMulIntegerToFloat", "com.microsoft"));
      if (!takes && !(operand == 0 && moves_only(n) && readers_take_floats(users, n.out[0], same))) return false;
    }
    return true;
  }
  bool is_rounded(const Node& n, size_t i) const { return n.has_input(i) && rounded_.count(n.in[i]) != 0; }

  void rewrite(Node n) {
    const bool levels = n.is("MatMulNBits", "com.microsoft") || n.is("QMoE", "com.microsoft");
    if (levels) count_ += static_cast<int>(n.attrs.erase("accuracy_level"));
    for (auto& [key, attribute] : n.attrs)
      if (attribute.graph) {
        attribute.graph = std::make_shared<Graph>(*attribute.graph);
        count_ += Floats(attribute.graph.get()).run();
      }
    const bool quantises = n.is("DynamicQuantizeLinear") || n.is("QuantizeLinear");
    if (quantises && n.has_output(0) && rounded_.count(n.out[0])) {
      // Scale 1 and zero point 0 of the type that the graph's products take them in.
      add("Identity", {n.in[0]}, n.out[0]);
      if (n.has_output(1)) add("Identity", {number(1)}, n.out[1]);
      if (n.has_output(2))
        add("Identity", {graph_.add_constant(n.name + "/zero", Tensor::allocate(DType::kU8, {}))}, n.out[2]);
    } else if (n.is("DequantizeLinear") && is_rounded(n, 0)) {
      add("Identity", {n.in[0]}, n.out[0]);
    } else if (n.is("MatMulInteger") && is_rounded(n, 0)) {
      add("MatMul", {n.in[0], digits(n, 1, 3)}, n.out[0]);
    } else if (n.is("ConvInteger") && is_rounded(n, 0)) {
      const ValueId w = digits(n, 1, 3);
      Node conv = n;
      conv.op = "Conv";
      conv.in = {n.in[0], w};
      keep(std::move(conv));
    } else if (n.is("MatMulIntegerToFloat", "com.microsoft") && is_rounded(n, 0)) {
      scaled_product(n, n.in[0], 1, 5, add("Mul", {n.in[2], n.in[3]}), 6);
    } else if (n.is("DynamicQuantizeMatMul", "com.microsoft")) {
      scaled_product(n, n.in[0], 1, 3, n.in[2], 4);
    } else {
      graph_.nodes.push_back(std::move(n));
      return;
    }
    ++count_;
  }

  // x * digits * scale + bias
  void scaled_product(const Node& n, ValueId x, size_t weights, size_t zero, ValueId scale, size_t bias) {
    const ValueId y = add("MatMul", {x, digits(n, weights, zero)});
    if (!n.has_input(bias)) {
      add("Mul", {y, scale}, n.out[0]);
      return;
    }
    add("Add", {add("Mul", {y, scale}), n.in[bias]}, n.out[0]);
  }

  // Weights as floats, less their zero points.
  ValueId digits(const Node& n, size_t weights, size_t zero) {
    const ValueId w = floats(n.in[weights]);
    return n.has_input(zero) ? add("Sub", {w, floats(n.in[zero])}) : w;
  }
  ValueId floats(ValueId v) {
    const ValueId y = add("Cast", {v});
    graph_.nodes.back().set_int("to", 1);
    return y;
  }
  ValueId number(float x) {
    const Tensor t = Tensor::allocate(DType::kF32, {});
    *t.view().as<float>() = x;
    return graph_.add_constant("float " + std::to_string(count_), t);
  }

  void keep(Node n) { graph_.nodes.push_back(std::move(n)); }
  ValueId add(const char* op, std::vector<ValueId> in, ValueId out = kNoValue) {
    Node n;
    n.op = op;
    n.opset = 13;
    n.name = "float/" + std::to_string(graph_.nodes.size()) + "/" + op;
    n.in = std::move(in);
    n.out = {out == kNoValue ? graph_.add_value(n.name) : out};
    const ValueId y = n.out[0];
    keep(std::move(n));
    return y;
  }

  Graph& graph_;
  std::set<ValueId> rounded_;
  int count_ = 0;
};

}  // namespace

int float_activations(Graph* graph) { return Floats(graph).run(); }

}  // namespace situ
