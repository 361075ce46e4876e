#include "runtime/engine.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <system_error>

#include "passes/pack_store.h"
#include "passes/probe.h"
#include "runtime/host_integers.h"

namespace situ {
namespace {

// Activations of one step. An 8B model needs a tenth of this for 512 tokens; what asks for more is not a
// language model or is a file made to exhaust memory.
constexpr int64_t kMaxArenaBytes = int64_t{1} << 30;

Status too_large(const Plan& plan, const Graph& graph) {
  const Root* largest = nullptr;
  for (const Root& r : plan.arena)
    if (!largest || r.bytes > largest->bytes) largest = &r;
  const Value& value = graph.values[largest->value];
  const std::string made_by = value.producer < 0 ? "" : " of " + graph.nodes[value.producer].label();
  return Status::error("one step needs " + std::to_string(plan.arena_bytes) + " bytes of activations, more than " +
                       std::to_string(kMaxArenaBytes) + "; the largest is '" + value.name + "' " +
                       shape_str(value.info.shape, &graph.symbol_names) + made_by);
}

// A state that is replaced as a whole is allocated at once, twice, and a token of an appended one in every step. The
// largest of real models have 0.25 GiB (Mamba-2 8B) and 10 MiB (GPT-3 175B).
constexpr int64_t kMaxReplacedBytes = int64_t{1} << 30, kMaxTokenBytes = int64_t{16} << 20;

Status check_states(const Graph& graph, const Binding& binding, Phase phase) {
  SymbolValues one;
  one.value[kSymS] = one.value[kSymP] = one.value[kSymW] = 1;
  const Dim tokens = phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS);
  int64_t replaced = 0, token = 0;
  for (const StatePair& s : binding.states) {
    const Value &past = graph.values[s.past], &present = graph.values[s.present];
    // Slots are counted in tokens: rows beyond would lie over the next token's, and past the end of the state.
    const auto rows = [&](const Value& v) { return v.info.shape[static_cast<size_t>(s.axis)]; };
    if (s.rule == StateRule::kAppend && rows(present) != rows(past) + tokens)
      return Status::error("state '" + past.name + "' " + shape_str(past.info.shape, &graph.symbol_names) + " -> '" +
                           present.name + "' " + shape_str(present.info.shape, &graph.symbol_names) + ": " +
                           (rows(present) - rows(past)).str(&graph.symbol_names) + " rows are appended in a step of " +
                           tokens.str() + " tokens; one for each token was expected");
    int64_t bytes = std::max<int64_t>(1, dtype_bytes(past.info.type));
    bool overflow = false;
    for (const Dim& d : past.info.shape) overflow = __builtin_mul_overflow(bytes, d.eval(one), &bytes) || overflow;
    int64_t& sum = s.rule == StateRule::kReplace ? replaced : token;
    const int64_t most = s.rule == StateRule::kReplace ? kMaxReplacedBytes : kMaxTokenBytes;
    if (overflow || bytes < 0 || __builtin_add_overflow(sum, bytes, &sum) || sum > most)
      return Status::error("state '" + past.name + "' of shape " + shape_str(past.info.shape, &graph.symbol_names) +
                           " is too large: the states " +
                           (s.rule == StateRule::kReplace ? "take" : "take for each token") + " more than " +
                           std::to_string(most) + " bytes");
  }
  return Status::ok();
}

// Of the constants that steps read, each once.
int64_t constant_bytes(std::initializer_list<const Graph*> graphs) {
  std::map<const void*, int64_t> at;
  for (const Graph* g : graphs)
    for (const Value& v : g->values)
      if (v.constant.present()) at[v.constant.view().data] = std::max(at[v.constant.view().data], v.constant.bytes());
  int64_t sum = 0;
  for (const auto& [where, bytes] : at) sum += bytes;
  return sum;
}

// Replaces S and L by 1 everywhere: more reshapes are views when the token axis is known to be 1.
Graph specialise_for_decode(const Graph& graph) {
  Graph g = graph;
  for (Value& v : g.values) {
    for (Dim& d : v.info.shape) d = d.substitute(kSymS, Dim(1)).substitute(kSymL, Dim(1));
    if (v.info.content)
      for (Dim& d : *v.info.content) d = d.substitute(kSymS, Dim(1)).substitute(kSymL, Dim(1));
  }
  return g;
}

// The first token does not wait for a disk. The thread yields to those that compute, a little: at nice 19 the end of a
// program waited for minutes on a busy machine.
std::thread save_in_background(PackSave save, std::string* problem) {
  try {
    return std::thread([save = std::move(save), problem]() mutable {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 5);
      *problem = save.run();
    });
  } catch (const std::system_error& e) {
    *problem = e.what();
    return {};
  }
}

