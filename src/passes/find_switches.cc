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
#include <set>

#include "passes/builder.h"
#include "passes/by_length.h"

namespace situ {
namespace {

class Finder {
 public:
  explicit Finder(PassContext& context)
      : context_(context), graph_(context.graph), lengths_(graph_, context.binding, context.evaluator) {}

  Status run() {
    find_answers();
    if (answers_.empty()) return Status::ok();
    const std::set<int64_t> needed = needed_turns();
    std::erase_if(answers_, [&](const auto& a) {
      return std::none_of(a.second.turns.begin(), a.second.turns.end(),
                          [&](int64_t t) { return needed.count(t) != 0; });
    });
    if (answers_.empty()) return Status::ok();
    const std::set<int64_t> all = turns();
    context_.binding.switches.assign(all.begin(), all.end());
    for (const auto& [v, truth] : answers_) {
      std::string lengths;
      for (const int64_t turn : truth.turns) lengths += (lengths.empty() ? "" : ", ") + std::to_string(turn);
      context_.note("length", graph_.values[v].name, "all tokens are computed anew from " + lengths + " tokens on");
    }
    return context_.literal ? Status::ok() : rewrite();
  }

 private:
  // The first values on each way that follow the length and are the same at most lengths.
  void find_answers() {
    std::vector<ValueId> order = graph_.inputs;
    for (const Node& n : graph_.nodes) order.insert(order.end(), n.out.begin(), n.out.end());
    // Places in pictures (M-RoPE) are no lengths.
    std::set<ValueId> places;
    for (const auto& [v, role] : context_.binding.inputs)
      if (role == InputRole::kPositions && shape_count(graph_.values[v].info.shape) != tokens_of_step())
        places.insert(v);
    for (const ValueId v : order) {
      if (v == kNoValue || !lengths_.host(v)) continue;
      const Node* n = graph_.producer(v);
      const auto made_of = [&](const std::set<ValueId>& values) {
        return n && std::any_of(n->in.begin(), n->in.end(), [&](ValueId x) { return values.count(x) != 0; });
      };
      if (made_of(places)) places.insert(v);
      if (made_of(made_)) made_.insert(v);
      if (places.count(v) || made_.count(v)) continue;
      const std::optional<ByLength> truth = by_length(graph_, lengths_, v, context_.phase, context_.length);
      if (!truth || truth->turns.empty()) continue;
      answers_.emplace_back(v, *truth);
      made_.insert(v);
    }
  }

  Dim tokens_of_step() const { return context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS); }

  std::set<int64_t> turns() const {
    std::set<int64_t> all;
    for (const auto& [v, truth] : answers_) all.insert(truth.turns.begin(), truth.turns.end());
    return all;
  }

  // Where tokens of a shorter sequence would have other numbers in a longer one.
  std::set<int64_t> needed_turns() {
    // What the host knows of lengths is to follow from the answers.
    Graph graph = graph_;
    for (const ValueId v : made_)
      if (std::none_of(answers_.begin(), answers_.end(), [&](const auto& a) { return a.first == v; }))
        graph.values[v].info.content.reset();
    Prober prober(graph, context_.binding, context_.evaluator);
    const std::vector<ValueId> read = read_by_data();
    std::set<int64_t> needed;
    for (const int64_t turn : turns())
      if (others_beyond(turn, prober, read)) needed.insert(turn);
    return needed;
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
    return std::any_of(tokens.begin(), tokens.end(), [&](int64_t t) {
      const auto step = first ? std::pair(t + 1, int64_t{0}) : std::pair(int64_t{1}, t);
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

  // Of a sequence that will have `length` tokens.
  std::map<ValueId, Tensor> answers_at(int64_t length) const {
    std::map<ValueId, Tensor> given;
    for (const auto& [v, truth] : answers_) {
      Tensor t = Tensor::allocate(DType::kBool, std::vector<int64_t>(graph_.values[v].info.shape.size(), 1));
      *t.view().as<uint8_t>() = truth.at(length);
      given[v] = t;
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
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (const auto& [v, truth] : answers_) {
      const ValueInfo info = graph_.values[v].info;
      const ValueId by = graph_.add_value(graph_.values[v].name + "/length", info.type);
      Shape shape(std::min<size_t>(1, info.shape.size()), Dim(1));
      graph_.values[by].info = {info.type, true, shape, std::vector<Dim>{truth.of(Dim::symbol(kSymT))}};
      graph_.inputs.push_back(by);
      ValueId result = by;
      if (info.shape.size() > 1) {
        builder.start(Node{});
        result = builder.reshape(by, std::vector<int64_t>(info.shape.size(), 1));
      }
      replaced.emplace_back(v, result);
    }
    for (Node& n : nodes) builder.keep(std::move(n));
    SITU_RETURN_IF_ERROR(builder.finish());
    for (const auto& [v, by] : replaced) graph_.replace_uses(v, by);
    graph_.remove_dead_nodes();
    return graph_.sort();
  }

  PassContext& context_;
  Graph& graph_;
  Prober lengths_;  // answers are what the lengths of steps tell
  std::vector<std::pair<ValueId, ByLength>> answers_;
  std::set<ValueId> made_;  // of answers, these included
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
