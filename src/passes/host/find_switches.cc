// Rotary factors that follow the length of the whole: a long rope has other ones for sequences beyond the length that
// it was first trained on, for all of their tokens. The graph asks for the length of a step's last token, P + S. What
// it answers becomes a truth about T, the length that the sequence will have behind all that it is fed at once:
//
//   Greater(P + S, 4096) -> T >= 4097
//
// Then the pieces of a prompt have the factors of the whole prompt, in one step with other sequences on the same side
// of 4097. Who runs the graph computes the tokens of a sequence anew when T comes to the other side
// (Binding::switches).
#include <algorithm>
#include <memory>
#include <set>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/host/by_length.h"
#include "passes/host/passes.h"
#include "passes/host/turning_points.h"

namespace situ {
namespace {

class Finder {
 public:
  explicit Finder(PassContext& context)
      : context_(context),
        graph_(context.graph),
        lengths_(graph_, context.binding, context.evaluator),
        values_(graph_, lengths_, context.evaluator, context.phase, context.length) {}

  Status run() {
    find_extents();
    find_answers();
    if (context_.phase == Phase::kDecode) leave_positions();
    SITU_RETURN_IF_ERROR(refuse_others());
    if (answers_.empty()) return Status::ok();
    const std::set<int64_t> needed = needed_turns();
    std::erase_if(answers_, [&](const auto& a) {
      return std::none_of(a.second.turns.begin(), a.second.turns.end(),
                          [&](int64_t t) { return needed.count(t) != 0; });
    });
    if (answers_.empty()) return Status::ok();
    context_.binding.switches.assign(needed.begin(), needed.end());
    for (const auto& [v, truth] : answers_) {
      std::string lengths;
      for (const int64_t turn : truth.turns)
        if (needed.count(turn) != 0) lengths += (lengths.empty() ? "" : ", ") + std::to_string(turn);
      context_.note("length", graph_.values[v].name, "all tokens are computed anew from " + lengths + " tokens on");
    }
    return context_.literal ? Status::ok() : rewrite();
  }

 private:
  // Integers that shapes are made of: how many rows there are in a step follows the step, not the whole.
  void find_extents() {
    static const std::set<std::string> kByShape{"ConstantOfShape", "Expand", "OneHot", "Pad",  "Range",    "Reshape",
                                                "Resize",          "Slice",  "Split",  "Tile", "Unsqueeze"};
    std::vector<ValueId> open;
    const auto push = [&](ValueId v) {
      if (v != kNoValue && lengths_.changes(v) && extents_.insert(v).second) open.push_back(v);
    };
    for (const Node& n : graph_.nodes)
      if (n.domain.empty() && kByShape.count(n.op))
        for (size_t i = n.is("ConstantOfShape") || n.is("Range") ? 0 : 1; i < n.in.size(); ++i) push(n.in[i]);
    while (!open.empty()) {
      const Node* n = graph_.producer(open.back());
      open.pop_back();
      if (n && !n->is("Shape") && !n->is("Size"))
        for (const ValueId v : n->in) push(v);
    }
  }

  // Whether `v` may be a number of the sequence that tokens are computed with. Steps of one token alone do not tell
  // what follows the length from what follows the position: there a bool does.
  bool eligible(ValueId v) const {
    const DType type = graph_.values[v].info.type;
    if (type == DType::kBool) return shape_count(graph_.values[v].info.shape) == Dim(1);
    return context_.phase != Phase::kDecode && (dtype_is_float(type) || !extents_.count(v));
  }

