// Experts whose rows are sorted by expert, as exporters write a grouped product:
//   ids, order = TopK(all choices of all tokens, ascending), ends = CumSum(how many rows each expert has)
//   y = Concat over e of x[ends(e - 1) .. ends(e)] W_e             x [R, K], its rows in that order
//     -> y = Squeeze(MatMul(Unsqueeze(x, 1), Gather(W, ids)))      whose extents are known before the step runs
// What the ends are is evaluated on sample rows; the rest of the graph stays as it is. Later, where shapes are known,
// an order that nothing but rows of their own depends on, and that is undone behind them, is left out.
#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "ops/op.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/experts/expert_rows.h"
#include "passes/experts/passes.h"
#include "passes/host/infer.h"
#include "passes/host/row_sample.h"

namespace situ {
namespace {

constexpr size_t kMostCountNodes = 64;       // between sorted rows and where an expert's rows end
constexpr int64_t kMostChoicesOfToken = 64;  // of a token

// A stable order of numbers, and what comes of it.
struct SortedNumbers {
  std::vector<int64_t> sorted, order;
};
SortedNumbers sorted_numbers(const std::vector<int64_t>& numbers) {
  SortedNumbers s;
  s.order.resize(numbers.size());
  std::iota(s.order.begin(), s.order.end(), 0);
  std::stable_sort(s.order.begin(), s.order.end(), [&](int64_t a, int64_t b) {
    return numbers[static_cast<size_t>(a)] < numbers[static_cast<size_t>(b)];
  });
  for (const int64_t i : s.order) s.sorted.push_back(numbers[static_cast<size_t>(i)]);
  return s;
}

// TopK of all numbers of a vector, smallest first: a sort.
bool sorts_ascending(const Node& n) {
  return n.is("TopK") && n.has_input(0) && n.out.size() == 2 && n.out[0] != kNoValue && n.out[1] != kNoValue &&
         n.attr_int("largest", 1) == 0 && n.attr_int("sorted", 1) == 1;
}

class Ungrouper {
 public:
  explicit Ungrouper(PassContext& context) : context_(context), graph_(context.graph), builder_(graph_) {}

  Status run() {
    if (std::none_of(graph_.nodes.begin(), graph_.nodes.end(), sorts_ascending)) return Status::ok();
    std::vector<std::optional<Groups>> found;
    for (const Node& n : graph_.nodes) found.push_back(groups_of(n));
    if (std::none_of(found.begin(), found.end(), [](const auto& g) { return g.has_value(); })) return Status::ok();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t i = 0; i < nodes.size(); ++i)
      if (found[i])
        rewrite(nodes[i], *found[i]);
      else
        builder_.keep(std::move(nodes[i]));
    SITU_RETURN_IF_ERROR(builder_.finish());
    graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  struct Groups {
    ValueId x = kNoValue, ids = kNoValue, weights = kNoValue;  // [experts, K, N] or, turned, [experts, N, K]
    bool turned = false;
    std::vector<ValueId> begins, ends;  // by expert
  };

  std::optional<Groups> groups_of(const Node& n) const {
    if (!n.is("Concat") || n.attr_int("axis", -1) != 0 || n.in.size() < 2) return std::nullopt;
    Groups g;
    std::vector<ValueId> matrices;
    for (const ValueId v : n.in) {
      // Before shapes are known nobody has counted operands.
      const Node* product = graph_.producer(v, "MatMul");
      const Node* rows =
          product && product->has_input(0) && product->has_input(1) ? graph_.producer(product->in[0]) : nullptr;
      if (!rows || !rows->has_input(0) || (g.x != kNoValue && g.x != rows->in[0]) || !reads_rows(*rows, &g))
        return std::nullopt;
      g.x = rows->in[0];
      matrices.push_back(product->in[1]);
    }
    if (!find_stack(matrices, &g) || !find_ids(&g) || !proved(g)) return std::nullopt;
    return g;
  }

