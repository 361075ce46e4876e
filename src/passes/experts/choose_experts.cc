// Experts that all compute every row, of which those that a router did not choose are multiplied by 0:
//   y = sum over e of f_e(x) * R[.., e], R = 0 but for weights at index = TopK(..)
//     -> y = sum over choices j of f_index[.., j](x) * weights[.., j], products by situ.ExpertMatMul
// Matrices that are gathered for each row, MatMul(x, Gather(w, index)), are the same products:
//   MatMul(x [R, 1, K], Gather(w [experts, K, N], index [R])) -> situ.ExpertMatMul(x [R, K], index [R, 1], w)
// The rows of all experts are one value with an axis of experts in front of the tokens'. How x is repeated for them and
// where R stands is evaluated on sample steps.
#include <algorithm>
#include <numeric>

#include "ops/op.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/experts/expert_rows.h"
#include "passes/experts/passes.h"
#include "passes/host/row_sample.h"

namespace situ {
namespace {

// A router's choice as weights of all experts.
struct Chosen {
  ValueId all = kNoValue, index = kNoValue, weights = kNoValue;  // [S, experts], [S, choices], [S, choices]
  int64_t experts = 0, choices = 0;
};

class DenseExperts {
 public:
  explicit DenseExperts(PassContext& context)
      : context_(context), graph_(context.graph), builder_(graph_), users_(graph_.users()) {}

  Status run() {
    std::map<ValueId, ValueId> replaced;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Chosen chosen;
      if (!choice(graph_.nodes[i], &chosen)) continue;
      lifted_.clear();
      chosen_ = chosen;
      const Node* sum = weighted_sum(chosen.all);
      const ValueId y = sum ? rewrite(*sum) : kNoValue;
      if (y != kNoValue) replaced[sum->out[0]] = y;
    }
    if (replaced.empty()) return Status::ok();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& n : nodes) builder_.keep(std::move(n));
    for (Node& n : builder_.nodes())
      for (ValueId& v : n.in)
        if (const auto by = replaced.find(v); by != replaced.end()) v = by->second;
    for (ValueId& v : graph_.outputs)
      if (const auto by = replaced.find(v); by != replaced.end()) v = by->second;
    SITU_RETURN_IF_ERROR(builder_.finish());
    graph_.rebuild_links();
    graph_.remove_dead_nodes();
    graph_.drop_unread_constants();
    return Status::ok();
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  static bool of_tokens(const Dim& d) { return d.depends_on(kSymS); }

  bool choice(const Node& n, Chosen* c) const {
    if (!n.is("ScatterElements") || n.in.size() != 3 || !is_zeros(graph_, n.in[0])) return false;
    const std::string reduction = n.attr_string("reduction", "none");
    const Node* top = graph_.producer(n.in[1], "TopK");
    const Shape &all = shape(n.out[0]), &index = shape(n.in[1]);
    if (!top || top->out.size() < 2 || top->out[1] != n.in[1] || (reduction != "none" && reduction != "add"))
      return false;
    const int64_t axis = n.attr_int("axis", 0), of_top = top->attr_int("axis", -1);
    if (all.size() != 2 || index.size() != 2 || !all[1].is_const() || !index[1].is_const() || !of_tokens(all[0]) ||
        all[0] != index[0] || shape(top->in[0]) != all || shape(n.in[2]) != index || (axis != 1 && axis != -1) ||
        (of_top != 1 && of_top != -1))
      return false;
    *c = {n.out[0], n.in[1], n.in[2], all[1].value(), index[1].value()};
    return c->choices < c->experts;
  }