  // The first values on each way that follow the length and are the same at most lengths.
  void find_answers() {
    std::vector<ValueId> order = graph_.inputs;
    for (const Node& n : graph_.nodes) order.insert(order.end(), n.out.begin(), n.out.end());
    // Places in pictures (M-RoPE) are no lengths.
    std::set<ValueId> places;
    for (const auto& [v, role] : context_.binding.inputs)
      if (role == InputRole::kPositions && shape_count(graph_.values[v].info.shape) != tokens_of_step())
        places.insert(v);
    std::set<ValueId> by_answers;  // alone
    for (const ValueId v : order) {
      if (v == kNoValue || !lengths_.host(v)) continue;
      const Node* n = graph_.producer(v);
      const auto made_of = [&](const std::set<ValueId>& values) {
        return n && std::any_of(n->in.begin(), n->in.end(), [&](ValueId x) { return values.count(x) != 0; });
      };
      if (made_of(places)) places.insert(v);
      if (made_of(made_)) made_.insert(v);
      if (made_of(often_)) often_.insert(v);
      if (places.count(v) || !lengths_.changes(v)) continue;
      if (made_.count(v) && std::all_of(n->in.begin(), n->in.end(), [&](ValueId x) {
            return x == kNoValue || by_answers.count(x) != 0 || !lengths_.changes(x);
          })) {
        by_answers.insert(v);
        continue;
      }
      if (!eligible(v) || !shape_is_const(graph_.values[v].info.shape)) continue;
      const ByLength* few = values_.few(v);
      if (!few && context_.phase != Phase::kDecode) often_.insert(v);
      if (made_.count(v) || !few || few->turns.empty()) continue;
      answers_.emplace_back(v, *few);
      made_.insert(v);
      by_answers.insert(v);
    }
  }

  // In steps of one token the last position is as long as the sequence: it tells of the whole what goes on for good,
  // and that tokens are made with. Whatever else it chooses is the position's own.
  void leave_positions() {
    std::erase_if(answers_, [](const auto& a) { return a.second.turns.size() != 1; });
    const std::set<ValueId> rows = behind_rows_of_states();
    std::erase_if(answers_, [&](const auto& a) {
      std::set<ValueId> made{a.first};
      for (const Node& n : graph_.nodes)
        if (std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) { return made.count(v) != 0; }))
          for (const ValueId v : n.out)
            if (lengths_.host(v)) made.insert(v);
      return std::none_of(made.begin(), made.end(), [&](ValueId v) { return rows.count(v) != 0 && !of_keys(v); });
    });
  }
  // Masks, and what is added to scores, are no rows of tokens.
  bool of_keys(ValueId v) const {
    const Shape& shape = graph_.values[v].info.shape;
    return std::any_of(shape.begin(), shape.end(), [](const Dim& d) { return d.depends_on(kSymP); });
  }

  // Where a state's rows are made with numbers that change with more lengths than tokens can be computed anew at: a
  // token has other ones in a step that ends later. What changes with each length (dynamic NTK, queries by their share
  // of the length) is as it is written: rows stay what they were when they were made, as transformers has it, and what
  // hangs on where a prompt is cut is found elsewhere.
  Status refuse_others() {
    if (often_.empty()) return Status::ok();
    for (const ValueId v : behind_rows_of_states()) {
      if (!often_.count(v) || graph_.values[v].info.content) continue;
      const Shape& shape = graph_.values[v].info.shape;
      const auto of_tokens = [](const Dim& d) { return d.depends_on(kSymS); };
      if (!of_keys(v) && std::count_if(shape.begin(), shape.end(), of_tokens) < 2)
        SITU_RETURN_IF_ERROR(refuse_other(v));
    }
    return Status::ok();
  }

  // Host values that nodes read which compute rows of states from data.
  std::set<ValueId> behind_rows_of_states() const {
    std::set<ValueId> read, seen;
    std::vector<ValueId> open;
    for (const StatePair& s : context_.binding.states)
      if (s.rule == StateRule::kAppend && s.present != kNoValue && seen.insert(s.present).second)
        open.push_back(s.present);
    while (!open.empty()) {
      const Node* n = graph_.producer(open.back());
      open.pop_back();
      if (!n) continue;
      for (const ValueId v : n->in) {
        if (v == kNoValue || !seen.insert(v).second) continue;
        if (lengths_.host(v))
          read.insert(v);
        else
          open.push_back(v);
      }
    }
    return read;
  }