Result<std::unique_ptr<ThreadPool>> make_pool(int threads) {
  if (threads < 0 || threads > ThreadPool::kMost)
    return Status::error("threads should be an integer from 1 to " + std::to_string(ThreadPool::kMost) +
                         ", or 0 for one per CPU, is " + std::to_string(threads));
  try {
    return std::make_unique<ThreadPool>(threads);
  } catch (const std::exception& e) {  // the system has none left
    return Status::error("cannot start " + std::to_string(threads) + " threads: " + e.what());
  }
}

}  // namespace

static Result<Compiled> compile_graph(const Graph& imported, const EngineOptions& options, PackStore* packs,
                                      Phase phase) {
  const bool literal = packs == nullptr;
  const int64_t length = options.context_length > 0 ? options.context_length : kDefaultContext,
                limit = std::max(length, options.declared_context);
  const ScopedTokenLimit tokens(limit);
  ThreadPool one(1);  // probing runs thousands of tiny kernels: waking workers would cost more than they do
  Evaluator evaluator(one, Evaluator::kMaxProbeBytes);
  Compiled c;
  c.graph = imported;
  SITU_RETURN_IF_ERROR(resolve_ops(c.graph));
  align_constants(c.graph, packs, literal);
  PassContext context{c.graph, evaluator, c.binding, options.names, limit, length};
  context.phase = phase;
  context.packs = packs;
  context.kv_type = options.kv_type;
  context.length = length;
  context.endless = options.window > 0 && !literal;
  SITU_RETURN_IF_ERROR(run_passes(context, literal));
  SITU_RETURN_IF_ERROR(check_states(c.graph, c.binding, phase));
  align_constants(c.graph, packs, true);
  if (context.endless) {
    SITU_RETURN_IF_ERROR(limit_window(context, options.window, options.first));
    SITU_RETURN_IF_ERROR(check_positions(context));
  }
  // Outputs that nobody asked for (hidden states) are not computed.
  if (!literal) {
    std::vector<ValueId> outputs{c.binding.logits};
    for (const StatePair& s : c.binding.states) outputs.push_back(s.present);
    c.graph.outputs = outputs;
    c.graph.remove_dead_nodes();
  }
  if (!literal || c.binding.mask.unsure) c.order = token_order(c.graph, c.binding, evaluator, phase, limit);
  // Ones, if its rows are keys'; a row for each query would have to hide the later ones.
  if (c.binding.mask.unsure && !c.order.mixing.empty())
    return Status::error("input '" + imported.values[c.binding.mask.value].name + "' " +
                         shape_str(imported.values[c.binding.mask.value].info.shape, &imported.symbol_names) +
                         " may be a mask with a row for each query, that the host would have to make: by " +
                         c.order.mixing +
                         " tokens see later ones, and its first dim is not the batch of the token ids");
  if (literal) c.order = {};
  if (!c.order.mixing.empty()) context.note("prompt in one step", c.order.mixing, "tokens may depend on later ones");
  c.found = std::move(context.found);
  c.packed_bytes = evaluator.ledger().packed;
  return c;
}

Result<Compiled> compile(const Graph& imported, const EngineOptions& options, PackStore* packs, Phase phase) {
  try {
    return compile_graph(imported, options, packs, phase);
  } catch (const DimTooLong& e) {
    return Status::error(e.what());
  } catch (const FoldingFailed& e) {
    return Status::error(e.what());
  } catch (const std::bad_alloc&) {
    return Status::error("not enough memory to prepare the model");
  }
}

