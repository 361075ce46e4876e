// Calls of a plan's steps, one by one; then what they are in a step of several segments, and their order.
#include <algorithm>
#include <optional>

#include "base/reasons.h"
#include "place/row_groups.h"
#include "schedule/stages.h"

namespace situ {

const Home& operand_home(const Plan& plan, const Call& call, size_t i) {
  const Step& step = plan.steps[static_cast<size_t>(call.step)];
  if (step.move) return i == 0 ? step.from_home : step.to_home;
  return plan.values[static_cast<size_t>(operand_value(call, i))];
}

ValueId operand_value(const Call& call, size_t i) {
  return i < call.in.size() ? call.in[i] : call.out[i - call.in.size()];
}

std::vector<Operand> operands_of(const Plan& plan, const Call& call) {
  std::vector<Operand> list;
  for (size_t i = 0; i < call.in.size() + call.out.size(); ++i) {
    const ValueId v = operand_value(call, i);
    list.push_back({v, v == kNoValue ? nullptr : &operand_home(plan, call, i), i >= call.in.size()});
  }
  return list;
}

namespace {

class Scheduler {
 public:
  Scheduler(const ScheduleSource& source, Schedule* schedule)
      : graph_(source.graph), plan_(source.plan), schedule_(*schedule) {}

  Status add_call(size_t index) {
    const Step& step = plan_.steps[index];
    Call c;
    c.step = static_cast<int>(index);
    if (step.move) {
      c.prepared.kernel = &KernelTable::move;
      c.in = {step.from};
      c.out = {step.to};
    } else {
      const Node& node = graph_.nodes[static_cast<size_t>(step.node)];
      SITU_RETURN_IF_ERROR(prepare(node, &c.prepared));
      c.moves = !step.reason.empty() && node.op.starts_with("Gather");
      c.in = node.in;
      c.out = node.out;
      if (node.is("Attention", "situ") && whole_state(node, 1) && whole_state(node, 1) == whole_state(node, 2))
        c.by_run = 0b110;  // keys and values
      if (node.is("CausalConv", "situ") && whole_state(node, 0)) c.by_run = 0b1;
      c.in_order = node.is("LinearAttention", "situ");
    }
    for (size_t i = 0; i < c.in.size(); ++i)
      schedule_.needs_contiguous = schedule_.needs_contiguous || (c.in[i] != kNoValue && (c.by_run >> i & 1) == 0 &&
                                                                  reads_earlier_rows(operand_home(plan_, c, i)));
    schedule_.calls.push_back(std::move(c));
    return Status::ok();
  }

  void find_row_groups() {
    std::vector<int> call_of(plan_.steps.size());
    for (size_t i = schedule_.calls.size(); i-- > 0;)
      call_of[static_cast<size_t>(schedule_.calls[i].step)] = static_cast<int>(i);
    for (size_t i = 0, end = 0; i < plan_.steps.size(); i = end) {
      end = end_of_row_group(plan_, i);
      const auto first = schedule_.calls.begin() + call_of[i], last = first + static_cast<ptrdiff_t>(end - i);
      if (end - i > 1 &&
          std::all_of(first, last, [](const Call& c) { return c.takes == Takes::kStep && !c.last_rows; }))
        schedule_.row_groups.push_back({call_of[i], call_of[i] + static_cast<int>(end - i)});
    }
  }

 private:
  Status prepare(const Node& node, Prepared* prepared) const {
    if (!node.def || !node.def->prepare) return node.error("no kernel for this operator", Reason::Kind::kOperator);
    PrepareContext context{node, {}, {}, {}};
    for (ValueId v : node.in) {
      context.in.push_back(v == kNoValue ? nullptr : &graph_.values[v].info);
      context.constants.push_back(v == kNoValue || !graph_.values[v].constant.present() ? nullptr
                                                                                        : &graph_.values[v].constant);
    }
    for (ValueId v : node.out) context.out.push_back(v == kNoValue ? nullptr : &graph_.values[v].info);
    SITU_RETURN_IF_ERROR(node.def->prepare(context, prepared));
    return node.check_attribute_kinds();
  }

  // All rows of a state, which runs of slots stand for; a part of them is read where it lies, as by any other kernel.
  // Of which rule; none: it is something else.
  std::optional<StateRule> whole_state(const Node& node, size_t i) const {
    if (!node.has_input(i) || plan_.values[node.in[i]].region != RegionKind::kState) return std::nullopt;
    const Home& home = plan_.values[node.in[i]];
    const StateLayout& state = plan_.states[static_cast<size_t>(home.root)];
    const StatePair& s = state.pair;
    // Forwards: keys in another order are another order of slots.
    if (home.view.dims.size() < 3 || home.view.strides[2] != Dim(state.slot_elements)) return std::nullopt;
    const Dim& rows = graph_.values[node.in[i]].info.shape[2];
    const bool whole = s.rule == StateRule::kAppend
                           ? rows == graph_.values[s.present].info.shape[static_cast<size_t>(s.axis)]
                           : s.rule == StateRule::kSource && s.past != kNoValue && rows == Dim::symbol(kSymE);
    return whole ? std::optional(s.rule) : std::nullopt;
  }

  // Rows of a state that earlier steps wrote, as one stretch. What this step writes lies side by side in any slots.
  bool reads_earlier_rows(const Home& home) const {
    if (home.region != RegionKind::kState ||
        plan_.states[static_cast<size_t>(home.root)].pair.rule != StateRule::kAppend)
      return false;
    const SymView& v = home.view;
    Dim lowest = v.offset - Dim::symbol(kSymW) * Dim(plan_.states[static_cast<size_t>(home.root)].slot_elements);
    for (size_t a = 0; a < v.dims.size(); ++a)
      if (v.strides[a].lower_bound() < 0) lowest = lowest + (v.dims[a] - Dim(1)) * v.strides[a];
    return lowest.lower_bound() < 0;
  }

  const Graph& graph_;
  const Plan& plan_;
  Schedule& schedule_;
};

}  // namespace

Result<Schedule> make_schedule(const Graph& graph, const Plan& plan, const TokenOrder& order) {
  Schedule schedule;
  const ScheduleSource source{graph, plan, order};
  Scheduler scheduler(source, &schedule);
  ReasonList refused;
  for (size_t i = 0; i < plan.steps.size(); ++i) refused.add(scheduler.add_call(i), Reason::Kind::kShape);
  if (!refused.empty()) return refused.status();
  find_segment_calls(source, &schedule);
  find_order(plan, graph, &schedule);
  scheduler.find_row_groups();
  return schedule;
}

}  // namespace situ
