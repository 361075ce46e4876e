// Experts as a loop that an exporter wrote out: for each expert NonZero finds the tokens that chose it, their rows are
// gathered, computed, weighted and added to the result where they came from:
//   y = sum over e of scatter(rows where index == e, f_e(x[rows]) * weights[rows])
//     -> y = sum over choices j of f_index[.., j](x) * weights[.., j], products by situ.ExpertMatMul
// Proved by what the graph computes: index arithmetic is evaluated on sample steps, and every expert has to compute the
// same function of its rows but for its weights. Rows that a step finds have no known extent: a NonZero that is left is
// refused.
#include <algorithm>
#include <optional>
#include <set>

#include "ops/op.h"
#include "passes/context/builder.h"
#include "passes/context/node_key.h"
#include "passes/context/pass_context.h"
#include "passes/experts/expert_rows.h"
#include "passes/experts/passes.h"
#include "passes/host/row_sample.h"

namespace situ {
namespace {

constexpr int kMostMaskNodes = 24;

// What one expert adds: a scatter of rows that one NonZero found.
struct Link {
  int scatter = -1, nonzero = -1;
};

// A sum that a loop makes, and what is in it.
struct Loop {
  ValueId sum = kNoValue;
  std::vector<Link> links;      // by expert, once the masks are read
  std::vector<ValueId> others;  // that are no rows of experts
  bool replaces = false;        // a later expert's rows replace what stood there
  ValueId index = kNoValue;     // [S, choices], or [S]
  int64_t choices = 0;
  bool by_choice = false;  // masks are [choices, S]
};

class LoopFinder {
 public:
  explicit LoopFinder(PassContext& context)
      : context_(context), graph_(context.graph), builder_(graph_), users_(readers()) {}

  Status run() {
    find_rows();
    if (first_ < 0) return Status::ok();
    std::vector<Loop> loops = find_loops();
    std::map<ValueId, ValueId> replaced;
    for (Loop& loop : loops) {
      reason_.clear();
      const ValueId y = rewrite(loop);
      if (y != kNoValue)
        replaced[loop.sum] = y;
      else if (why_.empty())
        why_ = reason_;
    }
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (Node& n : nodes) builder_.keep(std::move(n));
    for (const auto& [from, to] : replaced) replace(from, to);
    SITU_RETURN_IF_ERROR(builder_.finish());
    graph_.rebuild_links();
    graph_.remove_dead_nodes();
    graph_.drop_unread_constants();
    return check_left();
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }

  // Users of each value but those that want to know its extents alone.
  std::vector<std::vector<std::pair<int, int>>> readers() const {
    std::vector<std::vector<std::pair<int, int>>> all = graph_.users();
    std::vector<char> needed(graph_.nodes.size(), 0);
    for (const ValueId v : graph_.outputs)
      if (const int p = graph_.values[v].producer; p >= 0) needed[static_cast<size_t>(p)] = 1;
    for (size_t i = graph_.nodes.size(); i-- > 0;)
      for (const ValueId v : graph_.nodes[i].out) {
        if (v == kNoValue) continue;
        auto& readers = all[static_cast<size_t>(v)];
        std::erase_if(readers, [&](const auto& use) { return needed[static_cast<size_t>(use.first)] == 0; });
        const bool known = graph_.values[v].info.content.has_value();
        needed[i] = needed[i] || (!known && !readers.empty());
      }
    return all;
  }

  bool no(const std::string& why) {
    if (reason_.empty()) reason_ = why;
    return false;
  }

  void replace(ValueId from, ValueId to) {
    for (Node& n : builder_.nodes())
      if (std::find(n.out.begin(), n.out.end(), to) == n.out.end())
        for (ValueId& v : n.in)
          if (v == from) v = to;
    for (ValueId& v : graph_.outputs)
      if (v == from) v = to;
  }

  // -- which nodes work on the rows of which NonZero

