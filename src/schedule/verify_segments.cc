// What a schedule says of rows and segments, looked at in steps of 5 and 6 tokens: as affine views, they are right in
// all steps if they are in two.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "passes/lower/attention_workspaces.h"
#include "schedule/verify_schedule.h"

namespace situ {
namespace {

constexpr int64_t kTokens = 5, kMoreTokens = 6, kWanted = 2, kPast = 3, kSlot = 11, kWhole = 1 << 20;

int64_t size_of(DType type) { return std::max<int64_t>(1, dtype_bytes(type)); }

// The axis of a value that is its tokens: the first as long as the step, in every step; -1: none.
int token_axis(const Home& home) {
  const StepView five = view_at(home, step_values(kTokens, 1, 0, 0)),
                 six = view_at(home, step_values(kMoreTokens, 1, 0, 0));
  for (size_t a = 0; a < five.dims.size(); ++a)
    if (five.dims[a] == kTokens && six.dims[a] == kMoreTokens) return static_cast<int>(a);
  return -1;
}

// Rows [first, last) of a view along an axis.
StepView rows_of(StepView v, int axis, int64_t first, int64_t last) {
  v.offset += first * v.strides[static_cast<size_t>(axis)];
  v.dims[static_cast<size_t>(axis)] = last - first;
  return v;
}

ByteRange hull(const StepView& view, DType type) {
  const std::vector<ByteRange> bytes = bytes_of(view, type);
  return bytes.empty() ? ByteRange{} : ByteRange{bytes.front().begin, bytes.back().end};
}
bool overlap(const ByteRange& a, const ByteRange& b) { return a.begin < b.end && b.begin < a.end; }

// The kernels of these take rows [1 .., S, K] of their first operand to rows [1 .., S, N], each by itself.
bool takes_rows(const Node& n) {
  return n.domain == "situ" &&
         (n.op == "PackedMatMul" || n.op == "PackedProjections" || n.op == "DenseMatMul" || n.op == "IntegerMatMul");
}

// [1 .., S, N]
bool are_rows(const Home& home) {
  for (int64_t tokens : {kTokens, kMoreTokens}) {
    const StepView v = view_at(home, step_values(tokens, 1, 0, 0));
    if (v.dims.size() < 2 || v.dims[v.dims.size() - 2] != tokens) return false;
    for (size_t a = 0; a + 2 < v.dims.size(); ++a)
      if (v.dims[a] != 1) return false;
  }
  return true;
}

// Row r of one meets no other row of the other one.
bool same_rows(const Touch& a, const Touch& b) {
  if (a.home->root != b.home->root || !are_rows(*a.home) || !are_rows(*b.home)) return false;
  for (int64_t tokens : {kTokens, kMoreTokens}) {
    const SymbolValues step = step_values(tokens, 1, kPast, kSlot);
    const StepView va = view_at(*a.home, step), vb = view_at(*b.home, step);
    const int axis_a = static_cast<int>(va.dims.size()) - 2, axis_b = static_cast<int>(vb.dims.size()) - 2;
    for (int64_t r = 0; r < tokens; ++r)
      for (int64_t q = 0; q < tokens; ++q)
        if (r != q && overlap(hull(rows_of(va, axis_a, r, r + 1), a.type), hull(rows_of(vb, axis_b, q, q + 1), b.type)))
          return false;
  }
  return true;
}

class SegmentVerifier {
 public:
  explicit SegmentVerifier(const ScheduleFacts& facts) : f_(facts) {}

  Status run() const {
    if (f_.schedule.one_sequence.empty() && !f_.order.one_sequence.empty())
      return Status::error("steps may have several sequences, but " + f_.order.one_sequence);
    for (int i = 0; i < static_cast<int>(f_.schedule.calls.size()); ++i) {
      SITU_RETURN_IF_ERROR(check_runs(i));
      const Call& c = f_.call(i);
      if (!f_.schedule.one_sequence.empty()) {
        if (c.takes != Takes::kStep || c.last_rows || c.out_by_slot != 0)
          return wrong(i, "is one of several segments, which the steps do not have");
        continue;
      }
      SITU_RETURN_IF_ERROR(c.takes == Takes::kEach ? check_each(i) : check_whole(i));
    }
    return f_.schedule.one_sequence.empty() ? check_last_rows() : Status::ok();
  }

 private:
  Status wrong(int call, const std::string& what) const { return Status::error(f_.label(call) + " " + what); }
  const Node& node(int call) const { return f_.graph.nodes[static_cast<size_t>(step(call).node)]; }
  const Step& step(int call) const { return f_.plan.steps[static_cast<size_t>(f_.call(call).step)]; }
  const StateLayout& state(const Touch& t) const { return f_.plan.states[static_cast<size_t>(t.home->root)]; }

