// Whether a prompt may be fed in parts: no token's result may depend on a later one, as it does where attention has no
// causal mask, or where something else is computed across tokens. Told from the graph by what each node does along the
// axis of the new tokens, and by probing the masks of attention that stayed as it was exported. Whether tokens of
// several sequences may share a step follows: all nodes but attention and what is made from positions must take them
// one by one.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "passes/compile/token_order.h"
#include "passes/context/binding.h"
#include "passes/context/part.h"
#include "passes/host/equal_operand.h"
#include "passes/host/follows_past.h"
#include "passes/host/mask.h"
#include "passes/host/probe.h"
#include "passes/host/turning_points.h"

namespace situ {
namespace {

constexpr int kMaxConeNodes = 32;
constexpr int64_t kMostFirst = 1 << 24;  // tokens * keys of a step without past, which has no single queries

class Order {
 public:
  Order(const Graph& graph, const Binding& binding, Evaluator& evaluator, Phase phase, int64_t context,
        bool texts = false)
      : graph_(graph),
        binding_(binding),
        prober_(graph, binding, evaluator),
        users_(graph.users()),
        first_(phase == Phase::kFirst),
        texts_(texts),
        context_(context),
        follows_past_(graph) {}

  TokenOrder run() {
    TokenOrder order;
    const auto replaced = std::find_if(binding_.states.begin(), binding_.states.end(), [](const StatePair& s) {
      return s.rule == StateRule::kReplace && s.past != kNoValue;
    });
    const auto of_one = std::find_if(binding_.states.begin(), binding_.states.end(), [&](const StatePair& s) {
      return s.rule == StateRule::kReplace && s.past != kNoValue && !takes_turns(s);
    });
    for (const Node& n : graph_.nodes)
      if (n.is("Softmax")) accept_attention(n);
    for (size_t i = 0; i < graph_.nodes.size() && order.mixing.empty(); ++i)
      if (!accepted_.count(static_cast<int>(i)) && (mixes(graph_.nodes[i]) || reads_whole_state(graph_.nodes[i]))) {
        const bool recurs = replaced != binding_.states.end() && of_step_alone(graph_.nodes[i]) &&
                            add_turns(graph_.nodes[i], &order.reach);
        std::string& across = recurs ? order.recurrence : order.mixing;
        if (across.empty()) across = graph_.nodes[i].label();
      }
    if (!order.recurrence.empty()) add_extents(&order.reach);
    order.by_sequence.assign(graph_.nodes.size(), 0);
    if (of_one != binding_.states.end())
      order.one_sequence = "state '" + graph_.values[of_one->past].name + "' is of one sequence";
    if (first_) order.one_sequence = "the export holds for first steps and for single tokens only";
    if (!order.mixing.empty()) order.one_sequence = "by " + order.mixing + " tokens depend on others";
    for (size_t i = 0; i < graph_.nodes.size() && order.one_sequence.empty(); ++i) {
      const Node& n = graph_.nodes[i];
      const bool known = std::none_of(n.out.begin(), n.out.end(), [&](ValueId v) { return data(v); });
      order.by_sequence[i] = (known && follows_sequence(n)) || token_by_token(n);
      if (accepted_.count(static_cast<int>(i)))
        order.one_sequence = "the attention of " + n.label() + " was not recognised";
      else if (!known && loses_tokens(n))
        order.one_sequence = n.label() + " picks tokens of its step";
    }
    return order;
  }

  TokenOrder run_texts() {
    TokenOrder order;
    order.by_sequence.assign(graph_.nodes.size(), 0);
    for (const Node& n : graph_.nodes)
      if (n.is("Softmax")) accept_attention(n);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& n = graph_.nodes[i];
      const bool known = std::none_of(n.out.begin(), n.out.end(), [&](ValueId v) { return data(v); }),
                 accepted = accepted_.count(static_cast<int>(i)) != 0, across = !accepted && mixes(n);
      if (across && order.mixing.empty()) order.mixing = n.label();
      order.by_sequence[i] =
          across || accepted || token_by_token(n) || (known ? follows_sequence(n) : reads_of_one_text(n));
      if (order.one_sequence.empty() && !known && loses_tokens(n))
        order.one_sequence = n.label() + " picks tokens of its step";
    }
    return order;
  }