// Why a graph whose tokens have a fixed number is refused is mostly that, whatever fails first.
Status with_fixed_tokens(const Graph& graph, const EngineOptions& options, const Status& problem) {
  const std::string name = options.names.input_ids.empty() ? "input_ids" : options.names.input_ids;
  for (const ValueId v : graph.inputs) {
    const Value& ids = graph.values[v];
    if (ids.name != name || ids.info.shape.size() != 2 || !ids.info.shape[1].is_const()) continue;
    const std::string count = ids.info.shape[1].str();
    return Status::error("input '" + name + "' " + shape_str(ids.info.shape, &graph.symbol_names) +
                         " declares steps of exactly " + count + (count == "1" ? " token" : " tokens") +
                         "; prompts need any number of them. As it is, " + problem.message());
  }
  return problem;
}

Result<CompiledPhases> compile_phases(const Graph& imported, const EngineOptions& options, PackStore* packs) {
  CompiledPhases both;
  Result<Compiled> any = compile(imported, options, packs);
  if (any.is_ok()) {
    both.token.graph = packs == nullptr ? any->graph : specialise_for_decode(any->graph);
    both.token.binding = any->binding;
    both.prompt = std::move(*any);
    return both;
  }
  Result<Compiled> decode = compile(imported, options, packs, Phase::kDecode);
  const Status wrong =
      with_fixed_tokens(imported, options, any.status());  // of the first: the others only fail in its wake
  if (!decode.is_ok()) return wrong;
  Result<Compiled> first = compile(imported, options, packs, Phase::kFirst);
  if (!first.is_ok() || first->binding.states.size() != decode->binding.states.size()) return wrong;
  for (size_t i = 0; i < first->binding.states.size(); ++i)
    if (first->graph.values[first->binding.states[i].past].name !=
        decode->graph.values[decode->binding.states[i].past].name)
      return wrong;
  both.prompt = std::move(*first);
  both.token = std::move(*decode);
  both.first_only = true;
  return both;
}

Result<std::unique_ptr<InPlaceEngine>> InPlaceEngine::create(const ImportedModel& model, const EngineOptions& options) {
  try {
    return make(model, options);
  } catch (const DimTooLong& e) {
    return Status::error(e.what());
  } catch (const std::bad_alloc&) {
    return Status::error("not enough memory to prepare the model");
  }
}