  void find_rows() {
    owner_.assign(graph_.nodes.size(), -1);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      if (!n.is("NonZero") || !shape(n.out[0]).back().depends_on(kSymN)) continue;
      if (first_ < 0) first_ = static_cast<int>(i);
      Link link{-1, static_cast<int>(i)};
      bool one = true;
      std::vector<ValueId> open{n.out[0]};
      owner_[i] = static_cast<int>(i);
      while (!open.empty() && one) {
        const ValueId v = open.back();
        open.pop_back();
        one = !graph_.is_output(v);
        for (const auto& [u, operand] : users_[v]) {
          const Node& user = graph_.nodes[static_cast<size_t>(u)];
          if (scatters(user)) {
            one = one && operand > 0 && (link.scatter < 0 || link.scatter == u);
            link.scatter = u;
          } else if (owner_[static_cast<size_t>(u)] != static_cast<int>(i)) {
            one = one && owner_[static_cast<size_t>(u)] < 0;
            owner_[static_cast<size_t>(u)] = static_cast<int>(i);
            for (const ValueId out : user.out)
              if (out != kNoValue && !graph_.values[out].info.content) open.push_back(out);
          }
        }
      }
      if (one && link.scatter >= 0) links_[link.scatter] = link;
    }
  }
  static bool scatters(const Node& n) { return n.is("ScatterElements") || n.is("ScatterND"); }
  bool of_rows(ValueId v) const {
    const int p = graph_.values[v].producer;
    return p >= 0 && owner_[static_cast<size_t>(p)] >= 0;
  }

  // -- sums of scatters

  std::vector<Loop> find_loops() {
    std::map<ValueId, std::vector<Link>> by_sum;
    for (const auto& [scatter, link] : links_)
      by_sum[sum_of(graph_.nodes[static_cast<size_t>(scatter)].out[0])].push_back(link);
    std::vector<Loop> loops;
    for (const auto& [sum, links] : by_sum) {
      Loop loop;
      loop.sum = sum;
      reason_.clear();
      if (collect(sum, &loop) && loop.links.size() == links.size())
        loops.push_back(std::move(loop));
      else if (why_.empty())
        why_ = reason_;
    }
    return loops;
  }
  // The last sum or scatter that `v` goes into and that nothing else reads a part of.
  ValueId sum_of(ValueId v) {
    ValueId last = v;
    while (users_[v].size() == 1 && !graph_.is_output(v)) {
      const auto [u, operand] = users_[v][0];
      const Node& n = graph_.nodes[static_cast<size_t>(u)];
      const bool chain = links_.count(u) != 0 && operand == 0;
      if (!chain && !(n.is("Add") && shape(n.out[0]) == shape(v))) break;
      v = n.out[0];
      // A residual behind the last scatter is none of the loop's.
      if (chain || adds_links(n, operand)) last = v;
    }
    return last;
  }
  // The other operand of the sum has rows of experts, too, or is nothing.
  bool adds_links(const Node& add, int operand) {
    const ValueId other = add.in[static_cast<size_t>(1 - operand)];
    return is_zeros(graph_, other) || has_links(other);
  }

