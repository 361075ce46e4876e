// The planner under random graphs: every plan is accepted by the verifier, and the placed program gives what the
// interpreter gives. And the verifier under corrupted plans: what changes a result must be rejected.
// SITU_FUZZ_SEED and SITU_FUZZ_COUNT repeat one graph or run longer.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "base/sweep_for_tests.h"
#include "onnx/importer.h"
#include "passes/compile/token_order.h"
#include "passes/pack/pack_store.h"
#include "runtime/engine.h"
#include "tiny_graph.h"

namespace situ {
namespace {

constexpr int64_t kMostTokens = 4;
const std::vector<int64_t> kSteps{3, 1, 4, 1, 1, 2, 4, 4};  // fill the capacity, the last step with the most tokens
constexpr int64_t kCapacity = 20;
// Room around the arena: a corrupted plan that slipped through may write a little outside of it.
constexpr int64_t kMargin = 1 << 20;

uint32_t number_from(const char* variable, uint32_t fallback) {
  const char* text = std::getenv(variable);
  return text ? static_cast<uint32_t>(std::strtoul(text, nullptr, 10)) : fallback;
}

// `sequence`: another one has other tokens.
std::vector<int64_t> tokens_of(int64_t count, int64_t past, int64_t sequence = 0) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(((past + i) * 7 + sequence * 3) % test::RandomGraph::kRows);
  return ids;
}

// Elements of a strided float view in order.
std::vector<float> elements(const View& v) {
  std::vector<float> out;
  std::vector<int64_t> index(static_cast<size_t>(v.rank), 0);
  for (int64_t k = 0; k < v.count(); ++k) {
    int64_t at = 0;
    for (int i = 0; i < v.rank; ++i) at += index[static_cast<size_t>(i)] * v.strides[i];
    out.push_back(v.as<float>()[at]);
    for (int i = v.rank; i-- > 0;) {
      if (++index[static_cast<size_t>(i)] < v.dims[i]) break;
      index[static_cast<size_t>(i)] = 0;
    }
  }
  return out;
}

using Outputs = std::vector<std::vector<float>>;  // by step: the logits, then every state after the step

// The graph literally, present handed back as past.
Result<Outputs> run_naively(const Graph& graph, const Binding& binding, const std::vector<int64_t>& steps = kSteps,
                            int64_t sequence = 0) {
  ThreadPool pool(1);
  Evaluator evaluator(pool);
  std::vector<Tensor> states;
  for (const StatePair& s : binding.states)
    states.push_back(Tensor::allocate(DType::kF32, shape_eval(graph.values[s.past].info.shape, SymbolValues{})));
  Outputs out;
  int64_t past = 0;
  for (int64_t count : steps) {
    SymbolValues symbols;
    symbols[kSymS] = count;
    symbols[kSymP] = past;
    std::map<ValueId, Tensor> feeds;
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const Value& value = graph.values[v];
      if (value.info.content && !value.constant.present())
        feeds[static_cast<ValueId>(v)] = Tensor::vector_i64(shape_eval(*value.info.content, symbols));
    }
    feeds[graph.inputs[0]] = Tensor::vector_i64(tokens_of(count, past, sequence)).reshaped({1, count});
    for (size_t k = 0; k < states.size(); ++k) feeds[binding.states[k].past] = states[k];
    Result<std::vector<Tensor>> values = evaluator.graph(graph, feeds);
    if (!values.is_ok()) return values.status();
    out.emplace_back();
    for (size_t o = 0; o < graph.outputs.size(); ++o)
      if (graph.outputs[o] == binding.logits) out.back() = elements((*values)[o].view());
    for (size_t k = 0; k < states.size(); ++k)
      for (size_t o = 0; o < graph.outputs.size(); ++o)
        if (graph.outputs[o] == binding.states[k].present) {
          states[k] = (*values)[o];
          const std::vector<float> held = elements(states[k].view());
          out.back().insert(out.back().end(), held.begin(), held.end());
        }
    past += count;
  }
  return out;
}

