// The verifier of schedules. It shares no code with make_schedule: it takes the operands of a call from the graph,
// finds their bytes from the homes, and follows the edges. What depends on the step is looked at in a few steps.
#include "schedule/verify_schedule.h"

#include <algorithm>
#include <set>

namespace situ {
namespace {

std::string bytes_text(const Touch& t) {
  return "bytes [" + std::to_string(t.begin) + ", " + (t.end == kBlockEnd ? "end" : std::to_string(t.end)) + ") of " +
         region_name(t.home->region) + " block " + std::to_string(t.home->root);
}

class Verifier {
 public:
  explicit Verifier(const ScheduleFacts& facts) : f_(facts), schedule_(facts.schedule) {}

  Status run() {
    SITU_RETURN_IF_ERROR(check_calls());
    SITU_RETURN_IF_ERROR(check_edges());
    SITU_RETURN_IF_ERROR(check_accesses());
    SITU_RETURN_IF_ERROR(check_conflicts());
    SITU_RETURN_IF_ERROR(check_left_out());
    SITU_RETURN_IF_ERROR(verify_row_groups(f_));
    return verify_segments(f_);
  }

 private:
  int count() const { return static_cast<int>(schedule_.calls.size()); }
  Status wrong(int call, const std::string& what) const { return Status::error(f_.label(call) + " " + what); }

  // Every step is called once, on its operands.
  Status check_calls() {
    std::vector<std::vector<int>> of_step(f_.plan.steps.size());
    for (int i = 0; i < count(); ++i) {
      const int step = f_.call(i).step;
      if (step < 0 || step >= static_cast<int>(of_step.size()))
        return Status::error("call " + std::to_string(i) + " is of no step");
      of_step[static_cast<size_t>(step)].push_back(i);
    }
    for (size_t s = 0; s < of_step.size(); ++s) {
      const Step& step = f_.plan.steps[s];
      const Node& node = f_.graph.nodes[static_cast<size_t>(step.node)];
      const std::vector<int>& calls = of_step[s];
      if (calls.size() != 1)
        return Status::error("step " + std::to_string(s) + " (" + node.label() + ") is called " +
                             std::to_string(calls.size()) + " times");
      const Call& c = f_.call(calls[0]);
      if (c.prepared.kernel == nullptr) return wrong(calls[0], "has no kernel");
      if (c.in != (step.move ? std::vector<ValueId>{step.from} : node.in) ||
          c.out != (step.move ? std::vector<ValueId>{step.to} : node.out))
        return wrong(calls[0], "is not called on its step's operands");
    }
    return Status::ok();
  }

  Status check_edges() {
    int last = 0;
    const size_t words = (static_cast<size_t>(count()) + 63) / 64;
    chain_ = count() > kMostCalls;
    if (!chain_) behind_.assign(static_cast<size_t>(count()), std::vector<uint64_t>(words, 0));
    int linked = 0;  // calls [0, linked] are a chain
    for (const Edge& e : schedule_.edges) {
      if (e.before < 0 || e.before >= e.after || e.after >= count() || e.after < last)
        return Status::error("edge " + std::to_string(e.before) + " -> " + std::to_string(e.after) +
                             " does not go forward, or does not stand in order");
      last = e.after;
      if (e.before == linked && e.after == linked + 1) ++linked;
      if (chain_) continue;
      std::vector<uint64_t>& own = behind_[static_cast<size_t>(e.after)];
      const std::vector<uint64_t>& other = behind_[static_cast<size_t>(e.before)];
      for (size_t w = 0; w < words; ++w) own[w] |= other[w];
      own[static_cast<size_t>(e.before) / 64] |= uint64_t{1} << (e.before % 64);
    }
    if (chain_ && linked + 1 != count())
      return Status::error("a schedule of " + std::to_string(count()) + " calls has no edge from each to the next");
    return Status::ok();
  }
  bool ordered(int before, int after) const {
    if (chain_) return before < after;
    return (behind_[static_cast<size_t>(after)][static_cast<size_t>(before) / 64] >> (before % 64) & 1) != 0;
  }