  // The sum over experts of rows times these weights, which views alone lead to.
  const Node* weighted_sum(ValueId v) {
    weights_ = v;
    for (int hops = 0; hops < 8; ++hops) {
      const Node* next = nullptr;
      for (const auto& [u, operand] : users_[weights_]) {
        const Node& n = graph_.nodes[static_cast<size_t>(u)];
        if (n.is("Shape")) continue;
        if (next) return nullptr;
        next = &n;
      }
      if (!next || next->out.size() != 1 || graph_.is_output(weights_)) return nullptr;
      if (next->def && next->def->placement == Placement::kView && next->in[0] == weights_) {
        weights_ = next->out[0];
        continue;
      }
      if (!next->is("Mul") || users_[next->out[0]].size() != 1 || graph_.is_output(next->out[0])) return nullptr;
      rows_ = next->in[0] == weights_ ? next->in[1] : next->in[0];
      const Node& sum = graph_.nodes[static_cast<size_t>(users_[next->out[0]][0].first)];
      return sum.is("ReduceSum") && sums_experts(sum) ? &sum : nullptr;
    }
    return nullptr;
  }
  bool sums_experts(const Node& sum) const {
    const Shape& x = shape(sum.in[0]);
    std::vector<int64_t> axes = sum.attr_ints("axes");
    if (sum.has_input(1)) {
      const auto list = content_of(graph_, sum, 1);
      if (!list || !shape_is_const(*list)) return false;
      axes = shape_values(*list);
    }
    if (axes.size() != 1) return false;
    const size_t axis = static_cast<size_t>(axes[0] < 0 ? axes[0] + static_cast<int64_t>(x.size()) : axes[0]);
    return axis == expert_axis(x);
  }
  // In front of the tokens', behind nothing: [experts, 1.., S, ..]. Otherwise as many as there are axes.
  size_t expert_axis(const Shape& x) const {
    size_t a = 0;
    while (a < x.size() && x[a] == Dim(1)) ++a;
    const size_t experts = a++;
    if (experts >= x.size() || x[experts] != Dim(chosen_.experts)) return x.size();
    while (a < x.size() && x[a] == Dim(1)) ++a;
    return a < x.size() && of_tokens(x[a]) ? experts : x.size();
  }
  // The dims behind the tokens'.
  std::optional<std::vector<int64_t>> rest_of(ValueId v) const {
    const Shape& x = shape(v);
    size_t a = expert_axis(x);
    if (a == x.size()) return std::nullopt;
    while (!of_tokens(x[a])) ++a;
    const Shape rest(x.begin() + static_cast<ptrdiff_t>(a) + 1, x.end());
    if (x[a] != shape(chosen_.all)[0] || !shape_is_const(rest)) return std::nullopt;
    return shape_values(rest);
  }

  ValueId rewrite(const Node& sum) {
    const Node first = *graph_.producer(chosen_.all);
    builder_.start(first);
    if (!weights_of_all()) return kNoValue;
    ExpertEmitter emit(graph_, builder_, chosen_.index, chosen_.experts);
    emit_ = &emit;
    const auto rows = lift(rows_);
    if (!rows || !rows->per_choice || emit.products() == 0) return kNoValue;
    const Shape y_shape = shape(sum.out[0]);
    std::vector<int64_t> dims{0, 0};
    dims.insert(dims.end(), rows->rest.size(), 1);
    const ValueId weights = builder_.reshape(chosen_.weights, dims);
    const ValueId weighted = builder_.op("Mul", {rows->value, weights});
    const ValueId y = builder_.op("ReduceSum", {weighted, builder_.constant_i64({1})});
    builder_.last().set_int("keepdims", 0);
    context_.note("experts", first.name,
                  "all " + std::to_string(chosen_.experts) + " compute every token -> the " +
                      std::to_string(chosen_.choices) + " that are chosen, " + std::to_string(emit.products()) +
                      " products by expert");
    return builder_.op("Reshape", {y, graph_.add_shape(first.name + "/shape", y_shape)});
  }

  // What rows are multiplied by is the weight of their expert and token.
  bool weights_of_all() {
    for (const int64_t more : {1, 2}) {
      const int64_t tokens = chosen_.experts + more, experts = chosen_.experts;
      RowSample sample(graph_, context_.evaluator, tokens, 0);
      const DType type = graph_.values[chosen_.all].info.type;
      if (type != DType::kF32 && type != DType::kF16) return false;
      sample.set(chosen_.all, numbered(type, {tokens, experts}));
      const Result<Tensor> found = sample.value(weights_);
      if (!found.is_ok() || found->count() != tokens * experts ||
          expert_axis(shape(weights_)) == shape(weights_).size())
        return false;
      const auto rest = rest_of(weights_);
      if (!rest || !std::all_of(rest->begin(), rest->end(), [](int64_t d) { return d == 1; })) return false;
      const std::vector<double> numbers = found->to_f64();
      for (int64_t e = 0; e < experts; ++e)
        for (int64_t t = 0; t < tokens; ++t)
          if (numbers[static_cast<size_t>(e * tokens + t)] != static_cast<double>(t * experts + e)) return false;
    }
    return true;
  }

  // -- rows of all experts as rows of those that are chosen

  std::optional<LiftedRows> lift(ValueId v) {
    if (const auto known = lifted_.find(v); known != lifted_.end()) return known->second;
    const auto rows = lift_node(v);
    lifted_[v] = rows;
    return rows;
  }

