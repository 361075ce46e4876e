#include "runtime/program.h"

#include <algorithm>
#include <climits>
#include <map>
#include <set>

#include "base/clock.h"
#include "place/row_groups.h"
#include "runtime/host_integers.h"

namespace situ {
namespace {

// Rows that a thread takes through a row group at once: what one product writes is in its cache when the next one reads
// it (256 rows take as long).
constexpr int64_t kRowsTogether = 128;

}  // namespace

Result<std::unique_ptr<Program>> Program::create(const Graph& graph, const Binding& binding, const Plan& plan,
                                                 const TokenOrder& order, const Regions& regions, ThreadPool& pool) {
  std::unique_ptr<Program> program(new Program(graph, binding, plan, regions, pool));
  SITU_RETURN_IF_ERROR(program->build(order));
  return program;
}

Status Program::build(const TokenOrder& order) {
  for (const Step& s : plan_.steps) {
    if (!s.move) {
      SITU_RETURN_IF_ERROR(add_kernel(s));
      continue;
    }
    Call c;
    c.kernel = kernels().move;
    c.node = s.node;
    c.in_count = c.out_count = 1;
    const DType type = graph_.values[s.from].info.type;
    c.first_view = add_view(s.from_home, type, false);
    add_view(s.to_home, type, false);
    needs_contiguous_ = needs_contiguous_ || reads_earlier_rows(s.from_home);
    calls_.push_back(c);
  }
  for (const std::vector<Root>* roots : {&plan_.arena, &plan_.io})
    for (const Root& r : *roots)
      if (!std::all_of(r.dims.begin(), r.dims.end(), [](const Dim& d) { return d.linear(); })) bent_.push_back(&r);
  for (const Root& r : plan_.io) {  // what write_inputs() can write
    const ValueInfo& info = graph_.values[r.value].info;
    if (!info.content) continue;
    if (!host_writes(info.type) || shape_count(r.dims) != Dim(static_cast<int64_t>(info.content->size())))
      return Status::error("value '" + graph_.values[r.value].name + "' of " + std::to_string(info.content->size()) +
                           " elements, known on the host, is " + dtype_name(info.type) + " " +
                           shape_str(r.dims, &graph_.symbol_names));
  }
  logits_view_ = add_view(plan_.values[binding_.logits], graph_.values[binding_.logits].info.type, false);
  logits_anywhere_ = find_logits_anywhere();
  scratch_.resize(static_cast<size_t>(kScratchBytes) * pool_.threads() + 64);
  books_.resize(pool_.threads());
  faults_.resize(pool_.threads());
  fault_calls_.resize(pool_.threads());
  find_calls_for_logits();
  allow_segments(order);
  place_barriers();
  find_row_groups();
  return Status::ok();
}

Status Program::add_kernel(const Step& step) {
  const Node& node = graph_.nodes[step.node];
  if (!node.def || !node.def->prepare) return Status::error(node.label() + ": no kernel for this operator");
  PrepareContext prepare{node, {}, {}, {}};
  for (ValueId v : node.in) {
    prepare.in.push_back(v == kNoValue ? nullptr : &graph_.values[v].info);
    prepare.constants.push_back(v == kNoValue || !graph_.values[v].constant.present() ? nullptr
                                                                                      : &graph_.values[v].constant);
  }
  for (ValueId v : node.out) prepare.out.push_back(v == kNoValue ? nullptr : &graph_.values[v].info);
  Prepared prepared;
  SITU_RETURN_IF_ERROR(node.def->prepare(prepare, &prepared));
  if (!node.attribute_error.empty()) return Status::error(node.attribute_error);
  Call c;
  c.kernel = kernels().*prepared.kernel;
  c.moves = !step.reason.empty() && node.op.starts_with("Gather");
  c.params = prepared.params;
  c.node = step.node;
  c.in_count = static_cast<int>(node.in.size());
  c.out_count = static_cast<int>(node.out.size());
  const bool attention = node.is("Attention", "situ") || node.is("AttentionPartial", "situ");
  // All rows of a state, which runs of slots stand for; a part of them is read where it lies, as by any other kernel.
  auto whole_state = [&](size_t i) {
    if (!node.has_input(i) || plan_.values[node.in[i]].region != RegionKind::kState) return false;
    const StatePair& s = plan_.states[plan_.values[node.in[i]].root].pair;
    return s.rule == StateRule::kAppend &&
           graph_.values[node.in[i]].info.shape[2] == graph_.values[s.present].info.shape[static_cast<size_t>(s.axis)];
  };
  c.paged = attention && whole_state(1) && whole_state(2);
  c.first_view = -1;
  auto added = [&](int view) { c.first_view = c.first_view < 0 ? view : c.first_view; };
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (node.in[i] == kNoValue) {
      added(views_.add_absent());
      continue;
    }
    const Home& h = plan_.values[node.in[i]];
    const bool by_slot = c.paged && (i == 1 || i == 2);
    needs_contiguous_ = needs_contiguous_ || (!by_slot && reads_earlier_rows(h));
    added(add_view(h, graph_.values[node.in[i]].info.type, by_slot));
  }
  for (ValueId v : node.out)
    added(v == kNoValue ? views_.add_absent() : add_view(plan_.values[v], graph_.values[v].info.type, false));
  calls_.push_back(std::move(c));
  return Status::ok();
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
    case RegionKind::kNone:
      break;
  }
  return nullptr;
}