// Where present lies after a step, from the rule and not from the plan.
View state_view(const Graph& graph, const StatePool& states, size_t k, const StatePair& pair,
                const SymbolValues& symbols, int64_t written, int64_t first_slot) {
  const std::vector<int64_t> dims = shape_eval(graph.values[pair.present].info.shape, symbols);
  View v;
  v.type = DType::kF32;
  v.rank = static_cast<int>(dims.size());
  int64_t stride = 1;
  for (int i = v.rank; i-- > 0;) {
    v.dims[i] = dims[static_cast<size_t>(i)];
    if (pair.rule == StateRule::kAppend && i == pair.axis) continue;
    v.strides[i] = stride;
    stride *= v.dims[i];
  }
  if (pair.rule == StateRule::kAppend) v.strides[pair.axis] = stride;
  v.data = states.base(k) + (pair.rule == StateRule::kAppend ? first_slot : written) * stride * 4;
  return v;
}

// One program over all steps, or with `decode` another one for steps of one token, as the engine has.
struct Compilation {
  Graph graph;
  Plan plan;
};

Result<Outputs> run_placed(const Compilation& any, const Compilation* decode, const Binding& binding, int threads) {
  Result<std::unique_ptr<StatePool>> states =
      StatePool::create(any.plan.states, {3 * kCapacity, 0, 8});  // a second sequence begins in the middle
  if (!states.is_ok()) return states.status();
  (*states)->space(SpaceKind::kAppend).spread();
  const int64_t arena = std::max(any.plan.arena_bytes, decode ? decode->plan.arena_bytes : 0),
                io = std::max(any.plan.io_bytes, decode ? decode->plan.io_bytes : 0);
  std::vector<std::byte> memory(static_cast<size_t>(arena + io + 3 * kMargin),
                                std::byte{0x7f});  // not zero: unwritten bytes must not look right
  std::byte* base = memory.data() + kMargin + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  const Regions regions{base, base + (arena + 63) / 64 * 64 + kMargin / 2 / 64 * 64, states->get()};
  ThreadPool pool(threads);
  Executor executor(pool);
  if (threads == 2) executor.work_alone();
  std::unique_ptr<Program> programs[2];
  for (int i = 0; i < (decode ? 2 : 1); ++i) {
    const Compilation& c = i ? *decode : any;
    Result<std::unique_ptr<Program>> p =
        Program::create(c.graph, binding, c.plan, {"", {}, "not asked for"}, regions, executor);
    if (!p.is_ok()) return p.status();
    programs[i] = std::move(*p);
  }
  // The sequence does not begin at slot 0.
  Sequence before(**states), sequence(**states);
  if (Result<situ::Run> slots = before.append(3); !slots.is_ok()) return slots.status();
  Outputs out;
  Ledger ledger;
  int64_t past = 0;
  for (int64_t count : kSteps) {
    const std::vector<int64_t> ids = tokens_of(count, past);
    const Result<situ::Run> slots = sequence.append(count);
    if (!slots.is_ok()) return slots.status();
    if (!sequence.contiguous() || slots->length != count) return Status::error("the sequence is no single run");
    Program& program = *programs[decode && count == 1];
    SITU_RETURN_IF_ERROR(sequence.take_write_slot(sequence.length()));
    Segment segment = segment_of(sequence, ids, past, slots->first_slot, false);
    segment.runs = sequence.runs().data();
    segment.run_count = static_cast<int>(sequence.runs().size());
    SITU_RETURN_IF_ERROR(program.run({{&segment, 1}, 1}, ledger));
    out.push_back(elements(program.logits()));
    SymbolValues symbols;
    symbols[kSymS] = count;
    symbols[kSymP] = past;
    for (size_t k = 0; k < binding.states.size(); ++k) {
      const std::vector<float> held = elements(state_view(any.graph, **states, k, binding.states[k], symbols,
                                                          sequence.write_slot(), sequence.runs()[0].first_slot));
      out.back().insert(out.back().end(), held.begin(), held.end());
    }
    sequence.step_done();
    past += count;
  }
  return out;
}

