#include "runtime/program.h"

#include <algorithm>
#include <map>
#include <set>

namespace situ {

Result<std::unique_ptr<Program>> Program::create(const Graph& graph, const Binding& binding, const Plan& plan,
                                                 const Regions& regions, ThreadPool& pool) {
  std::unique_ptr<Program> program(new Program(graph, binding, plan, regions, pool));
  SITU_RETURN_IF_ERROR(program->build());
  return program;
}

Status Program::build() {
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
    Home to = s.to_home;
    c.first_view = add_view(s.from_home, type, false);
    add_view(to, type, false);
    needs_contiguous_ = needs_contiguous_ || s.from_home.region == RegionKind::kState;
    calls_.push_back(c);
  }
  logits_view_ = add_view(plan_.values[binding_.logits], graph_.values[binding_.logits].info.type, false);
  values_.assign(expressions_.size(), INT64_MIN);
  known_.clear();
  scratch_.resize(static_cast<size_t>(kScratchBytes) * pool_.threads() + 64);
  books_.resize(pool_.threads());
  faults_.resize(pool_.threads());
  fault_calls_.resize(pool_.threads());
  place_barriers();
  return Status::ok();
}

Status Program::add_kernel(const Step& step) {
  const Node& node = graph_.nodes[step.node];
  if (!node.def || !node.def->prepare) return Status::error(node.label() + ": no kernel for this operator");
  PrepareContext prepare{node, {}, {}, {}};
  for (ValueId v : node.in) {
    prepare.in.push_back(v == kNoValue ? nullptr : &graph_.values[v].info);
    prepare.constants.push_back(v == kNoValue || !graph_.values[v].constant.present() ? nullptr : &graph_.values[v].constant);
  }
  for (ValueId v : node.out) prepare.out.push_back(v == kNoValue ? nullptr : &graph_.values[v].info);
  Prepared prepared;
  SITU_RETURN_IF_ERROR(node.def->prepare(prepare, &prepared));
  if (!node.attribute_error.empty()) return Status::error(node.attribute_error);
  Call c;
  c.kernel = kernels().*prepared.kernel;
  c.params = prepared.params;
  c.node = step.node;
  c.in_count = static_cast<int>(node.in.size());
  c.out_count = static_cast<int>(node.out.size());
  c.first_view = static_cast<int>(views_.size());
  const bool attention = node.is("Attention", "situ") || node.is("AttentionPartial", "situ");
  // All rows of a state, which runs of slots stand for; a part of them is read where it lies, as by any other kernel.
  auto whole_state = [&](size_t i) {
    if (!node.has_input(i) || plan_.values[node.in[i]].region != RegionKind::kState) return false;
    const StatePair& s = plan_.states[plan_.values[node.in[i]].root].pair;
    return s.rule == StateRule::kAppend && graph_.values[node.in[i]].info.shape[2] == graph_.values[s.present].info.shape[static_cast<size_t>(s.axis)];
  };
  c.paged = attention && whole_state(1) && whole_state(2);
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (node.in[i] == kNoValue) {
      views_.emplace_back();
      continue;
    }
    const Home& h = plan_.values[node.in[i]];
    const bool append_state = h.region == RegionKind::kState && plan_.states[h.root].pair.rule == StateRule::kAppend;
    const bool by_slot = c.paged && (i == 1 || i == 2);
    // Reading only what this step wrote (K in place before rotary) is fine in any slot.
    needs_contiguous_ = needs_contiguous_ || (append_state && !by_slot && h.view.offset.depends_on(kSymP));
    add_view(h, graph_.values[node.in[i]].info.type, by_slot);
  }
  for (ValueId v : node.out) {
    if (v == kNoValue) views_.emplace_back();
    else add_view(plan_.values[v], graph_.values[v].info.type, false);
  }
  calls_.push_back(std::move(c));
  return Status::ok();
}