Home paged_home(Home home) {
  home.view.offset = home.view.offset.substitute(kSymW, Dim::symbol(kSymP));
  return home;
}

bool has_step_rows(const Home& home) {
  return std::any_of(home.view.dims.begin(), home.view.dims.end(), [](const Dim& d) { return d.depends_on(kSymS); });
}

int Program::add_view(const Home& home, DType type, bool paged) {
  return views_.add(paged ? paged_home(home) : home, type, base_of(home));
}

// Rows of a state that earlier steps wrote, as one stretch. What this step writes lies side by side in any slots.
bool Program::reads_earlier_rows(const Home& home) const {
  if (home.region != RegionKind::kState || plan_.states[static_cast<size_t>(home.root)].pair.rule != StateRule::kAppend)
    return false;
  const SymView& v = home.view;
  Dim lowest = v.offset - Dim::symbol(kSymW) * Dim(plan_.states[static_cast<size_t>(home.root)].slot_elements);
  for (size_t a = 0; a < v.dims.size(); ++a)
    if (v.strides[a].lower_bound() < 0) lowest = lowest + (v.dims[a] - Dim(1)) * v.strides[a];
  return lowest.lower_bound() < 0;
}

// A barrier goes before a call that touches a block which an earlier call since the last barrier wrote, or that writes
// a block which one of them read. partials_ is such a block: every split attention writes it, and reads it back after
// its own barrier.
void Program::place_barriers() {
  const std::pair<int, int> partials{static_cast<int>(RegionKind::kNone), 0};
  std::set<std::pair<int, int>> read, written;
  auto key = [](const Home& h) { return std::make_pair(static_cast<int>(h.region), h.root); };
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Step& s = plan_.steps[i];
    std::vector<std::pair<int, int>> in, out;
    if (s.move) {
      in.push_back(key(s.from_home));
      out.push_back(key(s.to_home));
    } else {
      for (ValueId v : graph_.nodes[s.node].in)
        if (v != kNoValue) in.push_back(key(plan_.values[v]));
      for (ValueId v : graph_.nodes[s.node].out)
        if (v != kNoValue) out.push_back(key(plan_.values[v]));
    }
    if (calls_[i].split) out.push_back(partials);
    // Arena blocks of different roots may share memory at different times: one stands for all it overlaps.
    auto overlaps = [&](const std::set<std::pair<int, int>>& set, const std::pair<int, int>& k) {
      if (set.count(k)) return true;
      if (k.first != static_cast<int>(RegionKind::kArena)) return false;
      const Root& r = plan_.arena[k.second];
      for (const auto& [region, root] : set) {
        if (region != k.first) continue;
        const Root& o = plan_.arena[root];
        if (o.offset < r.offset + r.bytes && r.offset < o.offset + o.bytes) return true;
      }
      return false;
    };
    bool wait = false;
    for (const auto& k : in) wait = wait || overlaps(written, k);
    for (const auto& k : out) wait = wait || overlaps(written, k) || overlaps(read, k);
    if (wait) {
      calls_[i].barrier = true;
      read.clear();
      written.clear();
    }
    for (const auto& k : in)
      if (k.first != static_cast<int>(RegionKind::kWeights)) read.insert(k);
    written.insert(out.begin(), out.end());
  }
}