  // Gather(x, Range(begin, end)) or Slice(x, begin, end), along the first axis.
  bool reads_rows(const Node& n, Groups* g) const {
    if (n.is("Gather") && n.has_input(1) && n.attr_int("axis", 0) == 0) {
      const Node* range = graph_.producer(n.in[1], "Range");
      if (!range || !range->has_input(0) || !range->has_input(1) || !range->has_input(2) ||
          numbers_of(range->in[2]) != std::vector<int64_t>{1})
        return false;
      g->begins.push_back(range->in[0]);
      g->ends.push_back(range->in[1]);
      return true;
    }
    if (!n.is("Slice") || !n.has_input(1) || !n.has_input(2) || !n.has_input(3) ||
        numbers_of(n.in[3]) != std::vector<int64_t>{0} ||
        (n.has_input(4) && numbers_of(n.in[4]) != std::vector<int64_t>{1}))
      return false;
    g->begins.push_back(n.in[1]);
    g->ends.push_back(n.in[2]);
    return true;
  }
  std::vector<int64_t> numbers_of(ValueId v) const {
    const Tensor& t = graph_.values[v].constant;
    return t.present() && t.count() == 1 && t.type() == DType::kI64 ? t.to_i64() : std::vector<int64_t>{};
  }

  // The parts of one constant, or of its transpose, in the order of the experts.
  bool find_stack(const std::vector<ValueId>& matrices, Groups* g) const {
    ValueId stack = kNoValue;
    for (size_t e = 0; e < matrices.size(); ++e) {
      ValueId v = matrices[e];
      for (const Node* n = graph_.producer(v); n && (n->is("Squeeze") || n->is("Reshape")) && n->has_input(0);
           n = graph_.producer(v))
        v = n->in[0];
      const Node* part = graph_.producer(v);
      if (!part || !part->has_input(0) || part->attr_int("axis", 0) != 0) return false;
      const bool split = part->is("Split") && part->out.size() == matrices.size() && part->out[e] == v;
      if (!split && !(part->is("Gather") && part->has_input(1) &&
                      numbers_of(part->in[1]) == std::vector<int64_t>{static_cast<int64_t>(e)}))
        return false;
      if (stack != kNoValue && stack != part->in[0]) return false;
      stack = part->in[0];
    }
    if (const Node* turn = graph_.producer(stack, "Transpose"); turn && turn->has_input(0)) {
      g->turned = turn->permutation(3) == std::vector<int64_t>{0, 2, 1};
      if (!g->turned) return false;
      stack = turn->in[0];
    }
    const Tensor& t = graph_.values[stack].constant;
    g->weights = stack;
    return t.present() && t.rank() == 3 && t.dims()[0] == static_cast<int64_t>(matrices.size());
  }

  // The sorted numbers that the ends are made of.
  bool find_ids(Groups* g) const {
    std::vector<ValueId> open = g->ends;
    std::set<ValueId> seen;
    while (!open.empty() && seen.size() < kMostCountNodes + 2 * g->ends.size()) {
      const ValueId v = open.back();
      open.pop_back();
      const Node* n = v == kNoValue || !seen.insert(v).second ? nullptr : graph_.producer(v);
      if (!n || n->is("Shape") || n->is("Size")) continue;  // of any layer: they have as many choices as each other
      if (sorts_ascending(*n) && n->out[0] == v) {
        if (g->ids != kNoValue && g->ids != v) return false;
        g->ids = v;
        continue;
      }
      open.insert(open.end(), n->in.begin(), n->in.end());
    }
    return g->ids != kNoValue;
  }

  // Of samples in which experts have rows or none: each expert's rows are those of its number. Where a step has as many
  // choices as the graph says, there are more samples, and each expert is chosen in one.
  bool proved(const Groups& g) const {
    const int64_t experts = static_cast<int64_t>(g.ends.size());
    const Node& sort = *graph_.producer(g.ids);
    const std::vector<int64_t> all = sort.has_input(1) ? numbers_of(sort.in[1]) : std::vector<int64_t>{};
    const int64_t few = all.empty() || all[0] >= experts ? 0 : std::max<int64_t>(all[0], 1);
    for (int64_t seed = 1; seed <= 3 + (few > 0 ? experts / few + 1 : 0); ++seed) {
      std::vector<int64_t> numbers;
      for (int64_t i = 0; i < (all.empty() ? 2 * experts + seed : all[0]); ++i)
        numbers.push_back((seed > 3 ? (seed - 4) * few + i : i * i + seed * i) % experts);
      if (seed == 3) std::fill(numbers.begin(), numbers.end(), experts - 1);
      const SortedNumbers s = sorted_numbers(numbers);
      const int64_t rows = static_cast<int64_t>(s.sorted.size());
      RowSample sample(graph_, context_.evaluator, rows, rows);
      // Extents may be those of another layer's choices, what they are may not.
      std::vector<int64_t> others;
      for (const int64_t number : numbers) others.push_back((number + 1) % experts);
      for (const Node& n : graph_.nodes)
        if (sorts_ascending(n)) sample.set(n.in[0], Tensor::vector_i64(n.in[0] == sort.in[0] ? numbers : others));
      sample.set(g.ids, Tensor::vector_i64(s.sorted));
      sample.set(sort.out[1], Tensor::vector_i64(s.order));
      for (int64_t e = 0; e < experts; ++e) {
        const auto at = [&](ValueId v) {
          const Result<Tensor> t = sample.value(v);
          return t.is_ok() && t->count() == 1 && !dtype_is_float(t->type()) ? t->to_i64()[0] : -1;
        };
        const auto [first, last] = std::equal_range(s.sorted.begin(), s.sorted.end(), e);
        if (at(g.begins[static_cast<size_t>(e)]) != first - s.sorted.begin() ||
            at(g.ends[static_cast<size_t>(e)]) != last - s.sorted.begin())
          return false;
      }
    }
    return true;
  }