  std::optional<LiftedRows> lift_node(ValueId v) {
    const Node* n = graph_.producer(v);
    if (!n || !n->def || !rest_of(v)) return std::nullopt;
    if (const auto rows = repeated(v)) return rows;
    if (n->is("MatMul")) return product(*n);
    if (n->is("Slice") || n->is("Split")) return part(v, *n);
    if (n->def->placement == Placement::kElementwise) return elementwise(v, *n);
    if (n->def->placement == Placement::kView) return moved(v, *n);
    return std::nullopt;
  }

  // Rows of tokens, the same for every expert.
  std::optional<LiftedRows> repeated(ValueId v) {
    ValueId base = v;
    for (const Node* n = graph_.producer(base);
         n && (n->is("Tile") || (n->def && n->def->placement == Placement::kView)); n = graph_.producer(base))
      base = n->in[0];
    const DType type = graph_.values[base].info.type;
    const LiftedRows rows{base, false, *rest_of(v)};
    int64_t width = 1;
    for (const int64_t d : rows.rest) width *= d;
    if (base == v || graph_.values[base].constant.present() || (type != DType::kF32 && type != DType::kF16))
      return std::nullopt;
    for (const int64_t more : {1, 2}) {
      const int64_t tokens = chosen_.experts + more;
      RowSample sample(graph_, context_.evaluator, tokens, 0);
      const Tensor numbers = numbered(type, sample.dims(base));
      if (numbers.count() != tokens * width) return std::nullopt;
      sample.set(base, numbers);
      const Result<Tensor> found = sample.value(v);
      if (!found.is_ok() || found->count() != chosen_.experts * tokens * width) return std::nullopt;
      const std::vector<double> all = found->to_f64();
      for (size_t i = 0; i < all.size(); ++i)
        if (all[i] != static_cast<double>(static_cast<int64_t>(i) % (tokens * width))) return std::nullopt;
    }
    std::vector<int64_t> dims{-1};
    dims.insert(dims.end(), rows.rest.begin(), rows.rest.end());
    return LiftedRows{builder_.reshape(base, dims), false, rows.rest};
  }

  std::optional<LiftedRows> moved(ValueId v, const Node& n) {
    const auto x = lift(n.in[0]);
    if (!x || n.is("Transpose") || n.is("Expand")) return std::nullopt;
    LiftedRows y{x->value, x->per_choice, *rest_of(v)};
    if (y.rest == x->rest) return x;
    int64_t before = 1, after = 1;
    for (const int64_t d : x->rest) before *= d;
    for (const int64_t d : y.rest) after *= d;
    if (before != after) return std::nullopt;
    std::vector<int64_t> dims(x->per_choice ? 2 : 1, 0);
    dims.insert(dims.end(), y.rest.begin(), y.rest.end());
    y.value = builder_.reshape(x->value, dims);
    return y;
  }

  std::optional<LiftedRows> part(ValueId v, const Node& n) {
    const Shape &from = shape(n.in[0]), &to = shape(v);
    const auto x = lift(n.in[0]);
    if (!x || from.size() != to.size() || !rest_of(n.in[0])) return std::nullopt;
    const size_t front = from.size() - x->rest.size();
    const Node copy = n;
    if (n.is("Slice")) {
      const auto axes = content_of(graph_, n, 3);
      if (!axes || axes->size() != 1 || !(*axes)[0].is_const()) return std::nullopt;
      const int64_t rank = static_cast<int64_t>(from.size()), given = (*axes)[0].value();
      const int64_t axis = given < 0 ? given + rank : given;
      if (axis < static_cast<int64_t>(front)) return std::nullopt;
      std::vector<ValueId> in = copy.in;
      in[0] = x->value;
      in[3] = builder_.constant_i64({axis - rank});
      return LiftedRows{builder_.again(copy, in), x->per_choice, *rest_of(v)};
    }
    size_t axis = front;
    while (axis < from.size() && from[axis] == to[axis]) ++axis;
    if (axis == from.size()) return std::nullopt;
    int64_t begin = 0;
    for (const ValueId out : copy.out) {
      if (out == v) break;
      begin += shape(out)[axis].value();
    }
    const ValueId y = builder_.op(
        "Slice", {x->value, builder_.constant_i64({begin}), builder_.constant_i64({begin + to[axis].value()}),
                  builder_.constant_i64({static_cast<int64_t>(axis) - static_cast<int64_t>(from.size())})});
    return LiftedRows{y, x->per_choice, *rest_of(v)};
  }

