// Random small graphs for the planner's tests: views, Concats with shared operands, products, reductions and
// states, over values of shape [.., S, ..] with S new tokens and P past ones.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "eval/interpreter.h"
#include "ops/op.h"
#include "passes/context/binding.h"

namespace situ::test {

inline Tensor random_tensor(std::mt19937& random, const std::vector<int64_t>& dims) {
  Tensor t = Tensor::allocate(DType::kF32, dims);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < t.count(); ++i) t.view().as<float>()[i] = uniform(random);
  return t;
}

class RandomGraph {
 public:
  static constexpr int64_t kRows = 11;  // of the embedding table

  // `rows`: the logits of a token are made of that token's rows alone, as far as the nodes in between keep them apart.
  RandomGraph(uint32_t seed, int nodes, bool rows = false) : random_(seed) {
    const ValueId ids = graph_.add_value("ids", DType::kI64);
    graph_.values[ids].info = {DType::kI64, true, {Dim(1), Dim::symbol(kSymS)}, std::nullopt};
    graph_.inputs.push_back(ids);
    binding_.inputs[ids] = InputRole::kTokenIds;
    add("Gather", {constant({kRows, 4 * pick(1, 3)}), ids});
    const int states = pick(0, 3);
    for (int n = 0; n < nodes; ++n) {
      if (n < states * 3 && n % 3 == 0)
        append_state();
      else
        step();
    }
    if (pick(0, 3) == 0) replace_state();
    rows ? finish_by_row() : finish();
  }

  const Graph& graph() const { return graph_; }
  const Binding& binding() const { return binding_; }
  const std::string& error() const { return error_; }

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  int rank(ValueId v) const { return static_cast<int>(shape(v).size()); }
  ValueId any() { return pool_[static_cast<size_t>(pick(0, static_cast<int>(pool_.size()) - 1))]; }
  // Recent values more often, so that chains grow.
  ValueId recent() {
    return pick(0, 1) ? pool_[pool_.size() - 1 -
                              static_cast<size_t>(pick(0, std::min<int>(2, static_cast<int>(pool_.size()) - 1)))]
                      : any();
  }
  std::vector<int> constant_axes(ValueId v, int64_t least) const {
    std::vector<int> axes;
    for (int i = 0; i < rank(v); ++i)
      if (shape(v)[i].is_const() && shape(v)[i].value() >= least) axes.push_back(i);
    return axes;
  }

  ValueId constant(const std::vector<int64_t>& dims) {
    return graph_.add_constant("c" + std::to_string(graph_.values.size()), random_tensor(random_, dims));
  }
  ValueId integers(const std::vector<int64_t>& values, bool scalar = false) {
    const Tensor t = scalar ? Tensor::scalar_i64(values[0]) : Tensor::vector_i64(values);
    const ValueId v = graph_.add_constant("i" + std::to_string(graph_.values.size()), t);
    graph_.values[v].info = info_of(t);
    return v;
  }
  // A shape operand that is known on the host, as shape arithmetic leaves it.
  ValueId dims_operand(const Shape& dims) {
    if (shape_is_const(dims)) return integers(shape_values(dims));
    const ValueId v = graph_.add_value("dims" + std::to_string(graph_.values.size()), DType::kI64);
    graph_.values[v].info = {DType::kI64, true, {Dim(static_cast<int64_t>(dims.size()))}, dims};
    return v;
  }

