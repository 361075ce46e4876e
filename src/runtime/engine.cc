#include "runtime/engine.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/assign.h"
#include "base/free_memory.h"
#include "passes/lower/attention_workspaces.h"
#include "passes/pack/pack_store.h"

namespace situ {
namespace {

// Activations of one step. An 8B model needs a tenth of this for 512 tokens; what asks for more is not a
// language model or is a file made to exhaust memory.
constexpr int64_t kMaxArenaBytes = int64_t{1} << 30;
constexpr int64_t kMostSlots = int64_t{1} << 30;
// That the state has room for at most, each with the whole context, where there is memory for them.
constexpr int64_t kSequences = 2 * kStepSequences;
// Tokens of kept prefixes, at most: a process that lives long stays as it is. Where nobody says how much memory or how
// many slots there are, prompts that never come again have this many bytes, or a quarter of the weights'.
constexpr int64_t kKeptContexts = PrefixCache::kSequences;
constexpr int64_t kKeptBytes = int64_t{64} << 20;
constexpr int64_t kFewSequences = 8;  // a step takes them however short memory is

Status too_large(const Plan& plan, const Graph& graph) {
  const Root* largest = nullptr;
  for (const Root& r : plan.arena)
    if (!largest || r.bytes > largest->bytes) largest = &r;
  const Value& value = graph.values[largest->value];
  const std::string made_by = value.producer < 0 ? "" : " of " + graph.nodes[value.producer].label();
  return Status::error(Code::kNoRoom, "one step needs " + std::to_string(plan.arena_bytes) +
                                          " bytes of activations, more than " + std::to_string(kMaxArenaBytes) +
                                          "; the largest is '" + value.name + "' " +
                                          shape_str(value.info.shape, &graph.symbol_names()) + made_by)
      .or_reason(Reason::Kind::kSize);
}

int64_t largest(const std::vector<int64_t>& sizes) {
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
}

// Of the constants that steps read, each once.
int64_t constant_bytes(const std::vector<const Graph*>& graphs) {
  std::map<const void*, int64_t> at;
  for (const Graph* g : graphs)
    for (const Value& v : g->values)
      if (v.constant.present()) at[v.constant.view().data] = std::max(at[v.constant.view().data], v.constant.bytes());
  int64_t sum = 0;
  for (const auto& [where, bytes] : at) sum += bytes;
  return sum;
}

}  // namespace

Result<std::unique_ptr<InPlaceEngine>> InPlaceEngine::create(const ModelFiles& files, const EngineOptions& options) {
  return or_error("to prepare the model", [&] { return make(files, options); });
}

Result<std::unique_ptr<InPlaceEngine>> InPlaceEngine::make(const ModelFiles& files, const EngineOptions& options) {
  std::unique_ptr<InPlaceEngine> e(new InPlaceEngine());
  e->pool_ = options.pool;
  std::vector<PackSource> sources;
  files.each([&](const ImportedModel& m) {
    for (PackSource& source : pack_sources(m)) sources.push_back(std::move(source));
  });
  PackCache cache(*e->pool_, sources, {options.pack_cache ? pack_cache_folder() : std::filesystem::path()});
  PackStore packs(*e->pool_, &cache);
  if (options.dry) packs.set_dry();
  for (const PackSource& source : sources) packs.add_file(source.owner);
  Result<CompiledModule> compiled = compile_module(files, options, &packs);
  if (!compiled.is_ok() && options.window > 0 && compiled.status().code() != Code::kInvalidArgument) {
    // What a bound on lengths decides has no answer where there is none.
    EngineOptions bounded = options;
    bounded.window = bounded.first = bounded.context_length = 0;
    PackStore trial(*e->pool_);
    if (options.dry) trial.set_dry();
    if (compile_module(files, bounded, &trial).is_ok())
      return Status::error(Code::kInvalidArgument,
                           "no window, with which a sequence has no end: " + compiled.status().message());
  }
  if (!compiled.is_ok()) return compiled.status();
  e->compiled_ = std::move(*compiled);
  const Compiled &prompt = e->compiled_.prompt, &token = e->compiled_.token;
  e->switches_ = Switches(prompt.binding, token.binding);
  if (e->compiled_.module.has_encoder()) {
    SITU_RETURN_IF_ERROR(assign(&e->encoder_, SourceWriter::create(files, options, token, packs)));
  }
  std::vector<const Graph*> graphs{&prompt.graph, &token.graph};
  const std::shared_ptr<const EncoderProgram> encoder = e->built_encoder();
  if (encoder) graphs.push_back(&encoder->compiled.graph);
  e->weight_bytes_ = files.weight_bytes();
  e->computed_bytes_ = std::max<int64_t>(0, constant_bytes(graphs) - e->weight_bytes_);
  e->ledger_.packed = prompt.packed_bytes + token.packed_bytes + packs.written_bytes();
  const int64_t capacity = e->capacity_ = std::min(prompt.context, token.context);
  // Prompts stay whole where tokens depend on later ones, and where the graph computes steps without past or of one
  // token: what a chunk leaves over would be fed token by token.
  const bool whole = !prompt.order.mixing.empty() || e->compiled_.first_only;
  e->chunk_ = whole ? capacity : e->compiled_.one_token ? 1 : std::clamp<int64_t>(options.chunk, 1, capacity);
  e->batch_ = options.batch;
  if (options.window > 0 && whole)
    return Status::error(Code::kInvalidArgument, "no window: prompts of this model are computed as a whole");
  e->window_ = options.window;
  e->first_ = options.first;

  // A piece of a prompt, and the last tokens of as many sequences as there may be.
  const int64_t sources_most = e->encoder_ ? e->encoder_->most_rows() : 1, most_keys = std::max(capacity, sources_most);
  const auto bounds = [&](int64_t sources) {
    const int64_t lasts = prompt.order.one_sequence.empty() ? e->batch_ : 0;
    return PlanBounds{e->chunk_ + lasts, capacity, std::max<int64_t>(1, lasts), sources};
  };
  add_attention_workspaces(e->compiled_.prompt.graph, e->pool_->threads(), most_keys, bounds(1).wanted);
  add_attention_workspaces(e->compiled_.token.graph, e->pool_->threads(), most_keys, 1);
  if (!files.media.empty()) {
    const Status added = e->add_media(files, options);
    if (!added.is_ok()) e->media_problem_ = added.message();
  }
  SITU_RETURN_IF_ERROR(assign(&e->decode_plan_, make_plan(token.graph, token.binding, {1, capacity, 1, sources_most})));
  Result<StatePool::Capacity> slots = StatePool::Capacity{};
  for (;;) {
    SITU_RETURN_IF_ERROR(assign(&e->prefill_plan_, make_plan(prompt.graph, prompt.binding, bounds(sources_most))));
    e->arena_bytes_ = e->planned_arena_bytes();
    e->memory_bytes_ = e->arena_bytes_ + e->prefill_plan_.io_bytes + e->decode_plan_.io_bytes + 64;
    slots = e->count_slots(options, capacity);
    // Scores and masks that are computed grow with chunk times context, and a window keeps chunks beside it: shorter
    // ones need less, and so do fewer rows of logits.
    const bool fits = e->prefill_plan_.arena_bytes <= kMaxArenaBytes && (!prompt.order.mixing.empty() || slots.is_ok());
    if (fits || (e->chunk_ == 1 && e->batch_ <= kFewSequences)) break;
    if (e->batch_ > kFewSequences && (options.memory > 0 || e->chunk_ == 1))
      e->batch_ = std::max(kFewSequences, e->batch_ / 2);
    else
      e->chunk_ = (e->chunk_ + 1) / 2;
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
  if (e->media_) {
    const Compiled& behind = e->cut_.decoder;
    SITU_RETURN_IF_ERROR(assign(&e->behind_plan_, make_plan(behind.graph, behind.binding, bounds(1))));
#ifndef NDEBUG
    SITU_RETURN_IF_ERROR(verify_plan(behind.graph, behind.binding, e->behind_plan_, steps));
#endif
  }
  // Of encoders that are compiled later, when extents are known, as much as there may be.
  const bool later = (e->encoder_ && !e->built_encoder()) || e->media_;
  const int64_t step_arena = (largest(e->step_arenas()) + 63) / 64 * 64;
  e->arena_bytes_ = step_arena + (later ? kMaxArenaBytes : largest(e->encoder_arenas()));
  e->memory_bytes_ =
      e->arena_bytes_ + e->prefill_plan_.io_bytes + e->decode_plan_.io_bytes + e->behind_plan_.io_bytes + 64;
  SITU_RETURN_IF_ERROR(e->reserve(*slots, options.slots > 0 || options.memory > 0));
  e->executor_ = std::make_unique<Executor>(*e->pool_);
  // Io regions of their own: logits of one program are still read while the other runs.
  Regions regions{e->memory_.data(), e->memory_.data() + e->arena_bytes_, e->states_.get()};
  const auto program = [&](const Compiled& c, const Plan& plan, const TokenOrder& order) {
    const Regions own = regions;
    regions.io += plan.io_bytes;
    return Program::create(c.graph, c.binding, plan, order, own, *e->executor_);
  };
  SITU_RETURN_IF_ERROR(assign(&e->prefill_, program(prompt, e->prefill_plan_, prompt.order)));
  SITU_RETURN_IF_ERROR(assign(&e->decode_, program(token, e->decode_plan_, {"", {}, "one token is of one sequence"})));
  if (!e->one_sequence().empty() && e->batch_ > 1)
    SITU_RETURN_IF_ERROR(
        assign(&e->tokens_, TokenBatch::create(*e->decode_, e->decode_plan_, *e->states_, e->batch_, *e->executor_)));
  e->room_ = {{e->memory_.data() + step_arena, nullptr, e->states_.get()},
              e->arena_bytes_ - step_arena,
              e->executor_.get(),
              &e->ledger_,
              e->encoder_budget(options, step_arena),
              e->states_.get()};
  e->builder_ = std::make_unique<ProgramBuilder>(e->pool_->threads());
  if (e->encoder_) e->encoder_->place(e->room_, *e->builder_);
  if (e->media_) {
    SITU_RETURN_IF_ERROR(assign(&e->behind_, program(e->cut_.decoder, e->behind_plan_, e->cut_.decoder.order)));
    if (e->one_sequence().empty() && !e->behind_->one_sequence().empty())
      return Status::error("rows of encoders cannot share steps with text: " + e->behind_->one_sequence());
    SITU_RETURN_IF_ERROR(e->media_->place(regions, e->room_, *e->builder_));
  }
  const bool one_run = e->prefill_->needs_contiguous() || e->decode_->needs_contiguous();
  if (e->window_ > 0 && one_run)
    return Status::error(Code::kInvalidArgument,
                         "no window: attention that was not recognised reads the state as one block");
  // Beginnings of prompts are those of one source.
  if (one_run) e->states_->space(SpaceKind::kAppend).spread();
  if (!whole && !one_run && !e->encoder_)
    e->prefixes_ = std::make_unique<PrefixCache>(
        *e->states_, kKeptContexts * capacity,
        options.memory > 0 || options.slots > 0
            ? INT64_MAX
            : std::max(kKeptBytes, e->weight_bytes_ / 4) / std::max<int64_t>(1, e->states_->bytes_per_slot()));
  e->room_.prefixes = e->prefixes_.get();
  e->packs_ = {packs.bytes() - packs.written_bytes(), packs.written_bytes(), cache.file().string()};
  if (std::optional<PackSave> save = cache.finish()) e->saver_.save(std::move(*save));
  return e;
}

// The states of all programs, and arena and io.
Status InPlaceEngine::reserve(StatePool::Capacity capacity, bool exact) {
  std::vector<StateLayout> layouts = decode_plan_.states;
  const auto join = [&](const Plan& plan) {
    for (size_t k = 0; k < layouts.size(); ++k) {
      const StateLayout& other = plan.states[k];
      if (!other.pair.here()) continue;
      if (layouts[k].slot_elements == 0) layouts[k] = other;
      if (layouts[k].type != other.type || layouts[k].slot_elements != other.slot_elements)
        return Status::error("state '" + other.pair.name + "' has rows of " + std::to_string(other.slot_elements) +
                             " " + dtype_name(other.type) + " in one program, and of " +
                             std::to_string(layouts[k].slot_elements) + " " + dtype_name(layouts[k].type) +
                             " in another");
    }
    return Status::ok();
  };
  SITU_RETURN_IF_ERROR(join(prefill_plan_));
  if (const auto encoder = built_encoder()) SITU_RETURN_IF_ERROR(join(encoder->plan));
  Result<std::unique_ptr<StatePool>> states = StatePool::create(layouts, capacity);
  // Address space may be limited too, where nobody has asked for so many slots.
  while (!states.is_ok() && !exact && capacity.append > capacity_) {
    capacity.append = std::max(capacity_, capacity.append / 2);
    states = StatePool::create(layouts, capacity);
  }
  if (!states.is_ok()) return states.status();
  states_ = std::move(*states);
  return assign(&memory_, ReservedMemory::of(memory_bytes_, "for activations"));
}

// What is left for encoders whose programs come after the load; one that is there was counted.
EncoderBudget InPlaceEngine::encoder_budget(const EngineOptions& options, int64_t step_arena) const {
  EncoderBudget budget{options.memory > 0, options.slots > 0, options.memory};
  if (const auto encoder = built_encoder()) {
    budget.arena = encoder->plan.arena_bytes;
    budget.taken = budget.arena + encoder->plan.io_bytes + 64;
  }
  budget.left -= weight_bytes_ + computed_bytes_ + step_arena + io_bytes() + budget.arena;
  for (const SpaceKind kind : {SpaceKind::kAppend, SpaceKind::kSource, SpaceKind::kWhole})
    budget.left -= states_->space(kind).capacity() * states_->slot_bytes(kind);
  budget.left = std::max<int64_t>(0, budget.left);
  return budget;
}

// What prompts with rows of encoders take beside the programs of text.
Status InPlaceEngine::add_media(const ModelFiles& files, const EngineOptions& options) {
  const Compiled& prompt = compiled_.prompt;
  if (compiled_.one_token) return Status::error("the model takes prompts token by token");
  if (window_ > 0) return Status::error("a window keeps no prompt");
  SITU_RETURN_IF_ERROR(assign(&cut_, cut_at_embeddings(prompt)));
  SITU_RETURN_IF_ERROR(assign(&media_, MediaWriter::create(files, options, cut_, chunk_ + batch_,
                                                           compiled_.first_only || !prompt.order.mixing.empty())));
  return Status::ok();
}

Result<std::unique_ptr<Encoding>> InPlaceEngine::encoding(const Sequence& sequence, std::span<const int64_t> prompt,
                                                          const EncoderInput& input) {
  if (encoder_) return encoder_->encoding(input);
  if (!media_)
    return Status::error(Code::kUnsupportedModel,
                         "no pictures or sounds in prompts: " +
                             (media_problem_.empty() ? "the model has no encoder of them" : media_problem_));
  const int64_t base = sequence.length();
  return media_->encoding({prompt, base, sequence.media().first_position(base)}, input);
}

Program& InPlaceEngine::program_of(int64_t tokens, int64_t past, bool prompt) const {
  return tokens == 1 && !prompt && !(compiled_.first_only && past == 0) ? *decode_ : *prefill_;
}

// A run of one program. Rows of encoders lie where their sequences have them; beside them those of text are looked up
// before.
Status InPlaceEngine::run(std::span<Segment> segments, int64_t wanted, float* to) {
  token_rows_ = 0;
  if (std::all_of(segments.begin(), segments.end(), [](const Segment& s) { return s.embeddings == nullptr; })) {
    const Segment& s = segments[0];
    ran_ = segments.size() == 1 ? &program_of(s.count, s.past, s.prompt) : prefill_.get();
    return ran_->run({segments, wanted, to}, ledger_);
  }
  std::vector<Segment> text;
  for (const Segment& s : segments)
    if (!s.embeddings) text.push_back(s);
  if (!text.empty()) {
    SITU_TAKE(rows, media_->look_up(text));
    for (Segment& s : segments)
      if (!s.embeddings) s.embeddings = std::exchange(rows, rows + s.count * media_->row_bytes());
  }
  ran_ = behind_.get();
  return ran_->run({segments, wanted, to, {&segments[0].embeddings, 1}}, ledger_);
}

Status InPlaceEngine::check_source(const Sequence& sequence) const {
  if (!encoder_ || sequence.source()) return Status::ok();
  return Status::error(Code::kInvalidArgument, "the sequence has no source: the encoder was not run for it");
}

// States that do not grow with tokens are there for as many sequences as half of the room holds, tokens have the rest.
// Of a window's sequence a step leaves some (step_done), and the next one takes some.
Result<StatePool::Capacity> InPlaceEngine::count_slots(const EngineOptions& options, int64_t capacity) const {
  const int64_t kept = window_ > 0 ? std::min(capacity, window_ + first_ + spare_tokens() + chunk_ + batch_) : capacity;
  const int64_t whole = state_bytes(StateRule::kReplace), source = state_bytes(StateRule::kSource),
                one = whole + source, slot = state_bytes(StateRule::kAppend);
  StatePool::Capacity all;
  int64_t room = 0;  // for all sequences and slots, but for one sequence and one slot
  if (options.memory > 0) {
    SITU_TAKE(slots, slots_in(options.memory, arena_bytes_));
    if (window_ > 0 && slots < kept)
      return Status::error(
          Code::kNoRoom, "a memory of " + std::to_string(options.memory) + " bytes is too small: it leaves state for " +
                             std::to_string(slots) + " tokens, and a window of " + std::to_string(window_) + " takes " +
                             std::to_string(kept) + " (" +
                             (first_ > 0 ? "with the first " + std::to_string(first_) + " tokens, " : "with ") +
                             std::to_string(spare_tokens()) + " before it, and the " + std::to_string(chunk_ + batch_) +
                             " of a step: a chunk of " + std::to_string(chunk_) + " and " + std::to_string(batch_) +
                             " sequences)");
    if (options.slots > slots)
      return Status::error(Code::kNoRoom, "a memory of " + std::to_string(options.memory) +
                                              " bytes is too small for a state of " + std::to_string(options.slots) +
                                              " slots: it leaves room for " + std::to_string(slots));
    all.append = slots;
    room = options.memory - weight_bytes_ - computed_bytes_ - arena_bytes_ - io_bytes() - one;
  } else {
    room = free_memory() / 2;
    const int64_t most = slot == 0 ? kMostSlots : std::max<int64_t>(1, room / slot);
    if (__builtin_mul_overflow(kept, kSequences, &all.append)) all.append = kMostSlots;
    all.append = std::min({all.append, most, kMostSlots});
  }
  // Beams and sources of requests that wait are sequences of their own.
  const int64_t sequences = one == 0 ? kSequences : std::clamp<int64_t>(room / 2 / one, 1, kSequences);
  if (one > 0 && slot > 0)
    all.append = std::min(all.append, std::max<int64_t>(1, (room - (sequences - 1) * one) / slot));
  if (options.slots > 0) all.append = options.slots;
  if (whole > 0) all.whole = 1 + sequences * kWholeSlotsPerSequence;
  if (encoder_ && (__builtin_mul_overflow(encoder_->counted_rows(), sequences, &all.source) ||
                   __builtin_add_overflow(encoder_->most_rows(), all.source, &all.source)))
    return Status::error(Code::kNoRoom, "sources for " + std::to_string(sequences) + " sequences overflow");
  return all;
}

// What states of this kind take: those that grow with tokens of each, others of one sequence.
int64_t InPlaceEngine::state_bytes(StateRule rule) const {
  const int64_t slots = rule == StateRule::kAppend    ? 1
                        : rule == StateRule::kReplace ? kWholeSlotsPerSequence
                        : encoder_                    ? encoder_->counted_rows()
                                                      : 0;
  int64_t sum = 0;
  for (const StateLayout& s : decode_plan_.states)
    if (s.pair.rule == rule) sum += slots * s.slot_bytes();
  return sum;
}

std::vector<int64_t> InPlaceEngine::step_arenas() const {
  std::vector<int64_t> sizes{prefill_plan_.arena_bytes, decode_plan_.arena_bytes};
  if (media_) sizes.insert(sizes.end(), {media_->lookup_plan().arena_bytes, behind_plan_.arena_bytes});
  return sizes;
}

std::vector<int64_t> InPlaceEngine::encoder_arenas() const {
  std::vector<int64_t> sizes;
  if (const auto encoder = built_encoder()) sizes.push_back(encoder->plan.arena_bytes);
  for (size_t i = 0; media_ && i < media_->files().media.size(); ++i)
    if (const auto entry = media_->newest(i)) sizes.push_back(entry->plan.arena_bytes);
  return sizes;
}

int64_t InPlaceEngine::planned_arena_bytes() const { return largest(step_arenas()) + largest(encoder_arenas()); }

int64_t InPlaceEngine::unshared_arena_bytes() const {
  int64_t sum = 0;
  for (const auto& sizes : {step_arenas(), encoder_arenas()})
    for (const int64_t bytes : sizes) sum += bytes;
  return sum;
}

int64_t InPlaceEngine::fixed_state_bytes() const {
  return state_bytes(StateRule::kReplace) + state_bytes(StateRule::kSource);
}

Result<int64_t> InPlaceEngine::slots_in(int64_t memory, int64_t arena) const {
  const int64_t slot = state_bytes(StateRule::kAppend);
  const int64_t weights = weight_bytes_ + computed_bytes_, activations = arena + io_bytes();
  const int64_t states = fixed_state_bytes(), fixed = weights + activations + states;
  if (memory - fixed < slot)
    return Status::error(Code::kNoRoom,
                         "a memory of " + std::to_string(memory) + " bytes is too small: weights take " +
                             std::to_string(weights) + ", activations " + std::to_string(activations) +
                             (states > 0 ? ", states that do not grow with tokens " + std::to_string(states) : "") +
                             " and one token of state " + std::to_string(slot));
  if (slot == 0) return kMostSlots;
  return std::min(kMostSlots, (memory - fixed) / slot);
}

void InPlaceEngine::warm() {
  std::vector<std::span<const std::byte>> read = prefill_->read_whole();
  const std::vector<std::span<const std::byte>> more = decode_->read_whole();
  read.insert(read.end(), more.begin(), more.end());
  warm_.begin(std::move(read));
}

void InPlaceEngine::finish_saving() {
  if (media_) media_->finish_saving();
  saver_.finish();
}

InPlaceEngine::~InPlaceEngine() {
  warm_.stop();
  builder_ = nullptr;
  finish_saving();
}

// A step of one sequence. Where no logits are wanted it is a piece of a prompt.
Status InPlaceEngine::step_one(Feed& feed, float*& to) {
  Sequence& sequence = *feed.sequence;
  const std::span<const int64_t> tokens = feed.tokens;
  const std::string& mixing = compiled_.prompt.order.mixing;
  if (!mixing.empty() && static_cast<int64_t>(tokens.size()) > chunk_)
    return Status::error(Code::kNoRoom, "a step of " + std::to_string(tokens.size()) +
                                            " tokens does not fit memory (at most " + std::to_string(chunk_) +
                                            "), and cannot be fed in parts: by " + mixing +
                                            " tokens depend on later ones");
  const bool piece = feed.wanted == 0;
  Undo undo(*this, sequence);
  // Other prompts may begin as this one: what whole states are before its last token, whose logits are wanted, is
  // known.
  const bool last_apart = has_replaced_states() && mixing.empty() && !compiled_.first_only && !piece;
  for (size_t begin = 0; begin < tokens.size();) {
    // A prompt program that holds without past only is followed by single tokens.
    const size_t most = compiled_.first_only && sequence.length() > 0 ? 1 : static_cast<size_t>(chunk_);
    const size_t rest = tokens.size() - begin;
    const size_t alike =
        static_cast<size_t>(std::min<int64_t>(sequence.media().border(sequence.length()), static_cast<int64_t>(rest)));
    const size_t count = std::min({most, alike, last_apart && rest > 1 ? rest - 1 : rest});
    const bool prompt =
        (tokens.size() > 1 || piece) && !compiled_.first_only && !compiled_.one_token && !(last_apart && rest == 1);
    const Result<int64_t> fed = run_chunk(sequence, tokens.subspan(begin, count), prompt, count == rest && !piece, to,
                                          static_cast<int64_t>(tokens.size()));
    if (!fed.is_ok()) return fed.status();
    begin += static_cast<size_t>(*fed);
  }
  remember(feed);
  Feed* const fed = &feed;
  SITU_RETURN_IF_ERROR(read_rows({&fed, 1}, to));
  undo.keep();
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
    return Status::error(Code::kInvalidArgument, "cannot rewind a sequence of " + std::to_string(sequence.length()) +
                                                     " tokens to " + std::to_string(length) + ": " + why);
  };
  if (sequence.lost()) return Status::ok();
  const int64_t whole = sequence.whole_before(length);
  if (left_window(sequence, length)) return cannot("what came before has left the window");
  if (!sequence.holds(length))
    return cannot("the recurrent states after " + std::to_string(length) +
                  " tokens are not kept, but those of the last steps");
  if (whole < length)
    return cannot("by " + compiled_.prompt.order.mixing +
                  " those that one step computes depend on how many they are; rewind to " + std::to_string(whole) +
                  ", where such a step began, and feed the rest again");
  return Status::ok();
}

// Whether what token number `length` attends to is not kept any more.
bool InPlaceEngine::left_window(const Sequence& sequence, int64_t length) const {
  const int64_t dropped = sequence.length() - sequence.kept();
  return length > 0 && dropped > 0 && length - dropped < window_ - 1 + first_;
}

InPlaceEngine::Undo::Undo(const InPlaceEngine& engine, Sequence& sequence)
    : engine_(&engine), sequence_(&sequence), length_(sequence.length()) {
  sequence.pin();
}

InPlaceEngine::Undo::Undo(Undo&& other) noexcept
    : engine_(other.engine_), sequence_(std::exchange(other.sequence_, nullptr)), length_(other.length_) {}

void InPlaceEngine::Undo::now() {
  if (!sequence_) return;
  if (length_ == 0)
    sequence_->clear();
  else if (!sequence_->lost() && (engine_->left_window(*sequence_, length_) || !sequence_->holds(length_)))
    engine_->forget(*sequence_, length_);
  else
    sequence_->rewind(length_);
  keep();
}

void InPlaceEngine::Undo::keep() {
  if (sequence_) sequence_->unpin(length_);
  sequence_ = nullptr;
}

bool InPlaceEngine::has_replaced_states() const {
  const auto& states = prefill_plan_.states;
  return std::any_of(states.begin(), states.end(),
                     [](const StateLayout& s) { return s.pair.rule == StateRule::kReplace; });
}

Segment with_runs(Segment segment, const Sequence& sequence) {
  segment.runs = sequence.runs().data();
  segment.run_count = static_cast<int>(sequence.runs().size());
  return segment;
}

Segment segment_of(const Sequence& sequence, std::span<const int64_t> tokens, int64_t past, int64_t first_slot,
                   bool prompt) {
  Segment s;
  s.tokens = tokens.data();
  s.count = static_cast<int64_t>(tokens.size());
  s.past = past;
  s.write_slot = first_slot;
  s.read_slot = sequence.read_slot();
  s.write_state = std::max<int64_t>(0, sequence.write_slot());
  s.keys = past + s.count - (sequence.length() - sequence.kept());
  s.prompt = prompt;
  s.embeddings = sequence.media().row(past);
  s.positions = sequence.media().positions(past, &s.position_stride);
  s.position = sequence.media().first_position(past);
  s.whole = sequence.whole();
  if (sequence.source()) {
    s.source_slot = sequence.source()->first_slot();
    s.source_rows = sequence.source()->rows();
  }
  return s;
}

// What `take` gives. Prefixes that nobody uses make room.
template <typename Take>
auto InPlaceEngine::with_room(int64_t slots, Take take) -> decltype(take()) {
  auto taken = take();
  while (!taken.is_ok() && prefixes_ && prefixes_->evict(slots)) taken = take();
  return taken;
}

Result<Run> InPlaceEngine::take_slots(Sequence& sequence, int64_t count, int64_t all) {
  return with_room(count, [&] { return sequence.append(count, all); });
}

Status InPlaceEngine::take_state_slot(Sequence& sequence, int64_t length, bool again) {
  return with_room(1, [&] { return sequence.take_write_slot(length, again); });
}

Result<std::pair<int64_t, int64_t>> InPlaceEngine::attending_heads() {
  if (!encoder_) return Status::error(Code::kInvalidArgument, "the model has no encoder");
  const std::lock_guard held(attending_mutex_);
  if (!attending_) {
    const int64_t tokens = std::min(chunk_, capacity_);
    SITU_RETURN_IF_ERROR(
        assign(&attending_, CrossAttention::create(compiled_.prompt, {tokens, capacity_, tokens, encoder_->most_rows()},
                                                   *states_, *executor_)));
  }
  return std::pair(attending_->layers(), attending_->heads());
}

Result<std::unique_ptr<InPlaceEngine::Alignment>> InPlaceEngine::align(Sequence& sequence,
                                                                       std::span<const int64_t> tokens,
                                                                       std::span<const AttentionHead> heads) {
  if (aligning_) return std::unique_ptr<Alignment>();
  SITU_RETURN_IF_ERROR(check_source(sequence));
  const auto count = static_cast<int64_t>(tokens.size());
  if (sequence.length() != 0 || count < 1 || count > chunk_)
    return Status::error(Code::kInvalidArgument,
                         std::to_string(count) + " tokens after " + std::to_string(sequence.length()) +
                             " cannot be aligned in one step of at most " + std::to_string(chunk_));
  auto made = std::make_unique<Alignment>(*this, sequence);
  sequence.set_whole(count);
  SITU_TAKE(slots, take_slots(sequence, count, count));
  if (slots.length < count)
    return Status::error(Code::kNoRoom, "no " + std::to_string(count) + " slots in a row for an alignment");
  SITU_RETURN_IF_ERROR(take_state_slot(sequence, sequence.length()));
  const Segment segment = with_runs(segment_of(sequence, tokens, 0, slots.first_slot, true), sequence);
  SITU_RETURN_IF_ERROR(attending_->begin(segment, heads, ledger_));
  return made;
}

// The next of these tokens, as many as get slots in one run. `prompt`: they are a piece of one; `last`: the logits
// after the last of them are wanted; `all`: tokens of the step. Whoever calls it undoes it.
Result<int64_t> InPlaceEngine::run_chunk(Sequence& sequence, std::span<const int64_t> tokens, bool prompt, bool last,
                                         float* to, int64_t all) {
  const int64_t past = sequence.length();
  SITU_TAKE(slots, take_slots(sequence, std::ssize(tokens), all));
  const bool at_once = (compiled_.first_only && past == 0) || !compiled_.prompt.order.mixing.empty();
  if (at_once && slots.length < std::ssize(tokens))
    return Status::error(Code::kNoRoom, "the state is full: " + std::to_string(tokens.size()) +
                                            " tokens that are computed together need as many slots in a row");
  last = last && slots.length == std::ssize(tokens);
  tokens = tokens.first(static_cast<size_t>(slots.length));
  if (program_of(slots.length, past, prompt).needs_contiguous() && !sequence.contiguous()) return needs_one_run();
  SITU_RETURN_IF_ERROR(take_state_slot(sequence, sequence.length()));
  Segment segment = with_runs(segment_of(sequence, tokens, past, slots.first_slot, prompt), sequence);
  SITU_RETURN_IF_ERROR(run({&segment, 1}, last ? 1 : 0, last ? to : nullptr));
  if (!compiled_.prompt.order.mixing.empty()) sequence.tie(slots.length);
  step_done(sequence);
  return slots.length;
}

// The last row but `before_last`. Logits of half or double precision are converted (new values); float ones are read
// where they are, unless they have gaps, or are wanted elsewhere (`to`).
Result<std::span<const float>> InPlaceEngine::read_logits(const View& view, int64_t before_last, float* to) {
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
  if (view.type == DType::kF32 && last.strides[0] == 1 && (!to || last.as<float>() == to))
    return std::span<const float>(last.as<float>(), static_cast<size_t>(width));
  if (!to) {
    rows_.resize(std::max(rows_.size(), static_cast<size_t>(width)));
    to = rows_.data();
  }
  const std::span<const float> row(to, static_cast<size_t>(width));
  if (view.type == DType::kF32) {
    View dense = last;
    dense.data = reinterpret_cast<std::byte*>(to);
    dense.strides[0] = 1;
    move_bytes(dense, last, ledger_);
    return row;
  }
  for (int64_t i = 0; i < width; ++i) to[i] = float_at(last, i * last.strides[0]);
  ledger_.computed += width * 4;
  return row;
}

}  // namespace situ