  // What a call touches lies within what the schedule says that it touches.
  Status check_accesses() const {
    for (int i = 0; i < count(); ++i) {
      const Call& c = f_.call(i);
      if (c.first_access < 0 || c.accesses < 0 ||
          static_cast<size_t>(c.first_access) + static_cast<size_t>(c.accesses) > schedule_.accesses.size())
        return wrong(i, "has accesses that are not in the schedule");
      const auto begin = schedule_.accesses.begin() + c.first_access, end = begin + c.accesses;
      for (const Touch& t : f_.touches[static_cast<size_t>(i)]) {
        const bool known = std::any_of(begin, end, [&](const Access& a) {
          return a.region == t.home->region && a.root == t.home->root && a.write == t.write && a.begin <= t.begin &&
                 t.end <= a.end;
        });
        if (!known)
          return wrong(i, std::string(t.write ? "writes " : "reads ") + bytes_text(t) + ", which no access says");
      }
    }
    return Status::ok();
  }

  // A piece of memory that every touch covers or leaves alone. Those that later calls must be ordered behind: the last
  // writers and the readers since. What stood before a write is ordered before it, and so before all that wait for it.
  struct Piece {
    std::vector<int> writers, readers;
  };

  Status check_conflicts() const {
    const std::vector<int> order = in_plan_order();
    if (chain_ && std::is_sorted(order.begin(), order.end())) return Status::ok();
    std::map<std::pair<RegionKind, int>, std::vector<int64_t>> borders;  // of the pieces
    for (const auto& touches : f_.touches)
      for (const Touch& t : touches) {
        std::vector<int64_t>& list = borders[f_.memory(t)];
        list.push_back(f_.base(t) + t.begin);
        list.push_back(t.end == kBlockEnd ? kBlockEnd : f_.base(t) + t.end);
      }
    std::map<std::pair<RegionKind, int>, std::vector<Piece>> pieces;
    for (auto& [memory, list] : borders) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
      pieces[memory].resize(list.size());
    }
    for (int i : order)
      for (const Touch& t : f_.touches[static_cast<size_t>(i)]) {
        const std::vector<int64_t>& list = borders[f_.memory(t)];
        const int64_t end = t.end == kBlockEnd ? kBlockEnd : f_.base(t) + t.end;
        auto at = std::lower_bound(list.begin(), list.end(), f_.base(t) + t.begin);
        for (; at != list.end() && *at < end; ++at)
          SITU_RETURN_IF_ERROR(touch(pieces[f_.memory(t)][static_cast<size_t>(at - list.begin())], i, t));
      }
    return Status::ok();
  }

  Status touch(Piece& piece, int call, const Touch& t) const {
    for (std::vector<int>* list : {&piece.writers, &piece.readers}) {
      if (list == &piece.readers && !t.write) break;
      for (const int other : *list)
        if (other != call && !ordered(other, call))
          return wrong(call, std::string(t.write ? "writes " : "reads ") + bytes_text(t) + ", and does not wait for " +
                                 f_.label(other) + ", which " + (list == &piece.writers ? "writes" : "reads") +
                                 " there");
      if (t.write) std::erase_if(*list, [&](int other) { return other != call; });
    }
    (t.write ? piece.writers : piece.readers).push_back(call);
    return Status::ok();
  }

  std::vector<int> in_plan_order() const {
    std::vector<int> order(static_cast<size_t>(count()));
    for (int i = 0; i < count(); ++i) order[static_cast<size_t>(i)] = i;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return f_.call(a).step < f_.call(b).step; });
    return order;
  }

  // Where no logits are wanted, states are still made: by calls that run, from what such calls make.
  Status check_left_out() const {
    std::vector<std::vector<int>> calls_of(f_.graph.nodes.size());
    for (int i = 0; i < count(); ++i)
      calls_of[static_cast<size_t>(f_.plan.steps[static_cast<size_t>(f_.call(i).step)].node)].push_back(i);
    std::vector<ValueId> open;
    for (const StateLayout& s : f_.plan.states)
      if (s.pair.present != kNoValue) open.push_back(s.pair.present);
    std::set<ValueId> seen(open.begin(), open.end());
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      const Value& value = f_.graph.values[static_cast<size_t>(v)];
      if (value.producer < 0 || value.constant.present() || value.info.content) continue;
      for (int i : calls_of[static_cast<size_t>(value.producer)])
        if (f_.call(i).for_logits) return wrong(i, "is left out without logits, and the states are made of it");
      for (ValueId x : f_.graph.nodes[static_cast<size_t>(value.producer)].in)
        if (x != kNoValue && seen.insert(x).second) open.push_back(x);
    }
    return Status::ok();
  }

  static constexpr int kMostCalls = 8192;  // for `behind_`; longer schedules are one chain

  const ScheduleFacts& f_;
  const Schedule& schedule_;
  bool chain_ = false;
  std::vector<std::vector<uint64_t>> behind_;  // by call: a bit for each call that is ordered before it
};

}  // namespace