  // Appends a node; its outputs join the pool. kNoValue when shape inference refuses it: a fault of this generator.
  ValueId add(const std::string& op, const std::vector<ValueId>& in, const std::map<std::string, int64_t>& ints = {},
              const std::vector<int64_t>& perm = {}, int outputs = 1) {
    Node n;
    n.name = op + std::to_string(graph_.nodes.size());
    n.op = op;
    n.opset = 18;
    n.in = in;
    for (const auto& [key, v] : ints) n.set_int(key, v);
    if (!perm.empty()) n.set_ints("perm", perm);
    n.def = find_op("", op, n.opset);
    std::vector<ValueInfo> infos(static_cast<size_t>(outputs));
    InferContext infer{n, {}, {}, infos};
    for (ValueId v : in) {
      infer.in.push_back(&graph_.values[v].info);
      infer.constants.push_back(graph_.values[v].constant.present() ? &graph_.values[v].constant : nullptr);
    }
    if (const Status s = n.def->infer(infer); !s.is_ok()) {
      error_ = s.message();
      return kNoValue;
    }
    for (int o = 0; o < outputs; ++o) {
      const ValueId v =
          graph_.add_value("v" + std::to_string(graph_.values.size()), infos[static_cast<size_t>(o)].type);
      graph_.values[v].info = infos[static_cast<size_t>(o)];
      n.out.push_back(v);
    }
    pool_.insert(pool_.end(), n.out.begin(), n.out.end());
    const ValueId first = n.out[0];
    graph_.add_node(std::move(n));
    return first;
  }

  void step() {
    static const std::vector<void (RandomGraph::*)()> kinds{
        &RandomGraph::unary,     &RandomGraph::binary,    &RandomGraph::product, &RandomGraph::reshape,
        &RandomGraph::transpose, &RandomGraph::slice,     &RandomGraph::split,   &RandomGraph::concat,
        &RandomGraph::expand,    &RandomGraph::squeeze,   &RandomGraph::gather,  &RandomGraph::softmax,
        &RandomGraph::reduce,    &RandomGraph::transpose, &RandomGraph::concat,  &RandomGraph::reshape};
    (this->*kinds[static_cast<size_t>(pick(0, static_cast<int>(kinds.size()) - 1))])();
  }