  Status refuse_other(ValueId v) {
    std::set<ValueId> seen{v};
    std::vector<ValueId> open{v};
    std::set<int64_t> lengths{2, 3, 18, context_.length / 4, context_.length / 2, context_.length};
    ValueId nearest = kNoValue;
    while (!open.empty()) {
      const ValueId x = open.back();
      open.pop_back();
      if (eligible(x) && shape_is_const(graph_.values[x].info.shape)) {
        const std::vector<int64_t> turns = values_.often(x);
        lengths.insert(turns.begin(), turns.end());
        if (turns.empty()) lengths.insert(turn_between_ends(x));
        const int p = graph_.values[x].producer;
        if (!turns.empty() && (nearest == kNoValue || p > graph_.values[nearest].producer)) nearest = x;
      }
      if (const Node* n = graph_.producer(x))
        for (const ValueId in : n->in)
          if (in != kNoValue && often_.count(in) && seen.insert(in).second) open.push_back(in);
    }
    if (with_each_length(nearest)) return Status::ok();
    const std::vector<int64_t> points = turning_points(graph_, lengths_, {v}).at;
    for (size_t i = 0; i < points.size() && i < kMostPoints; ++i) lengths.insert(points[i] + 2);
    return std::any_of(lengths.begin(), lengths.end(), [&](int64_t n) { return other_in_longer(v, n - 2); })
               ? too_often(nearest, v)
               : Status::ok();
  }

  // A length at which `v`, whose rule is not known, becomes another one for some lengths, if it is another one at the
  // longest than at the shortest; else the longest.
  int64_t turn_between_ends(ValueId v) {
    const auto at = [&](int64_t length) {
      return context_.phase == Phase::kFirst ? lengths_.host_value(v, length, 0)
                                             : lengths_.host_value(v, 1, length - 1);
    };
    int64_t before = 1, behind = context_.length;
    if (behind <= before) return behind;
    const Result<Tensor> shortest = at(before), longest = at(behind);
    if (!shortest.is_ok() || !longest.is_ok() || same_entries(*shortest, *longest)) return behind;
    while (behind - before > 1) {
      const int64_t middle = before + (behind - before) / 2;
      const Result<Tensor> there = at(middle);
      (there.is_ok() && same_entries(*there, *shortest) ? before : behind) = middle;
    }
    if (behind == context_.length) return behind;
    const Result<Tensor> here = at(behind), next = at(behind + 1);
    return here.is_ok() && next.is_ok() && same_entries(*here, *next) ? behind : context_.length;
  }

  bool with_each_length(ValueId v) {
    const std::vector<int64_t> turns = v == kNoValue ? std::vector<int64_t>{} : values_.often(v);
    return std::adjacent_find(turns.begin(), turns.end(), [](int64_t a, int64_t b) { return b == a + 1; }) !=
           turns.end();
  }

  // Whether the token at `place` has other numbers in a step that ends with it than in one that goes on. Beyond the end
  // of a table it has none.
  bool other_in_longer(ValueId v, int64_t place) {
    if (place < 0 || place + 2 > context_.length) return false;
    const bool first = context_.phase == Phase::kFirst;
    const auto at = [&](int64_t tokens, int64_t past) {
      return following().evaluate(v, answers_at(context_.length), tokens, past);
    };
    const auto other = [&](const Result<Tensor>& part, const Result<Tensor>& whole, int64_t past) {
      return part.is_ok() && whole.is_ok() && !part_agrees(graph_.values[v].info.shape, *part, *whole, past);
    };
    const Result<Tensor> ends = first ? at(place + 1, 0) : at(1, place);
    if (!first && other(ends, at(2, place), 0)) return true;
    // Without an axis of tokens it may be of the one token that all steps of the export have.
    const Shape& shape = graph_.values[v].info.shape;
    const bool of_tokens = std::any_of(shape.begin(), shape.end(), [](const Dim& d) { return d.depends_on(kSymS); });
    return of_tokens && place <= kFarPlace && other(ends, at(place + 2, 0), first ? 0 : place);
  }