 private:
  // What is called for one sequence after the other, and takes its tokens in their order.
  static bool token_by_token(const Node& n) {
    return n.is("Attention", "situ") || n.is("CausalConv", "situ") || n.is("LinearAttention", "situ");
  }

  // A state that one such call alone reads and writes: that of a sequence's next tokens is there when they are taken.
  bool takes_turns(const StatePair& s) const {
    if (s.present == kNoValue || graph_.values[s.present].producer < 0) return false;
    const Node& n = graph_.nodes[static_cast<size_t>(graph_.values[s.present].producer)];
    return n.is("LinearAttention", "situ") && users_[static_cast<size_t>(s.present)].empty() &&
           users_[static_cast<size_t>(s.past)].size() == 1 && n.has_input(3) && n.in[3] == s.past;
  }

  // What is made of a state that another one takes the place of in each step follows where a prompt is cut.
  bool reads_whole_state(const Node& n) const {
    if (n.is("Shape") || n.is("Size")) return false;
    return std::any_of(binding_.states.begin(), binding_.states.end(), [&](const StatePair& s) {
      return s.rule == StateRule::kReplace && s.past != kNoValue && !takes_turns(s) &&
             std::find(n.in.begin(), n.in.end(), s.past) != n.in.end();
    });
  }

  // Whether data is joined with what is another one for each text: a table of positions, as long as the text.
  bool reads_of_one_text(const Node& n) const {
    return std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) {
      if (v == kNoValue || data(v)) return false;
      const auto& content = graph_.values[v].info.content;
      return of_one_sequence_.count(v) != 0 || (content && std::any_of(content->begin(), content->end(), many));
    });
  }

  // Whether what is known on the host is another one for each sequence of a step, not one for all of them. Called for
  // nodes in order.
  bool follows_sequence(const Node& n) {
    const auto any = [](const std::vector<Dim>& dims) {
      return std::any_of(dims.begin(), dims.end(), [](const Dim& d) { return of_sequence(d) || d.depends_on(kSymS); });
    };
    const bool reads = std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) {
      if (v == kNoValue) return false;
      const auto& content = graph_.values[v].info.content;
      return of_one_sequence_.count(v) != 0 || binding_.inputs.count(v) != 0 || (content && any(*content));
    });
    const bool follows =
        reads || std::any_of(n.out.begin(), n.out.end(), [&](ValueId v) { return v != kNoValue && any(shape(v)); });
    if (follows) of_one_sequence_.insert(n.out.begin(), n.out.end());
    return follows;
  }

  bool is_keys(const Dim& d) const { return d.depends_on(kSymP) || (texts_ && many(d)); }
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  bool data(ValueId v) const { return v != kNoValue && !prober_.known(v) && graph_.values[v].info.ranked; }
  static bool many(const Dim& d) { return d.depends_on(kSymS); }
  static int64_t token_axes(const Shape& s) { return std::count_if(s.begin(), s.end(), many); }

  // Scores, Softmax and the product with V, where a mask hides later tokens from earlier ones.
  void accept_attention(const Node& softmax) {
    const ValueId scores = prober_.scores(softmax, kMaxConeNodes);
    if (scores == kNoValue || !data(scores)) return;
    const int64_t rank = static_cast<int64_t>(shape(softmax.in[0]).size()),
                  axis = softmax.attr_int("axis", softmax.opset < 13 ? 1 : -1);
    if ((axis != -1 && axis != rank - 1) || shape(scores).empty() || !is_keys(shape(scores).back())) return;
    const auto cone = prober_.cone(softmax.in[0], scores, kMaxConeNodes);
    if (!cone) return;
    std::vector<ValueId> rules;
    for (int i : cone->nodes) {
      if (picks_by_step(graph_.nodes[i]) || !apart(graph_.nodes[i])) return;
      for (ValueId v : graph_.nodes[i].in) {
        if (!by_position(v)) return;
        if (prober_.changes(v)) rules.push_back(v);
      }
    }
    if (!hides_later(softmax.in[0], scores, rules)) return;
    accepted_.insert(cone->nodes.begin(), cone->nodes.end());
    ValueId v = softmax.out[0];
    accepted_.insert(graph_.values[v].producer);
    for (int hops = 0; hops < 8; ++hops) {
      if (const Node* kept = without_nan(v)) {
        v = kept->out[0];
        continue;
      }
      if (users_[v].size() != 1) return;
      const auto [u, operand] = users_[v][0];
      const Node& n = graph_.nodes[u];
      // A probability of 0 must stay 0, and rows apart.
      const bool product = n.is("MatMul") && operand == 0,
                 moved = (n.def && n.def->placement == Placement::kView) || n.is("Cast") || n.is("RoundLinear", "situ");
      if (!product && !(moved && apart(n))) return;
      accepted_.insert(u);
      if (product || n.out.size() != 1) return;
      v = n.out[0];
    }
  }

  // Where(IsNaN(v), 0, v), of which a row is 0 where every key is hidden; both nodes are accepted. Null: none.
  const Node* without_nan(ValueId v) {
    if (users_[v].size() != 2) return nullptr;
    int test = users_[v][0].first, choice = users_[v][1].first;
    if (test < 0 || choice < 0) return nullptr;
    if (graph_.nodes[test].is("Where")) std::swap(test, choice);
    const Node &is_nan = graph_.nodes[test], &where = graph_.nodes[choice];
    if (!is_nan.is("IsNaN") || !where.is("Where") || where.in[0] != is_nan.out[0] || where.in[2] != v ||
        users_[is_nan.out[0]].size() != 1)
      return nullptr;
    const Tensor& zero = graph_.values[where.in[1]].constant;
    if (!zero.present() || zero.count() != 1 || zero.to_f64()[0] != 0) return nullptr;
    accepted_.insert({test, choice});
    return &where;
  }

  // Between scores and the product with V: each number is made of its own score, and none changes its row or column.
  bool apart(const Node& n) const {
    if (!n.def) return false;
    if (n.is("Concat"))
      return data(n.in[0]) &&
             std::none_of(n.in.begin() + 1, n.in.end(), [&](ValueId v) { return data(v); });  // a sink behind the keys
    if (n.is("Slice") || n.is("Split") || n.is("Gather")) return begins_with_first_key(n);
    if (n.is("Transpose")) {
      const std::vector<int64_t> perm = n.permutation(shape(n.in[0]).size());
      if (perm.size() < 2 || perm.back() != static_cast<int64_t>(perm.size()) - 1 ||
          perm[perm.size() - 2] != static_cast<int64_t>(perm.size()) - 2)
        return false;
    } else if (n.def->placement == Placement::kView) {
      const Shape &x = shape(n.in[0]), &y = shape(n.out[0]);
      if (x.size() < 2 || y.size() < 2 || !(x.back() == y.back()) || !(x[x.size() - 2] == y[y.size() - 2]))
        return false;
    }
    return n.def->placement == Placement::kElementwise || n.def->placement == Placement::kView || n.is("Cast") ||
           n.is("Pow") || n.is("Trilu");
  }
  // A part of rows of scores or probabilities in which the keys stand where they stood.
  bool begins_with_first_key(const Node& n) const {
    const int64_t last = static_cast<int64_t>(shape(n.in[0]).size()) - 1;
    for (size_t o = 0; o < n.out.size(); ++o) {
      const std::optional<AxisPart> part =
          n.has_output(o) && data(n.out[o]) && !users_[n.out[o]].empty() ? part_of(graph_, n, o) : AxisPart{0, Dim(0)};
      if (!part || (static_cast<int64_t>(part->axis) == last && !(part->begin == Dim(0)))) return false;
    }
    return !n.is("Gather");
  }

  // Steps that tell rules at all others. None: none do.
  std::vector<std::pair<int64_t, int64_t>> rule_steps(const std::vector<ValueId>& rules) const {
    TellingSteps telling = telling_steps(graph_, prober_, rules, first_ ? Phase::kFirst : Phase::kAny, context_,
                                         Judged::kByValue, first_ ? kMostFirst : kMostStepElements);
    return telling.told ? std::move(telling.steps) : std::vector<std::pair<int64_t, int64_t>>{};
  }

  // Masks [.., tokens, past + tokens or more], added or (bool) kept, at all these steps.
  template <typename MaskAt>
  bool hides_later(const std::vector<ValueId>& rules, MaskAt mask_at) const {
    const auto steps = rule_steps(rules);
    for (const auto& [tokens, past] : steps) {
      const Result<Tensor> mask = mask_at(tokens, past);
      if (!mask.is_ok() || mask->rank() < 2 || mask->dims()[static_cast<size_t>(mask->rank()) - 2] != tokens)
        return false;
      const int64_t columns = mask->dims().back(), rows = mask->count() / std::max<int64_t>(1, columns);
      if (columns < tokens + past) return false;
      const std::vector<float> values = floats(*mask);
      for (int64_t r = 0; r < rows; ++r) {
        // What is added hides a key beside those that are seen: where a number hides all of these, it hides none.
        const auto row = values.begin() + r * columns, own = row + past + r % tokens + 1;
        const float seen = *std::max_element(row, own),
                    highest = mask->type() == DType::kBool ? 0.0f : kMasked / 2 + std::min(0.0f, seen);
        if (std::any_of(own, row + past + tokens, [&](float later) { return later > highest; })) return false;
      }
    }
    return !steps.empty();
  }

  // What Softmax reads where all scores of later keys are as large, and all others as small, as they may be.
  bool hides_later(ValueId x, ValueId scores, const std::vector<ValueId>& rules) {
    if (graph_.values[scores].info.type != DType::kF32) return false;
    return hides_later(rules, [&](int64_t tokens, int64_t past) {
      const Tensor t = Tensor::allocate(DType::kF32, prober_.dims(scores, tokens, past));
      const int64_t columns = t.dims().back();
      for (int64_t i = 0; i < t.count(); ++i) {
        const bool later = i % columns > past + i / columns % tokens;
        t.view().as<float>()[i] = later ? kLargestScore : -kLargestScore;
      }
      return prober_.evaluate(x, {{scores, t}}, tokens, past);
    });
  }

  bool hides_later(const Node& attention) {
    if (attention.attr_int("causal", 0) != 0) return true;
    if (!attention.has_input(3) || !prober_.host(attention.in[3])) return false;
    if (2 * kLargestScore * std::fabs(attention.attr_float("scale", 1)) > -kMasked / 2) return false;
    return hides_later({attention.in[3]},
                       [&](int64_t tokens, int64_t past) { return prober_.host_value(attention.in[3], tokens, past); });
  }

  // Masks, positions and tables: the same for a token (and a key) however many tokens the step has.
  bool by_position(ValueId v, bool integers = false) {
    if (!prober_.changes(v)) return true;
    const DType type = graph_.values[v].info.type;
    if (!integers && !dtype_is_float(type) && type != DType::kBool) return true;
    if (auto it = by_position_.find(v); it != by_position_.end()) return it->second;
    return by_position_[v] = entries_by_position(graph_, prober_, v, context_, first_);
  }

  // Something below `v` has a row for each token again.
  bool spreads(ValueId v) const {
    std::set<ValueId> seen{v};
    std::vector<ValueId> open{v};
    while (!open.empty()) {
      const ValueId x = open.back();
      open.pop_back();
      for (const auto& [u, operand] : users_[x]) {
        if (u < 0) continue;
        for (ValueId y : graph_.nodes[u].out) {
          if (!data(y) || !seen.insert(y).second) continue;
          if (token_axes(shape(y)) > 0) return true;
          open.push_back(y);
        }
      }
    }
    return false;
  }

  // Reshape keeps the tokens apart if as many numbers stand from one to the next.
  static bool keeps_tokens(const Shape& x, const Shape& y) {
    auto extent = [](const Shape& s) {
      Dim product = 1;
      for (size_t i = static_cast<size_t>(std::find_if(s.begin(), s.end(), many) - s.begin()); i < s.size(); ++i)
        product = product * s[i];
      return product;
    };
    return extent(x) == extent(y);
  }

  // What is left of the tokens are the last ones, of a step of any length.
  bool keeps_last(const Node& n, size_t o, size_t axis) {
    const Dim &all = shape(n.in[0])[axis], kept = n.is("Gather") ? Dim(1) : shape(n.out[o])[axis];
    const auto last = [&](const Dim& begin) { return (begin.upper_bound() < 0 ? all + begin : begin) + kept == all; };
    if (n.is("Split")) {
      const std::optional<AxisPart> part = part_of(graph_, n, o);
      return part && last(part->begin);
    }
    const auto begins = content_of(graph_, n, 1);
    if (n.is("Gather")) return begins && begins->size() == 1 ? last((*begins)[0]) : counts_to_last(n.in[1], all);
    const auto axes = content_of(graph_, n, 3), steps = content_of(graph_, n, 4);
    if (!begins || (n.has_input(3) && (!axes || axes->size() != begins->size())) ||
        (n.has_input(4) && (!steps || steps->size() != begins->size())))
      return false;
    for (size_t i = 0; i < begins->size(); ++i) {
      const Dim given = axes ? (*axes)[i] : Dim(static_cast<int64_t>(i));
      if (!given.is_const()) return false;
      const int64_t rank = static_cast<int64_t>(shape(n.in[0]).size()),
                    at = given.value() < 0 ? given.value() + rank : given.value();
      if (at == static_cast<int64_t>(axis)) return (!steps || (*steps)[i] == Dim(1)) && last((*begins)[i]);
    }
    return false;
  }
  // A place that the host counts, as in a mask: that of the last of `all` rows.
  bool counts_to_last(ValueId place, const Dim& all) {
    if (!prober_.host(place)) return false;
    const auto steps = rule_steps({place});
    return !steps.empty() && std::all_of(steps.begin(), steps.end(), [&](const auto& step) {
      SymbolValues symbols;
      symbols[kSymS] = step.first;
      symbols[kSymP] = symbols[kSymW] = step.second;
      const int64_t rows = all.eval(symbols);
      const Result<Tensor> at = prober_.host_value(place, step.first, step.second);
      if (!at.is_ok() || at->count() != 1 || dtype_is_float(at->type())) return false;
      const int64_t found = at->to_i64()[0];
      return (found < 0 ? found + rows : found) == rows - 1;
    });
  }
  // Parts of an axis of tokens that nothing below has a row for each token of, but those that are the last ones.
  bool keeps_others(const Node& n) {
    const Shape& x = shape(n.in[0]);
    for (size_t o = 0; o < n.out.size(); ++o) {
      if (!n.has_output(o) || (users_[n.out[o]].empty() && !graph_.is_output(n.out[o]))) continue;
      const Shape& y = shape(n.out[o]);
      for (size_t i = 0; i < x.size() && i < y.size(); ++i)
        if (many(x[i]) && x[i] != y[i] && (many(y[i]) || spreads(n.out[o]) || !keeps_last(n, o, i))) return true;
    }
    return false;
  }

  // Adds the lengths of steps beside which what a node reads of them changes; false: it may change anywhere.
  bool add_turns(const Node& n, int64_t* reach) {
    std::vector<ValueId> rules;
    for (const ValueId v : n.in)
      if (prober_.changes(v)) rules.push_back(v);
    if (rules.empty()) return true;
    const TurningPoints points = turning_points(graph_, prober_, rules);
    if (!points.at.empty()) *reach = std::max(*reach, points.at.back());
    return points.plain && !points.anywhere;
  }
  // The rows of a state that stand beside those of a step: what reads both at once forgets them in longer ones.
  void add_extents(int64_t* reach) const {
    for (const Value& v : graph_.values)
      for (const Dim& d : v.info.shape) {
        if (!many(d) || d.depends_on(kSymP)) continue;
        std::vector<int64_t> numbers;
        if (const Dim more = d - Dim::symbol(kSymS); more.is_const())
          numbers.push_back(more.value());
        else if (!d.linear())
          d.piecewise_linear(&numbers);
        for (const int64_t n : numbers) *reach = std::max(*reach, n < 0 ? -n : n);
      }
  }

  // All but the last ones, whose logits are wanted. A state that a call makes anew is another sequence's in the next.
  bool loses_tokens(const Node& n) const {
    if (n.is("LinearAttention", "situ")) return false;
    return std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) { return data(v) && token_axes(shape(v)) > 0; }) &&
           std::any_of(n.out.begin(), n.out.end(), [&](ValueId v) {
             return data(v) && token_axes(shape(v)) == 0 &&
                    std::none_of(shape(v).begin(), shape(v).end(), [](const Dim& d) { return d.depends_on(kSymL); });
           });
  }

  // Slice, Split and Gather of another axis than the tokens' or the keys', where what they take depends on the step.
  bool picks_by_step(const Node& n) const {
    if ((!n.is("Slice") && !n.is("Split") && !n.is("Gather") && !n.is("GatherElements")) || !data(n.in[0]))
      return false;
    if (std::none_of(n.in.begin() + 1, n.in.end(), [&](ValueId v) { return prober_.changes(v); })) return false;
    const Shape& x = shape(n.in[0]);
    if (!n.is("Slice")) return !many(x[static_cast<size_t>(axis_of(n, x, 0))]);
    const auto starts = content_of(graph_, n, 1), ends = content_of(graph_, n, 2), axes = content_of(graph_, n, 3);
    if (!starts || !ends) return true;
    if (n.has_input(3) && (!axes || axes->size() < starts->size() || !shape_is_const(*axes))) return true;
    for (size_t i = 0; i < starts->size() && i < ends->size(); ++i) {
      const int64_t rank = static_cast<int64_t>(x.size()), given = axes ? (*axes)[i].value() : static_cast<int64_t>(i),
                    a = given < 0 ? given + rank : given;
      if (a < 0 || a >= rank) return true;
      if (!many(x[static_cast<size_t>(a)]) && (!(*starts)[i].is_const() || !(*ends)[i].is_const())) return true;
    }
    return false;
  }
  // Nothing that it reads depends on how many tokens are past, but for what earlier nodes made of them.
  bool of_step_alone(const Node& n) {
    return !first_ && std::none_of(n.in.begin(), n.in.end(), [&](ValueId v) {
      if (v == kNoValue || graph_.values[v].constant.present()) return false;
      const Shape& s = shape(v);
      if (std::any_of(s.begin(), s.end(), [](const Dim& d) { return d.depends_on(kSymP) || d.depends_on(kSymW); }))
        return true;
      if (!prober_.changes(v) || !follows_past_(v)) return false;
      const TellingSteps telling = telling_steps(graph_, prober_, {v}, Phase::kAny, context_, Judged::kCompared);
      return !telling.told || std::any_of(telling.steps.begin(), telling.steps.end(), [&](const auto& step) {
        if (step.second == 0) return false;
        const Result<Tensor> early = prober_.host_value(v, step.first, 0),
                             late = prober_.host_value(v, step.first, step.second);
        return !early.is_ok() || !late.is_ok() || early->to_f64() != late->to_f64();
      });
    });
  }
  bool of_past(const Node& n) const {
    return std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) {
      return data(v) && std::any_of(shape(v).begin(), shape(v).end(), [](const Dim& d) { return d.depends_on(kSymP); });
    });
  }
  // Made of tokens of the sequence, not of rows of another source alone.
  bool of_tokens(ValueId v) {
    if (!data(v)) return false;
    if (const auto it = of_tokens_.find(v); it != of_tokens_.end()) return it->second;
    const auto by_token = [](const Dim& d) { return d.depends_on(kSymS) || d.depends_on(kSymP); };
    const Node* n = graph_.values[v].producer < 0 ? nullptr : &graph_.nodes[graph_.values[v].producer];
    return of_tokens_[v] = std::any_of(shape(v).begin(), shape(v).end(), by_token) ||
                           (n && std::any_of(n->in.begin(), n->in.end(), [&](ValueId x) { return of_tokens(x); }));
  }
  // Keys of the new tokens without the past: those of a prompt that is fed in parts would not see each other.
  bool of_step(const Shape& keys) const {
    return !first_ && std::any_of(keys.begin(), keys.end(), [](const Dim& d) {
      return d.depends_on(kSymS) && !d.depends_on(kSymP) && !d.depends_on(kSymW);
    });
  }
  static bool moves_rows(const Node& n) {
    static const std::set<std::string> kMoves{"Cast",    "Concat",  "Expand",    "Flatten",  "Identity",
                                              "Reshape", "Squeeze", "Transpose", "Unsqueeze"};
    return kMoves.count(n.op) || (n.def && n.def->placement == Placement::kElementwise);
  }

  // A convolution that sees of each place that alone.
  bool has_one_tap(const Node& n) const {
    const auto each = [](const auto& list, int64_t number) {
      return std::all_of(list.begin(), list.end(), [&](int64_t x) { return x == number; });
    };
    const Shape& w = shape(n.in[1]);
    return std::all_of(w.begin() + 2, w.end(), [](const Dim& d) { return d == Dim(1); }) &&
           each(n.attr_ints("strides"), 1) && each(n.attr_ints("pads"), 0);
  }

  bool mixes(const Node& n) {
    if (n.out.empty() || !std::any_of(n.out.begin(), n.out.end(), [&](ValueId v) { return data(v); })) return false;
    // Integers are numbers to these; to others they are shapes, axes and places, which follow the step.
    const bool integers = (n.def && n.def->placement == Placement::kElementwise) || n.is("Rotary", "situ");
    if (!n.def || n.def->placement != Placement::kView)
      for (ValueId v : n.in)
        if (!by_position(v, integers)) return true;
    if (n.is("Attention", "situ")) return of_tokens(n.in[1]) && (!hides_later(n) || of_step(shape(n.in[1])));
    if (n.is("CausalConv", "situ") || n.is("LinearAttention", "situ")) return false;
    int64_t most = 0;
    for (ValueId v : n.in)
      if (data(v)) most = std::max(most, token_axes(shape(v)));
    if (picks_by_step(n)) return true;
    if (most == 0)
      return of_past(n) &&
             !moves_rows(n);  // one row, or rows of states alone: how many are past follows from the chunk
    const Shape& y = shape(n.out[0]);
    static const std::set<std::string> kProducts{"MatMul",        "Gemm",          "Project",      "FusedMatMul",
                                                 "MatMulNBits",   "DenseMatMul",   "PackedMatMul", "PackedProjections",
                                                 "IntegerMatMul", "MatMulInteger", "ExpertMatMul", "PackedExperts",
                                                 "DenseExperts"};
    if (n.is("Gemm") && n.attr_int("transA", 0) != 0) return many(shape(n.in[0])[0]);
    if (kProducts.count(n.op)) return many(shape(n.in[0]).back());
    if (n.is("Conv")) return many(shape(n.in[0])[1]) || !has_one_tap(n);
    if (n.is("GatherND")) return data(n.in[0]) && token_axes(shape(n.in[0])) > 0;
    if (n.is("Reshape") && !keeps_tokens(shape(n.in[0]), y)) return true;
    if (!n.def) return true;
    if (n.is("DequantizeLinear") || n.is("QuantizeLinear"))
      return !shape(n.in[1]).empty() && shape_count(shape(n.in[1])) != Dim(1);
    if (n.is("Concat") || n.is("SetRows", "situ"))
      return !is_state(n.out[0]) && many(y[static_cast<size_t>(axis_of(n, y, 0))]);
    // Of all tokens the last is left, for the logits, or the axis is not touched.
    if (n.is("Slice") || n.is("Split") || n.is("Tile")) return walks_back(graph_, n) || keeps_others(n);
    if (n.op.rfind("Gather", 0) == 0) {
      if (!data(n.in[0]) || token_axes(shape(n.in[0])) == 0) return false;
      const size_t axis = static_cast<size_t>(axis_of(n, shape(n.in[0]), 0));
      return many(shape(n.in[0])[axis]) &&
             (token_axes(y) > 0 || spreads(n.out[0]) || !n.is("Gather") || !keeps_last(n, 0, axis));
    }
    if (n.op.rfind("Reduce", 0) == 0 || n.op.rfind("Arg", 0) == 0) return token_axes(y) < most;
    if (n.is("ScatterElements")) return many(shape(n.in[0])[static_cast<size_t>(axis_of(n, shape(n.in[0]), 0))]);
    if (n.is("TopK")) return many(shape(n.in[0])[static_cast<size_t>(axis_of(n, shape(n.in[0]), -1))]);
    if (n.is("Rotary", "situ") || n.def->placement == Placement::kElementwise || n.def->placement == Placement::kView)
      return false;
    if (n.def->placement == Placement::kRowwise && !n.is("Trilu")) {
      const Shape& x = shape(n.in[0]);
      const int first = axis_of(n, x, -1);
      const bool one = n.is("Softmax") || n.is("LogSoftmax") || n.is("LpNormalization");
      for (int i = first;
           i < static_cast<int>(x.size()) && (i == first || !one || (n.opset < 13 && !n.is("LpNormalization"))); ++i)
        if (many(x[static_cast<size_t>(i)])) return true;
      return false;
    }
    return true;
  }

  int axis_of(const Node& n, const Shape& s, int64_t fallback) const {
    const int64_t a = n.attr_int("axis", n.is("Softmax") && n.opset < 13 ? 1 : fallback),
                  rank = static_cast<int64_t>(s.size());
    return static_cast<int>(std::clamp<int64_t>(a < 0 ? a + rank : a, 0, std::max<int64_t>(0, rank - 1)));
  }
  bool is_state(ValueId v) const {
    return std::any_of(binding_.states.begin(), binding_.states.end(),
                       [&](const StatePair& s) { return s.present == v; });
  }

  const Graph& graph_;
  const Binding& binding_;
  Prober prober_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  bool first_;  // the graph holds for steps without past
  bool texts_;  // it is of whole texts
  int64_t context_;
  std::set<int> accepted_;
  std::set<ValueId> of_one_sequence_;
  std::map<ValueId, bool> of_tokens_;
  std::map<ValueId, bool> by_position_;  // host values: what by_position found
  FollowsPast follows_past_;
};

}  // namespace

TokenOrder text_order(const Graph& graph, const Binding& binding, Evaluator& evaluator, int64_t context) {
  return Order(graph, binding, evaluator, Phase::kFirst, context, true).run_texts();
}

TokenOrder token_order(const Graph& graph, const Binding& binding, Evaluator& evaluator, Phase phase, int64_t context) {
  if (phase == Phase::kDecode) return {"", {}, "one token has no later one"};
  return Order(graph, binding, evaluator, phase, context).run();
}

}  // namespace situ