// Threads go through a row group without waiting, so all of them must have done what stands before it, and must be done
// with it before the call behind it.
void Program::find_row_groups() {
  for (size_t i = 0, end = 0; i < calls_.size(); i = end) {
    end = end_of_row_group(plan_, i);
    const bool whole =
        std::all_of(calls_.begin() + static_cast<ptrdiff_t>(i), calls_.begin() + static_cast<ptrdiff_t>(end),
                    [](const Call& c) { return !c.by_segment && !c.last_rows; });
    if (end - i == 1 || !whole) continue;
    calls_[i].group_end = end;
    calls_[i].barrier = true;
    if (end < calls_.size()) calls_[end].barrier = true;
  }
}

// Backwards: what writes state is needed, and what writes a block that something needed reads later.
void Program::find_calls_for_logits() {
  std::set<std::pair<int, int>> needed;
  for (size_t i = calls_.size(); i-- > 0;) {
    const std::vector<Operand> list = operands(i);
    calls_[i].step_rows = std::any_of(list.begin(), list.end(), [](const Operand& o) {
      return o.written && o.value != kNoValue && has_step_rows(o.home);
    });
    calls_[i].for_logits = std::none_of(list.begin(), list.end(), [&](const Operand& o) {
      return o.written && o.value != kNoValue && (o.home.region == RegionKind::kState || needed.count(o.block()));
    });
    if (calls_[i].for_logits) continue;
    for (const Operand& o : list)
      if (!o.written && o.value != kNoValue) needed.insert(o.block());
  }
}

// Rows [S, C] of cosines or sines, one for each token.
void Program::write_rotary_rows(const Root& root, const StepInput& input) {
  const RotaryRows& rows = binding_.rotary.at(root.value);
  float* at = reinterpret_cast<float*>(regions_.io + root.offset);
  for (const Segment& s : input.segments)
    for (int64_t j = 0; j < s.count; ++j, at += rows.width()) rows.write(s.past + j, at);
}

static SymbolValues symbols_of(const Segment& segment, int64_t wanted, int64_t place) {
  SymbolValues s;
  s.value[kSymS] = segment.count;
  s.value[kSymP] = segment.past;
  s.value[kSymW] = segment.write_slot;
  s.value[kSymFlip] = segment.flip;
  s.value[kSymL] = std::max<int64_t>(1, wanted);
  s.value[kSymPlace] = place;
  return s;
}

bool Program::find_logits_anywhere() const {
  const Home& home = plan_.values[binding_.logits];
  if (home.region != RegionKind::kIo || graph_.values[binding_.logits].info.type != DType::kF32) return false;
  if (home.view.offset != Dim::symbol(kSymPlace)) return false;
  Dim dense(1);
  for (size_t a = home.view.dims.size(); a-- > 0;) {
    const Dim& d = home.view.dims[a];
    if (d.depends_on(kSymS) || d.depends_on(kSymP) || (d != Dim(1) && home.view.strides[a] != dense)) return false;
    dense = dense * d;
  }
  return true;
}

