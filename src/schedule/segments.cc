// What calls are in steps with tokens of several sequences: which take them all at once, which one segment at a time.
//
// A product reads its weights once for the tokens of all sequences: it takes rows as they come, and writes the rows of
// K and V by slot. Attention, and what is made from positions, is called for each segment on the part of its operands'
// views that has the segment's tokens.
#include <algorithm>
#include <set>

#include "passes/lower/attention_workspaces.h"
#include "place/row_groups.h"
#include "schedule/stages.h"

namespace situ {
namespace {

template <typename Test>
bool any_dim(const SymView& v, Test test) {
  return test(v.offset) || std::any_of(v.dims.begin(), v.dims.end(), test) ||
         std::any_of(v.strides.begin(), v.strides.end(), test);
}
bool of_past(const SymView& v) { return any_dim(v, of_sequence); }
bool of_step(const SymView& v) {
  return of_past(v) || any_dim(v, [](const Dim& d) { return d.depends_on(kSymS) || d.depends_on(kSymL); });
}

// Whether all that is read lies in rows of tokens whose logits are wanted, as last_token selects them.
bool reads_wanted_rows(const Home& home) {
  return !has_step_rows(home) && home.view.offset.depends_on(kSymL) &&
         !home.view.offset.substitute(kSymL, Dim::symbol(kSymS)).depends_on(kSymS);
}

class SegmentCalls {
 public:
  SegmentCalls(const ScheduleSource& source, Schedule* schedule)
      : graph_(source.graph), plan_(source.plan), order_(source.order), schedule_(*schedule) {
    for (const Call& c : schedule_.calls) operands_.push_back(operands_of(plan_, c));
  }

  void run() {
    find_calls_for_logits();
    schedule_.one_sequence = order_.one_sequence;
    for (size_t i = 0; i < schedule_.calls.size() && schedule_.one_sequence.empty(); ++i)
      schedule_.one_sequence = allow_segments(i);
    if (schedule_.one_sequence.empty()) return find_last_rows();
    for (Call& c : schedule_.calls) {
      c.takes = Takes::kStep;
      c.out_by_slot = 0;
    }
  }

 private:
  // Backwards: what writes state is needed, and what writes a block that something needed reads later.
  void find_calls_for_logits() {
    std::set<std::pair<int, int>> needed;
    for (size_t i = schedule_.calls.size(); i-- > 0;) {
      const std::vector<Operand>& list = operands_[i];
      Call& c = schedule_.calls[i];
      c.step_rows = std::any_of(list.begin(), list.end(),
                                [](const Operand& o) { return o.written && o.present() && has_step_rows(*o.home); });
      c.for_logits = std::none_of(list.begin(), list.end(), [&](const Operand& o) {
        return o.written && o.present() && (o.home->region == RegionKind::kState || needed.count(o.block()));
      });
      if (c.for_logits) continue;
      for (const Operand& o : list)
        if (!o.written && o.present()) needed.insert(o.block());
    }
  }

  // The integers of the operand are known on the host, which writes them before the step.
  bool host_integers(const Operand& o) const {
    return o.home->region == RegionKind::kIo && graph_.values[o.value].info.content.has_value();
  }

  // The operand is another one for each sequence, whatever tokens they feed.
  bool follows_sequence(const Operand& o) const {
    if (!o.present()) return false;
    if (of_past(o.home->view) || is_handed_in(graph_, plan_, *o.home)) return true;
    if (!host_integers(o)) return false;
    const auto& content = *graph_.values[o.value].info.content;
    return std::any_of(content.begin(), content.end(),
                       [](const Dim& d) { return of_sequence(d) || d.depends_on(kSymS); });
  }

  // Results whose rows lie in the state, one for each token: products write them by slot (out_rows in kernels/rows.h).
  uint32_t outputs_by_slot(const Call& c) const {
    const Step& s = plan_.steps[static_cast<size_t>(c.step)];
    if (s.move || !is_row_product(graph_.nodes[static_cast<size_t>(s.node)])) return 0;
    const size_t leading = graph_.values[c.in[0]].info.shape.size() - 1;
    uint32_t mask = 0;
    for (size_t o = 0; o < c.out.size(); ++o) {
      const Home& h = plan_.values[c.out[o]];
      if (h.region != RegionKind::kState || h.view.dims.size() != leading + 1) continue;
      bool rows = !of_sequence(h.view.offset.substitute(kSymW, Dim(0)));
      for (size_t a = 0; a <= leading; ++a) {
        rows = rows && (h.view.dims[a] == Dim(1) || h.view.strides[a].is_const());
        if (a < leading) rows = rows && h.view.dims[a] == (a + 1 == leading ? Dim::symbol(kSymS) : Dim(1));
      }
      if (rows) mask |= 1u << o;
    }
    return mask;
  }