// Sums in another order: the literal run itself gives 2.98670864 on the portable kernels and 2.98670912 on AVX2, and
// steps feed on each other's states (seed 28809056, portable: one number of thousands is off by 1.0016e-6 of 1 + its
// size). A value in a wrong place is off by far more: these are random numbers around 1.
constexpr float kTolerance = 4e-6f;

bool near(const Outputs& a, const Outputs& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    for (size_t j = 0; j < a[i].size(); ++j)
      if (!(std::fabs(a[i][j] - b[i][j]) <= kTolerance * (1 + std::fabs(a[i][j])))) return false;
  }
  return true;
}

std::string listing(const Graph& graph) {
  std::string text;
  for (const Node& n : graph.nodes) {
    text += n.op + "(";
    for (ValueId v : n.in) text += graph.values[v].name + shape_str(graph.values[v].info.shape) + " ";
    text += ") ->";
    for (ValueId v : n.out) text += " " + graph.values[v].name + shape_str(graph.values[v].info.shape);
    text += "\n";
  }
  return text;
}

Graph with_one_token(Graph graph) {
  for (Value& v : graph.values) {
    for (Dim& d : v.info.shape) d = d.substitute(kSymS, Dim(1));
    if (v.info.content)
      for (Dim& d : *v.info.content) d = d.substitute(kSymS, Dim(1));
  }
  return graph;
}

void check(uint32_t seed) {
  const test::RandomGraph random(seed, 6 + static_cast<int>(seed % 25));
  ASSERT_EQ(random.error(), "");
  const Binding& binding = random.binding();
  Compilation any{random.graph(), {}}, decode{with_one_token(random.graph()), {}};
  Result<Plan> plan = make_plan(any.graph, binding, {kMostTokens, kCapacity}),
               single = make_plan(decode.graph, binding, {1, kCapacity});
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  ASSERT_TRUE(single.is_ok()) << single.status().message();
  any.plan = *plan;
  decode.plan = *single;
  const Status verified = verify_plan(any.graph, binding, any.plan, kSteps),
               verified_single = verify_plan(decode.graph, binding, decode.plan, {1, 1, 1, 1});
  EXPECT_TRUE(verified.is_ok()) << verified.message();
  EXPECT_TRUE(verified_single.is_ok()) << verified_single.message();
  Result<Outputs> want = run_naively(any.graph, binding);
  ASSERT_TRUE(want.is_ok()) << want.status().message();
  const int threads = seed % 16 == 0 ? 2 + static_cast<int>(seed / 16 % 2) : 1;  // more than cores cost time slices
  for (const Compilation* second :
       {static_cast<const Compilation*>(nullptr), static_cast<const Compilation*>(&decode)}) {
    Result<Outputs> got = run_placed(any, second, binding, threads);
    ASSERT_TRUE(got.is_ok()) << got.status().message();
    EXPECT_TRUE(near(*want, *got)) << (second ? "with a program for one token" : "with one program") << ", " << threads
                                   << " threads";
  }
}

TEST(FuzzPlan, PlacedProgramsGiveWhatTheInterpreterGives) {
  const uint32_t first = number_from("SITU_FUZZ_SEED", std::random_device{}()),
                 count = number_from("SITU_FUZZ_COUNT", std::getenv("SITU_FUZZ_SEED") ? 1
                                                        : sweeping()                  ? 400
                                                                                      : 200);
  std::printf("seeds %u .. %u\n", first, first + count - 1);
  for (uint32_t i = 0; i < count; ++i) {
    check(first + i);
    if (HasFailure()) {
      ADD_FAILURE() << "SITU_FUZZ_SEED=" << first + i << "\n"
                    << listing(test::RandomGraph(first + i, 6 + static_cast<int>((first + i) % 25)).graph());
      return;
    }
  }
}