  void rewrite(const Node& n, const Groups& g) {
    builder_.start(n);
    const int64_t experts = static_cast<int64_t>(g.ends.size());
    // What is no expert's number cannot be, and would be read behind the weights.
    const ValueId ids =
        builder_.op("Clip", {g.ids, scalar(n.name + "/first", 0), scalar(n.name + "/last", experts - 1)});
    const ValueId one = builder_.constant_i64({1});
    const auto product = [&] {
      if (context_.literal) {  // nothing takes the gathered matrices of all rows away
        const std::vector<int64_t>& dims = graph_.values[g.weights].constant.dims();
        ExpertEmitter emit(graph_, builder_, builder_.op("Unsqueeze", {ids, one}), experts);
        return emit
            .product({g.x, false, {}}, kNoValue, {g.weights}, {dims[g.turned ? 2 : 1], dims[g.turned ? 1 : 2]},
                     g.turned)
            .value;
      }
      ValueId w = builder_.op("Gather", {g.weights, ids});
      if (g.turned) w = builder_.transpose(w, {0, 2, 1});
      return builder_.op("MatMul", {builder_.op("Unsqueeze", {g.x, one}), w});
    };
    builder_.op("Squeeze", {product(), one}, n.out[0]);
    context_.note("experts", n.name, "a product of rows that are sorted by " + std::to_string(experts) + " experts");
  }
  ValueId scalar(const std::string& name, int64_t number) {
    return graph_.add_constant(name, Tensor::vector_i64({number}).reshaped({}));
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
};

// Rows of the choices of all tokens in the order of a sort: where they get there, what is computed of them, each by
// itself, and where they get back. Without the order the same is computed of each row.
class Unsorter {
 public:
  Unsorter(PassContext& context, const Node& sort)
      : context_(context), graph_(context.graph), users_(graph_.users()), sort_(sort) {}

  // Whether the order was left out.
  bool run() {
    if (!find_choices() || !follow_order()) return false;
    std::vector<ValueId> open{sort_.out[0]};
    for (const Moved& m : moved_)
      if (!m.back) open.push_back(m.to);
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (!ordered_.insert(v).second) continue;
      if (graph_.is_output(v) || places_.count(v)) return false;
      for (const auto& [u, operand] : users_[static_cast<size_t>(v)]) {
        if (u < 0) return false;
        const Node& n = node(u);
        const bool back = std::any_of(moved_.begin(), moved_.end(),
                                      [&](const Moved& m) { return m.back && m.from == v && m.to == n.out[0]; });
        if (n.is("Shape") || back) continue;
        if (!takes_rows(n)) return false;
        for (const ValueId out : n.out)
          if (out != kNoValue) open.push_back(out);
      }
    }
    // Rows get into the order once, and out of it once, and meet none that are not in it.
    if (!all_in_order() || !std::all_of(moved_.begin(), moved_.end(),
                                        [&](const Moved& m) { return m.back == (ordered_.count(m.from) != 0); }))
      return false;
    rewrite();
    return true;
  }

 private:
  // A Gather of rows; `repeated`: of each token's for all its choices.
  struct Moved {
    ValueId from = kNoValue, to = kNoValue;
    bool back = false, repeated = false;
  };

  const Node& node(int i) const { return graph_.nodes[static_cast<size_t>(i)]; }
  const Shape& shape(ValueId v) const { return graph_.values[static_cast<size_t>(v)].info.shape; }
  DType type(ValueId v) const { return graph_.values[static_cast<size_t>(v)].info.type; }
  bool by_row(ValueId v) const { return !shape(v).empty() && shape(v)[0] == rows_; }
  Dim tokens() const { return context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS); }