int Program::expression(const Dim& dim) {
  const std::string text = dim.str();
  for (const auto& [known, index] : known_)
    if (known == text) return index;
  expressions_.push_back(dim);
  known_.emplace_back(text, static_cast<int>(expressions_.size()) - 1);
  return static_cast<int>(expressions_.size()) - 1;
}

// A paged view is addressed by slot number: its base is slot 0, not the sequence's first slot.
int Program::add_view(const Home& home, DType type, bool paged) {
  const int index = static_cast<int>(views_.size());
  View v;
  v.type = type;
  v.rank = static_cast<int>(home.view.dims.size());
  const int64_t element = std::max<int64_t>(1, dtype_bytes(type));
  std::byte* base = nullptr;
  switch (home.region) {
    case RegionKind::kWeights: base = graph_.values[home.root].constant.view().data; break;
    case RegionKind::kState: base = regions_.states->base(home.root); break;
    case RegionKind::kArena: base = regions_.arena + plan_.arena[home.root].offset; break;
    case RegionKind::kIo: base = regions_.io + plan_.io[home.root].offset; break;
    case RegionKind::kNone: break;
  }
  const Dim offset = paged ? home.view.offset.substitute(kSymW, Dim::symbol(kSymP)) : home.view.offset;
  if (offset.is_const()) v.data = base + offset.value() * element;
  else patches_.push_back({expression(offset), index, -1, base, element});
  for (int i = 0; i < v.rank; ++i) {
    const Dim &d = home.view.dims[i], &s = home.view.strides[i];
    if (d.is_const()) v.dims[i] = d.value();
    else patches_.push_back({expression(d), index, i, nullptr, 0});
    if (s.is_const()) v.strides[i] = s.value();
    else patches_.push_back({expression(s), index, kMaxRank + i, nullptr, 0});
  }
  views_.push_back(v);
  return index;
}