// -- steps of several sequences

// Steps of three sequences together, each with its own number of tokens; in slots that follow each other as they come.
// Logits and states of each, as run_naively gives them; logits of the last `wanted` sequences only, and 0 for the
// others.
const std::vector<std::vector<int64_t>> kTogether{{3, 1, 4, 1}, {1, 2, 1, 4}, {2, 1, 1, 2}};

Result<std::vector<Outputs>> run_together(const Graph& graph, const Binding& binding, const Plan& plan,
                                          Program& program, StatePool& states, size_t wanted) {
  std::vector<Sequence> sequences;
  std::vector<Outputs> out(kTogether.size());
  for (size_t i = 0; i < kTogether.size(); ++i) sequences.emplace_back(states);
  Ledger ledger;
  for (size_t step = 0; step < kTogether[0].size(); ++step) {
    std::vector<Segment> segments;
    std::vector<std::vector<int64_t>> ids;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Sequence& s = sequences[i];
      const int64_t count = kTogether[i][step], past = s.length();
      ids.push_back(tokens_of(count, past, static_cast<int64_t>(i)));
      const Result<situ::Run> slots = s.append(count);
      if (!slots.is_ok()) return slots.status();
      if (!s.contiguous() || slots->length != count) return Status::error("the sequence is no single run");
      segments.push_back(segment_of(s, ids.back(), past, slots->first_slot, false));
    }
    for (size_t i = 0; i < sequences.size(); ++i) {
      segments[i].tokens = ids[i].data();
      segments[i].runs = sequences[i].runs().data();
      segments[i].run_count = static_cast<int>(sequences[i].runs().size());
      segments[i].keys = sequences[i].kept();
    }
    int64_t last = 0;
    for (size_t i = sequences.size() - wanted; i < sequences.size(); ++i) last += segments[i].count;
    SITU_RETURN_IF_ERROR(program.run({segments, last}, ledger));
    std::vector<float> logits = elements(program.logits());
    std::fill(logits.begin(), logits.end() - last, 0.0f);
    size_t at = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      out[i].emplace_back(logits.begin() + static_cast<long>(at),
                          logits.begin() + static_cast<long>(at + static_cast<size_t>(segments[i].count)));
      at += static_cast<size_t>(segments[i].count);
      SymbolValues symbols;
      symbols[kSymS] = segments[i].count;
      symbols[kSymP] = segments[i].past;
      for (size_t k = 0; k < plan.states.size(); ++k) {
        const std::vector<float> held =
            elements(state_view(graph, states, k, binding.states[k], symbols, 0, sequences[i].runs()[0].first_slot));
        out[i].back().insert(out[i].back().end(), held.begin(), held.end());
      }
    }
  }
  return out;
}

