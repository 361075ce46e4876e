#include "runtime/program.h"

#include <algorithm>
#include <bit>

#include "base/assign.h"
#include "place/row_groups.h"
#include "runtime/host_integers.h"

namespace situ {
namespace {

// Keys and values that are read by the runs of slots of a sequence or a source: the view begins at slot 0, not at its
// first slot.
Home by_run(Home home) {
  home.view.offset = home.view.offset.substitute(kSymW, Dim::symbol(kSymP)).substitute(kSymX, Dim(0));
  return home;
}

SymbolValues symbols_of(const Segment& segment, int64_t wanted) {
  SymbolValues s;
  s[kSymS] = segment.count;
  s[kSymP] = segment.past;
  s[kSymW] = segment.write_slot;
  s[kSymRead] = segment.read_slot;
  s[kSymWrite] = segment.write_state;
  s[kSymE] = std::max<int64_t>(1, segment.source_rows);
  s[kSymX] = segment.source_slot;
  s[kSymL] = std::max<int64_t>(1, wanted);
  s[kSymT] = segment.whole > 0 ? segment.whole : segment.past + segment.count;
  return s;
}

}  // namespace

Result<std::unique_ptr<Program>> Program::create(const Graph& graph, const Binding& binding, const Plan& plan,
                                                 const TokenOrder& order, const Regions& regions, Executor& executor) {
  std::unique_ptr<Program> program(new Program(graph, binding, plan, regions, executor));
  SITU_RETURN_IF_ERROR(program->build(order));
  return program;
}

Status Program::build(const TokenOrder& order) {
  SITU_TAKE(schedule, make_schedule(graph_, plan_, order));
  schedule_ = std::make_shared<const Schedule>(std::move(schedule));
  SITU_RETURN_IF_ERROR(verify_schedule(graph_, plan_, order, *schedule_));
#ifndef NDEBUG
  for (int k = 0; k < kStepKinds; ++k)
    SITU_RETURN_IF_ERROR(check_barriers(*schedule_, step_kind(k), barriers_of(*schedule_, step_kind(k))));
#endif
  execution_ = std::make_shared<const Execution>(executor_.prepare(*schedule_));
  return bind_memory();
}

Result<std::unique_ptr<Program>> Program::over(const Regions& regions) const {
  std::unique_ptr<Program> program(new Program(graph_, binding_, plan_, regions, executor_));
  program->schedule_ = schedule_;
  program->execution_ = execution_;
  SITU_RETURN_IF_ERROR(program->bind_memory());
  return program;
}

Status Program::bind_memory() {
  for (const Call& c : schedule_->calls) add_views(c);
  arrivals_.resize(static_cast<size_t>(readers_ * executor_.threads()));
  for (const std::vector<Root>* roots : {&plan_.arena, &plan_.io, &plan_.ports})
    for (const Root& r : *roots)
      if (!std::all_of(r.dims.begin(), r.dims.end(), [](const Dim& d) { return d.linear(); })) bent_.push_back(&r);
  SITU_RETURN_IF_ERROR(check_host_integers());
  for (const Root& r : plan_.io) of_all_segments_.push_back(is_of_all_segments(graph_.values[r.value].info));
  if (binding_.logits != kNoValue) {
    const Home& logits = plan_.values[binding_.logits];
    logits_view_ = views_.add(logits, graph_.values[binding_.logits].info.type, base_of(logits));
  }
  logits_port_ = find_logits_port();
  rows_call_ = find_rows_call();
  return Status::ok();
}

// Whether write_inputs() can write all integers that are known on the host.
Status Program::check_host_integers() const {
  for (const Root& r : plan_.io) {
    const ValueInfo& info = graph_.values[r.value].info;
    if (!info.content) continue;
    if (!host_writes(info.type) || shape_count(r.dims) != Dim(static_cast<int64_t>(info.content->size())))
      return Status::error("value '" + graph_.values[r.value].name + "' of " + std::to_string(info.content->size()) +
                           " elements, known on the host, is " + dtype_name(info.type) + " " +
                           shape_str(r.dims, &graph_.symbol_names()));
  }
  return Status::ok();
}

void Program::add_views(const Call& call) {
  CallViews views;
  const bool parts = call.takes == Takes::kEach || (call.takes == Takes::kStep && call.last_rows);
  for (size_t i = 0; i < call.in.size() + call.out.size(); ++i) {
    const ValueId v = operand_value(call, i);
    int view = 0;
    if (v == kNoValue) {
      view = views_.add_absent();
    } else {
      const Home& home = operand_home(plan_, call, i);
      const bool runs = i < call.in.size() && (call.by_run >> i & 1) != 0;
      view = views_.add(runs ? by_run(home) : home, graph_.values[v].info.type, base_of(home));
    }
    const int part = parts ? add_part(call, i, view) : 0;
    if (i == 0) views = {view, part};
  }
  const Step& step = plan_.steps[static_cast<size_t>(call.step)];
  const bool attention = !step.move && graph_.nodes[static_cast<size_t>(step.node)].is("Attention", "situ");
  if (attention || call.by_run != 0) views.own = readers_++;
  if (call.by_run != 0) {
    const Home& rows = operand_home(plan_, call, static_cast<size_t>(std::countr_zero(call.by_run)));
    views.of_source = plan_.states[static_cast<size_t>(rows.root)].pair.rule == StateRule::kSource;
  }
  call_views_.push_back(views);
}

// The part of an operand that some tokens have.
int Program::add_part(const Call& call, size_t operand, int view) {
  const ValueId v = operand_value(call, operand);
  if (v == kNoValue) return views_.add_absent_part(view);
  const Home& home = operand_home(plan_, call, operand);
  const bool runs = operand < call.in.size() && (call.by_run >> operand & 1) != 0;
  std::optional<int64_t> host;
  if (call.takes == Takes::kEach && is_host_integers(home, v)) host = host_offset(home.root);
  return views_.add_part(view, runs ? by_run(home) : home, base_of(home), host, is_handed_in(graph_, plan_, home));
}

bool Program::is_host_integers(const Home& home, ValueId v) const {
  return home.region == RegionKind::kIo && graph_.values[v].info.content.has_value();
}

// Integers that are the same for all sequences of a step, however many tokens these feed.
bool Program::is_of_all_segments(const ValueInfo& info) {
  return info.content && std::none_of(info.content->begin(), info.content->end(),
                                      [](const Dim& d) { return of_sequence(d) || d.depends_on(kSymS); });
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

std::byte* Program::base_of(const Home& home) const {
  switch (home.region) {
    case RegionKind::kWeights:
      return graph_.values[home.root].constant.view().data;
    case RegionKind::kState:
      return regions_.states->base(home.root);
    case RegionKind::kArena:
      return regions_.arena + plan_.arena[home.root].offset;
    case RegionKind::kIo:
      return regions_.io + plan_.io[home.root].offset;
    case RegionKind::kPort:  // told at each step
    case RegionKind::kNone:
      break;
  }
  return nullptr;
}

// Rows [S, C] of cosines or sines, one for each token.
void Program::write_rotary_rows(const Root& root, const StepInput& input) {
  const RotaryRows& rows = binding_.rotary.at(root.value);
  float* at = reinterpret_cast<float*>(regions_.io + root.offset);
  for (const Segment& s : input.segments)
    for (int64_t j = 0; j < s.count; ++j, at += rows.width()) rows.write(s.past + j, at);
}

int Program::find_logits_port() const {
  if (binding_.logits == kNoValue) return -1;
  const Home& home = plan_.values[binding_.logits];
  if (home.region != RegionKind::kPort || graph_.values[binding_.logits].info.type != DType::kF32) return -1;
  if (home.view.offset != Dim(0)) return -1;
  Dim dense(1);
  for (size_t a = home.view.dims.size(); a-- > 0;) {
    const Dim& d = home.view.dims[a];
    if (d.depends_on(kSymS) || d.depends_on(kSymP) || (d != Dim(1) && home.view.strides[a] != dense)) return -1;
    dense = dense * d;
  }
  return home.root;
}

int Program::find_rows_call() const {
  if (binding_.rows == kNoValue) return -1;
  const Home& rows = plan_.values[binding_.rows];
  int found = -1;
  for (size_t i = 0; i < schedule_->calls.size(); ++i) {
    const Call& c = schedule_->calls[i];
    for (size_t o = 0; o < c.in.size() + c.out.size(); ++o) {
      const ValueId v = operand_value(c, o);
      if (v == kNoValue) continue;
      const Home& home = operand_home(plan_, c, o);
      if (home.region != rows.region || home.root != rows.root) continue;
      if (found >= 0 || o != c.in.size() || v != binding_.rows || !is_product(static_cast<int>(i))) return -1;
      found = static_cast<int>(i);
    }
  }
  return found;
}

// Where the ports of a step lie: what the caller hands in, and outputs where he wants them or in their own place.
Status Program::place_ports(const StepInput& input) {
  ports_.clear();
  size_t inputs = 0;
  for (const Root& r : plan_.ports) {
    const bool output = graph_.values[r.value].producer >= 0;
    inputs += output ? 0 : 1;
    ports_.push_back(output && input.rows && r.value == binding_.rows ? input.rows
                     : output                                         ? regions_.io + r.offset
                     : inputs <= input.tensors.size()                 ? input.tensors[inputs - 1]
                                                                      : nullptr);
  }
  if (inputs != input.tensors.size())
    return Status::error("a step is given " + std::to_string(input.tensors.size()) + " tensors, and takes " +
                         std::to_string(inputs));
  if (input.logits && logits_port_ >= 0)
    ports_[static_cast<size_t>(logits_port_)] = reinterpret_cast<std::byte*>(input.logits);
  return Status::ok();
}

void Program::bind_step(const StepInput& input) {
  input_ = &input;
  const Segment& first = input.segments[0];
  if (several()) {
    bind_segments(input);
  } else {
    parts_.assign(1, {symbols_of(first, input.wanted), 0, nullptr});
    tokens_ = first.count;
    prompt_rows_ = first.prompt ? first.count : 0;
    views_.bind(parts_[0].symbols, ports_);
  }
  table_.build(input.segments);
  bind_own_segments();
}

// Of calls that do not take all segments by the table: their rows are all rows of their result, which need not be
// tokens of the step (an encoder's, of which a step has one token).
void Program::bind_own_segments() {
  const size_t segments = input_->segments.size();
  own_segments_.resize(static_cast<size_t>(readers_) * segments);
  for (size_t i = 0; i < schedule_->calls.size(); ++i) {
    const Call& c = schedule_->calls[i];
    const CallViews& views = call_views_[i];
    if (views.own < 0 || takes_table(c)) continue;
    const std::vector<StepSegment>& table = views.of_source ? table_.sources() : table_.tokens();
    for (size_t s = 0; s < segments; ++s) {
      const View* operands = several() ? views_.part_at(static_cast<int>(s), views.first_part) : views_.at(views.first);
      StepSegment& own = own_segments_[static_cast<size_t>(views.own) * segments + s] = table[s];
      own.first_row = 0;
      own.rows = operands[c.in.size()].dims[2];
      own.shared = 0;
      if (c.by_run != 0) continue;
      own.runs = nullptr;
      own.run_count = 0;
      own.keys = operands[1].dims[2];
      own.dropped = 0;
    }
  }
}

void Program::bind_segments(const StepInput& input) {
  parts_.clear();
  slots_.clear();
  tokens_ = prompt_rows_ = 0;
  host_.resize(static_cast<size_t>(host_bytes_) * input.segments.size());
  for (const Segment& s : input.segments) {
    parts_.push_back(
        {symbols_of(s, 1), tokens_, host_.data() + static_cast<size_t>(host_bytes_) * parts_.size(),
         reinterpret_cast<intptr_t>(s.embeddings) - reinterpret_cast<intptr_t>(input.segments[0].embeddings)});
    for (int64_t i = 0; i < s.count; ++i) slots_.push_back(s.write_slot + i);
    if (s.prompt && prompt_rows_ == tokens_) prompt_rows_ += s.count;
    tokens_ += s.count;
  }
  Segment last;
  last.count = std::max<int64_t>(1, input.wanted);
  last.whole = input.segments[0].whole;
  parts_.push_back({symbols_of(last, input.wanted), tokens_ - last.count, nullptr});
  first_wanted_ = 0;
  while (first_wanted_ < static_cast<int>(input.segments.size()) &&
         parts_[static_cast<size_t>(first_wanted_)].first_token < tokens_ - input.wanted)
    ++first_wanted_;
  // No past, and slot 0: what would depend on them is bound for each part, or written by slot.
  Segment all;
  all.count = tokens_;
  all.whole = last.whole;
  views_.bind(symbols_of(all, input.wanted), ports_);
  views_.bind_parts(parts_);
}

Status Program::check_sizes(const StepInput& input) const {
  if (bent_.empty()) return Status::ok();
  Segment all;
  all.count = tokens_;
  all.whole = input.segments[0].whole;
  const SymbolValues symbols = input.segments.size() == 1 ? parts_[0].symbols : symbols_of(all, input.wanted);
  for (const Root* r : bent_) {
    int64_t bytes = std::max<int64_t>(1, dtype_bytes(r->type));
    bool fits = true;
    for (const Dim& d : r->dims) {
      const int64_t extent = d.eval(symbols);
      fits = fits && extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes);
    }
    if (!fits || bytes > r->bytes)
      return Status::error("value '" + graph_.values[r->value].name + "' is " +
                           shape_str(r->dims, &graph_.symbol_names()) + " in a step of " +
                           std::to_string(symbols[kSymS]) + " tokens after " + std::to_string(symbols[kSymP]) + "; " +
                           std::to_string(r->bytes) + " bytes are planned for it");
  }
  return Status::ok();
}

void Program::write_content(std::byte* at, const ValueInfo& info, const SymbolValues& symbols, Ledger& ledger) const {
  for (size_t i = 0; i < info.content->size(); ++i) {
    write_integer(at, info.type, static_cast<int64_t>(i), (*info.content)[i].eval(symbols));
    ledger.computed += dtype_bytes(info.type);
  }
}

namespace {

// Of a token of the segment, in a row of the input.
int64_t input_of(const Segment& s, InputRole role, int64_t row, int64_t token) {
  if (role == InputRole::kTokenIds) return s.tokens[token];
  if (role == InputRole::kTokenTypes) return s.types ? s.types[token] : 0;
  return s.position_of(row, token);
}

}  // namespace

// The host's part of a step: ids, positions and the integers that shape arithmetic left to kernels.
void Program::write_inputs(const StepInput& input, Ledger& ledger) {
  for (const Root& r : plan_.io) {
    const ValueInfo& info = graph_.values[r.value].info;
    std::byte* at = regions_.io + r.offset;
    if (info.content) {
      if (!several() || of_all_segments_[static_cast<size_t>(&r - plan_.io.data())])
        write_content(at, info, parts_.back().symbols, ledger);
      continue;
    }
    auto role = binding_.inputs.find(r.value);
    if (role == binding_.inputs.end()) continue;
    if (role->second == InputRole::kRotaryRows) {
      write_rotary_rows(r, input);
      ledger.computed += tokens_ * binding_.rotary.at(r.value).width() * 4;
      continue;
    }
    SymbolValues step;
    step[kSymS] = tokens_;
    int64_t rows = 1;  // the same for each: [3, 1, S] positions, for instance
    for (const Dim& d : r.dims) rows *= d.eval(step);
    rows /= tokens_;
    for (int64_t row = 0, i = 0; row < rows; ++row)
      for (const Segment& s : input.segments)
        for (int64_t j = 0; j < s.count; ++j, ledger.computed += dtype_bytes(info.type))
          write_integer(at, info.type, i++, input_of(s, role->second, row, j));
  }
  if (!several()) return;
  for (const ViewTable::Part& part : std::span(parts_).first(input.segments.size()))
    for (const auto& [root, offset] : host_roots_)
      write_content(part.host + offset, graph_.values[plan_.io[static_cast<size_t>(root)].value].info, part.symbols,
                    ledger);
}

void Program::bind(int index, int segment, KernelCall& to) const {
  const Call& c = schedule_->calls[static_cast<size_t>(index)];
  const CallViews& views = call_views_[static_cast<size_t>(index)];
  if (segment >= 0) {
    to.in = views_.part_at(segment, views.first_part);
    const Segment& s = input_->segments[static_cast<size_t>(segment)];
    to.prompt_rows = s.prompt ? s.count : 0;
    to.slots = nullptr;
    to.out_by_slot = 0;
  } else {
    const bool last_rows = several() && c.last_rows && c.takes == Takes::kStep;  // at the end, behind pieces of prompts
    to.in = last_rows ? views_.part_at(wanted_part(), views.first_part) : views_.at(views.first);
    to.prompt_rows = c.step_rows && !last_rows ? prompt_rows_ : 0;
    to.slots = slots_.data();
    to.out_by_slot = several() ? c.out_by_slot : 0;
  }
  to.encodes = input_->encodes;
  if (index == rows_call_ && input_->row_places) {
    to.slots = input_->row_places;
    to.out_by_slot = 1;
  }
  to.out = to.in + c.in.size();
  to.segments = nullptr;
  to.arrivals = nullptr;
  if (views.own < 0) return;
  const size_t own = static_cast<size_t>(views.own);
  // Segments one by one would use a workspace again before all are done with it: threads share tokens, not their keys.
  if (segment < 0) to.arrivals = arrivals_.data() + own * static_cast<size_t>(executor_.threads());
  to.segment_count = 1;
  if (segment < 0 && takes_table(c)) {
    const std::vector<StepSegment>& table = views.of_source ? table_.sources() : table_.tokens();
    const size_t begin = c.last_rows ? static_cast<size_t>(first_wanted_) : 0;
    to.segments = table.data() + begin;
    to.segment_count = static_cast<int>(table.size() - begin);
  } else {
    to.segments = own_segments_.data() + own * input_->segments.size() + static_cast<size_t>(std::max(0, segment));
  }
}

// Of the constants of a node, what it reads for one token: a row of a table; the matrices of the experts that are
// chosen.
static int64_t bytes_read(const Graph& graph, const Node& node, int64_t bytes) {
  if (node.op == "Gather" || node.op == "GatherBlockQuantized" || node.op == "Rotary") return 0;
  const int64_t experts = node.domain == "situ" ? node.attr_int("experts", 0) : 0;
  if (experts == 0) return bytes;
  return bytes / experts * std::min(experts, graph.values[node.in[1]].info.shape.back().value());
}

std::vector<std::span<const std::byte>> Program::read_whole() const {
  std::vector<std::span<const std::byte>> all;
  for (const Call& c : schedule_->calls) {
    const Step& step = plan_.steps[static_cast<size_t>(c.step)];
    for (ValueId v : c.in) {
      if (v == kNoValue || step.move || !graph_.values[v].constant.present()) continue;
      const Tensor& t = graph_.values[v].constant;
      if (bytes_read(graph_, graph_.nodes[static_cast<size_t>(step.node)], t.bytes()) == t.bytes() && t.contiguous())
        all.emplace_back(t.view().data, static_cast<size_t>(t.bytes()));
    }
  }
  return all;
}

void Program::set_trace(Trace* trace) {
  trace_ = trace;
  if (!trace) return;
  for (size_t i = 0; i < schedule_->calls.size(); ++i) {
    const Call& c = schedule_->calls[i];
    const Step& step = plan_.steps[static_cast<size_t>(c.step)];
    const Node& node = graph_.nodes[static_cast<size_t>(step.node)];
    Trace::Name name{step.move ? "Move" : node.op, node.name, 0};
    for (ValueId v : c.in)
      if (v != kNoValue && graph_.values[v].constant.present() && !step.move)
        name.bytes += graph_.values[v].constant.bytes();
    name.bytes = bytes_read(graph_, node, name.bytes);
    const int32_t id = trace->name(std::move(name));
    if (i == 0) first_name_ = id;
  }
  token_name_ = trace->name({"token", graph_.name, 0});
}

// Bytes that the calls of the last step gave their outputs.
void Program::count_outputs(Ledger& ledger) const {
  const StepKind kind{input_->wanted > 0, several(), false};
  for (size_t i = 0; i < schedule_->calls.size(); ++i) {
    const Call& c = schedule_->calls[i];
    if (!runs_in(c, kind)) continue;
    const CallViews& own = call_views_[i];
    const auto count = [&](const View* views, int64_t rows = 1, int64_t of = 1) {
      // Not workspaces, of which few rows are written.
      const size_t outputs = own.own >= 0 ? 1 : c.out.size();
      for (const View& out : std::span(views + c.in.size(), outputs))
        if (out.present())
          (c.moves ? ledger.copied : ledger.computed) += out.count() / of * rows * dtype_bytes(out.type);
    };
    if (several() && c.takes == Takes::kEach) {
      for (size_t s = static_cast<size_t>(c.last_rows ? first_wanted_ : 0); s < input_->segments.size(); ++s)
        count(views_.part_at(static_cast<int>(s), own.first_part));
    } else if (!several() || !c.last_rows) {
      count(views_.at(own.first));
    } else if (c.takes == Takes::kTable) {
      count(views_.at(own.first), tokens_ - table_.tokens()[static_cast<size_t>(first_wanted_)].first_row, tokens_);
    } else {
      count(views_.part_at(wanted_part(), own.first_part));
    }
  }
}

Status Program::prepare(const StepInput& input, Ledger& ledger) {
  SITU_RETURN_IF_ERROR(place_ports(input));
  bind_step(input);
  SITU_RETURN_IF_ERROR(check_sizes(input));
  write_inputs(input, ledger);
  next_call_ = 0;
  return Status::ok();
}

Status Program::run(const StepInput& input, Ledger& ledger) {
  SITU_RETURN_IF_ERROR(prepare(input, ledger));
  return go_on(Clock::time_point::max(), ledger).status();
}

Result<bool> Program::go_on(Clock::time_point until, Ledger& ledger) {
  BoundStep step{*this, tokens_, input_->wanted > 0, static_cast<int>(input_->segments.size()), first_wanted_};
  step.first_call = next_call_;
  step.until = until;
  step.encodes = input_->encodes;
  name_in_trace(&step);
  const StepEnd end = executor_.run(*execution_, step, ledger);
  if (end.interrupted) return Status::error(Code::kInterrupted, "interrupted");
  SITU_RETURN_IF_ERROR(fault(end));
  next_call_ = end.next_call;
  if (next_call_ >= 0) return false;
  count_outputs(ledger);
  return true;
}

Status Program::fault(const StepEnd& end) const {
  if (end.fault_call < 0) return Status::ok();
  const Step& step = plan_.steps[static_cast<size_t>(schedule_->calls[static_cast<size_t>(end.fault_call)].step)];
  return Status::error(graph_.nodes[static_cast<size_t>(step.node)].label() + ": " + end.fault.what + " (" +
                       std::to_string(end.fault.value) + ", limit " + std::to_string(end.fault.limit) + ")");
}

bool Program::is_product(int call) const {
  const Step& step = plan_.steps[static_cast<size_t>(schedule_->calls[static_cast<size_t>(call)].step)];
  return !step.move && is_row_product(graph_.nodes[static_cast<size_t>(step.node)]);
}

}  // namespace situ