int64_t Program::place_of_logits(const StepInput& input) const {
  const Home& home = plan_.values[binding_.logits];
  if (home.region != RegionKind::kIo) return 0;
  if (input.logits) return input.logits - reinterpret_cast<const float*>(base_of(home));
  const Root& root = plan_.io[static_cast<size_t>(home.root)];
  return input.turn * (root.bytes / std::max<int64_t>(1, dtype_bytes(root.type)));
}

void Program::bind(const StepInput& input) {
  const int64_t place = place_of_logits(input);
  const Segment& first = input.segments[0];
  if (input.segments.size() == 1) {
    parts_.assign(1, {symbols_of(first, input.wanted, place), 0, nullptr});
    tokens_ = first.count;
    prompt_rows_ = first.prompt ? first.count : 0;
    views_.bind(parts_[0].symbols);
    return;
  }
  parts_.clear();
  slots_.clear();
  tokens_ = prompt_rows_ = 0;
  host_.resize(static_cast<size_t>(host_bytes_) * input.segments.size());
  for (const Segment& s : input.segments) {
    parts_.push_back(
        {symbols_of(s, 1, place), tokens_, host_.data() + static_cast<size_t>(host_bytes_) * parts_.size()});
    for (int64_t i = 0; i < s.count; ++i) slots_.push_back(s.write_slot + i);
    if (s.prompt && prompt_rows_ == tokens_) prompt_rows_ += s.count;
    tokens_ += s.count;
  }
  Segment last;
  last.count = std::max<int64_t>(1, input.wanted);
  parts_.push_back({symbols_of(last, input.wanted, place), tokens_ - last.count, nullptr});
  first_wanted_ = 0;
  while (first_wanted_ < static_cast<int>(input.segments.size()) &&
         parts_[static_cast<size_t>(first_wanted_)].first_token < tokens_ - input.wanted)
    ++first_wanted_;
  // No past, and slot 0: what would depend on them is bound for each part, or written by slot.
  Segment all;
  all.count = tokens_;
  views_.bind(symbols_of(all, input.wanted, place));
  views_.bind_parts(parts_);
  partials_.resize(static_cast<size_t>(partial_floats_) * static_cast<size_t>(pool_.threads()) * input.segments.size());
}

Status Program::check_sizes(const StepInput& input) const {
  if (bent_.empty()) return Status::ok();
  Segment all;
  all.count = tokens_;
  const SymbolValues symbols = input.segments.size() == 1 ? parts_[0].symbols : symbols_of(all, input.wanted, 0);
  for (const Root* r : bent_) {
    int64_t bytes = std::max<int64_t>(1, dtype_bytes(r->type));
    bool fits = true;
    for (const Dim& d : r->dims) {
      const int64_t extent = d.eval(symbols);
      fits = fits && extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes);
    }
    if (!fits || bytes > r->bytes)
      return Status::error(
          "value '" + graph_.values[r->value].name + "' is " + shape_str(r->dims, &graph_.symbol_names) +
          " in a step of " + std::to_string(symbols.value[kSymS]) + " tokens after " +
          std::to_string(symbols.value[kSymP]) + "; " + std::to_string(r->bytes) + " bytes are planned for it");
  }
  return Status::ok();
}