  // Constants [experts, 1.., dims of rest]: their numbers for each expert, [experts, dims].
  ValueId of_experts(ValueId v, size_t rest) {
    const Tensor t = graph_.values[v].constant;
    std::vector<int64_t> dims = t.dims(), own{chosen_.experts};
    if (!t.present() || !t.contiguous() || dims.size() <= rest + 1 || dims[0] != chosen_.experts) return kNoValue;
    for (size_t i = 1; i + rest < dims.size(); ++i)
      if (dims[i] != 1) return kNoValue;
    own.insert(own.end(), dims.end() - static_cast<ptrdiff_t>(rest), dims.end());
    return graph_.add_constant(graph_.values[v].name + "/of_experts", t.reshaped(own));
  }
  // Of every row alike.
  ValueId of_all(ValueId v, size_t rest) {
    const Tensor t = graph_.values[v].constant;
    if (!t.present()) return kNoValue;
    std::vector<int64_t> dims = t.dims();
    while (dims.size() > rest && dims[0] == 1) dims.erase(dims.begin());
    if (dims.size() > rest) return kNoValue;
    return dims == t.dims() ? v : graph_.add_constant(graph_.values[v].name + "/row", t.reshaped(dims));
  }

  std::optional<LiftedRows> elementwise(ValueId v, const Node& node) {
    const Node n = node;
    LiftedRows y{kNoValue, false, *rest_of(v)};
    std::vector<LiftedRows> rows(n.in.size());
    for (size_t i = 0; i < n.in.size(); ++i) {
      if (n.in[i] == kNoValue || graph_.values[n.in[i]].constant.present()) continue;
      const auto x = lift(n.in[i]);
      if (!x || x->rest.size() != y.rest.size()) return std::nullopt;
      rows[i] = *x;
    }
    for (size_t i = 0; i < 2 && n.is("Add"); ++i)
      if (rows[i].value != kNoValue && rows[1 - i].value == kNoValue && y.rest.size() == 1 &&
          users_[n.in[i]].size() == 1 && emit_->add_bias(rows[i], of_experts(n.in[1 - i], 1)))
        return rows[i];
    std::vector<bool> fixed(n.in.size(), false);
    for (size_t i = 0; i < n.in.size(); ++i) {
      if (n.in[i] != kNoValue && rows[i].value == kNoValue) {
        rows[i].value = of_all(n.in[i], y.rest.size());
        fixed[i] = true;
        if (rows[i].value == kNoValue) {
          const ValueId stack = of_experts(n.in[i], y.rest.size());
          if (stack == kNoValue) return std::nullopt;
          rows[i] = {builder_.op("Gather", {stack, emit_->index()}), true, y.rest};
          fixed[i] = false;
        }
      }
      y.per_choice = y.per_choice || rows[i].per_choice;
    }
    std::vector<ValueId> in;
    for (size_t i = 0; i < n.in.size(); ++i)
      in.push_back(rows[i].value == kNoValue || fixed[i] || !y.per_choice ? rows[i].value : emit_->by_choice(rows[i]));
    y.value = builder_.again(n, in);
    return y;
  }

  std::optional<LiftedRows> product(const Node& n) {
    ValueId w = n.in[1];
    const Shape as_read = shape(w);
    if (as_read.size() < 3 || !shape_is_const(as_read) || as_read[0] != Dim(chosen_.experts)) return std::nullopt;
    for (size_t i = 1; i + 2 < as_read.size(); ++i)
      if (as_read[i] != Dim(1)) return std::nullopt;
    const int64_t k = as_read[as_read.size() - 2].value(), columns = as_read.back().value();
    const auto x = lift(n.in[0]);
    if (!x || x->rest != std::vector<int64_t>{k}) return std::nullopt;
    bool transposed = false;
    if (const Node* turn = graph_.producer(w, "Transpose");
        turn && as_read.size() == 3 && turn->permutation(3) == std::vector<int64_t>{0, 2, 1}) {
      transposed = true;
      w = turn->in[0];
    }
    if (as_read.size() > 3) w = builder_.reshape(w, {chosen_.experts, k, columns});
    return emit_->product(*x, kNoValue, {w}, {k, columns}, transposed);
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  Chosen chosen_;
  ValueId weights_ = kNoValue, rows_ = kNoValue;  // what is multiplied and summed over experts
  ExpertEmitter* emit_ = nullptr;
  std::map<ValueId, std::optional<LiftedRows>> lifted_;
};

// Products of a row and a matrix that is gathered for it.
class GatheredMatrices {
 public:
  explicit GatheredMatrices(PassContext& context) : context_(context), graph_(context.graph), builder_(graph_) {}