  // All that `sum` is made of. What every row replaces does not matter.
  bool collect(ValueId sum, Loop* loop) {
    std::vector<std::pair<ValueId, bool>> open{{sum, false}};
    while (!open.empty()) {
      const auto [v, replaced] = open.back();
      open.pop_back();
      const int p = graph_.values[v].producer;
      const Node* n = graph_.producer(v);
      if (const auto it = links_.find(p); it != links_.end()) {
        loop->links.push_back(it->second);
        const std::string reduction = n->attr_string("reduction", "none");
        if (reduction != "none" && reduction != "add") return no("rows are put together by '" + reduction + "'");
        const bool over = reduction == "none" && !is_zeros(graph_, n->in[0]);
        loop->replaces = loop->replaces || over;
        open.emplace_back(n->in[0], replaced || over);
      } else if (n && n->is("Add") && shape(n->in[0]) == shape(v) && shape(n->in[1]) == shape(v) &&
                 (has_links(n->in[0]) || has_links(n->in[1]))) {
        open.emplace_back(n->in[1], replaced);
        open.emplace_back(n->in[0], replaced);
      } else if (!replaced && !is_zeros(graph_, v)) {
        loop->others.push_back(v);
      }
    }
    return true;
  }
  // A sum of links that nothing else reads.
  bool has_links(ValueId v) {
    if (has_links_.empty()) {
      has_links_.assign(graph_.values.size(), 0);
      for (size_t i = 0; i < graph_.nodes.size(); ++i) {
        const Node& n = graph_.nodes[i];
        const bool link = links_.count(static_cast<int>(i)) != 0;
        const auto linked = [&](ValueId x) { return x != kNoValue && has_links_[static_cast<size_t>(x)] != 0; };
        for (const ValueId out : n.out)
          if (out != kNoValue && users_[out].size() == 1)
            has_links_[static_cast<size_t>(out)] =
                link || (n.is("Add") && std::any_of(n.in.begin(), n.in.end(), linked));
      }
    }
    return has_links_[static_cast<size_t>(v)] != 0;
  }

  // -- whose rows a NonZero finds

  // The integers that the mask of a NonZero is made of, one by one: the choice of a router.
  ValueId chosen_by(ValueId mask) {
    static const std::set<std::string> kKeep{"Cast",  "Equal", "Flatten", "Gather",    "Identity",  "OneHot", "Reshape",
                                             "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "Not"};
    std::vector<ValueId> open{mask};
    std::set<ValueId> seen;
    ValueId found = kNoValue;
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (!seen.insert(v).second || graph_.values[v].constant.present() || graph_.values[v].info.content) continue;
      const Node* n = graph_.producer(v);
      if (n && (routed(v) || (n->is("Concat") && joins_choices(*n)))) {
        if (found != kNoValue && found != v) return kNoValue;
        found = v;
      } else if (!n || !n->domain.empty() || !kKeep.count(n->op) || seen.size() > kMostMaskNodes) {
        return kNoValue;
      } else {
        for (const ValueId x : n->in)
          if (x != kNoValue) open.push_back(x);
      }
    }
    return found;
  }