Result<std::unique_ptr<InPlaceEngine>> InPlaceEngine::make(const ImportedModel& model, const EngineOptions& options) {
  std::unique_ptr<InPlaceEngine> e(new InPlaceEngine());
  Result<std::unique_ptr<ThreadPool>> pool = make_pool(options.threads);
  if (!pool.is_ok()) return pool.status();
  e->pool_ = std::move(*pool);
  std::vector<PackSource> sources;
  for (const auto& file : model.files) sources.push_back({file.get(), file->path, file->data, file->identity});
  PackCache cache(*e->pool_, std::move(sources), {options.pack_cache ? pack_cache_folder() : std::filesystem::path()});
  PackStore packs(*e->pool_, &cache);
  for (const auto& file : model.files) packs.add_file(file.get());
  Result<CompiledPhases> compiled = compile_phases(model.graph, options, &packs);
  if (!compiled.is_ok() && options.window > 0 && compiled.status().message().find("no window") == std::string::npos) {
    // What a bound on lengths decides has no answer where there is none.
    EngineOptions bounded = options;
    bounded.window = bounded.first = 0;
    bounded.context_length = options.declared_context;
    PackStore trial(*e->pool_);
    if (compile_phases(model.graph, bounded, &trial).is_ok())
      return Status::error("no window, with which a sequence has no end: " + compiled.status().message());
  }
  if (!compiled.is_ok()) return compiled.status();
  e->compiled_ = std::move(*compiled);
  const Compiled &prompt = e->compiled_.prompt, &token = e->compiled_.token;
  e->computed_bytes_ = std::max<int64_t>(0, constant_bytes({&prompt.graph, &token.graph}) - model.weight_bytes);
  e->ledger_.packed = prompt.packed_bytes + token.packed_bytes + packs.written_bytes();
  const int64_t capacity = options.context_length > 0 ? options.context_length : kDefaultContext;
  // Prompts stay whole where tokens depend on later ones, and where the graph computes steps without past or of one
  // token: what a chunk leaves over would be fed token by token.
  const bool whole = !prompt.order.mixing.empty() || e->compiled_.first_only;
  e->chunk_ = whole ? capacity : std::clamp<int64_t>(options.chunk, 1, capacity);
  e->batch_ = std::max<int64_t>(1, options.batch);
  if (options.window > 0 && whole) return Status::error("no window: prompts of this model are computed as a whole");
  e->window_ = options.window;
  e->first_ = options.first;

  // A piece of a prompt, and the last tokens of as many sequences as there may be.
  const int64_t lasts = prompt.order.one_sequence.empty() ? e->batch_ : 0;
  SITU_RETURN_IF_ERROR(split_attention(e->compiled_.token.graph, e->pool_->threads()));
  add_attention_workspaces(e->compiled_.prompt.graph, e->pool_->threads(), lasts);
  Result<Plan> decode = make_plan(token.graph, token.binding, {1, capacity});
  if (!decode.is_ok()) return decode.status();
  e->decode_plan_ = std::move(*decode);
  Result<int64_t> slots = 0;
  for (;; e->chunk_ = (e->chunk_ + 1) / 2) {
    Result<Plan> prefill =
        make_plan(prompt.graph, prompt.binding, {e->chunk_ + lasts, capacity, std::max<int64_t>(1, lasts)});
    if (!prefill.is_ok()) return prefill.status();
    e->prefill_plan_ = std::move(*prefill);
    e->arena_bytes_ = std::max(e->prefill_plan_.arena_bytes, e->decode_plan_.arena_bytes);
    e->memory_bytes_ = e->arena_bytes_ + e->prefill_plan_.io_bytes + e->decode_plan_.io_bytes + 64;
    slots = e->count_slots(options, model.weight_bytes + e->computed_bytes_, capacity);
    // Scores and masks that are computed grow with chunk times context, and a window keeps chunks beside it: shorter
    // ones need less.
    if (e->chunk_ == 1 || (e->prefill_plan_.arena_bytes <= kMaxArenaBytes && (whole || slots.is_ok()))) break;
  }
#ifndef NDEBUG
  const std::vector<int64_t> steps = e->chunk_ < 3             ? std::vector<int64_t>{1, 1}
                                     : e->compiled_.first_only ? std::vector<int64_t>{3}
                                                               : std::vector<int64_t>{2, 3, 1};
  SITU_RETURN_IF_ERROR(verify_plan(prompt.graph, prompt.binding, e->prefill_plan_, steps));
  SITU_RETURN_IF_ERROR(verify_plan(token.graph, token.binding, e->decode_plan_, {1, 1}));
#endif
  for (const Plan* plan : {&e->prefill_plan_, &e->decode_plan_})
    if (plan->arena_bytes > kMaxArenaBytes)
      return too_large(*plan, plan == &e->prefill_plan_ ? prompt.graph : token.graph);
  if (!slots.is_ok()) return slots.status();
  Result<std::unique_ptr<StatePool>> states = StatePool::create(e->prefill_plan_.states, *slots);
  if (!states.is_ok()) return states.status();
  e->states_ = std::move(*states);
  void* p = mmap(nullptr, static_cast<size_t>(e->memory_bytes_), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    return Status::error("cannot reserve " + std::to_string(e->memory_bytes_) + " bytes for activations");
  e->memory_ = static_cast<std::byte*>(p);

  // Io regions of their own: logits of one program are still read while the other runs.
  const Regions regions{e->memory_, e->memory_ + e->arena_bytes_, e->states_.get()},
      token_regions{e->memory_, regions.io + e->prefill_plan_.io_bytes, e->states_.get()};
  e->executor_ = std::make_unique<Executor>(*e->pool_);
  Result<std::unique_ptr<Program>> a =
      Program::create(prompt.graph, prompt.binding, e->prefill_plan_, prompt.order, regions, *e->executor_);
  if (!a.is_ok()) return a.status();
  Result<std::unique_ptr<Program>> b =
      Program::create(token.graph, token.binding, e->decode_plan_, {"", {}, "one token is of one sequence"},
                      token_regions, *e->executor_);
  if (!b.is_ok()) return b.status();
  e->prefill_ = std::move(*a);
  e->decode_ = std::move(*b);
  const bool one_run = e->prefill_->needs_contiguous() || e->decode_->needs_contiguous();
  if (e->window_ > 0 && one_run)
    return Status::error("no window: attention that was not recognised reads the state as one block");
  if (!whole && !e->has_replaced_states() && !one_run) e->prefixes_ = std::make_unique<PrefixCache>(*e->states_);
  e->packs_ = {packs.bytes() - packs.written_bytes(), packs.written_bytes(), cache.file().string(), ""};
  if (std::optional<PackSave> save = cache.finish())
    e->saver_ = save_in_background(std::move(*save), &e->packs_.problem);
  return e;
}

// Of a window's sequence, those that a step leaves (step_done) and those that the next one takes.
Result<int64_t> InPlaceEngine::count_slots(const EngineOptions& options, int64_t weights, int64_t capacity) const {
  const int64_t kept = window_ > 0 ? std::min(capacity, window_ + first_ + spare_tokens() + chunk_ + batch_) : capacity;
  int64_t all = 0;
  if (options.memory == 0) {
    if (__builtin_mul_overflow(kept, options.sequences, &all))
      return Status::error("a state for " + std::to_string(options.sequences) + " sequences overflows");
    return all;
  }
  const Result<int64_t> slots = slots_in(options.memory, weights);
  if (!slots.is_ok() || window_ == 0 || *slots >= kept) return slots;
  return Status::error(
      "a memory of " + std::to_string(options.memory) + " bytes is too small: it leaves state for " +
      std::to_string(*slots) + " tokens, and a window of " + std::to_string(window_) + " takes " +
      std::to_string(kept) + " (" + (first_ > 0 ? "with the first " + std::to_string(first_) + " tokens, " : "with ") +
      std::to_string(spare_tokens()) + " before it, and the " + std::to_string(chunk_ + batch_) +
      " of a step: a chunk of " + std::to_string(chunk_) + " and " + std::to_string(batch_) + " sequences)");
}

Result<int64_t> InPlaceEngine::slots_in(int64_t memory, int64_t weights) const {
  constexpr int64_t kMostSlots = int64_t{1} << 30;
  int64_t slot = 0, replaced = 0;
  for (const StateLayout& s : prefill_plan_.states)
    s.pair.rule == StateRule::kAppend ? slot += s.slot_bytes() : replaced += 2 * s.slot_bytes();
  const int64_t fixed = weights + memory_bytes_ + replaced;
  if (memory - fixed < slot)
    return Status::error("a memory of " + std::to_string(memory) + " bytes is too small: weights take " +
                         std::to_string(weights) + ", activations " + std::to_string(memory_bytes_) +
                         (replaced > 0 ? ", states that are replaced as a whole " + std::to_string(replaced) : "") +
                         " and one token of state " + std::to_string(slot));
  if (slot == 0) return kMostSlots;
  return std::min(kMostSlots, (memory - fixed) / slot);
}

void InPlaceEngine::finish_saving() {
  if (saver_.joinable()) saver_.join();
}

InPlaceEngine::~InPlaceEngine() {
  finish_saving();
  if (memory_) munmap(memory_, static_cast<size_t>(memory_bytes_));
}

Status InPlaceEngine::step(Sequence& sequence, std::span<const int64_t> tokens, float* to) {
  if (tokens.empty()) return Status::error("a step needs at least one token");
  SITU_RETURN_IF_ERROR(copy_unread());
  const std::string& mixing = compiled_.prompt.order.mixing;
  if (!mixing.empty() && static_cast<int64_t>(tokens.size()) > chunk_)
    return Status::error("a step of " + std::to_string(tokens.size()) + " tokens does not fit memory (at most " +
                         std::to_string(chunk_) + "), and cannot be fed in parts: by " + mixing +
                         " tokens depend on later ones");
  if (tokens.size() > 1 && one_sequence().empty()) {
    const Feed feed{&sequence, tokens};
    return step({&feed, 1}, [](size_t, std::span<const float>) { return Status::ok(); }, to);
  }
  const int64_t before = sequence.length();
  for (size_t begin = 0; begin < tokens.size();) {
    // A prompt program that holds without past only is followed by single tokens.
    const size_t most = compiled_.first_only && sequence.length() > 0 ? 1 : static_cast<size_t>(chunk_);
    const size_t count = std::min(most, tokens.size() - begin);
    const Result<int64_t> fed = run_chunk(sequence, tokens.subspan(begin, count), begin + count == tokens.size(), to,
                                          static_cast<int64_t>(tokens.size()));
    if (!fed.is_ok()) {
      undo(sequence, before);
      return fed.status();
    }
    begin += static_cast<size_t>(*fed);
  }
  return Status::ok();
}

// Slots behind the window are given back, but for as many as a step may take: so far a session can be rewound, be it of
// guesses.
void InPlaceEngine::step_done(Sequence& sequence) const {
  sequence.step_done();
  if (window_ > 0) sequence.drop(window_ - 1 + first_ + spare_tokens(), first_);
}

Status InPlaceEngine::can_rewind(const Sequence& sequence, int64_t length) const {
  const auto cannot = [&](const std::string& why) {
    return Status::error("cannot rewind a sequence of " + std::to_string(sequence.length()) + " tokens to " +
                         std::to_string(length) + ": " + why);
  };
  const int64_t dropped = sequence.length() - sequence.kept(), whole = sequence.whole_before(length);
  if (length > 0 && dropped > 0 && length - dropped < window_ - 1 + first_)
    return cannot("what came before has left the window");
  if (whole < length)
    return cannot("by " + compiled_.prompt.order.mixing +
                  " those that one step computes depend on how many they are; rewind to " + std::to_string(whole) +
                  ", where such a step began, and feed the rest again");
  return Status::ok();
}

// After an error: back to what the sequence was, or to nothing where that has left the window. What is replaced cannot
// go back.
void InPlaceEngine::undo(Sequence& sequence, int64_t length) const {
  if (length > 0 && has_replaced_states()) return;
  if (length == 0 || !can_rewind(sequence, length).is_ok())
    sequence.clear();
  else
    sequence.rewind(length);
}

bool InPlaceEngine::has_replaced_states() const {
  const auto& states = prefill_plan_.states;
  return std::any_of(states.begin(), states.end(),
                     [](const StateLayout& s) { return s.pair.rule == StateRule::kReplace; });
}

// Prefixes that nobody uses make room.
Result<Run> InPlaceEngine::take_slots(Sequence& sequence, int64_t count, int64_t all) {
  Result<Run> run = sequence.append(count, all);
  while (!run.is_ok() && prefixes_ && prefixes_->drop_oldest()) run = sequence.append(count, all);
  return run;
}

Result<int64_t> InPlaceEngine::run_chunk(Sequence& sequence, std::span<const int64_t> tokens, bool last, float* to,
                                         int64_t all) {
  const int64_t past = sequence.length();
  const Result<Run> slots = take_slots(sequence, static_cast<int64_t>(tokens.size()), all);
  if (!slots.is_ok()) return slots.status();
  const bool first = compiled_.first_only && past == 0;
  if ((first || !compiled_.prompt.order.mixing.empty()) && slots->length < static_cast<int64_t>(tokens.size())) {
    sequence.rewind(past);
    return Status::error("the state is full: " + std::to_string(tokens.size()) +
                         " tokens that are computed together need as many slots in a row");
  }
  last = last && static_cast<size_t>(slots->length) == tokens.size();
  tokens = tokens.first(static_cast<size_t>(slots->length));
  const bool prompt = all > 1 && !compiled_.first_only;
  Program& program = tokens.size() == 1 && !first && !prompt ? *decode_ : *prefill_;
  if (program.needs_contiguous() && !sequence.contiguous()) {
    sequence.rewind(past);
    return Status::error(kNeedsOneRun);
  }
  // Replaced states start as zeros.
  if (past == 0)
    for (size_t k = 0; k < prefill_plan_.states.size(); ++k) {
      const StateLayout& s = prefill_plan_.states[k];
      if (s.pair.rule != StateRule::kReplace) continue;
      std::byte* half = states_->base(k) + sequence.flip() * s.slot_bytes();
      std::fill(half, half + s.slot_bytes(), std::byte{0});
    }
  const Segment segment{tokens.data(),
                        static_cast<int64_t>(tokens.size()),
                        past,
                        slots->first_slot,
                        sequence.flip(),
                        sequence.runs().data(),
                        static_cast<int>(sequence.runs().size()),
                        sequence.kept(),
                        prompt};
  const Status done = program.run(
      {{&segment, 1}, last ? 1 : 0, turn_, last && program.writes_logits_anywhere() ? to : nullptr}, ledger_);
  if (!done.is_ok()) {
    sequence.rewind(past);
    return done;
  }
  if (!compiled_.prompt.order.mixing.empty()) sequence.tie(static_cast<int64_t>(tokens.size()));
  step_done(sequence);
  if (last) SITU_RETURN_IF_ERROR(read_logits(program.logits(), 0, to));
  return static_cast<int64_t>(tokens.size());
}

// The last row but `before_last`. Logits of half or double precision are converted (new values); float ones are read
// where they are, unless they have gaps, or are wanted elsewhere (`to`).
Status InPlaceEngine::read_logits(const View& view, int64_t before_last, float* to) {
  if (view.rank < 1 || view.count() == 0) return Status::error("the logits are empty or a scalar");
  if (view.type != DType::kF32 && view.type != DType::kF16 && view.type != DType::kBF16 && view.type != DType::kF64)
    return Status::error(std::string("logits of type ") + dtype_name(view.type));
  View last = view;
  last.rank = 1;
  last.dims[0] = view.dims[view.rank - 1];
  last.strides[0] = view.strides[view.rank - 1];
  int64_t offset = 0;
  for (int i = 0; i + 1 < view.rank; ++i)
    offset += (view.dims[i] - 1 - (view.dims[i] > 1 ? before_last : 0)) * view.strides[i];
  last.data += offset * dtype_bytes(view.type);
  const int64_t width = last.dims[0];
  if (view.type == DType::kF32 && last.strides[0] == 1 && (!to || last.as<float>() == to)) {
    logits_ = {last.as<float>(), static_cast<size_t>(width)};
    return Status::ok();
  }
  if (!to) {
    converted_.resize(static_cast<size_t>(width));
    to = converted_.data();
  }
  logits_ = {to, static_cast<size_t>(width)};
  if (view.type == DType::kF32) {
    View row = last;
    row.data = reinterpret_cast<std::byte*>(to);
    row.strides[0] = 1;
    move_bytes(row, last, ledger_);
    return Status::ok();
  }
  for (int64_t i = 0; i < width; ++i) {
    const int64_t at = i * last.strides[0];
    float& x = to[i];
    if (view.type == DType::kF64)
      x = static_cast<float>(last.as<double>()[at]);
    else
      x = view.type == DType::kF16 ? half_to_float(last.as<uint16_t>()[at]) : bfloat_to_float(last.as<uint16_t>()[at]);
  }
  ledger_.computed += width * 4;
  return Status::ok();
}

Result<std::unique_ptr<NaiveEngine>> NaiveEngine::create(const ImportedModel& model, const EngineOptions& options) {
  std::unique_ptr<NaiveEngine> e(new NaiveEngine());
  Result<CompiledPhases> compiled = compile_phases(model.graph, options, nullptr);
  if (!compiled.is_ok()) return compiled.status();
  e->compiled_ = std::move(*compiled);
  Result<std::unique_ptr<ThreadPool>> pool = make_pool(options.threads);
  if (!pool.is_ok()) return pool.status();
  e->pool_ = std::move(*pool);
  e->evaluator_ = std::make_unique<Evaluator>(*e->pool_);
  return e;
}

NaiveSequence NaiveEngine::new_sequence() const {
  NaiveSequence sequence;
  const Compiled& c = compiled_.prompt;
  for (const StatePair& s : c.binding.states) {
    const ValueInfo& info = c.graph.values[s.past].info;
    sequence.states.push_back(Tensor::allocate(info.type, shape_eval(info.shape, SymbolValues{})));
  }
  return sequence;
}

Result<Tensor> NaiveEngine::input(const Compiled& compiled, ValueId v, const SymbolValues& symbols,
                                  std::span<const int64_t> tokens) const {
  const Value& value = compiled.graph.values[v];
  const DType type = value.info.type;
  if (!host_writes(type))
    return Status::error("'" + value.name + "' is " + dtype_name(type) + ": the host makes int64, int32 and bool only");
  Tensor t = Tensor::allocate(type, shape_eval(value.info.shape, symbols));
  auto put = [&](int64_t i, int64_t x) { write_integer(t.view().data, type, i, x); };
  if (value.info.content) {
    for (size_t i = 0; i < value.info.content->size(); ++i)
      put(static_cast<int64_t>(i), (*value.info.content)[i].eval(symbols));
    return t;
  }
  const InputRole role = compiled.binding.inputs.at(v);
  const int64_t count = static_cast<int64_t>(tokens.size());
  for (int64_t i = 0; i < t.count(); ++i)
    put(i, role == InputRole::kTokenIds ? tokens[static_cast<size_t>(i % count)] : symbols.value[kSymP] + i % count);
  return t;
}

Status NaiveEngine::step(NaiveSequence& sequence, std::span<const int64_t> tokens, float* to) {
  if (tokens.empty()) return Status::error("a step needs at least one token");
  try {
    SITU_RETURN_IF_ERROR(feed(sequence, tokens));
    logits_ = to ? std::span<const float>(to, converted_.size()) : converted_;
    if (to)
      move_bytes(row_view(to, static_cast<int64_t>(converted_.size())),
                 row_view(converted_.data(), static_cast<int64_t>(converted_.size())), ledger());
    return Status::ok();
  } catch (const std::bad_alloc&) {
    return Status::error("not enough memory for a step of " + std::to_string(tokens.size()) + " tokens after " +
                         std::to_string(sequence.length));
  }
}

Status NaiveEngine::feed(NaiveSequence& sequence, std::span<const int64_t> tokens) {
  if (!compiled_.first_only || sequence.length == 0) return run(compiled_.prompt, sequence, tokens);
  NaiveSequence next = sequence;
  for (const int64_t& token : tokens) SITU_RETURN_IF_ERROR(run(compiled_.token, next, {&token, 1}));
  sequence = std::move(next);
  return Status::ok();
}

Status NaiveEngine::run(const Compiled& compiled, NaiveSequence& sequence, std::span<const int64_t> tokens) {
  const Graph& graph = compiled.graph;
  const Binding& binding = compiled.binding;
  SymbolValues symbols;
  symbols.value[kSymS] = static_cast<int64_t>(tokens.size());
  symbols.value[kSymP] = symbols.value[kSymW] = sequence.length;
  std::map<ValueId, Tensor> feeds;
  for (size_t k = 0; k < binding.states.size(); ++k) feeds[binding.states[k].past] = sequence.states[k];
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    const bool host = value.info.content && !value.constant.present() && value.producer < 0;
    const auto role = binding.inputs.find(static_cast<ValueId>(v));
    const bool fed = role != binding.inputs.end() && role->second != InputRole::kState;
    if (!host && !fed) continue;
    Result<Tensor> t = input(compiled, static_cast<ValueId>(v), symbols, tokens);
    if (!t.is_ok()) return t.status();
    feeds[static_cast<ValueId>(v)] = *t;
  }
  Result<std::vector<Tensor>> outputs = evaluator_->graph(graph, feeds);
  if (!outputs.is_ok()) return outputs.status();
  std::vector<Tensor> presents = sequence.states;
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    for (size_t k = 0; k < binding.states.size(); ++k)
      if (binding.states[k].present == graph.outputs[o]) presents[k] = (*outputs)[o];
    if (graph.outputs[o] != binding.logits) continue;
    const Tensor& t = (*outputs)[o];
    if (t.rank() < 1 || t.count() == 0) return Status::error("the logits are empty");
    const int64_t width = t.dims().back();
    const Tensor row =
        Tensor::borrow(t.type(), {width}, t.view().data + (t.count() - width) * dtype_bytes(t.type()), t.owner());
    const std::vector<double> last = row.to_f64();
    converted_.assign(last.begin(), last.end());
  }
  sequence.states = std::move(presents);
  sequence.length += static_cast<int64_t>(tokens.size());
  return Status::ok();
}

}  // namespace situ