// False: the graph takes one sequence at a time.
bool check_together(uint32_t seed) {
  const test::RandomGraph random(seed, 3 + static_cast<int>(seed % 9), true);
  EXPECT_EQ(random.error(), "");
  const Graph& graph = random.graph();
  const Binding& binding = random.binding();
  const int threads = seed % 16 == 0 ? 2 : 1;
  ThreadPool pool(threads);
  Evaluator evaluator(pool);
  const TokenOrder order = token_order(graph, binding, evaluator, Phase::kAny, kCapacity);
  if (!order.one_sequence.empty()) return false;
  Result<Plan> plan = make_plan(graph, binding, {3 * kMostTokens, kCapacity});
  EXPECT_TRUE(plan.is_ok()) << plan.status().message();
  Result<std::unique_ptr<StatePool>> states = StatePool::create(plan->states, {8 * kCapacity, 0, 8});
  (*states)->space(SpaceKind::kAppend).spread();
  std::vector<std::byte> memory(static_cast<size_t>(plan->arena_bytes + plan->io_bytes + 128), std::byte{0x7f});
  std::byte* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  Executor executor(pool);
  if (seed % 32 == 0) executor.work_alone();
  Result<std::unique_ptr<Program>> program = Program::create(
      graph, binding, *plan, order, {base, base + (plan->arena_bytes + 63) / 64 * 64, states->get()}, executor);
  EXPECT_TRUE(program.is_ok()) << program.status().message();
  if (!(*program)->one_sequence().empty()) return false;
  const size_t wanted = seed / 2 % 4;
  Result<std::vector<Outputs>> got = run_together(graph, binding, *plan, **program, **states, wanted);
  EXPECT_TRUE(got.is_ok()) << got.status().message();
  for (size_t i = 0; got.is_ok() && i < kTogether.size(); ++i) {
    Result<Outputs> want = run_naively(graph, binding, kTogether[i], static_cast<int64_t>(i));
    for (size_t step = 0; want.is_ok() && i + wanted < kTogether.size() && step < want->size(); ++step)
      std::fill_n((*want)[step].begin(), kTogether[i][step], 0.0f);
    EXPECT_TRUE(want.is_ok() && near(*want, (*got)[i])) << "sequence " << i;
  }
  return true;
}

TEST(FuzzPlan, SequencesTogetherGiveWhatEachGivesAlone) {
  const uint32_t first = number_from("SITU_FUZZ_SEED", std::random_device{}()),
                 count = number_from("SITU_FUZZ_COUNT", std::getenv("SITU_FUZZ_SEED") ? 1
                                                        : sweeping()                  ? 400
                                                                                      : 200);
  std::printf("seeds %u .. %u\n", first, first + count - 1);
  uint32_t together = 0;
  for (uint32_t i = 0; i < count && !HasFailure(); ++i) {
    together += check_together(first + i);
    if (HasFailure()) {
      ADD_FAILURE() << "SITU_FUZZ_SEED=" << first + i << "\n"
                    << listing(test::RandomGraph(first + i, 3 + static_cast<int>((first + i) % 9), true).graph());
    }
  }
  std::printf("%u of %u graphs take several sequences\n", together, count);
  if (count > 100) {
    EXPECT_GT(together, count / 20);
  }
}

// -- corrupted plans

// Changes something that some step relies on; false: nothing to change here.
using Corruption = std::function<bool(Plan&, std::mt19937&)>;

template <typename T>
T& any_of(std::vector<T>& list, std::mt19937& random) {
  return list[std::uniform_int_distribution<size_t>(0, list.size() - 1)(random)];
}

// A home that a kernel reads or writes, in one of the writable regions.
Home* any_home(Plan& plan, const Graph& graph, std::mt19937& random, const std::function<bool(const Home&)>& wanted) {
  std::vector<Home*> homes;
  for (Step& s : plan.steps) {
    if (s.move) {
      for (Home* h : {&s.from_home, &s.to_home})
        if (wanted(*h)) homes.push_back(h);
      continue;
    }
    const Node& node = graph.nodes[static_cast<size_t>(s.node)];
    for (const auto* list : {&node.in, &node.out})
      for (ValueId v : *list)
        if (v != kNoValue && wanted(plan.values[static_cast<size_t>(v)]))
          homes.push_back(&plan.values[static_cast<size_t>(v)]);
  }
  return homes.empty() ? nullptr : any_of(homes, random);
}

bool in_memory(const Home& h) { return h.region == RegionKind::kArena || h.region == RegionKind::kState; }

// A block that is live while another one is, is moved onto it.
bool shift_block(Plan& plan, std::mt19937& random) {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t a = 0; a < plan.arena.size(); ++a)
    for (size_t b = 0; b < plan.arena.size(); ++b)
      if (a != b && plan.arena[a].first >= 0 && plan.arena[b].first >= 0 && plan.arena[a].first < plan.arena[b].last &&
          plan.arena[b].first < plan.arena[a].last)
        pairs.emplace_back(a, b);
  if (pairs.empty()) return false;
  const auto [a, b] = any_of(pairs, random);
  plan.arena[a].offset = plan.arena[b].offset;
  return true;
}