ScheduleFacts::ScheduleFacts(const Graph& g, const Plan& p, const TokenOrder& o, const Schedule& s)
    : graph(g), plan(p), order(o), schedule(s) {}

Status ScheduleFacts::find_touches() {
  for (int i = 0; i < static_cast<int>(schedule.calls.size()); ++i) {
    const Call& c = call(i);
    if (c.step < 0 || c.step >= static_cast<int>(plan.steps.size()))
      return Status::error("call " + std::to_string(i) + " is of no step");
    touches.emplace_back();
    for (size_t k = 0; k < c.in.size() + c.out.size(); ++k) {
      const bool write = k >= c.in.size();
      const ValueId v = write ? c.out[k - c.in.size()] : c.in[k];
      if (v == kNoValue) continue;
      const Step& step = plan.steps[static_cast<size_t>(c.step)];
      const Home& home = !step.move ? plan.values[static_cast<size_t>(v)] : write ? step.to_home : step.from_home;
      if (home.region == RegionKind::kNone || home.region == RegionKind::kWeights) {
        if (write) return Status::error(label(i) + " writes what is no memory of a step");
        continue;
      }
      touches.back().push_back(touch_of(home, graph.values[static_cast<size_t>(v)].info.type, write));
      touches.back().back().operand = k;
    }
  }
  return Status::ok();
}

Touch ScheduleFacts::touch_of(const Home& home, DType type, bool write) const {
  Touch t{&home, type, write, 0, kBlockEnd, 0};
  if (const Root* root = plan.root_of(home)) t.end = root->bytes;
  const SymView& v = home.view;
  const auto is_const = [](const Dim& d) { return d.is_const(); };
  if (!v.offset.is_const() || !std::all_of(v.strides.begin(), v.strides.end(), is_const)) return t;
  const bool sized = std::all_of(v.dims.begin(), v.dims.end(), is_const);
  int64_t low = v.offset.value(), high = low + 1;
  for (size_t a = 0; a < v.dims.size(); ++a) {
    const int64_t stride = v.strides[a].value();
    if (!v.dims[a].is_const() && stride < 0) return t;
    if (!v.dims[a].is_const()) continue;
    if (v.dims[a].value() <= 0) return {&home, type, write, 0, 0, 0};
    (stride < 0 ? low : high) += (v.dims[a].value() - 1) * stride;
  }
  const int64_t size = std::max<int64_t>(1, dtype_bytes(type));
  t.begin = std::max<int64_t>(0, low * size);
  if (sized) t.end = std::min(t.end, high * size);
  return t;
}

std::string ScheduleFacts::label(int i) const {
  const Step& step = plan.steps[static_cast<size_t>(call(i).step)];
  return "call " + std::to_string(i) + (step.move ? " (move of " : " (") +
         graph.nodes[static_cast<size_t>(step.node)].label() + ")";
}

std::pair<RegionKind, int> ScheduleFacts::memory(const Touch& t) const {
  return {t.home->region, t.home->region == RegionKind::kArena ? -1 : t.home->root};
}
int64_t ScheduleFacts::base(const Touch& t) const {
  return t.home->region == RegionKind::kArena ? plan.arena[static_cast<size_t>(t.home->root)].offset : 0;
}

Status verify_schedule(const Graph& graph, const Plan& plan, const TokenOrder& order, const Schedule& schedule) {
  ScheduleFacts facts(graph, plan, order, schedule);
  SITU_RETURN_IF_ERROR(facts.find_touches());
  return Verifier(facts).run().with_context("schedule");
}

}  // namespace situ