  // Rows of states by runs are all rows, and others are those of the step, unless sequences are one run.
  Status check_runs(int call) const {
    const Call& c = f_.call(call);
    uint32_t by_run = 0;
    for (const Touch& t : f_.touches[static_cast<size_t>(call)]) {
      if (t.write || t.home->region != RegionKind::kState) continue;
      const StateRule rule = state(t).pair.rule;
      const bool told = (c.by_run >> t.operand & 1) != 0;
      if (rule != StateRule::kAppend && !(told && rule == StateRule::kSource)) continue;
      const SymbolValues values = step_values(kTokens, 1, kPast, kSlot);
      const StepView v = view_at(*t.home, values);
      const int64_t slot = state(t).slot_elements;
      if (told) {
        by_run |= 1u << t.operand;
        const int64_t begin = rule == StateRule::kSource ? values[kSymX] : kSlot - kPast;
        const int64_t first = v.offset - begin * slot;
        const ValueId all = rule == StateRule::kSource ? state(t).pair.past : state(t).pair.present;
        const Dim rows = f_.graph.values[static_cast<size_t>(all)].info.shape[static_cast<size_t>(state(t).pair.axis)];
        if (v.dims.size() < 3 || v.dims[2] != rows.eval(values) || v.strides[2] != slot || first < 0 || first >= slot)
          return wrong(call, "reads by runs what is no row for each token of a state");
        continue;
      }
      const std::vector<ByteRange> bytes = bytes_of(v, t.type);
      if (!f_.schedule.needs_contiguous && !bytes.empty() && bytes.front().begin < kSlot * slot * size_of(t.type))
        return wrong(call, "reads earlier rows of a state as one block, which needs sequences of one run");
    }
    return by_run == c.by_run ? Status::ok() : wrong(call, "reads by runs what is no state");
  }

  // Tokens of several sequences at once: nothing that it touches is another one for each of them.
  Status check_whole(int call) const {
    const Call& c = f_.call(call);
    // Attention over runs is told by a table whose rows are whose, and where their keys are.
    const bool table = c.takes == Takes::kTable;
    if (table && (step(call).move || !node(call).is("Attention", "situ") || c.by_run != 0b110))
      return wrong(call, "is told by a table whose rows are whose, which only attention over runs is");
    if (!table && !step(call).move && f_.order.by_sequence[static_cast<size_t>(step(call).node)])
      return wrong(call, "takes the tokens of several sequences at once, but treats them as neighbours");
    uint32_t by_slot = 0;
    for (const Touch& t : f_.touches[static_cast<size_t>(call)]) {
      if (table && !t.write && (c.by_run >> t.operand & 1) != 0) continue;
      const size_t out = t.operand - c.in.size();
      if (t.write && out < 32 && (c.out_by_slot >> out & 1) != 0) {
        by_slot |= 1u << out;
        SITU_RETURN_IF_ERROR(check_by_slot(call, t));
        continue;
      }
      const SymbolValues other = step_values(kTokens, 1, kPast + 4, kSlot + 9);
      if (view_at(*t.home, step_values(kTokens, 1, kPast, kSlot)) != view_at(*t.home, other) || varies(c, t) ||
          is_of_caller(c, t))
        return wrong(call, "takes the tokens of several sequences at once, but operand " + std::to_string(t.operand) +
                               " is another one for each");
    }
    return by_slot == c.out_by_slot ? Status::ok() : wrong(call, "writes by slot what is no output");
  }

  // Integers that the host knows, and that are others in another step.
  bool varies(const Call& c, const Touch& t) const {
    const ValueId v = t.write ? c.out[t.operand - c.in.size()] : c.in[t.operand];
    const auto& content = f_.graph.values[static_cast<size_t>(v)].info.content;
    if (t.home->region != RegionKind::kIo || !content) return false;
    const SymbolValues other = step_values(kMoreTokens, 1, kPast + 4, kSlot + 9);
    return shape_eval(*content, step_values(kTokens, 1, kPast, kSlot)) != shape_eval(*content, other);
  }

  // Tokens of each sequence that lie where the caller has them.
  bool is_of_caller(const Call& c, const Touch& t) const {
    return c.takes == Takes::kStep && t.home->region == RegionKind::kPort && token_axis(*t.home) >= 0 &&
           f_.graph.values[static_cast<size_t>(f_.plan.ports[static_cast<size_t>(t.home->root)].value)].producer < 0;
  }