// A barrier goes before a call that touches a block which an earlier call since the last barrier wrote, or
// that writes a block which one of them read.
void Program::place_barriers() {
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

void Program::bind(const StepInput& input) {
  symbols_.value[kSymS] = input.count;
  symbols_.value[kSymP] = input.past;
  symbols_.value[kSymW] = input.write_slot;
  symbols_.value[kSymFlip] = input.flip;
  bool changed_any = false;
  for (size_t e = 0; e < expressions_.size(); ++e) {
    const int64_t v = expressions_[e].eval(symbols_);
    changed_any = changed_any || v != values_[e];
    values_[e] = v;
  }
  if (!changed_any) return;
  for (const Patch& p : patches_) {
    View& v = views_[p.view];
    if (p.field < 0) v.data = p.base + values_[p.expression] * p.element;
    else if (p.field < kMaxRank) v.dims[p.field] = values_[p.expression];
    else v.strides[p.field - kMaxRank] = values_[p.expression];
  }
}

// The host's part of a step: ids, positions and the integers that shape arithmetic left to kernels.
void Program::write_inputs(const StepInput& input, Ledger& ledger) {
  for (const Root& r : plan_.io) {
    const Value& value = graph_.values[r.value];
    std::byte* at = regions_.io + r.offset;
    auto put = [&](int64_t i, int64_t x) {
      if (value.info.type == DType::kI32) reinterpret_cast<int32_t*>(at)[i] = static_cast<int32_t>(x);
      else if (value.info.type == DType::kBool) reinterpret_cast<uint8_t*>(at)[i] = x != 0;
      else reinterpret_cast<int64_t*>(at)[i] = x;
      ledger.computed += dtype_bytes(value.info.type);
    };
    if (value.info.content) {
      for (size_t i = 0; i < value.info.content->size(); ++i) put(static_cast<int64_t>(i), (*value.info.content)[i].eval(symbols_));
      continue;
    }
    auto role = binding_.inputs.find(r.value);
    if (role == binding_.inputs.end()) continue;
    int64_t total = 1;
    for (const Dim& d : r.dims) total *= d.eval(symbols_);
    for (int64_t i = 0; i < total; ++i)
      put(i, role->second == InputRole::kTokenIds ? input.tokens[i % input.count] : input.past + i % input.count);
  }
}

void Program::run_call(const Call& c, KernelCall& call, int thread, int threads) {
  const View* in = views_.data() + c.first_view;
  const View* out = in + c.in_count;
  call.in = in;
  call.in_count = c.in_count;
  call.out = out;
  call.out_count = c.out_count;
  call.params = c.params.get();
  call.runs = c.paged ? input_->runs : nullptr;
  call.run_count = c.paged ? input_->run_count : 0;
  c.kernel(call, thread, threads);
  if (call.fault->what && fault_calls_[thread] < 0) fault_calls_[thread] = static_cast<int>(&c - calls_.data());
}

KernelCall Program::thread_call(int thread) {
  KernelCall call;
  call.scratch = scratch_.data() + (64 - reinterpret_cast<uintptr_t>(scratch_.data()) % 64) + thread * kScratchBytes;
  call.ledger = &books_[thread];
  call.fault = &faults_[thread];
  return call;
}

void Program::execute(int thread, int threads) {
  KernelCall call = thread_call(thread);
  for (const Call& c : calls_) {
    if (c.barrier) pool_.barrier().wait();
    run_call(c, call, thread, threads);
  }
}

void Program::execute_traced(int thread, int threads) {
  KernelCall call = thread_call(thread);
  const int64_t start = Trace::now();
  int64_t time = start;
  for (size_t i = 0; i < calls_.size(); ++i) {
    TraceEvent event;
    event.name = first_name_ + static_cast<int32_t>(i);
    event.ready = event.begin = time;
    if (calls_[i].barrier) {
      pool_.barrier().wait();
      event.begin = Trace::now();
    }
    run_call(calls_[i], call, thread, threads);
    time = event.end = Trace::now();
    trace_->add(thread, event);
  }
  if (thread == 0) trace_->add(thread, {token_name_, start, start, time});
}

void Program::set_trace(Trace* trace) {
  trace_ = trace;
  if (!trace) return;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const Call& c = calls_[i];
    const Node& node = graph_.nodes[static_cast<size_t>(c.node)];
    Trace::Name name{plan_.steps[i].move ? "Move" : node.op, node.name, 0};
    for (ValueId v : node.in)
      if (v != kNoValue && graph_.values[v].constant.present() && !plan_.steps[i].move) name.bytes += graph_.values[v].constant.bytes();
    // These read a row of their table.
    if (node.op == "Gather" || node.op == "GatherBlockQuantized" || node.op == "Rotary") name.bytes = 0;
    const int32_t id = trace->name(std::move(name));
    if (i == 0) first_name_ = id;
  }
  token_name_ = trace->name({"token", graph_.name, 0});
}

Status Program::run(const StepInput& input, Ledger& ledger) {
  bind(input);
  write_inputs(input, ledger);
  input_ = &input;
  for (Ledger& b : books_) b = Ledger{};
  for (Fault& f : faults_) f = Fault{};
  for (int& c : fault_calls_) c = -1;
  pool_.run([this](int t, int n) { trace_ ? execute_traced(t, n) : execute(t, n); });
  for (const Ledger& b : books_) {
    ledger.add(b);
    ledger.computed -= b.copied;  // what kernels moved is counted below as part of their outputs
  }
  for (const Call& c : calls_) {
    for (int o = 0; o < c.out_count; ++o) {
      const View& v = views_[c.first_view + c.in_count + o];
      if (v.present()) ledger.computed += v.count() * dtype_bytes(v.type);
    }
  }
  logits_ = views_[logits_view_];
  for (size_t t = 0; t < faults_.size(); ++t)
    if (faults_[t].what)
      return Status::error(graph_.nodes[calls_[fault_calls_[t]].node].label() + ": " + faults_[t].what + " (" +
                           std::to_string(faults_[t].value) + ", limit " + std::to_string(faults_[t].limit) + ")");
  return Status::ok();
}

}  // namespace situ