  // All choices of all tokens are sorted.
  bool find_choices() {
    if (shape(sort_.in[0]).size() != 1 || shape(sort_.out[1]) != shape(sort_.in[0])) return false;
    rows_ = shape(sort_.in[0])[0];
    for (choices_ = 1; choices_ <= kMostChoicesOfToken; ++choices_)
      if (rows_ == Dim(choices_) * tokens()) return true;
    return false;
  }

  // What is computed of the order: places, by which rows are gathered.
  bool follow_order() {
    std::vector<ValueId> open{sort_.out[1]};
    std::vector<const Node*> gathers;
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (!places_.insert(v).second) continue;
      if (graph_.is_output(v)) return false;
      for (const auto& [u, operand] : users_[static_cast<size_t>(v)]) {
        if (u < 0) return false;
        const Node& n = node(u);
        if (n.is("Shape")) continue;
        if (n.out.size() != 1) return false;
        if (!dtype_is_float(type(n.out[0])))
          open.push_back(n.out[0]);
        else if (operand == 1 && (n.is("Gather") || n.is("GatherND")))
          gathers.push_back(&n);
        else
          return false;
      }
    }
    return !gathers.empty() && std::all_of(gathers.begin(), gathers.end(), [&](const Node* n) { return moves(*n); });
  }

  bool moves(const Node& n) {
    const Shape &from = shape(n.in[0]), &to = shape(n.out[0]);
    if ((n.is("Gather") && n.attr_int("axis", 0) != 0) || n.attr_int("batch_dims", 0) != 0 || from.empty() ||
        to.size() != from.size() || !by_row(n.out[0]) || !std::equal(to.begin() + 1, to.end(), from.begin() + 1))
      return false;
    bool same = true, token = true, back = true;
    for (const int64_t count : {3, 5}) {
      const int64_t rows = count * choices_;
      std::vector<int64_t> numbers;
      for (int64_t i = 0; i < rows; ++i) numbers.push_back((i * i + 5 * i) % 4);
      const SortedNumbers s = sorted_numbers(numbers);
      RowSample sample(graph_, context_.evaluator, count, 0);
      sample.set(sort_.out[1], Tensor::vector_i64(s.order));
      const Result<Tensor> found = sample.value(n.in[1]);
      if (!found.is_ok() || found->count() != rows || dtype_is_float(found->type())) return false;
      const std::vector<int64_t> at = found->to_i64();
      for (size_t i = 0; i < at.size(); ++i) {
        same = same && at[i] == s.order[i];
        token = token && at[i] == s.order[i] / choices_;
        back = back && at[i] >= 0 && at[i] < rows && s.order[static_cast<size_t>(at[i])] == static_cast<int64_t>(i);
      }
    }
    const bool repeated = token && !same;
    if ((!same && !token && !back) || (repeated ? from[0] != tokens() : from[0] != rows_)) return false;
    moved_.push_back({n.in[0], n.out[0], back && !same && !token, repeated});
    return true;
  }

  // What computes each row by itself.
  bool takes_rows(const Node& n) const {
    if (!n.def || std::any_of(n.out.begin(), n.out.end(), [&](ValueId v) { return v != kNoValue && !by_row(v); }))
      return false;
    const size_t rank = shape(n.out[0]).size();
    const auto across = [](int64_t axis, size_t of) { return axis == 0 || axis + static_cast<int64_t>(of) == 0; };
    const auto rest = [&](ValueId v) {
      Dim count = 1;
      for (size_t a = 1; a < shape(v).size(); ++a) count = count * shape(v)[a];
      return count;
    };
    if (n.def->placement == Placement::kElementwise || n.def->placement == Placement::kAddsTo)
      return std::all_of(n.in.begin(), n.in.end(), [&](ValueId v) {
        return v == kNoValue || shape(v).size() < rank ||
               (shape(v).size() == rank && (by_row(v) || shape(v)[0] == Dim(1)));
      });
    if (n.is("Gather"))  // the matrix of each row's expert, or its bias
      return n.attr_int("axis", 0) == 0 && !ordered_.count(n.in[0]) && shape(n.in[1]).size() == 1 &&
             graph_.values[static_cast<size_t>(n.in[0])].constant.present();
    if (n.is("MatMul"))
      return by_row(n.in[0]) && shape(n.in[0]).size() == rank && rank > 1 &&
             (rank == 2 ? shape(n.in[1]).size() == 2 && !ordered_.count(n.in[1])
                        : by_row(n.in[1]) || shape(n.in[1]).size() < 3);
    if (!by_row(n.in[0])) return false;
    const size_t from = shape(n.in[0]).size();
    if (n.is("Reshape") || n.is("Unsqueeze") || n.is("Squeeze") || n.is("Flatten"))
      return rest(n.in[0]).is_const() && rest(n.in[0]) == rest(n.out[0]);
    if (n.is("Transpose")) return n.permutation(from)[0] == 0;
    if (n.is("Split")) return !across(n.attr_int("axis", 0), from);
    if (n.def->placement == Placement::kRowwise) return !across(n.attr_int("axis", -1), from) && !n.is("Trilu");
    if (!n.is("Slice")) return false;
    const auto axes = content_of(graph_, n, 3);
    return axes && std::none_of(axes->begin(), axes->end(),
                                [&](const Dim& d) { return !d.is_const() || across(d.value(), from); });
  }