  // Row r of the output lies in the slot of token r, as many rows behind the place that the view has for slot 0.
  Status check_by_slot(int call, const Touch& t) const {
    const StepView at = view_at(*t.home, step_values(kTokens, 1, kPast, kSlot)),
                   zero = view_at(*t.home, step_values(kTokens, 1, 0, 0));
    const int64_t row = at.dims.size() < 2 ? 0 : at.strides[at.dims.size() - 2];
    if (!takes_rows(node(call)) || t.home->region != RegionKind::kState || state(t).pair.rule != StateRule::kAppend ||
        !are_rows(*t.home) || row != state(t).slot_elements || at.offset - zero.offset != kSlot * row ||
        zero.offset < 0)
      return wrong(call, "writes operand " + std::to_string(t.operand) + " by slot, which has no row in each slot");
    return Status::ok();
  }

  // One segment at a time: each has a part of what the call touches.
  Status check_each(int call) const {
    const Call& c = f_.call(call);
    if (c.out_by_slot != 0) return wrong(call, "takes one segment at a time, and writes by slot");
    const auto replaced = [&](const Touch& t) {
      return t.home->region == RegionKind::kState && state(t).pair.rule == StateRule::kReplace;
    };
    const std::vector<Touch>& touches = f_.touches[static_cast<size_t>(call)];
    if (!c.in_order && std::any_of(touches.begin(), touches.end(), replaced))
      return wrong(call, "takes segments by other threads than those that left the state of the segment before");
    const ValueId workspace = attention_workspace(node(call));
    for (const Touch& t : f_.touches[static_cast<size_t>(call)]) {
      const ValueId v = t.write ? c.out[t.operand - c.in.size()] : c.in[t.operand];
      const bool own = t.home->region == RegionKind::kIo && f_.graph.values[static_cast<size_t>(v)].info.content;
      if (t.home->region == RegionKind::kState || own || v == workspace) continue;
      const int axis = token_axis(*t.home);
      StepView five = view_at(*t.home, step_values(kTokens, 1, kPast, kSlot)),
               six = view_at(*t.home, step_values(kMoreTokens, 1, kPast + 4, kSlot + 9));
      if (axis >= 0) five.dims[static_cast<size_t>(axis)] = six.dims[static_cast<size_t>(axis)];
      if (five.dims != six.dims || (axis < 0 && t.write))
        return wrong(call,
                     "takes one segment at a time, but operand " + std::to_string(t.operand) + " has no part for each");
    }
    return Status::ok();
  }

  // The rows of wanted tokens alone are computed: nothing behind reads others. The calls are gone through from the last
  // one on, with the bytes of each block that those behind read.
  Status check_last_rows() const {
    using Block = std::pair<RegionKind, int>;
    std::set<Block> looked_at;
    for (size_t i = 0; i < f_.schedule.calls.size(); ++i)
      for (const Touch& t : f_.touches[i])
        if (f_.schedule.calls[i].last_rows && t.write) looked_at.insert({t.home->region, t.home->root});
    std::array<std::map<Block, Ranges>, 2> read;  // in steps of 5 and 6 tokens
    for (int i = static_cast<int>(f_.schedule.calls.size()) - 1; i >= 0; --i) {
      const Call& c = f_.call(i);
      if (c.last_rows && !c.for_logits) return wrong(i, "leaves out rows that are not for logits");
      for (const bool writes : {true, false})
        for (const Touch& t : f_.touches[static_cast<size_t>(i)]) {
          if (t.write != writes || (writes && (!c.last_rows || is_workspace(i, t)))) continue;
          if (!looked_at.count({t.home->region, t.home->root})) continue;
          const int axis = c.last_rows ? token_axis(*t.home) : -1;
          if (writes && axis < 0) return wrong(i, "computes the last rows of what has no rows");
          for (const int64_t more : {0, 1}) {
            const int64_t tokens = kTokens + more, wanted = kWanted + more;
            StepView view = view_at(*t.home, step_values(tokens, wanted, kPast, kSlot));
            if (axis >= 0) view = rows_of(view, axis, writes ? 0 : tokens - wanted, writes ? tokens - wanted : tokens);
            Ranges& others = read[static_cast<size_t>(more)][{t.home->region, t.home->root}];
            for (const ByteRange& x : bytes_of(view, t.type))
              if (!writes)
                add(x, &others);
              else if (const auto at = others.upper_bound(x.begin); at != others.end() && at->second < x.end)
                return wrong(i, "computes the rows of wanted tokens alone, but others are read behind it");
          }
        }
    }
    return Status::ok();
  }
  bool is_workspace(int call, const Touch& t) const {
    const Call& c = f_.call(call);
    return c.out[t.operand - c.in.size()] == attention_workspace(node(call));
  }