  // What stands against segments in this call; "": nothing.
  std::string allow_segments(size_t index) {
    Call& c = schedule_.calls[index];
    const Step& step = plan_.steps[static_cast<size_t>(c.step)];
    const std::vector<Operand>& list = operands_[index];
    const uint32_t by_slot = outputs_by_slot(c);
    bool each = !step.move && order_.by_sequence[static_cast<size_t>(step.node)];
    bool follows = false, all_by_slot = true;
    for (size_t i = 0; i < list.size(); ++i) {
      if (!follows_sequence(list[i])) continue;
      follows = true;
      all_by_slot = all_by_slot && i >= c.in.size() && (by_slot >> (i - c.in.size()) & 1) != 0;
    }
    if (follows && all_by_slot && !each)
      c.out_by_slot = by_slot;
    else
      each = each || follows;
    if (!each) return "";
    c.takes = reads_table(c) ? Takes::kTable : Takes::kEach;
    for (const Operand& o : list) {
      if (!o.present() || is_workspace(c, o.value)) continue;
      // A result that all tokens of a step share would be another one for each sequence.
      const bool shared = o.written && o.home->region == RegionKind::kArena && !has_step_rows(*o.home);
      const std::string problem = shared ? "it is one for the whole step" : part_problem(*o.home, host_integers(o));
      if (!problem.empty())
        return graph_.nodes[static_cast<size_t>(step.node)].label() + " takes one sequence at a time, but '" +
               graph_.values[o.value].name + "' has no part for each: " + problem;
    }
    return "";
  }

  // Attention over states; a mask or bias that is computed is another one for each sequence.
  bool reads_table(const Call& c) const {
    const Node& node = graph_.nodes[static_cast<size_t>(plan_.steps[static_cast<size_t>(c.step)].node)];
    return c.by_run != 0 && node.is("Attention", "situ") && !node.has_input(3);
  }

  bool is_workspace(const Call& c, ValueId v) const {
    const Step& step = plan_.steps[static_cast<size_t>(c.step)];
    return !step.move && v == attention_workspace(graph_.nodes[static_cast<size_t>(step.node)]);
  }

  // Backwards: a call for logits computes the rows of wanted tokens alone unless something reads others of its result,
  // or its operands cannot be cut.
  void find_last_rows() {
    std::set<std::pair<int, int>> whole;  // blocks of which other rows are read
    for (size_t i = schedule_.calls.size(); i-- > 0;) {
      Call& c = schedule_.calls[i];
      const std::vector<Operand>& list = operands_[i];
      c.last_rows = c.for_logits && std::all_of(list.begin(), list.end(), [&](const Operand& o) {
                      return !o.written || !o.present() || is_workspace(c, o.value) ||
                             (has_step_rows(*o.home) && whole.count(o.block()) == 0);
                    });
      if (c.takes == Takes::kStep) c.last_rows = c.last_rows && can_be_cut(list);
      for (const Operand& o : list)
        if (!o.written && o.present() && !c.last_rows && !(c.for_logits && reads_wanted_rows(*o.home)))
          whole.insert(o.block());
    }
  }

  // Every operand has rows of some tokens, or is the same for all of them.
  static bool can_be_cut(const std::vector<Operand>& list) {
    return std::all_of(list.begin(), list.end(), [](const Operand& o) {
      if (!o.present()) return true;
      return (is_of_step(o.home->region) || !of_step(o.home->view)) && part_problem(*o.home, false).empty();
    });
  }

  const Graph& graph_;
  const Plan& plan_;
  const TokenOrder& order_;
  Schedule& schedule_;
  std::vector<std::vector<Operand>> operands_;  // by call
};

}  // namespace

bool has_step_rows(const Home& home) {
  return std::any_of(home.view.dims.begin(), home.view.dims.end(), [](const Dim& d) { return d.depends_on(kSymS); });
}

bool is_handed_in(const Graph& graph, const Plan& plan, const Home& home) {
  return home.region == RegionKind::kPort && has_step_rows(home) &&
         graph.values[plan.ports[static_cast<size_t>(home.root)].value].producer < 0;
}

std::string part_problem(const Home& home, bool own) {
  const SymView& v = home.view;
  if (own) return v.offset.is_const() ? "" : "it begins at " + v.offset.str();
  if (!is_of_step(home.region)) return "";
  bool tokens = false;  // an axis is the tokens
  for (size_t a = 0; a < v.dims.size(); ++a) {
    const Dim& d = v.dims[a];
    if (of_sequence(v.strides[a])) return "its rows are " + v.strides[a].str() + " apart";
    if (d == Dim::symbol(kSymS) && !tokens)
      tokens = true;
    else if (of_sequence(d) || d.depends_on(kSymS) || d.depends_on(kSymL))
      return "of " + shape_str(v.dims) + " no part can be told";
  }
  return of_sequence(v.offset) ? "it begins at " + v.offset.str() : "";
}

void find_segment_calls(const ScheduleSource& source, Schedule* schedule) { SegmentCalls(source, schedule).run(); }

}  // namespace situ