  // Whether `v` is what a router chose.
  bool routed(ValueId v) const {
    const Node* n = graph_.producer(v);
    return n && ((n->is("TopK") && n->has_output(1) && n->out[1] == v) || n->is("ArgMax"));
  }
  // The node that chose `v`, which views of it lead to.
  const Node* router_of(ValueId v) const {
    static const std::set<std::string> kViews{"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"};
    for (const Node* n = graph_.producer(v); n; n = graph_.producer(v)) {
      if (routed(v)) return n;
      if (!n->domain.empty() || !kViews.count(n->op)) return nullptr;
      v = n->in[0];
    }
    return nullptr;
  }
  // Choices that were made one after the other, side by side: [.., 1] each.
  bool joins_choices(const Node& n) const {
    const int64_t rank = static_cast<int64_t>(shape(n.out[0]).size()), axis = n.attr_int("axis", 0);
    return rank > 0 && (axis == rank - 1 || axis == -1) &&
           std::all_of(n.in.begin(), n.in.end(), [&](ValueId v) { return router_of(v) && shape(v).back() == Dim(1); });
  }
  // Whether all numbers of `v` are so low that no router chooses them.
  bool strikes_out(ValueId v) const {
    constexpr double kLow = -1e9;
    const Node* n = graph_.producer(v);
    while (n && (n->is("Expand") || n->is("Cast") || n->is("Identity") || n->is("Reshape"))) {
      v = n->in[0];
      n = graph_.producer(v);
    }
    const Attribute* filled = n && n->is("ConstantOfShape") ? n->attr("value") : nullptr;
    const Tensor* value = filled ? &filled->tensor : &graph_.values[v].constant;
    if (!value->present()) return false;
    const std::vector<double> numbers = value->to_f64();
    return std::all_of(numbers.begin(), numbers.end(), [](double x) { return x <= kLow; });
  }
  // Whether what `later` chooses from has the choice of `earlier` struck out.
  bool differs(const Node& later, const Node& earlier) const {
    std::vector<ValueId> open{later.in[0]};
    std::set<ValueId> seen;
    while (!open.empty() && seen.size() <= kMostMaskNodes) {
      const ValueId v = open.back();
      open.pop_back();
      const Node* n = v == kNoValue || !seen.insert(v).second ? nullptr : graph_.producer(v);
      if (n == nullptr) continue;
      const int64_t rank = static_cast<int64_t>(shape(n->out[0]).size()), axis = n->attr_int("axis", 0);
      if (n->is("ScatterElements") && (axis == -1 || axis == rank - 1) && strikes_out(n->in[2]) &&
          n->attr_string("reduction", "none") == "none" && router_of(n->in[1]) == &earlier)
        return true;
      open.insert(open.end(), n->in.begin(), n->in.end());
    }
    return false;
  }
  // Of how many experts the router chooses; 0: it does not say.
  int64_t choice_of(const Node& router) {
    const Shape& scores = shape(router.in[0]);
    const int64_t rank = static_cast<int64_t>(scores.size()),
                  axis = router.attr_int("axis", router.is("TopK") ? -1 : 0);
    return (axis == -1 || axis == rank - 1) && scores.back().is_const() ? scores.back().value() : 0;
  }

  // Reads index, choices and the order of the experts off the masks.
  bool read_masks(Loop* loop) {
    for (const Link& link : loop->links) {
      const ValueId index = chosen_by(graph_.nodes[static_cast<size_t>(link.nonzero)].in[0]);
      if (index == kNoValue || (loop->index != kNoValue && loop->index != index))
        return no("the mask is not made of one router's choice");
      loop->index = index;
    }
    const Node& chooser = *graph_.producer(loop->index);
    const bool several = chooser.is("Concat");
    const int64_t experts = choice_of(several ? *router_of(chooser.in[0]) : chooser);
    if (experts == 0) return no("the router does not choose along its last axis");
    for (size_t i = 0; i < chooser.in.size() && several; ++i)
      if (choice_of(*router_of(chooser.in[i])) != experts) return no("routers choose among others");
    // One router's choices differ. Those of several do where the earlier ones are struck out of what the later ones
    // choose from; else a token may be at an expert twice, where one row would replace the other.
    for (size_t i = 1; i < chooser.in.size() && several; ++i)
      for (size_t j = 0; j < i; ++j)
        if (!differs(*router_of(chooser.in[i]), *router_of(chooser.in[j])))
          return no("routers may choose one expert twice");
    if (experts != static_cast<int64_t>(loop->links.size()))
      return no(std::to_string(loop->links.size()) + " of " + std::to_string(experts) + " experts have rows");
    const Shape& index = shape(loop->index);
    const bool one = chooser.is("ArgMax");
    loop->choices = one ? 1 : index.back().is_const() ? index.back().value() : 0;
    if (loop->choices < 1 || loop->choices > experts) return no("the number of choices is not known");
    if (loop->replaces && loop->choices > 1) return no("rows of one expert replace those of another");
    return order_links(loop, experts);
  }