// The host's part of a step: ids, positions and the integers that shape arithmetic left to kernels.
void Program::write_inputs(const StepInput& input, Ledger& ledger) {
  auto put = [&](std::byte* at, DType type, int64_t i, int64_t x) {
    write_integer(at, type, i, x);
    ledger.computed += dtype_bytes(type);
  };
  auto put_content = [&](std::byte* at, const ValueInfo& info, const SymbolValues& symbols) {
    for (size_t i = 0; i < info.content->size(); ++i)
      put(at, info.type, static_cast<int64_t>(i), (*info.content)[i].eval(symbols));
  };
  for (const Root& r : plan_.io) {
    const ValueInfo& info = graph_.values[r.value].info;
    std::byte* at = regions_.io + r.offset;
    if (info.content) {
      if (input.segments.size() == 1) put_content(at, info, parts_[0].symbols);
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
    step.value[kSymS] = tokens_;
    int64_t rows = 1;  // the same for each: [3, 1, S] positions, for instance
    for (const Dim& d : r.dims) rows *= d.eval(step);
    rows /= tokens_;
    for (int64_t row = 0, i = 0; row < rows; ++row)
      for (const Segment& s : input.segments)
        for (int64_t j = 0; j < s.count; ++j)
          put(at, info.type, i++, role->second == InputRole::kTokenIds ? s.tokens[j] : s.past + j);
  }
  if (input.segments.size() == 1) return;
  for (const ViewTable::Part& part : std::span(parts_).first(input.segments.size()))
    for (const auto& [root, offset] : host_roots_)
      put_content(part.host + offset, graph_.values[plan_.io[static_cast<size_t>(root)].value].info, part.symbols);
}

void Program::run_call(const Call& c, KernelCall& call, const Share& share) {
  call.in_count = c.in_count;
  call.out_count = c.out_count;
  call.params = c.params.get();
  const bool several = segments() > 1;
  if (several && c.by_segment) return run_segments(c, call, share);
  call.in = several && c.last_rows ? views_.part_at(wanted_part(), c.first_part) : views_.at(c.first_view);
  call.out = call.in + c.in_count;
  bind_runs(c, input_->segments[0], call);
  call.prompt_rows =
      c.step_rows && !(several && c.last_rows) ? prompt_rows_ : 0;  // those whose logits are wanted stand at the end
  call.slots = slots_.data();
  call.out_by_slot = several ? c.out_by_slot : 0;
  for (int part = share.first; part < share.last; ++part) c.kernel(call, part, share.parts);
}

void Program::bind_runs(const Call& c, const Segment& s, KernelCall& call) const {
  call.runs = c.paged ? s.runs : nullptr;
  call.run_count = c.paged ? s.run_count : 0;
  call.keys = s.keys;
  call.dropped = s.past + s.count - s.keys;
}

KernelCall Program::thread_call(int thread) {
  KernelCall call;
  call.scratch = scratch_.data() + (64 - reinterpret_cast<uintptr_t>(scratch_.data()) % 64) + thread * kScratchBytes;
  call.ledger = &books_[thread];
  call.fault = &faults_[thread];
  return call;
}

// Waits at barrier number `barrier` of the step; false: the step ends there. All threads must leave out the same calls,
// since some have barriers of their own: thread 0 says before a barrier that it is the last one, which others may read
// behind an earlier one.
bool Program::pass_barrier(int barrier, const Share& share) {
  if (share.first == 0 && pool_.interrupted())
    last_barrier_.store(std::min(barrier, last_barrier_.load(std::memory_order_relaxed)), std::memory_order_relaxed);
  if (!share.all()) pool_.barrier().wait();
  return last_barrier_.load(std::memory_order_relaxed) > barrier;
}

// In how many parts a thread takes its rows through the group that begins with `c`; 0: its calls go one by one.
int Program::row_parts(const Call& c, int threads) const {
  const int64_t rows = tokens_ / threads;
  return c.group_end == 0 || rows < kRowsOfOwn ? 0 : static_cast<int>((rows + kRowsTogether - 1) / kRowsTogether);
}

void Program::execute(const Share& share) {
  const int thread = share.first;
  KernelCall call = thread_call(thread);
  const auto now = [this] { return trace_ != nullptr ? Trace::now() : 0; };
  const int64_t start = now();
  int64_t ready = start, begin = start;
  const auto run = [&](const Call& c, const Share& parts) {
    if (!runs(c)) return;
    run_call(c, call, parts);
    if (call.fault->what && fault_calls_[thread] < 0) fault_calls_[thread] = static_cast<int>(&c - calls_.data());
    if (trace_ == nullptr) return;
    const int64_t end = Trace::now();
    trace_->add(thread, {first_name_ + static_cast<int32_t>(&c - calls_.data()), ready, begin, end});
    ready = begin = end;
  };
  int barriers = 0;
  for (size_t i = 0, next = 0; i < calls_.size(); i = next) {
    if (calls_[i].barrier) {
      if (!pass_barrier(barriers++, share)) return;  // later calls rely on it too
      begin = now();
    }
    const int parts = row_parts(calls_[i], share.parts);
    next = parts > 0 ? calls_[i].group_end : i + 1;
    if (parts == 0) run(calls_[i], share);
    for (int part = share.first * parts; part < share.last * parts; ++part)
      for (size_t j = i; j < next; ++j) run(calls_[j], {part, part + 1, share.parts * parts});
  }
  if (trace_ != nullptr && thread == 0) trace_->add(thread, {token_name_, start, start, ready});
}

void Program::set_trace(Trace* trace) {
  trace_ = trace;
  if (!trace) return;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& c = calls_[i];
    const Node& node = graph_.nodes[static_cast<size_t>(c.node)];
    Trace::Name name{plan_.steps[i].move ? "Move" : node.op, node.name, 0};
    for (ValueId v : node.in)
      if (v != kNoValue && graph_.values[v].constant.present() && !plan_.steps[i].move)
        name.bytes += graph_.values[v].constant.bytes();
    // These read a row of their table.
    if (node.op == "Gather" || node.op == "GatherBlockQuantized" || node.op == "Rotary") name.bytes = 0;
    const int32_t id = trace->name(std::move(name));
    if (i == 0) first_name_ = id;
  }
  token_name_ = trace->name({"token", graph_.name, 0});
}