  void unary() {
    static const char* const ops[] = {"Neg", "Tanh", "Sigmoid", "Abs", "Relu"};
    add(ops[pick(0, 4)], {recent()});
  }
  void binary() {
    static const char* const ops[] = {"Add", "Sub", "Max", "Min"};
    const ValueId a = recent();
    std::vector<ValueId> same;
    for (ValueId v : pool_)
      if (shape(v) == shape(a)) same.push_back(v);
    add(ops[pick(0, 3)], {a, same[static_cast<size_t>(pick(0, static_cast<int>(same.size()) - 1))]});
  }
  void product() {
    const ValueId a = recent();
    if (rank(a) < 2 || !shape(a).back().is_const() || shape(a).back().value() < 1) return;
    add("Tanh", {add("MatMul", {a, constant({shape(a).back().value(), 2 * pick(1, 4)})})});
  }
  // Splits one axis in two, or merges two neighbours.
  void reshape() {
    const ValueId a = recent();
    Shape dims = shape(a);
    const std::vector<int> axes = constant_axes(a, 4);
    if (pick(0, 1) && !axes.empty() && dims.size() < 6) {
      const size_t axis = static_cast<size_t>(axes[static_cast<size_t>(pick(0, static_cast<int>(axes.size()) - 1))]);
      if (dims[axis].value() % 2) return;
      const Dim half(dims[axis].value() / 2);
      dims[axis] = pick(0, 1) ? Dim(2) : half;
      dims.insert(dims.begin() + static_cast<long>(axis) + 1, dims[axis] == half ? Dim(2) : half);
    } else {
      if (dims.size() < 3) return;
      const size_t axis = static_cast<size_t>(pick(0, static_cast<int>(dims.size()) - 2));
      dims[axis] = dims[axis] * dims[axis + 1];
      dims.erase(dims.begin() + static_cast<long>(axis) + 1);
    }
    add("Reshape", {a, dims_operand(dims)});
  }
  void transpose() {
    const ValueId a = recent();
    std::vector<int64_t> perm;
    for (int i = 0; i < rank(a); ++i) perm.push_back(i);
    std::shuffle(perm.begin(), perm.end(), random_);
    if (!perm.empty()) add("Transpose", {a}, {}, perm);
  }
  void slice() {
    const ValueId a = recent();
    const std::vector<int> axes = constant_axes(a, 2);
    if (axes.empty()) return;
    const int axis = axes[static_cast<size_t>(pick(0, static_cast<int>(axes.size()) - 1))];
    const int64_t extent = shape(a)[static_cast<size_t>(axis)].value();
    const int64_t begin = pick(0, static_cast<int>(extent) - 1),
                  end = pick(static_cast<int>(begin) + 1, static_cast<int>(extent));
    const int step = pick(0, 4);
    if (step == 0)
      add("Slice", {a, integers({extent - 1}), integers({-extent - 1}), integers({axis}), integers({-1})});
    else
      add("Slice", {a, integers({begin}), integers({end}), integers({axis}), integers({step == 1 ? 2 : 1})});
  }
  void split() {
    const ValueId a = recent();
    const std::vector<int> axes = constant_axes(a, 2);
    if (axes.empty()) return;
    const int axis = axes[static_cast<size_t>(pick(0, static_cast<int>(axes.size()) - 1))];
    const int64_t extent = shape(a)[static_cast<size_t>(axis)].value(), first = pick(1, static_cast<int>(extent) - 1);
    add("Split", {a, integers({first, extent - first})}, {{"axis", axis}}, {}, 2);
  }
  // Two or three operands that agree except along one axis; the same value may stand twice.
  void concat() {
    const ValueId a = recent();
    if (rank(a) == 0) return;
    const size_t axis = static_cast<size_t>(pick(0, rank(a) - 1));
    std::vector<ValueId> fit;
    for (ValueId v : pool_) {
      bool same = rank(v) == rank(a);
      for (size_t i = 0; same && i < shape(a).size(); ++i) same = i == axis || shape(v)[i] == shape(a)[i];
      if (same && shape(v)[axis].is_const() && shape(v)[axis].value() <= 16) fit.push_back(v);
    }
    if (fit.empty() || !shape(a)[axis].is_const() || shape(a)[axis].value() > 16) return;
    std::vector<ValueId> operands{a};
    for (int i = pick(1, 2); i > 0; --i)
      operands.push_back(fit[static_cast<size_t>(pick(0, static_cast<int>(fit.size()) - 1))]);
    if (pick(0, 5) == 0 && shape_is_const(shape(a))) operands.push_back(constant(shape_values(shape(a))));
    add("Concat", operands, {{"axis", static_cast<int64_t>(axis)}});
  }
  void expand() {
    const ValueId a = recent();
    if (rank(a) > 4) return;
    const int axis = pick(0, rank(a));
    const ValueId wide = add("Unsqueeze", {a, integers({axis})});
    Shape dims = shape(wide);
    dims[static_cast<size_t>(axis)] = Dim(pick(1, 3));
    add("Expand", {wide, dims_operand(dims)});
  }
  void squeeze() {
    const ValueId a = recent();
    for (int i = 0; i < rank(a); ++i)
      if (shape(a)[static_cast<size_t>(i)] == Dim(1) && rank(a) > 2) {
        add("Squeeze", {a, integers({i})});
        return;
      }
  }
  void gather() {
    const ValueId a = recent();
    const std::vector<int> axes = constant_axes(a, 2);
    if (axes.empty() || rank(a) < 3) return;
    const int axis = axes[static_cast<size_t>(pick(0, static_cast<int>(axes.size()) - 1))];
    add("Gather", {a, integers({pick(0, static_cast<int>(shape(a)[static_cast<size_t>(axis)].value()) - 1)}, true)},
        {{"axis", axis}});
  }
  void softmax() {
    const ValueId a = recent();
    if (rank(a) > 0) add("Softmax", {a}, {{"axis", -1}});
  }
  void reduce() {
    const ValueId a = recent();
    if (rank(a) > 1)
      add(pick(0, 1) ? "ReduceMean" : "ReduceMax", {a, integers({pick(0, rank(a) - 1)})}, {{"keepdims", pick(0, 1)}});
  }