  // Whether what takes rows in the order takes nothing else by row, and them as rows.
  bool all_in_order() const {
    return std::all_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& n) {
      const auto ordered = [&](ValueId v) { return v != kNoValue && ordered_.count(v) != 0; };
      const auto out = std::find_if(n.out.begin(), n.out.end(), ordered);
      if (out == n.out.end() || std::none_of(n.in.begin(), n.in.end(), ordered)) return true;
      const size_t rank = shape(*out).size();
      const bool each = n.def->placement == Placement::kElementwise || n.def->placement == Placement::kAddsTo;
      for (size_t i = 0; i < n.in.size(); ++i) {
        if (n.in[i] == kNoValue) continue;
        const bool in_place = shape(n.in[i]).size() == rank && by_row(n.in[i]);
        const bool wanted = each ? in_place : n.is("MatMul") && rank > 2 ? in_place : n.is("Gather") ? i == 1 : i == 0;
        if (ordered(n.in[i]) != wanted) return false;
      }
      return true;
    });
  }

  void rewrite() {
    Builder builder(graph_);
    std::map<ValueId, ValueId> by{{sort_.out[0], sort_.in[0]}};
    std::set<ValueId> repeated;
    for (const Moved& m : moved_)
      if (m.repeated)
        repeated.insert(m.to);
      else
        by[m.to] = m.from;
    const auto now = [&](ValueId v) {
      for (auto at = by.find(v); at != by.end(); at = by.find(v)) v = at->second;
      return v;
    };
    const ValueId numbers = sort_.in[0];
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& n : nodes) {
      for (ValueId& v : n.in) v = now(v);
      if (n.out.empty() || !repeated.count(n.out[0])) {
        builder.keep(std::move(n));
        continue;
      }
      builder.start(n);
      const auto number = [&](const char* name, int64_t value) {
        return graph_.add_constant(n.name + name, Tensor::vector_i64({value}).reshaped({}));
      };
      const ValueId count = builder.op("Squeeze", {builder.op("Shape", {numbers}), builder.constant_i64({0})});
      const ValueId all = builder.op("Range", {number("/first", 0), count, number("/step", 1)});
      builder.op("Gather", {n.in[0], builder.op("Div", {all, number("/choices", choices_)})}, n.out[0]);
    }
    graph_.nodes = std::move(builder.nodes());
    for (ValueId& v : graph_.outputs) v = now(v);
  }

  PassContext& context_;
  Graph& graph_;
  const std::vector<std::vector<std::pair<int, int>>> users_;
  const Node sort_;
  Dim rows_;
  int64_t choices_ = 0;
  std::set<ValueId> places_, ordered_;  // integers that the order is in; rows that are in the order
  std::vector<Moved> moved_;
};

}  // namespace

Status ungroup_products(PassContext& context) { return Ungrouper(context).run(); }

Status unsort_rows(PassContext& context) {
  Graph& graph = context.graph;
  std::vector<ValueId> sorts;
  for (const Node& n : graph.nodes)
    if (sorts_ascending(n)) sorts.push_back(n.out[0]);
  bool changed = false;
  for (const ValueId v : sorts) {
    if (!Unsorter(context, *graph.producer(v)).run()) continue;
    changed = true;
    SITU_RETURN_IF_ERROR(resolve_ops(graph));
    SITU_RETURN_IF_ERROR(graph.sort());
    graph.remove_dead_nodes();
    SITU_RETURN_IF_ERROR(infer_shapes(context));
  }
  if (changed) context.note("experts", "", "rows that are sorted by expert and put back stay where they are");
  return Status::ok();
}

}  // namespace situ
