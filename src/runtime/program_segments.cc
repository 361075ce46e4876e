// Steps with tokens of several sequences: which calls take them all at once, which one segment at a time, and how the
// latter run.
//
// A product reads its weights once for the tokens of all sequences: it takes rows as they come, and writes those of K
// and V by slot. Attention, and what is made from positions, is called for each segment on the part of its operands'
// views that has the segment's tokens.
#include <algorithm>
#include <set>

#include "passes/pass.h"
#include "place/row_groups.h"
#include "runtime/program.h"

namespace situ {
namespace {

// What the sequence has, not the step.
bool of_past(const Dim& d) {
  for (const int symbol : {kSymP, kSymW, kSymE, kSymX, kSymRead, kSymWrite})
    if (d.depends_on(symbol)) return true;
  return false;
}
bool of_past(const SymView& v) {
  return of_past(v.offset) || std::any_of(v.dims.begin(), v.dims.end(), [](const Dim& d) { return of_past(d); }) ||
         std::any_of(v.strides.begin(), v.strides.end(), [](const Dim& d) { return of_past(d); });
}

bool of_step(const SymView& v) {
  const auto any = [](const Dim& d) { return d.depends_on(kSymS) || d.depends_on(kSymL); };
  return of_past(v) || any(v.offset) || std::any_of(v.dims.begin(), v.dims.end(), any) ||
         std::any_of(v.strides.begin(), v.strides.end(), any);
}

}  // namespace

std::vector<Program::Operand> Program::operands(size_t call) const {
  const Step& s = plan_.steps[call];
  if (s.move) return {{s.from_home, s.from, false}, {s.to_home, s.to, true}};
  std::vector<Operand> list;
  for (const auto* values : {&graph_.nodes[s.node].in, &graph_.nodes[s.node].out})
    for (ValueId v : *values)
      list.push_back({v == kNoValue ? Home{} : plan_.values[v], v, values == &graph_.nodes[s.node].out});
  return list;
}

// The operand is another one for each sequence, whatever tokens they feed.
bool Program::follows_sequence(const Operand& o) const {
  if (o.value == kNoValue) return false;
  if (of_past(o.home.view)) return true;
  const ValueInfo& info = graph_.values[o.value].info;
  if (o.home.region != RegionKind::kIo || !info.content) return false;
  return std::any_of(info.content->begin(), info.content->end(),
                     [](const Dim& d) { return of_past(d) || d.depends_on(kSymS); });
}

// Results whose rows lie in the state, one for each token: products write them by slot (out_rows in kernels/rows.h).
uint32_t Program::outputs_by_slot(size_t call) const {
  const Step& s = plan_.steps[call];
  if (s.move) return 0;
  const Node& n = graph_.nodes[s.node];
  if (!is_row_product(n)) return 0;
  const size_t leading = graph_.values[n.in[0]].info.shape.size() - 1;
  uint32_t mask = 0;
  for (size_t o = 0; o < n.out.size(); ++o) {
    const Home& h = plan_.values[n.out[o]];
    if (h.region != RegionKind::kState || h.view.dims.size() != leading + 1) continue;
    bool rows = !of_past(h.view.offset.substitute(kSymW, Dim(0)));
    for (size_t a = 0; a <= leading; ++a) {
      rows = rows && h.view.strides[a].is_const();
      if (a < leading) rows = rows && h.view.dims[a] == (a + 1 == leading ? Dim::symbol(kSymS) : Dim(1));
    }
    if (rows) mask |= 1u << o;
  }
  return mask;
}

void Program::allow_segments(const TokenOrder& order) {
  one_sequence_ = order.one_sequence;
  for (size_t i = 0; i < calls_.size() && one_sequence_.empty(); ++i) one_sequence_ = allow_segments(order, i);
  if (one_sequence_.empty()) find_last_rows();
}

// Whether all that is read lies in rows of tokens whose logits are wanted, as last_token selects them.
static bool reads_wanted_rows(const Home& home) {
  return !has_step_rows(home) && home.view.offset.depends_on(kSymL) &&
         !home.view.offset.substitute(kSymL, Dim::symbol(kSymS)).depends_on(kSymS);
}

// Backwards: a call for logits computes the rows of wanted tokens alone unless something reads others of its result, or
// its operands cannot be cut.
void Program::find_last_rows() {
  std::set<std::pair<int, int>> whole;  // blocks of which other rows are read
  for (size_t i = calls_.size(); i-- > 0;) {
    Call& c = calls_[i];
    const std::vector<Operand> list = operands(i);
    c.last_rows = c.for_logits && std::all_of(list.begin(), list.end(), [&](const Operand& o) {
                    return !o.written || o.value == kNoValue || (has_step_rows(o.home) && whole.count(o.block()) == 0);
                  });
    if (c.last_rows && !c.by_segment) {
      const std::optional<int> part = add_row_parts(list, c);
      c.last_rows = part.has_value();
      c.first_part = part.value_or(0);
    }
    for (const Operand& o : list)
      if (!o.written && o.value != kNoValue && !c.last_rows && !(c.for_logits && reads_wanted_rows(o.home)))
        whole.insert(o.block());
  }
}

// Parts of a call's views that are rows of some tokens, or the same for all of them. Nothing: one operand is neither.
std::optional<int> Program::add_row_parts(const std::vector<Operand>& list, const Call& c) {
  std::optional<int> first;
  for (size_t i = 0; i < list.size(); ++i) {
    const Operand& o = list[i];
    const int view = c.first_view + static_cast<int>(i);
    std::string problem;
    std::optional<int> part;
    if (o.value == kNoValue)
      part = views_.add_absent_part(view);
    else if (o.home.region == RegionKind::kArena || o.home.region == RegionKind::kIo || !of_step(o.home.view))
      part = views_.add_part(view, o.home, base_of(o.home), std::nullopt, &problem);
    if (!part) return std::nullopt;
    if (i == 0) first = part;
  }
  return first;
}

// What stands against it; "": nothing.
std::string Program::allow_segments(const TokenOrder& order, size_t call) {
  Call& c = calls_[call];
  const Step& step = plan_.steps[call];
  const Node& node = graph_.nodes[step.node];
  const std::vector<Operand> list = operands(call);
  const uint32_t by_slot = outputs_by_slot(call);
  c.by_segment = !step.move && order.by_sequence[static_cast<size_t>(step.node)];
  bool follows = false, all_by_slot = true;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!follows_sequence(list[i])) continue;
    follows = true;
    const size_t first_out = static_cast<size_t>(c.in_count);
    all_by_slot = all_by_slot && i >= first_out && (by_slot >> (i - first_out) & 1) != 0;
  }
  if (follows && all_by_slot && !c.by_segment)
    c.out_by_slot = by_slot;
  else
    c.by_segment = c.by_segment || follows;
  if (!c.by_segment) return "";
  for (size_t i = 0; i < list.size(); ++i) {
    const Operand& o = list[i];
    const int view = c.first_view + static_cast<int>(i);
    int part = 0;
    if (o.value == kNoValue) {
      part = views_.add_absent_part(view);
    } else {
      std::optional<int64_t> host;
      if (o.home.region == RegionKind::kIo && graph_.values[o.value].info.content) host = host_offset(o.home.root);
      const bool by_run = c.paged && (i == 1 || i == 2);
      std::string problem;
      Home home = o.home;
      if (by_run) home = paged_home(home);
      // A result that all tokens of a step share would be another one for each sequence.
      const bool shared =
          home.region == RegionKind::kArena &&
          std::none_of(home.view.dims.begin(), home.view.dims.end(), [](const Dim& d) { return d.depends_on(kSymS); });
      if (o.written && shared) problem = "it is one for the whole step";
      const std::optional<int> added =
          problem.empty() ? views_.add_part(view, home, base_of(home), host, &problem) : std::nullopt;
      if (!added)
        return node.label() + " takes one sequence at a time, but '" + graph_.values[o.value].name +
               "' has no part for each: " + problem;
      part = *added;
    }
    if (i == 0) c.first_part = part;
  }
  c.split = !pass_disabled("split_attention") && splits_well(graph_, node);
  if (c.split) {
    const Shape& y = graph_.values[node.out[0]].info.shape;
    partial_floats_ = std::max(partial_floats_, y[1].value() * (y[3].value() + 2));
  }
  return "";
}