  // Each mask is true where index is one number, for every number of a sample.
  bool order_links(Loop* loop, int64_t experts) {
    std::vector<Link> ordered(static_cast<size_t>(experts));
    for (const int64_t seed : {1, 2}) {
      const int64_t tokens = experts + loop->choices + seed;  // neither experts nor choices
      RowSample sample(graph_, context_.evaluator, tokens, 0);
      const std::vector<int64_t> numbers = sample_choices(tokens, loop->choices, experts, seed);
      const Tensor index = Tensor::vector_i64(numbers).reshaped(sample.dims(loop->index));
      sample.set(loop->index, index);
      for (const Link& link : loop->links) {
        const ValueId mask = graph_.nodes[static_cast<size_t>(link.nonzero)].in[0];
        const Result<Tensor> found = sample.value(mask);
        if (!found.is_ok()) return no(found.status().message());
        const std::vector<int64_t> dims = found->dims();
        if (found->count() != static_cast<int64_t>(numbers.size()) || dims.size() > 2 ||
            dtype_bytes(found->type()) == 0)
          return no("a mask is not as the router's choice");
        const bool by_choice = dims.size() == 2 && dims[0] == loop->choices;
        if (dims.size() == 2 && dims[by_choice ? 1 : 0] != tokens) return no("a mask is not as the router's choice");
        loop->by_choice = by_choice;
        const int64_t expert = expert_of(*found, numbers, tokens, loop->choices, by_choice);
        if (expert < 0 || expert >= experts) return no("a mask is true for no expert, or for several");
        Link& at = ordered[static_cast<size_t>(expert)];
        if (at.scatter >= 0 && at.scatter != link.scatter) return no("two masks are true for one expert");
        at = link;
      }
    }
    loop->links = ordered;
    return true;
  }
  // Of each token different ones; every expert is every token's first choice somewhere.
  static std::vector<int64_t> sample_choices(int64_t tokens, int64_t choices, int64_t experts, int64_t seed) {
    std::vector<int64_t> numbers;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t j = 0; j < choices; ++j) numbers.push_back((t * seed + t / experts + j) % experts);
    return numbers;
  }
  // The number that is chosen exactly where the mask is true; -1: there is none.
  static int64_t expert_of(const Tensor& mask, const std::vector<int64_t>& numbers, int64_t tokens, int64_t choices,
                           bool by_choice) {
    const std::vector<double> bits = mask.to_f64();
    int64_t expert = -1;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t j = 0; j < choices; ++j) {
          const bool on = bits[static_cast<size_t>(by_choice ? j * tokens + t : t * choices + j)] != 0;
          const int64_t number = numbers[static_cast<size_t>(t * choices + j)];
          if (pass == 0 && on) expert = number;
          if (pass == 1 && on != (number == expert)) return -1;
        }
    return expert;
  }

  // -- the loop as one sum over choices

  ValueId rewrite(Loop& loop) {
    if (!read_masks(&loop)) return kNoValue;
    const Node first = graph_.nodes[static_cast<size_t>(loop.links[0].nonzero)];
    builder_.start(first);
    RowFacts facts;
    for (const Link& link : loop.links)
      facts.nonzeros.push_back(graph_.nodes[static_cast<size_t>(link.nonzero)].out[0]);
    facts.choices = loop.choices;
    facts.by_choice = loop.by_choice;
    facts.flat = shape(graph_.nodes[static_cast<size_t>(loop.links[0].nonzero)].in[0]).size() < 2;
    if (!goes_back(loop, facts)) return kNoValue;
    const ValueId index = builder_.reshape(loop.index, {-1, loop.choices});
    ExpertRows rows(
        context_, builder_, facts, index, [&](ValueId v) { return of_rows(v); },
        [&](ValueId v) -> const auto& { return users_[static_cast<size_t>(v)]; });
    std::vector<ValueId> updates;
    for (const Link& link : loop.links) updates.push_back(graph_.nodes[static_cast<size_t>(link.scatter)].in[2]);
    const std::optional<LiftedRows> lifted = rows.lift(updates);
    if (!lifted || !lifted->per_choice) {
      no(rows.reason().empty() ? "what is added is no function of an expert" : rows.reason());
      return kNoValue;
    }
    ValueId y = builder_.op("ReduceSum", {lifted->value, builder_.constant_i64({1})});
    builder_.last().set_int("keepdims", 0);
    const Shape sum = shape(loop.sum);
    if (sum.size() != 2) y = builder_.op("Reshape", {y, graph_.add_shape(first.name + "/shape", sum)});
    for (const ValueId other : loop.others) y = builder_.op("Add", {other, y});
    context_.note("experts", first.name,
                  "a loop over " + std::to_string(loop.links.size()) + ", " + std::to_string(loop.choices) +
                      " for each token -> " + std::to_string(rows.products()) + " products by expert");
    return y;
  }

  // Every scatter puts the rows of a token where the token is.
  bool goes_back(const Loop& loop, const RowFacts& facts) {
    for (const int64_t tokens : {3, 4}) {
      const GridRows grid = grid_rows(facts, tokens);
      for (size_t e = 0; e < loop.links.size(); ++e) {
        const Node& n = graph_.nodes[static_cast<size_t>(loop.links[e].scatter)];
        RowSample sample(graph_, context_.evaluator, tokens, static_cast<int64_t>(grid.tokens.size()));
        sample.set(facts.nonzeros[e], grid.coordinates);
        const Result<Tensor> indices = sample_indices(sample, n);
        if (!indices.is_ok()) return no(indices.status().message());
        if (!at_tokens(n, *indices, sample.dims(n.in[0]), grid)) return no("rows are not put where their tokens are");
      }
    }
    return true;
  }
  // Updates may be needed for their extents alone.
  Result<Tensor> sample_indices(RowSample& sample, const Node& n) { return sample.value(n.in[1]); }

  static bool at_tokens(const Node& n, const Tensor& indices, const std::vector<int64_t>& data, const GridRows& grid) {
    const std::vector<int64_t> dims = indices.dims(), numbers = indices.to_i64();
    const int64_t rows = static_cast<int64_t>(grid.tokens.size());
    if (data.size() < 2 || std::any_of(data.begin(), data.end() - 2, [](int64_t d) { return d != 1; })) return false;
    if (n.is("ScatterND")) {  // [.., rows, depth]: places of whole rows
      const int64_t depth = dims.empty() ? 0 : dims.back();
      if (depth != static_cast<int64_t>(data.size()) - 1 || indices.count() != rows * depth) return false;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t d = 0; d < depth; ++d)
          if (numbers[static_cast<size_t>(r * depth + d)] != (d + 1 == depth ? grid.tokens[static_cast<size_t>(r)] : 0))
            return false;
      return true;
    }
    const int64_t rank = static_cast<int64_t>(data.size());
    int64_t axis = n.attr_int("axis", 0);
    axis = axis < 0 ? axis + rank : axis;
    const int64_t width = data.back();
    if (axis != rank - 2 || indices.count() != rows * width) return false;
    for (int64_t i = 0; i < rows * width; ++i)
      if (numbers[static_cast<size_t>(i)] != grid.tokens[static_cast<size_t>(i / width)]) return false;
    return true;
  }

  // -- what could not be recognised

  Status check_left() const {
    for (const Node& n : graph_.nodes)
      if (n.is("NonZero") && n.has_output(0) && shape(n.out[0]).back().depends_on(kSymN))
        return Status::error(n.label() + ": input 0 (X) " + shape_str(shape(n.in[0]), &graph_.symbol_names()) +
                             " is not known before the step runs, and so neither is the output's extent" +
                             (why_.empty() ? "" : " (a loop over experts was looked for: " + why_ + ")"));
    return Status::ok();
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  int first_ = -1;               // NonZero of data
  std::vector<int> owner_;       // by node: the NonZero whose rows it works on
  std::map<int, Link> links_;    // by scatter
  std::vector<char> has_links_;  // by value
  std::string reason_, why_;
};

}  // namespace

Status recognise_experts(PassContext& context) { return LoopFinder(context).run(); }

}  // namespace situ