  using Ranges = std::map<int64_t, int64_t>;  // by end: begin; none meets another one
  static void add(ByteRange x, Ranges* all) {
    auto at = all->upper_bound(x.begin);
    for (; at != all->end() && at->second < x.end; at = all->erase(at))
      x = {std::min(x.begin, at->second), std::max(x.end, at->first)};
    all->emplace_hint(at, x.end, x.begin);
  }

  const ScheduleFacts& f_;
};

}  // namespace

SymbolValues step_values(int64_t tokens, int64_t wanted, int64_t past, int64_t slot) {
  SymbolValues s;
  s[kSymS] = tokens;
  s[kSymL] = wanted;
  s[kSymP] = past;
  s[kSymW] = slot;
  s[kSymT] = kWhole;  // the sequences of a step are alike in this
  // Of another sequence all of these are others too.
  s[kSymE] = 5 + past;
  s[kSymX] = slot + 1;
  s[kSymRead] = slot + 2;
  s[kSymWrite] = slot + 3;
  return s;
}

StepView view_at(const Home& home, const SymbolValues& step) {
  return {home.view.offset.eval(step), shape_eval(home.view.dims, step), shape_eval(home.view.strides, step)};
}

std::vector<ByteRange> bytes_of(const StepView& view, DType type) {
  std::vector<ByteRange> bytes{{view.offset, view.offset + 1}};  // in elements
  for (size_t a = view.dims.size(); a-- > 0;) {
    const int64_t count = view.dims[a], stride = view.strides[a];
    if (count <= 0) return {};
    if (count == 1) continue;
    if (bytes.size() == 1 && stride == bytes[0].end - bytes[0].begin) {
      bytes[0].end += (count - 1) * stride;
      continue;
    }
    const size_t inner = bytes.size();
    for (int64_t i = 1; i < count && stride != 0; ++i)
      for (size_t k = 0; k < inner; ++k) bytes.push_back({bytes[k].begin + i * stride, bytes[k].end + i * stride});
  }
  std::sort(bytes.begin(), bytes.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  size_t last = 0;
  for (size_t k = 1; k < bytes.size(); ++k)
    if (bytes[k].begin <= bytes[last].end)
      bytes[last].end = std::max(bytes[last].end, bytes[k].end);
    else
      bytes[++last] = bytes[k];
  bytes.resize(last + 1);
  for (ByteRange& b : bytes) b = {b.begin * size_of(type), b.end * size_of(type)};
  return bytes;
}

Status verify_row_groups(const ScheduleFacts& facts) {
  int last = 0;
  for (const RowGroup& g : facts.schedule.row_groups) {
    const std::string name = "row group [" + std::to_string(g.begin) + ", " + std::to_string(g.end) + ")";
    if (g.begin < last || g.end < g.begin + 2 || g.end > static_cast<int>(facts.schedule.calls.size()))
      return Status::error(name + " has no calls, or those of another one");
    last = g.end;
    for (int i = g.begin; i < g.end; ++i) {
      const Call& c = facts.call(i);
      const Step& step = facts.plan.steps[static_cast<size_t>(c.step)];
      bool rows = !step.move && takes_rows(facts.graph.nodes[static_cast<size_t>(step.node)]) &&
                  c.takes == Takes::kStep && !c.last_rows && are_rows(facts.plan.values[static_cast<size_t>(c.in[0])]);
      for (const ValueId v : c.out) rows = rows && v != kNoValue && are_rows(facts.plan.values[static_cast<size_t>(v)]);
      if (!rows) return Status::error(facts.label(i) + " is in a row group, but takes no rows by themselves");
      for (int j = g.begin; j < i; ++j)
        for (const Touch& a : facts.touches[static_cast<size_t>(i)])
          for (const Touch& b : facts.touches[static_cast<size_t>(j)]) {
            const bool meet = (a.write || b.write) && facts.memory(a) == facts.memory(b) &&
                              overlap({facts.base(a) + a.begin, facts.base(a) + a.end},
                                      {facts.base(b) + b.begin, facts.base(b) + b.end});
            if (meet && !same_rows(a, b))
              return Status::error(facts.label(i) + " and " + facts.label(j) +
                                   " are in a row group, but meet in other rows");
          }
    }
  }
  return Status::ok();
}

Status verify_segments(const ScheduleFacts& facts) { return SegmentVerifier(facts).run(); }

}  // namespace situ