  Status too_often(ValueId number, ValueId table) {
    const std::vector<int64_t> turns = number == kNoValue ? std::vector<int64_t>{} : values_.often(number);
    const ValueId named = number == kNoValue ? table : number;
    const Node* n = graph_.producer(named);
    std::string what = "tokens are computed with '" + graph_.values[named].name +
                       "', which is another one for the same token where the step ends later, and the rows of states "
                       "would have to be made anew at each step";
    if (!turns.empty() && turns[0] > 2)
      what += "; it is the same up to " + std::to_string(turns[0] - 1) +
              " tokens: a context of these runs (--context " + std::to_string(turns[0] - 1) + ")";
    // Steps of one token would hide it: they have the same numbers whatever follows.
    const Status error = n ? n->error(what, Reason::Kind::kOperator) : Status::error(what);
    return error.or_code(Code::kUnsupportedModel).or_reason(Reason::Kind::kOperator);
  }

  Dim tokens_of_step() const { return context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS); }

  std::set<int64_t> turns() const {
    std::set<int64_t> all;
    for (const auto& [v, truth] : answers_) all.insert(truth.turns.begin(), truth.turns.end());
    return all;
  }

  // Where tokens of a shorter sequence would have other numbers in a longer one.
  std::set<int64_t> needed_turns() {
    Prober& prober = following();
    const std::vector<ValueId> read = read_by_data();
    std::set<int64_t> needed;
    for (const int64_t turn : turns())
      if (others_beyond(turn, prober, read)) needed.insert(turn);
    return needed;
  }

  // What follows the answers, where these are given.
  Prober& following() {
    if (following_) return *following_;
    graph_following_ = graph_;
    for (const ValueId v : made_)
      if (std::none_of(answers_.begin(), answers_.end(), [&](const auto& a) { return a.first == v; }))
        graph_following_.values[v].info.content.reset();
    following_ = std::make_unique<Prober>(graph_following_, context_.binding, context_.evaluator);
    return *following_;
  }

  // What nodes that compute with data read of all that.
  std::vector<ValueId> read_by_data() const {
    std::set<ValueId> read;
    for (const Node& n : graph_.nodes) {
      const bool data =
          std::any_of(n.out.begin(), n.out.end(), [&](ValueId v) { return v != kNoValue && !lengths_.host(v); });
      for (const ValueId v : n.in)
        if (data && made_.count(v)) read.insert(v);
    }
    for (const ValueId v : graph_.outputs)
      if (made_.count(v)) read.insert(v);
    return {read.begin(), read.end()};
  }

  // Whether a token of a sequence that is shorter than `turn` would have other numbers in one that is as long.
  bool others_beyond(int64_t turn, Prober& prober, const std::vector<ValueId>& read) const {
    // Masks of all tokens and keys would take too much memory to look at: the first tokens are looked at then.
    constexpr int64_t kSquare = 256;
    const bool first = context_.phase == Phase::kFirst;
    std::set<int64_t> tokens;
    for (const int64_t t : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{5}, int64_t{17}, turn / 3, turn / 2, turn - 2})
      if (t >= 0 && t <= turn - 2 && (!first || t < kSquare)) tokens.insert(t);
    const TellingSteps telling = telling_steps(graph_, lengths_, read, context_.phase, turn - 1, Judged::kCompared);
    const bool by_row = !telling.told && changes_by_row(read);
    if (!telling.told && !by_row) return true;
    for (const auto& [count, past] : telling.steps)
      if (!first || count < kSquare) tokens.insert(count + past - 1);
    std::vector<std::pair<int64_t, int64_t>> steps;
    for (const int64_t t : tokens) steps.push_back(first ? std::pair(t + 1, int64_t{0}) : std::pair(int64_t{1}, t));
    if (by_row) steps.emplace_back(turn - 1, 0);
    return std::any_of(steps.begin(), steps.end(), [&](const std::pair<int64_t, int64_t>& step) {
      const auto at = [&](int64_t length) {
        return prober.evaluate(read, answers_at(length), step.first, step.second);
      };
      const Result<std::vector<Tensor>> shorter = at(turn - 1), longer = at(turn);
      if (!shorter.is_ok() || !longer.is_ok()) return true;
      for (size_t i = 0; i < read.size(); ++i)
        if (!same_entries((*shorter)[i], (*longer)[i])) return true;
      return false;
    });
  }

  // Numbers of a token each, not of tokens and keys: a step of all tokens shows every one of them.
  bool changes_by_row(const std::vector<ValueId>& read) const {
    return context_.phase != Phase::kDecode && std::all_of(read.begin(), read.end(), [&](ValueId v) {
             return token_axes(graph_.values[v].info.shape) < 2;
           });
  }

  // Of a sequence that will have `length` tokens.
  std::map<ValueId, Tensor> answers_at(int64_t length) const {
    std::map<ValueId, Tensor> given;
    for (const auto& [v, truth] : answers_) {
      given[v] = truth.at(length);
    }
    return given;
  }

  // A table may have more rows than the other one.
  static bool same_entries(const Tensor& a, const Tensor& b) {
    if (a.type() != b.type() || a.rank() != b.rank()) return false;
    for (int i = 1; i < a.rank(); ++i)
      if (a.dims()[static_cast<size_t>(i)] != b.dims()[static_cast<size_t>(i)]) return false;
    const std::vector<double> x = a.to_f64(), y = b.to_f64();
    const size_t both = std::min(x.size(), y.size());
    for (size_t i = 0; i < both; ++i)
      if (x[i] != y[i] && !(x[i] != x[i] && y[i] != y[i])) return false;
    return true;
  }

  Status rewrite() {
    std::vector<std::pair<ValueId, ValueId>> replaced;
    Builder builder(graph_);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (const auto& [v, number] : answers_) {
      builder.start(Node{});
      const Result<ValueId> by = by_whole_length(v, number, builder);
      if (!by.is_ok()) return by.status();
      replaced.emplace_back(v, *by);
    }
    for (Node& n : nodes) builder.keep(std::move(n));
    SITU_RETURN_IF_ERROR(builder.finish());
    for (const auto& [v, by] : replaced) graph_.replace_uses(v, by);
    graph_.remove_dead_nodes();
    return graph_.sort();
  }

  // What `v` is by the length of the whole: a number that the host knows, or one of a table's rows.
  Result<ValueId> by_whole_length(ValueId v, const ByLength& number, Builder& builder) {
    const ValueInfo info = graph_.values[v].info;
    const std::string name = graph_.values[v].name + "/length";
    const Dim length = Dim::symbol(kSymT);
    const bool known = !dtype_is_float(info.type) && shape_count(info.shape) == Dim(1);
    const DType type = known ? info.type : DType::kI64;
    const ValueId by = graph_.add_value(name, type);
    const Shape shape(known ? std::min<size_t>(1, info.shape.size()) : 0, Dim(1));
    graph_.values[by].info = {type, true, shape, std::vector<Dim>{known ? number.of(length) : number.stage(length)}};
    graph_.inputs.push_back(by);
    if (known) return info.shape.size() > 1 ? builder.reshape(by, std::vector<int64_t>(info.shape.size(), 1)) : by;
    Result<Tensor> rows = stacked(context_.evaluator, number.values);
    if (!rows.is_ok()) return rows.status();
    const ValueId table = graph_.add_constant(name + "/values", *rows);
    const ValueId row = builder.op("Gather", {table, by});
    graph_.values[row].info = {info.type, true, info.shape, std::nullopt};
    return row;
  }

  PassContext& context_;
  Graph& graph_;
  static constexpr int64_t kFarPlace = 4096;  // of a token in the longest step that is looked at
  static constexpr size_t kMostPoints = 64;

  Prober lengths_;  // answers are what the lengths of steps tell
  LengthValues values_;
  std::set<ValueId> extents_;
  Graph graph_following_;
  std::unique_ptr<Prober> following_;
  std::vector<std::pair<ValueId, ByLength>> answers_;
  std::set<ValueId> made_;   // of answers, these included
  std::set<ValueId> often_;  // made of numbers of one sequence that change more often, these included
};

}  // namespace

Status find_switches(PassContext& context) {
  if (context.encoder) return Status::ok();
  SITU_RETURN_IF_ERROR(Finder(context).run());
  if (context.endless && !context.binding.switches.empty())
    return Status::error(Code::kInvalidArgument,
                         "no window: tokens are computed anew where the sequence has " +
                             std::to_string(context.binding.switches[0]) +
                             " of them, by tables that follow its length, and a window has not kept them");
  return Status::ok();
}

}  // namespace situ