bool shorten_block(Plan& plan, std::mt19937& random) {
  std::vector<Root*> used;
  for (Root& r : plan.arena)
    if (r.first >= 0) used.push_back(&r);
  if (used.empty()) return false;
  any_of(used, random)->bytes -= 64;
  return true;
}

bool swap_steps(Plan& plan, std::mt19937& random) {
  if (plan.steps.size() < 2) return false;
  const size_t i = std::uniform_int_distribution<size_t>(0, plan.steps.size() - 2)(random);
  std::swap(plan.steps[i], plan.steps[i + 1]);
  return true;
}

bool drop_step(Plan& plan, std::mt19937& random) {
  if (plan.steps.empty()) return false;
  plan.steps.erase(plan.steps.begin() +
                   static_cast<long>(std::uniform_int_distribution<size_t>(0, plan.steps.size() - 1)(random)));
  return true;
}

// Wrong by its nature, also where one thread happens to read before it writes: running it proves nothing.
constexpr const char* kOverlay = "overlay operand";

std::vector<std::pair<const char*, Corruption>> corruptions(const Graph& graph, const Binding& binding) {
  auto change_stride = [&graph](Plan& plan, std::mt19937& random) {
    Home* h = any_home(plan, graph, random, [](const Home& x) {
      return in_memory(x) &&
             std::any_of(x.view.dims.begin(), x.view.dims.end(), [](const Dim& d) { return d != Dim(1); });
    });
    if (!h) return false;
    std::vector<size_t> axes;
    for (size_t i = 0; i < h->view.dims.size(); ++i)
      if (h->view.dims[i] != Dim(1)) axes.push_back(i);
    Dim& stride = h->view.strides[any_of(axes, random)];
    stride = stride + Dim(random() % 2 ? 1 : -1);
    return true;
  };
  auto shift_view = [&graph](Plan& plan, std::mt19937& random) {
    Home* h = any_home(plan, graph, random, in_memory);
    if (h) h->view.offset = h->view.offset + Dim(random() % 2 ? 1 : -1);
    return h != nullptr;
  };
  auto swap_homes = [&graph](Plan& plan, std::mt19937& random) {
    Home *a = any_home(plan, graph, random, in_memory), *b = any_home(plan, graph, random, in_memory);
    if (!a || a == b || (a->region == b->region && a->root == b->root && a->view.offset == b->view.offset))
      return false;
    std::swap(*a, *b);
    return true;
  };
  // The result of a kernel that is not elementwise is laid over an operand: it would overwrite what it still reads. The
  // two views share their first element.
  auto overlay_operand = [&graph](Plan& plan, std::mt19937& random) {
    std::vector<std::pair<int, int>> pairs;
    for (const Step& s : plan.steps) {
      const Node& node = graph.nodes[static_cast<size_t>(s.node)];
      if (s.move || node.def->placement == Placement::kElementwise) continue;
      const Home& out = plan.values[static_cast<size_t>(node.out[0])];
      for (ValueId v : node.in) {
        if (v == kNoValue) continue;
        const Home& in = plan.values[static_cast<size_t>(v)];
        const bool blocks = in.region == RegionKind::kArena && out.region == RegionKind::kArena && in.root != out.root;
        if (blocks && in.view.offset == Dim(0) && out.view.offset == Dim(0)) pairs.emplace_back(out.root, in.root);
      }
    }
    if (pairs.empty()) return false;
    const auto [a, b] = any_of(pairs, random);
    plan.arena[static_cast<size_t>(a)].offset = plan.arena[static_cast<size_t>(b)].offset;
    return true;
  };
  auto move_state = [&binding](Plan& plan, std::mt19937& random) {
    std::vector<size_t> appended;
    for (size_t k = 0; k < plan.states.size(); ++k)
      if (plan.states[k].pair.rule == StateRule::kAppend) appended.push_back(k);
    if (appended.empty()) return false;
    // The rows of a step are written by the operand of the state's Concat: the home whose offset is W.
    const size_t k = any_of(appended, random);
    const Dim slot(plan.states[k].slot_elements);
    bool moved = false;
    for (size_t v = 0; v < plan.values.size(); ++v) {
      Home& h = plan.values[v];
      const bool whole =
          static_cast<ValueId>(v) == binding.states[k].past || static_cast<ValueId>(v) == binding.states[k].present;
      if (h.region != RegionKind::kState || h.root != static_cast<int>(k) || whole) continue;
      h.view.offset = h.view.offset + slot;
      moved = true;
    }
    for (Step& s : plan.steps)
      if (s.move && s.to_home.region == RegionKind::kState && s.to_home.root == static_cast<int>(k)) {
        s.to_home.view.offset = s.to_home.view.offset + slot;
        moved = true;
      }
    return moved;
  };
  return {{"shift block", shift_block}, {kOverlay, overlay_operand}, {"shorten block", shorten_block},
          {"swap steps", swap_steps},   {"drop step", drop_step},    {"change stride", change_stride},
          {"shift view", shift_view},   {"swap homes", swap_homes},  {"move state write", move_state}};
}