// Where a segment's own copy of the integers of an io root begins.
int64_t Program::host_offset(int root) {
  for (const auto& [known, offset] : host_roots_)
    if (known == root) return offset;
  constexpr int64_t kAlign = 16;
  host_roots_.emplace_back(root, host_bytes_);
  host_bytes_ += (plan_.io[static_cast<size_t>(root)].bytes + kAlign - 1) / kAlign * kAlign;
  return host_roots_.back().second;
}

void Program::bind_segment(const Call& c, int segment, KernelCall& call) const {
  call.in = views_.part_at(segment, c.first_part);
  call.out = call.in + c.in_count;
  const Segment& s = input_->segments[static_cast<size_t>(segment)];
  bind_runs(c, s, call);
  call.prompt_rows = s.prompt ? s.count : 0;
}

// Threads take turns at being the first, so that heads that do not divide among them are not always one thread's
// burden.
void Program::run_segments(const Call& c, KernelCall& call, const Share& share) {
  call.slots = nullptr;
  call.out_by_slot = 0;
  for (int p = first_segment(c); p < segments(); ++p) {
    if (c.split && input_->segments[static_cast<size_t>(p)].is_token()) continue;
    bind_segment(c, p, call);
    for (int part = share.first; part < share.last; ++part) c.kernel(call, (part + p) % share.parts, share.parts);
  }
  if (c.split) run_split(c, call, share);
}

// Attention of the segments that are one token, as situ.AttentionPartial and situ.AttentionMerge compute it where a
// step is of one token: with the same sums, to the bit.
void Program::run_split(const Call& c, KernelCall& call, const Share& share) {
  const int threads = share.parts;
  View partial;
  partial.type = DType::kF32;
  partial.rank = 3;
  auto bind_single = [&](int p) {
    bind_segment(c, p, call);
    partial.data = reinterpret_cast<std::byte*>(partials_.data() + static_cast<int64_t>(p) * threads * partial_floats_);
    partial.dims[0] = threads;
    partial.dims[1] = call.out[0].dims[1];
    partial.dims[2] = call.out[0].dims[3] + 2;
    partial.set_contiguous_strides();
    return input_->segments[static_cast<size_t>(p)].is_token();
  };
  for (int p = first_segment(c); p < segments(); ++p) {
    if (!bind_single(p)) continue;
    call.out = &partial;
    for (int part = share.first; part < share.last; ++part)
      kernels().attention_partial(call, (part + p) % threads, threads);
  }
  if (!share.all()) pool_.barrier().wait();
  for (int p = first_segment(c); p < segments(); ++p) {
    if (!bind_single(p)) continue;
    call.in = &partial;
    call.in_count = 1;
    for (int part = share.first; part < share.last; ++part)
      kernels().attention_merge(call, (part + p) % threads, threads);
    call.in_count = c.in_count;
  }
}

}  // namespace situ