  Status run() {
    const std::vector<Node> nodes = graph_.nodes;
    int count = 0;
    for (const Node& n : nodes) {
      Product p;
      if (!n.is("MatMul") || (!find(n, 1, &p) && !find(n, 0, &p))) {
        builder_.keep(n);
        continue;
      }
      ++count;
      builder_.start(n);
      const Shape y = shape(n.out[0]);
      const LiftedRows x{builder_.reshape(p.x, {-1, p.k}), false, {p.k}};
      ExpertEmitter emit(graph_, builder_, builder_.reshape(p.index, {-1, p.choices}), p.experts);
      const LiftedRows rows = emit.product(x, kNoValue, {p.weights}, {p.k, p.n}, p.transposed);
      builder_.op("Reshape", {rows.value, graph_.add_shape(n.name + "/shape", y)}, n.out[0]);
    }
    if (count == 0) return Status::ok();
    context_.note("experts", "", std::to_string(count) + " products of gathered matrices -> products by expert");
    SITU_RETURN_IF_ERROR(builder_.finish());
    graph_.rebuild_links();
    graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  struct Product {
    ValueId x = kNoValue, index = kNoValue, weights = kNoValue;
    int64_t experts = 0, k = 0, n = 0, choices = 1;
    bool transposed = false;
  };
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }

  // Rows [R, K] that are those of tokens, each repeated for every choice of it, are read once: sets x and choices.
  void find_tokens(Product* p) const {
    ValueId base = p->x;
    for (const Node* n = graph_.producer(base); n && n->def; n = graph_.producer(base)) {
      if (n->def->placement != Placement::kView && !(n->is("Gather") && n->attr_int("axis", 0) == 0)) break;
      base = n->in[0];
    }
    const DType type = graph_.values[base].info.type;
    if (base == p->x || (type != DType::kF32 && type != DType::kF16)) return;
    int64_t choices = 0;
    for (const int64_t tokens : {3, 5}) {
      RowSample sample(graph_, context_.evaluator, tokens, 0);
      const Tensor numbers = numbered(type, sample.dims(base));
      sample.set(base, numbers);
      const Result<Tensor> found = sample.value(p->x);
      if (!found.is_ok() || numbers.count() != tokens * p->k || found->count() % numbers.count() != 0) return;
      const int64_t times = found->count() / numbers.count();
      const std::vector<double> rows = found->to_f64();
      for (int64_t i = 0; i < found->count(); ++i)
        if (rows[static_cast<size_t>(i)] != static_cast<double>(i / p->k / times * p->k + i % p->k)) return;
      if (times < 2 || (choices > 0 && choices != times)) return;
      choices = times;
    }
    p->x = base;
    p->choices = choices;
  }

  // Operand `side` is gathered: [rows.., K, N] on the right, [rows.., N, K] on the left.
  bool find(const Node& n, size_t side, Product* p) const {
    ValueId matrices = n.in[side];
    bool turned = false;
    if (const Node* turn = graph_.producer(matrices, "Transpose")) {
      const size_t rank = shape(matrices).size();
      std::vector<int64_t> perm(rank);
      std::iota(perm.begin(), perm.end(), 0);
      if (rank < 3) return false;
      std::swap(perm[rank - 1], perm[rank - 2]);
      if (turn->permutation(rank) != perm) return false;
      turned = true;
      matrices = turn->in[0];
    }
    const Node* gather = graph_.producer(matrices, "Gather");
    if (!gather || gather->attr_int("axis", 0) != 0 || !graph_.values[gather->in[0]].constant.present()) return false;
    const Shape &w = shape(gather->in[0]), &index = shape(gather->in[1]), &x = shape(n.in[1 - side]);
    if (w.size() != 3 || index.empty() || graph_.values[gather->in[1]].info.content || x.size() != index.size() + 2 ||
        graph_.values[gather->in[1]].constant.present())
      return false;
    for (size_t i = 0; i < index.size(); ++i)
      if (x[i] != index[i]) return false;
    p->x = n.in[1 - side];
    p->index = gather->in[1];
    p->weights = gather->in[0];
    p->experts = w[0].value();
    p->transposed = (side == 0) != turned;  // [N, K]
    p->k = w[p->transposed ? 2 : 1].value();
    p->n = w[p->transposed ? 1 : 2].value();
    if (!(side == 1 ? x[x.size() - 2] == Dim(1) : x.back() == Dim(1))) return false;
    find_tokens(p);
    return true;
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
};

}  // namespace

Status choose_experts(PassContext& context) {
  SITU_RETURN_IF_ERROR(GatheredMatrices(context).run());
  const auto scatters = [](const Node& n) { return n.is("ScatterElements"); };
  if (std::none_of(context.graph.nodes.begin(), context.graph.nodes.end(), scatters)) return Status::ok();
  return DenseExperts(context).run();
}

}  // namespace situ