  // present = Concat(past, rows), read back by attention's two products, a reduction, or both.
  void append_state() {
    ValueId rows = kNoValue;
    int axis = -1;
    for (int tries = 0; tries < 8 && axis < 0; ++tries) {
      rows = recent();
      for (int i = 0; i < rank(rows); ++i)
        if (shape(rows)[static_cast<size_t>(i)] == Dim::symbol(kSymS)) axis = i;
      for (int i = 0; i < rank(rows); ++i)
        if (i != axis && !shape(rows)[static_cast<size_t>(i)].is_const()) axis = -1;
    }
    if (axis < 0) return;
    Shape dims = shape(rows);
    dims[static_cast<size_t>(axis)] = Dim::symbol(kSymP);
    const ValueId past = input(dims);
    const ValueId present = add("Concat", {past, rows}, {{"axis", axis}});
    graph_.outputs.push_back(present);
    binding_.states.push_back({past, present, StateRule::kAppend, axis});
    if (pick(0, 1)) add("ReduceMean", {present, integers({axis})}, {{"keepdims", 0}});
    if (axis == 1 && rank(rows) == 3) {
      const ValueId scores = add("MatMul", {rows, add("Transpose", {present}, {}, {0, 2, 1})});
      add("MatMul", {add("Softmax", {scores}, {{"axis", -1}}), present});
    }
  }
  ValueId input(Shape dims) {
    const ValueId v = graph_.add_value("past" + std::to_string(binding_.states.size()), DType::kF32);
    graph_.values[v].info = {DType::kF32, true, dims, std::nullopt};
    graph_.inputs.push_back(v);
    binding_.inputs[v] = InputRole::kState;
    return v;
  }
  // A recurrent state: new = tanh(old + mean over the tokens).
  void replace_state() {
    for (int tries = 0; tries < 8; ++tries) {
      const ValueId x = any();
      if (rank(x) != 3 || shape(x)[1] != Dim::symbol(kSymS) || !shape(x)[0].is_const() || !shape(x)[2].is_const())
        continue;
      const ValueId mean = add("ReduceMean", {x, integers({1})}, {{"keepdims", 0}});
      const ValueId past = input(Shape(shape(mean)));
      const ValueId present = add("Tanh", {add("Add", {past, mean})});
      graph_.outputs.push_back(present);
      binding_.states.push_back({past, present, StateRule::kReplace, 0});
      return;
    }
  }

  // Everything that nobody reads flows into the logits, [1, S, 1].
  void finish() {
    const auto users = graph_.users();
    std::vector<ValueId> leaves;
    for (ValueId v : std::vector<ValueId>(pool_))
      if (users[v].empty() && rank(v) > 0) leaves.push_back(v);
    ValueId total = add("ReduceMean", {pool_[0], integers({2})}, {{"keepdims", 1}});
    for (ValueId v : leaves) {
      std::vector<int64_t> axes;
      for (int i = 0; i < rank(v); ++i) axes.push_back(i);
      total = add("Add", {total, add("ReduceMean", {v, integers(axes)}, {{"keepdims", 0}})});
    }
    binding_.logits = total;
    graph_.outputs.push_back(total);
    graph_.rebuild_links();
  }

  // Every value with one token axis that nobody reads flows into the logits of its token, [1, S, 1].
  void finish_by_row() {
    const auto users = graph_.users();
    std::vector<ValueId> leaves;
    for (ValueId v : std::vector<ValueId>(pool_))
      if (users[v].empty() && std::count(shape(v).begin(), shape(v).end(), Dim::symbol(kSymS)) == 1)
        leaves.push_back(v);
    ValueId total = add("ReduceMean", {pool_[0], integers({2})}, {{"keepdims", 1}});
    for (ValueId v : leaves) {
      std::vector<int64_t> axes;
      for (int i = 0; i < rank(v); ++i)
        if (shape(v)[static_cast<size_t>(i)] != Dim::symbol(kSymS)) axes.push_back(i);
      const ValueId row = axes.empty() ? v : add("ReduceMean", {v, integers(axes)}, {{"keepdims", 0}});
      total = add("Add", {total, add("Unsqueeze", {row, integers({1})})});
    }
    binding_.logits = total;
    graph_.outputs.push_back(total);
    graph_.rebuild_links();
  }

  std::mt19937 random_;
  Graph graph_;
  Binding binding_;
  std::vector<ValueId> pool_;
  std::string error_;
};

}  // namespace situ::test
