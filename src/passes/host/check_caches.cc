// A cache of a fixed size, into which each step writes the rows of its tokens at their positions, is full when there is
// no place for the next one. What a graph does then differs: a choice by comparison writes nothing, a scatter fails.
// Both are seen by a step of one token: the state is what it was, or is not computed. Where positions are clamped, the
// last place is written again.
//
//   present = Where(Range(N) == position, row, past)    present = ScatterND(past, position, row)    N tokens
//   present = ScatterND(past, Min(position, N - 1), row)
#include <algorithm>
#include <optional>
#include <set>

#include "passes/context/pass_context.h"
#include "passes/host/probe.h"
#include "passes/host/room.h"

namespace situ {
namespace {

constexpr size_t kMostNodes = 64;  // between what a step computes of its token and the state

class Caches {
 public:
  explicit Caches(PassContext& context)
      : context_(context), graph_(context.graph), prober_(graph_, context.binding, context.evaluator) {}

  Status check() {
    int64_t length = context_.length;
    std::optional<Status> wrong;
    for (const StatePair& s : context_.binding.states) {
      if (s.rule != StateRule::kReplace || s.past == kNoValue || s.present == kNoValue) continue;
      state_ = &s;
      leaves_.clear();
      std::set<ValueId> seen;
      if (!find_leaves(s.present, seen) || !leaves_.count(s.past) || writes(length)) continue;
      const int64_t places = most_that(length, [&](int64_t tokens) { return writes(tokens); });
      if (places == 0) continue;  // by another rule, if at all
      const Value& past = graph_.values[s.past];
      const std::string what = "state '" + past.name + "' " + shape_str(past.info.shape, &graph_.symbol_names()) +
                               " has places for " + std::to_string(places);
      wrong = no_room(context_, length, what);
      context_.holds = {{places, what}};
      length = places;
    }
    return wrong.value_or(Status::ok());
  }

 private:
  // Values that the state is made of and that no position tells: the past, and what a step computes of its token.
  bool find_leaves(ValueId v, std::set<ValueId>& seen) {
    if (v == kNoValue || prober_.known(v) || !seen.insert(v).second) return true;
    const int p = graph_.values[v].producer;
    const Node* n = p < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(p)];
    const bool by_position =
        n && std::any_of(n->in.begin(), n->in.end(), [&](ValueId x) { return prober_.changes(x); });
    if (v == state_->past || !n || !(by_position || made_of_past(v))) {
      leaves_.insert(v);
      return can_be_probed(v);
    }
    return seen.size() <= kMostNodes &&
           std::all_of(n->in.begin(), n->in.end(), [&](ValueId x) { return find_leaves(x, seen); });
  }
  bool can_be_probed(ValueId v) const {
    int64_t bytes = std::max<int64_t>(1, dtype_bytes(graph_.values[v].info.type));
    for (const int64_t d : prober_.dims(v, 1, context_.length - 1))
      if (__builtin_mul_overflow(bytes, d, &bytes) || bytes > Evaluator::kMaxProbeBytes) return false;
    return true;
  }
  bool made_of_past(ValueId v) {
    if (past_of_ != state_->past) {
      past_of_ = state_->past;
      made_of_past_ = {state_->past};
      for (const Node& n : graph_.nodes)  // in order
        if (std::any_of(n.in.begin(), n.in.end(), [&](ValueId x) { return made_of_past_.count(x) != 0; }))
          made_of_past_.insert(n.out.begin(), n.out.end());
    }
    return made_of_past_.count(v) != 0;
  }

  // Whether the last of so many tokens is written to a place of its own. Where the first tokens have places of their
  // own, one that changes the same numbers as the token before it takes its place: positions are clamped to the last.
  bool writes(int64_t length) {
    const std::optional<std::vector<char>> last = changed(length);
    if (!last) return false;
    const auto count = [](const std::vector<char>& c) { return std::count(c.begin(), c.end(), 1); };
    if (count(*last) == 0) return false;
    if (length < 3 || changed(length - 1) != last) return true;
    const std::optional<std::vector<char>> first = changed(1), second = changed(2);
    if (!first || !second || first->size() != last->size() || second->size() != last->size()) return true;
    const bool apart = std::none_of(first->begin(), first->end(), [&](const char& c) {
      return c != 0 && (*second)[static_cast<size_t>(&c - first->data())] != 0;
    });
    // What moves all rows on when it is full changes more than one place.
    return !apart || count(*first) == 0 || count(*last) > 2 * count(*first);
  }

  // Which numbers of the state the last of so many tokens changes; all, if it has other dims. Nothing: it fails.
  std::optional<std::vector<char>> changed(int64_t length) {
    std::map<ValueId, Tensor> values;
    uint32_t seed = 1;
    for (const ValueId v : leaves_)
      values[v] = noise(graph_.values[v].info.type, prober_.dims(v, 1, length - 1), seed++);
    const Tensor past = values.at(state_->past);
    const Result<Tensor> present = prober_.evaluate(state_->present, values, 1, length - 1);
    if (!present.is_ok()) return std::nullopt;
    std::vector<char> changes(static_cast<size_t>(present->count()), 1);
    if (present->dims() != past.dims()) return changes;
    const std::vector<double> x = present->to_f64(), y = past.to_f64();
    for (size_t i = 0; i < x.size(); ++i) changes[i] = x[i] != y[i];
    return changes;
  }
  // Numbers that differ, of any type.
  Tensor noise(DType type, const std::vector<int64_t>& dims, uint32_t seed) const {
    if (type == DType::kF32 || type == DType::kF64) return prober_.random(dims, seed, type);
    Tensor t = Tensor::allocate(type, dims);
    const Tensor random = prober_.random(dims, seed);
    for (int64_t i = 0; i < t.count(); ++i) {
      const auto number = static_cast<int64_t>(random.view().as<float>()[i] * 63);
      if (type == DType::kF16)
        t.view().as<uint16_t>()[i] = static_cast<uint16_t>(0x3c00 + 16 * (number + 64));  // 1 to 4
      else if (type == DType::kBF16)
        t.view().as<uint16_t>()[i] = static_cast<uint16_t>(0x3f80 + number / 2 + 32);
      else if (dtype_bytes(type) == 1)
        t.view().as<int8_t>()[i] = static_cast<int8_t>(type == DType::kBool ? number & 1 : number & 63);
      else if (type == DType::kI64)
        t.view().as<int64_t>()[i] = number & 63;
      else if (type == DType::kI32)
        t.view().as<int32_t>()[i] = static_cast<int32_t>(number & 63);
    }
    return t;
  }

  PassContext& context_;
  const Graph& graph_;
  Prober prober_;
  const StatePair* state_ = nullptr;
  std::set<ValueId> leaves_;
  ValueId past_of_ = kNoValue;
  std::set<ValueId> made_of_past_;
};

}  // namespace

Status check_caches(PassContext& context) {
  return context.phase == Phase::kFirst || context.encoder ? Status::ok() : Caches(context).check();
}

}  // namespace situ