// Bytes that the calls of the last step gave their outputs.
void Program::count_outputs(Ledger& ledger) const {
  const auto count = [&](const Call& c, const View* views) {
    for (const View& out : std::span(views + c.in_count, static_cast<size_t>(c.out_count)))
      if (out.present()) (c.moves ? ledger.copied : ledger.computed) += out.count() * dtype_bytes(out.type);
  };
  const bool several = segments() > 1;
  for (const Call& c : calls_) {
    if (!runs(c)) continue;
    if (several && c.by_segment)
      for (int p = first_segment(c); p < segments(); ++p) count(c, views_.part_at(p, c.first_part));
    else
      count(c, several && c.last_rows ? views_.part_at(wanted_part(), c.first_part) : views_.at(c.first_view));
  }
}

Status Program::run(const StepInput& input, Ledger& ledger) {
  bind(input);
  SITU_RETURN_IF_ERROR(check_sizes(input));
  write_inputs(input, ledger);
  input_ = &input;
  for (Ledger& b : books_) b = Ledger{};
  for (Fault& f : faults_) f = Fault{};
  for (int& c : fault_calls_) c = -1;
  if (pool_.interrupted()) return Status::error("interrupted");
  last_barrier_ = INT_MAX;
  const bool is_short = pool_.threads() > 1 && tokens_ <= StepThreads::kMostTokens;
  const bool alone = is_short && (step_threads_.alone() || always_alone_);
  const Clock::time_point begin = Clock::now();
  const int sleeps = pool_.barrier().sleeps();
  if (alone)
    execute({0, pool_.threads(), pool_.threads()});
  else
    pool_.run([this](int t, int n) { execute({t, t + 1, n}); });
  if (is_short) step_threads_.done(static_cast<int>(tokens_), ms_since(begin), pool_.barrier().sleeps() - sleeps);
  for (const Ledger& b : books_) {
    ledger.add(b);
    ledger.computed -= b.copied;  // what kernels moved is counted below as part of their outputs
  }
  if (last_barrier_ != INT_MAX) return Status::error("interrupted");
  count_outputs(ledger);
  for (size_t t = 0; t < faults_.size(); ++t)
    if (faults_[t].what)
      return Status::error(graph_.nodes[calls_[fault_calls_[t]].node].label() + ": " + faults_[t].what + " (" +
                           std::to_string(faults_[t].value) + ", limit " + std::to_string(faults_[t].limit) + ")");
  return Status::ok();
}

}  // namespace situ