// Every edge of the schedules of random graphs is needed: the verifier rejects a schedule without it.
TEST(FuzzPlan, NoEdgeOfAScheduleIsOneTooMany) {
  const uint32_t first = number_from("SITU_FUZZ_SEED", std::random_device{}());
  std::printf("seeds %u .. %u\n", first, first + 99);
  int edges = 0;
  for (uint32_t seed = first; seed < first + 100 && !HasFailure(); ++seed) {
    const test::RandomGraph random(seed, 6 + static_cast<int>(seed % 25));
    const Result<Plan> plan = make_plan(random.graph(), random.binding(), {kMostTokens, kCapacity});
    ASSERT_TRUE(plan.is_ok()) << plan.status().message();
    const TokenOrder order{"", {}, "not asked for"};
    const Result<Schedule> schedule = make_schedule(random.graph(), *plan, order);
    ASSERT_TRUE(schedule.is_ok()) << schedule.status().message();
    EXPECT_TRUE(verify_schedule(random.graph(), *plan, order, *schedule).is_ok()) << seed;
    for (size_t e = 0; e < schedule->edges.size(); ++e, ++edges) {
      Schedule fewer = *schedule;
      fewer.edges.erase(fewer.edges.begin() + static_cast<ptrdiff_t>(e));
      EXPECT_FALSE(verify_schedule(random.graph(), *plan, order, fewer).is_ok()) << "seed " << seed << ", edge " << e;
    }
  }
  EXPECT_GT(edges, 500);
}

struct Score {
  int rejected = 0, harmless = 0, missed = 0;
};

// Whether the schedule of a plan is accepted.
bool schedule_holds(const Graph& graph, const Plan& plan) {
  const TokenOrder order{"", {}, "not asked for"};
  const Result<Schedule> schedule = make_schedule(graph, plan, order);
  return schedule.is_ok() && verify_schedule(graph, plan, order, *schedule).is_ok();
}

// Corrupts `plan` in every way. `harmless`: true when a plan that was accepted gives the right outputs.
void corrupt(const Graph& graph, const Binding& binding, const Plan& plan, const std::vector<int64_t>& steps,
             std::mt19937& random, int rounds, const std::function<bool(const Plan&)>& harmless,
             std::map<std::string, Score>* scores) {
  for (const auto& [name, change] : corruptions(graph, binding))
    for (int round = 0; round < rounds; ++round) {
      Plan bad = plan;
      if (!change(bad, random)) break;
      Score& score = (*scores)[name];
      if (std::string(name) == "shift block") {
        EXPECT_FALSE(check_lifetimes(graph, binding, bad).is_ok());
      }
      if (!verify_plan(graph, binding, bad, steps).is_ok() || !schedule_holds(graph, bad))
        ++score.rejected;
      else if (name != kOverlay && harmless(bad))
        ++score.harmless;
      else
        ++score.missed;
    }
}

// Of the corruptions that change a result, at least 95 % of each kind must be rejected.
void expect_caught(const std::map<std::string, Score>& scores) {
  for (const auto& [name, s] : scores) {
    std::printf("%-18s %5d rejected, %4d accepted without effect, %3d missed\n", name.c_str(), s.rejected, s.harmless,
                s.missed);
    EXPECT_GT(s.rejected, 0) << name;
    EXPECT_LE(s.missed * 20, s.rejected + s.missed) << name;
  }
  EXPECT_EQ(scores.size(), 9u);
}

TEST(FuzzPlan, VerifierRejectsCorruptedPlansOfRandomGraphs) {
  const uint32_t first = number_from("SITU_FUZZ_SEED", 1);
  std::mt19937 random(first);
  std::map<std::string, Score> scores;
  for (uint32_t seed = first; seed < first + 60; ++seed) {
    const test::RandomGraph graph(seed, 20);
    const Binding& binding = graph.binding();
    Result<Plan> plan = make_plan(graph.graph(), binding, {kMostTokens, kCapacity});
    ASSERT_TRUE(plan.is_ok());
    Result<Outputs> want = run_naively(graph.graph(), binding);
    ASSERT_TRUE(want.is_ok());
    auto harmless = [&](const Plan& bad) {
      Result<Outputs> got = run_placed({graph.graph(), bad}, nullptr, binding, 1);
      return got.is_ok() && near(*want, *got);
    };
    corrupt(graph.graph(), binding, *plan, kSteps, random, 3, harmless, &scores);
  }
  expect_caught(scores);
}

TEST(FuzzPlan, VerifierRejectsCorruptedPlansOfModels) {
  const char* shared = std::getenv("SITU_SHARED");
  const std::filesystem::path models = std::filesystem::path(shared ? shared : SITU_SHARED_DEFAULT) / "models";
  std::mt19937 random(number_from("SITU_FUZZ_SEED", 1));
  std::map<std::string, Score> scores;
  for (const char* name : {"tiny/llama", "tiny/gpt2", "tiny/bloom", "genai/llama-int4"}) {
    if (!std::filesystem::exists(models / name / "model.onnx")) continue;
    Result<ImportedModel> model = import_onnx(models / name / "model.onnx");
    ASSERT_TRUE(model.is_ok()) << model.status().message();
    ThreadPool pool(1);
    PackStore packs(pool);
    Result<Compiled> c = compile(model->graph, {.context_length = 64}, &packs);
    ASSERT_TRUE(c.is_ok()) << c.status().message();
    Result<Plan> plan = make_plan(c->graph, c->binding, {kMostTokens, kCapacity});
    ASSERT_TRUE(plan.is_ok()) << plan.status().message();
    const Status good = verify_plan(c->graph, c->binding, *plan, kSteps);
    ASSERT_TRUE(good.is_ok()) << good.message();
    Result<Outputs> want = run_placed({c->graph, *plan}, nullptr, c->binding, 1);
    ASSERT_TRUE(want.is_ok()) << want.status().message();
    auto harmless = [&](const Plan& bad) {
      Result<Outputs> got = run_placed({c->graph, bad}, nullptr, c->binding, 1);
      return got.is_ok() && near(*want, *got);
    };
    corrupt(c->graph, c->binding, *plan, kSteps, random, 3, harmless, &scores);
  }
  if (scores.empty()) GTEST_SKIP() << "no models under " << models << "; set SITU_SHARED";
  expect_caught(scores);
}

}  // namespace
}  // namespace situ
