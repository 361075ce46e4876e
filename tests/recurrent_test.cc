// Recurrent states beside attention: a short convolution, whose state is the last rows of what it reads, and a gated
// linear recurrence, whose state is made anew by every step. What sequences do with them (batches, forks, beams,
// rewinds, shared prefixes) gives the tokens that a sequence alone has, and copies nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "kernels/replace_kernels.h"
#include "pipelines/llm.h"
#include "recurrent_models.h"
#include "situ/model.h"

namespace situ {
namespace {

using Tokens = std::vector<int64_t>;
using Logits = std::vector<float>;

Tokens prompt_of(int64_t length, int64_t seed) {
  Tokens ids;
  for (int64_t i = 0; i < length; ++i)
    ids.push_back((i * i * 7 + i * 13 + seed * 29 + 3) % test::RecurrentModel::kVocabulary);
  return ids;
}

Logits copy_of(std::span<const float> row) { return {row.begin(), row.end()}; }
int64_t best(std::span<const float> logits) { return std::max_element(logits.begin(), logits.end()) - logits.begin(); }

struct Kind {
  const char* name;
  void (*layers)(test::RecurrentModel&);
  bool whole;  // a state of it is a slot, and is known after kept steps only; of NotQuite: prompts are fed at once
  bool copies = false;
  bool together = !whole;  // prompts of several sequences share a step
};
const Kind kKinds[] = {
    {"convolution",
     [](test::RecurrentModel& m) {
       m.convolution();
       m.attention();
       m.convolution();
     },
     false},
    {"wide_window",  // one row more than the convolution reads
     [](test::RecurrentModel& m) {
       m.attention();
       m.convolution(test::RecurrentModel::kTaps);
       m.convolution_by_rows();
     },
     false},
    {"cache_of_taps",  // the same, and left out before it reads
     [](test::RecurrentModel& m) {
       using LeftOut = test::RecurrentModel::LeftOut;
       m.convolution_of_part(LeftOut::kOfAll);
       m.attention();
       m.convolution_of_part(LeftOut::kOfPast, 6);
       m.convolution_of_part(LeftOut::kOfAllBySplit);
       m.convolution_of_part(LeftOut::kOfPastAlone, 5);
     },
     false},
    {"recurrence",
     [](test::RecurrentModel& m) {
       m.recurrence();
       m.attention();
       m.recurrence();
     },
     true, false, true},
    {"packed_convolution",
     [](test::RecurrentModel& m) {
       m.convolution_of_packed();
       m.attention();
     },
     false},
    {"mamba_whole",
     [](test::RecurrentModel& m) {
       m.convolution();
       m.mamba(test::RecurrentModel::Scan::kWhole);
       m.attention();
     },
     true, false, true},
    {"mamba_chunks",
     [](test::RecurrentModel& m) {
       m.mamba(test::RecurrentModel::Scan::kChunks);
       m.attention();
       m.mamba(test::RecurrentModel::Scan::kChunks, test::RecurrentModel::kSize);
     },
     true, false, true},
    {"by_channel",
     [](test::RecurrentModel& m) {
       m.recurrence_by_channel();
       m.attention();
       m.recurrence_by_channel(test::RecurrentModel::Left::kSlice);
       m.recurrence_by_channel(test::RecurrentModel::Left::kGather);
     },
     true, false, true},
    {"mamba_of_channels",
     [](test::RecurrentModel& m) {
       m.mamba_of_channels();
       m.attention();
       m.mamba(test::RecurrentModel::Scan::kChunks, 4);  // as many as tokens of a chunk
     },
     true, false, true},
    {"one_token",
     [](test::RecurrentModel& m) {
       m.attention();
       m.recurrence_of_one_token();
     },
     true},
    {"one_token_convolution",
     [](test::RecurrentModel& m) {
       m.convolution_of_one_token(false);
       m.attention();
       m.convolution_of_one_token(true);
       m.convolution_of_one_token(true, true);
       m.recurrence_of_one_token();
     },
     true},
    {"fused_convolution",
     [](test::RecurrentModel& m) {
       m.convolution_with_state(false);
       m.attention();
       m.convolution_with_state(false, 2);
       m.convolution_with_state(false, 1, true);
     },
     false},
    {"one_tap",  // which reads nothing of the past, and a state that nothing reads
     [](test::RecurrentModel& m) {
       m.convolution_with_state(false, 1, false, 1);
       m.convolution_with_state(false, 1, true, 1);
       m.attention();
       m.convolution(1, test::RecurrentModel::kWidth, true, 1);
     },
     false},
    {"linear_attention",
     [](test::RecurrentModel& m) {
       m.linear_attention("gated_delta", false);
       m.attention();
       m.linear_attention("gated", false, 2 * test::RecurrentModel::kHeads);
       m.linear_attention("delta", false);
     },
     true, false, true},
    {"onnx_27",
     [](test::RecurrentModel& m) {
       m.convolution_with_state(true);
       m.linear_attention("linear", true);
       m.attention();
     },
     true, false, true},
    {"both",
     [](test::RecurrentModel& m) {
       m.convolution();
       m.recurrence();
       m.attention();
     },
     true, false, true},
};

class Recurrent : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    test::RecurrentModel m;
    GetParam().layers(m);
    path_ = folder_.write("model.onnx", m.bytes());
  }
  Model load(LoadOptions options = {}) {
    if (options.window == 0) options.context_length = 128;
    options.pack_cache = false;
    Result<Model> model = Model::load(path_.string(), options);
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    if (!model.is_ok()) throw std::runtime_error(model.status().message());
    return std::move(*model);
  }
  Model naive() {
    LoadOptions options;
    options.naive = true;
    return load(options);
  }
  static Session session(Model& model) {
    Result<Session> s = model.new_session();
    EXPECT_TRUE(s.is_ok());
    return std::move(*s);
  }
  static Logits feed(Session& s, const Tokens& tokens) {
    const Result<std::span<const float>> logits = s.step(tokens);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    return logits.is_ok() ? Logits(logits->begin(), logits->end()) : Logits(test::RecurrentModel::kVocabulary);
  }
  // Logits after the prompt, and after each of the greedy tokens that follow.
  static std::vector<Logits> greedy(Session& s, const Tokens& prompt, size_t count) {
    std::vector<Logits> all{feed(s, prompt)};
    while (all.size() <= count) all.push_back(feed(s, {best(all.back())}));
    return all;
  }
  static void expect_near(const std::vector<Logits>& got, const std::vector<Logits>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(best(got[i]), best(want[i])) << "token " << i;
      for (size_t j = 0; j < got[i].size(); ++j) ASSERT_NEAR(got[i][j], want[i][j], 2e-4) << "token " << i;
    }
  }

  onnx::test::TempFolder folder_;
  std::filesystem::path path_;
};

// Prompts shorter than the window too, in one step and token by token.
TEST_P(Recurrent, AsTheNaiveEngineAndWithoutACopy) {
  Model placed = load(), literal = naive();
  for (const int64_t length : {1, 2, 3, 5, 40}) {
    Session a = session(placed), b = session(literal), one_by_one = session(placed);
    placed.reset_ledger();
    literal.reset_ledger();
    const Tokens prompt = prompt_of(length, length);
    const std::vector<Logits> got = greedy(a, prompt, 12), want = greedy(b, prompt, 12);
    expect_near(got, want);
    EXPECT_EQ(placed.ledger().copied, 0);
    EXPECT_GT(literal.ledger().copied, 0);
    for (size_t i = 0; i + 1 < prompt.size(); ++i) feed(one_by_one, {prompt[i]});
    expect_near(greedy(one_by_one, {prompt.back()}, 12), want);
    EXPECT_EQ(placed.ledger().copied, 0);
  }
}

TEST_P(Recurrent, ChunksGiveTheSameTokens) {
  LoadOptions chunks;
  chunks.chunk = 7;
  Model whole = load(), parts = load(chunks);
  const Tokens prompt = prompt_of(40, 1);
  Session a = session(whole), b = session(parts);
  const std::vector<Logits> at_once = greedy(a, prompt, 8), cut = greedy(b, prompt, 8);
  if (whole.facts().one_sequence.empty())
    EXPECT_EQ(cut, at_once);  // to the bit
  else
    expect_near(cut, at_once);
  EXPECT_EQ(parts.ledger().copied, 0);
}

TEST_P(Recurrent, SequencesTogetherAreAsAlone) {
  Model model = load();
  EXPECT_EQ(model.facts().one_sequence.empty(), GetParam().together) << model.facts().one_sequence;
  const int64_t lengths[] = {1, 9, 30, 4};
  std::vector<std::vector<Logits>> alone;
  std::vector<Tokens> answers;
  for (const int64_t length : lengths) {
    Session s = session(model);
    alone.push_back(greedy(s, prompt_of(length, length), 9));
    answers.emplace_back();
    for (const Logits& l : alone.back()) answers.back().push_back(best(l));
  }
  // Each joins two steps after the one before: prompts and single tokens of different lengths in one step.
  std::vector<Session> sessions;
  std::vector<size_t> at(std::size(lengths), 0);
  for (size_t i = 0; i < std::size(lengths); ++i) sessions.push_back(session(model));
  model.reset_ledger();
  for (size_t step = 0; step < 16; ++step) {
    std::vector<Tokens> tokens(sessions.size());
    std::vector<Model::Feed> feeds;
    std::vector<size_t> who;
    for (size_t i = 0; i < sessions.size(); ++i) {
      if (step < 2 * i || at[i] >= alone[i].size()) continue;
      tokens[i] = at[i] == 0 ? prompt_of(lengths[i], lengths[i]) : Tokens{answers[i][at[i] - 1]};
      feeds.push_back({&sessions[i], tokens[i]});
      who.push_back(i);
    }
    const auto logits = model.step(feeds);
    ASSERT_TRUE(logits.is_ok()) << logits.status().message();
    for (size_t k = 0; k < who.size(); ++k) {
      const size_t i = who[k];
      EXPECT_EQ(copy_of(*(*logits)[k]), alone[i][at[i]]) << "sequence " << i << " step " << step;
      ++at[i];
    }
  }
  for (size_t i = 0; i < at.size(); ++i) EXPECT_EQ(at[i], alone[i].size());
  EXPECT_EQ(model.ledger().copied, 0);
}

// The kernels of models that are loaded meanwhile: products of weights are counted.
class CountedProducts {
 public:
  CountedProducts() {
    chosen_ = &kernels();
    static KernelTable table;
    table = *chosen_;
    table.dense_matmul = [](const KernelCall& call, int thread, int threads) {
      if (thread == 0) ++calls_;
      chosen_->dense_matmul(call, thread, threads);
    };
    table.packed_matmul = [](const KernelCall& call, int thread, int threads) {
      if (thread == 0) ++calls_;
      chosen_->packed_matmul(call, thread, threads);
    };
    replace_kernels(&table);
  }
  ~CountedProducts() { replace_kernels(nullptr); }
  int64_t since_last_call() { return std::exchange(calls_, 0); }

 private:
  static inline int64_t calls_ = 0;
  static inline const KernelTable* chosen_ = nullptr;
};

TEST_P(Recurrent, SingleTokensOfAllSequencesReadWeightsOnce) {
  CountedProducts products;
  LoadOptions options;
  options.threads = 1;
  Model model = load(options);
  std::vector<Session> sessions;
  for (int64_t i = 0; i < 5; ++i) {
    sessions.push_back(session(model));
    feed(sessions.back(), prompt_of(3 + 4 * i, i));
  }
  products.since_last_call();
  feed(sessions[0], {1});
  const int64_t alone = products.since_last_call();
  EXPECT_GT(alone, 0);
  const Tokens token{2};
  std::vector<Model::Feed> feeds;
  for (Session& s : sessions) feeds.push_back({&s, token});
  const auto logits = model.step(feeds);
  ASSERT_TRUE(logits.is_ok()) << logits.status().message();
  EXPECT_EQ(products.since_last_call(), alone);
}

TEST_P(Recurrent, PromptsInAListHaveTheAnswersOfEachAlone) {
  Model model = load();
  std::vector<Tokens> prompts;
  for (const int64_t length : {3, 17, 1, 29, 8}) prompts.push_back(prompt_of(length, length + 1));
  GenerateOptions options;
  options.max_new_tokens = 10;
  const Result<std::vector<Generation>> together = model.generate(prompts, options, nullptr);
  ASSERT_TRUE(together.is_ok()) << together.status().message();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Result<Generation> alone = model.generate(prompts[i], options, nullptr);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    EXPECT_EQ((*together)[i].output_ids, alone->output_ids) << i;
    EXPECT_EQ((*together)[i].bytes_copied_per_token, 0);
  }
}

// Forks of forks go their own ways; each is what a session alone that was fed the same is.
TEST_P(Recurrent, ForksGoTheirOwnWays) {
  Model model = load();
  const Tokens prompt = prompt_of(11, 5);
  Session first = session(model);
  feed(first, prompt);
  model.reset_ledger();
  Result<Session> second = first.fork();
  ASSERT_TRUE(second.is_ok()) << second.status().message();
  const std::vector<Tokens> of_first{{1}, {2}, {3}, {4}, {5}, {6}}, of_second{{9}, {8}, {7}, {6}, {5}, {4}};
  std::vector<Logits> a, b, c;
  std::optional<Session> third;
  for (size_t i = 0; i < of_first.size(); ++i) {
    a.push_back(feed(first, of_first[i]));
    b.push_back(feed(*second, of_second[i]));
    if (i == 2) {
      Result<Session> fork = second->fork();
      ASSERT_TRUE(fork.is_ok());
      third.emplace(std::move(*fork));
    }
    if (i > 2) c.push_back(feed(*third, of_first[i]));
  }
  EXPECT_EQ(model.ledger().copied, 0);
  Session alone = session(model);
  feed(alone, prompt);
  for (size_t i = 0; i < of_first.size(); ++i) EXPECT_EQ(feed(alone, of_first[i]), a[i]) << i;
  Session other = session(model);
  feed(other, prompt);
  for (size_t i = 0; i < of_second.size(); ++i) EXPECT_EQ(feed(other, of_second[i]), b[i]) << i;
  Session mixed = session(model);
  feed(mixed, prompt);
  for (size_t i = 0; i < of_first.size(); ++i) {
    const Logits l = feed(mixed, i < 3 ? of_second[i] : of_first[i]);
    if (i > 2) {
      EXPECT_EQ(l, c[i - 3]) << i;
    }
  }
}

// The search by hand, on sessions that are fed every hypothesis from its first token.
TEST_P(Recurrent, BeamsFindWhatWholeHypothesesSay) {
  Model model = load(), literal = naive();
  GenerateOptions options;
  options.max_new_tokens = 8;
  options.beams = 3;
  options.num_return = 3;
  for (const int64_t length : {2, 13}) {
    const Tokens prompt = prompt_of(length, 2);
    const Result<Generation> got = model.generate(prompt, options, nullptr);
    const Result<Generation> want = literal.generate(prompt, options, nullptr);
    ASSERT_TRUE(got.is_ok()) << got.status().message();
    ASSERT_TRUE(want.is_ok()) << want.status().message();
    ASSERT_EQ(got->answers.size(), want->answers.size());
    for (size_t i = 0; i < got->answers.size(); ++i) {
      EXPECT_EQ(got->answers[i].output_ids, want->answers[i].output_ids) << i;
      EXPECT_NEAR(got->answers[i].score, want->answers[i].score, 1e-4);
    }
    EXPECT_EQ(got->bytes_copied_per_token, 0);
  }
}

// To any length where the state is rows; else to where one of the last steps ended, and no other.
TEST_P(Recurrent, RewindsToAKeptStep) {
  Model model = load();
  const Tokens prompt = prompt_of(10, 3), more{4, 8, 15, 16, 23, 42};
  Session s = session(model);
  feed(s, prompt);
  std::vector<Logits> want;
  for (const int64_t id : more) want.push_back(feed(s, {id}));
  model.reset_ledger();
  const int64_t length = s.length();
  for (const size_t back : {1, 2, 3}) {
    const Status done = s.rewind(length - static_cast<int64_t>(back));
    ASSERT_TRUE(done.is_ok()) << done.message();
    for (size_t i = more.size() - back; i < more.size(); ++i) EXPECT_EQ(feed(s, {more[i]}), want[i]) << back;
  }
  const Status inside = s.rewind(5), far = s.rewind(11);
  if (GetParam().whole) {
    ASSERT_FALSE(inside.is_ok());
    for (const char* part : {"rewind", "to 5", "recurrent states"})
      EXPECT_NE(inside.message().find(part), std::string::npos) << inside.message();
    ASSERT_FALSE(far.is_ok());
    EXPECT_EQ(s.length(), length);  // as it was
    EXPECT_TRUE(s.rewind(0).is_ok());
    EXPECT_EQ(feed(s, prompt), feed(*std::make_unique<Session>(session(model)), prompt));
  } else {
    ASSERT_TRUE(inside.is_ok()) << inside.message();
    EXPECT_FALSE(far.is_ok());  // of 5 tokens there are no 11
    Session alone = session(model);
    feed(alone, prompt);
    ASSERT_TRUE(alone.rewind(5).is_ok());
    EXPECT_EQ(feed(s, {30}), feed(alone, {30}));
    Session never = session(model);
    feed(never, Tokens(prompt.begin(), prompt.begin() + 5));
    const Logits a = feed(never, {31});
    ASSERT_TRUE(s.rewind(5).is_ok());
    const Logits b = feed(s, {31});
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4);
  }
  EXPECT_EQ(model.ledger().copied, 0);
}

// A step that is refused half way leaves the sequence as it was.
TEST_P(Recurrent, ARefusedStepChangesNothing) {
  LoadOptions options;
  options.chunk = 5;
  Model model = load(options);
  const Tokens prompt = prompt_of(12, 3);
  Session s = session(model), alone = session(model);
  feed(s, prompt);
  feed(alone, prompt);
  EXPECT_FALSE(s.step(prompt_of(127, 1)).is_ok());  // beyond the context
  Tokens unknown = prompt_of(20, 4);
  unknown.back() = test::RecurrentModel::kVocabulary;
  EXPECT_FALSE(s.step(unknown).is_ok());
  EXPECT_EQ(s.length(), 12);
  EXPECT_EQ(feed(s, {7}), feed(alone, {7}));
}

// Guesses that do not hold are a rewind, to where a state is kept; graphs that spell out a recurrence refuse them.
TEST_P(Recurrent, GuessesChangeNoToken) {
  Model model = load();
  Tokens prompt = prompt_of(6, 4);
  for (int i = 0; i < 3; ++i) prompt.insert(prompt.end(), prompt.begin(), prompt.begin() + 6);
  GenerateOptions options;
  options.max_new_tokens = 40;
  const Result<Generation> plain = model.generate(prompt, options, nullptr);
  ASSERT_TRUE(plain.is_ok()) << plain.status().message();
  options.prompt_lookup = 5;
  const Result<Generation> guessing = model.generate(prompt, options, nullptr);
  if (!GetParam().together) {
    ASSERT_FALSE(guessing.is_ok());
    EXPECT_NE(guessing.status().message().find("prompt_lookup 5"), std::string::npos) << guessing.status().message();
    return;
  }
  ASSERT_TRUE(guessing.is_ok()) << guessing.status().message();
  EXPECT_EQ(guessing->output_ids, plain->output_ids);
  EXPECT_GT(guessing->guessed_tokens, 0);
  EXPECT_EQ(guessing->bytes_copied_per_token, 0);
}

// What a prompt shares with earlier ones is not computed again, where the states behind it are known; where they are
// not, it is computed.
TEST_P(Recurrent, PrefixesAreSharedWhereTheirStatesAreKept) {
  Model model = load(), fresh = load();
  ASSERT_NE(impl_of(model).in_place->prefixes(), nullptr);
  GenerateOptions options;
  options.max_new_tokens = 9;
  options.prefix_cache = PrefixReuse::kAll;
  const auto run = [&](const Tokens& prompt) {
    const Result<Generation> g = model.generate(prompt, options, nullptr);
    EXPECT_TRUE(g.is_ok()) << g.status().message();
    GenerateOptions plain;
    plain.max_new_tokens = options.max_new_tokens;
    const Result<Generation> want = fresh.generate(prompt, plain, nullptr);
    EXPECT_TRUE(want.is_ok());
    if (!g.is_ok() || !want.is_ok()) return Generation{};
    EXPECT_EQ(g->output_ids, want->output_ids);
    EXPECT_EQ(g->bytes_copied_per_token, 0);
    return *g;
  };
  const Tokens prompt = prompt_of(20, 8);
  const Generation first = run(prompt);
  EXPECT_EQ(first.cached_tokens, 0);
  EXPECT_EQ(run(prompt).cached_tokens, 19);  // all but the last, whose logits are wanted
  Tokens turn = prompt;                      // the next turn of a conversation: what was said, and something new
  turn.insert(turn.end(), first.output_ids.begin(), first.output_ids.end());
  const size_t said = turn.size();
  turn.insert(turn.end(), {2, 50, 11});
  EXPECT_EQ(run(turn).cached_tokens, static_cast<int64_t>(said) - 1);  // the last token was not fed
  Tokens other(prompt.begin(), prompt.begin() + 10);                   // parts in the middle of a step
  other.insert(other.end(), {1, 1, 1});
  EXPECT_EQ(run(other).cached_tokens, GetParam().whole ? 0 : 10);
  EXPECT_EQ(run(other).cached_tokens, 12);
  EXPECT_EQ(run(prompt_of(20, 9)).cached_tokens, 0);
  // In a list too.
  const std::vector<Tokens> list{prompt, other, prompt_of(7, 1), prompt};
  const Result<std::vector<Generation>> together = model.generate(list, options, nullptr);
  ASSERT_TRUE(together.is_ok()) << together.status().message();
  for (size_t i = 0; i < list.size(); ++i) EXPECT_EQ((*together)[i].output_ids, run(list[i]).output_ids) << i;
  EXPECT_EQ((*together)[3].cached_tokens, 19);
}

TEST_P(Recurrent, PlacementIsVerified) {
  Model model = load();
  const InPlaceEngine& e = *impl_of(model).in_place;
  const CompiledModule& m = e.module();
  const std::vector<int64_t> steps = m.one_token ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{3, 2, 1, 4};
  const Status prompt = verify_plan(m.prompt.graph, m.prompt.binding, e.prefill_plan(), steps);
  EXPECT_TRUE(prompt.is_ok()) << prompt.message();
  const Status token = verify_plan(m.token.graph, m.token.binding, e.decode_plan(), {1, 1, 1, 1});
  EXPECT_TRUE(token.is_ok()) << token.message();
}

// The graph as it was exported: the states are replaced, attention reads its state as one block, and single tokens of
// several sequences still share a step.
TEST_P(Recurrent, RunsWithoutOptionalPasses) {
  Model literal = naive();
  for (const char* passes : {"all", "append_windows", "recognise_attention"}) {
    setenv("SITU_DISABLE_PASSES", passes, 1);
    Model model = load();
    unsetenv("SITU_DISABLE_PASSES");
    std::vector<Session> sessions;
    std::vector<std::vector<Logits>> want;
    std::vector<Tokens> next;
    for (const int64_t length : {1, 12, 5}) {
      Session s = session(literal);
      want.push_back(greedy(s, prompt_of(length, 6), 5));
      sessions.push_back(session(model));
      next.push_back({best(feed(sessions.back(), prompt_of(length, 6)))});
    }
    for (size_t step = 1; step <= 5; ++step) {
      std::vector<Model::Feed> feeds;
      for (size_t i = 0; i < sessions.size(); ++i) feeds.push_back({&sessions[i], next[i]});
      const auto logits = model.step(feeds);
      ASSERT_TRUE(logits.is_ok()) << passes << ": " << logits.status().message();
      for (size_t i = 0; i < sessions.size(); ++i) {
        expect_near({copy_of(*(*logits)[i])}, {want[i][step]});
        next[i] = {best(*(*logits)[i])};
      }
    }
  }
}

// Prefixes that are kept give way to sequences that need their slots.
TEST_P(Recurrent, KeptPrefixesGiveWay) {
  LoadOptions options;
  const StepWidth width(1);
  Model model = load(options);
  GenerateOptions generate;
  generate.max_new_tokens = 3;
  generate.prefix_cache = PrefixReuse::kAll;
  for (int64_t i = 0; i < 120; ++i) {
    const Result<Generation> g = model.generate(prompt_of(9 + i % 5, i), generate, nullptr);
    ASSERT_TRUE(g.is_ok()) << i << ": " << g.status().message();
  }
  std::vector<Session> sessions;
  for (int64_t i = 0; i < 8; ++i) {
    sessions.push_back(session(model));
    for (int64_t step = 0; step < 6; ++step) feed(sessions.back(), {i + step});
  }
}

// With a window the rows that a convolution reads are those of the window's end: kept for ever, and no more than these.
TEST_P(Recurrent, AWindowKeepsTheRowsThatAreRead) {
  if (std::string(GetParam().name).starts_with("one_token"))
    GTEST_SKIP() << "refused: attention of one token alone has no order";
  LoadOptions wide, narrow;
  wide.window = 100;
  narrow.window = 8;
  narrow.chunk = 4;
  const StepWidth width(2);
  Model plain = load(), windowed = load(wide), endless = load(narrow);
  Session a = session(plain), b = session(windowed), c = session(endless);
  expect_near(greedy(b, prompt_of(30, 2), 20), greedy(a, prompt_of(30, 2), 20));
  const int64_t slots = endless.facts().slots;
  for (int64_t i = 0; i < 3 * slots; ++i) feed(c, {i % 50});
  EXPECT_EQ(endless.ledger().copied, 0);
  LoadOptions options;
  options.window = test::RecurrentModel::kTaps - 1;
  options.pack_cache = false;
  const Result<Model> refused = Model::load(path_.string(), options);
  const bool convolves = std::string(GetParam().name) == "convolution" || std::string(GetParam().name) == "both";
  if (convolves) {
    ASSERT_FALSE(refused.is_ok());
    for (const char* part : {"no window of 3", "Conv", "reads 4 tokens"})
      EXPECT_NE(refused.status().message().find(part), std::string::npos) << refused.status().message();
  }
}

class HalfState : public Recurrent {};

// A state of half precision is kept in float: however a prompt is cut, it has the same bits.
TEST_P(HalfState, IsKeptInFloat) {
  Model placed = load(), literal = naive();
  EXPECT_EQ(placed.facts().one_sequence, "");
  const Tokens all = prompt_of(20, 1), first(all.begin(), all.begin() + 7), rest(all.begin() + 7, all.end());
  Session a = session(placed), b = session(placed), c = session(literal);
  const Logits whole = feed(a, all), want = feed(c, all);
  feed(b, first);
  EXPECT_EQ(feed(b, rest), whole);
  EXPECT_EQ(placed.ledger().copied, 0);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], want[i], 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Graphs, HalfState,
                         testing::Values(Kind{"half", [](auto& m) { m.recurrence(true, true), m.attention(); }, true}));

// What only looks like a state of these kinds runs as the literal graph does, and what it copies is booked.
class NotQuite : public Recurrent {};

TEST_P(NotQuite, IsAsTheNaiveEngine) {
  Model placed = load(), literal = naive();
  for (const int64_t length : {1, 6, 25, 90}) {
    Session a = session(placed), b = session(literal);
    expect_near(greedy(a, prompt_of(length, 4), 8), greedy(b, prompt_of(length, 4), 8));
  }
  // Where a prompt in parts gives something else than at once, it is fed at once, and no part of it is kept for others.
  EXPECT_EQ(impl_of(placed).in_place->prefixes() != nullptr, !GetParam().whole);
  EXPECT_EQ(placed.ledger().copied > 0, GetParam().copies);
}

INSTANTIATE_TEST_SUITE_P(Graphs, NotQuite,
                         testing::Values(Kind{"channels_mixed",
                                              [](test::RecurrentModel& m) {
                                                m.convolution(test::RecurrentModel::kTaps - 1, 1);
                                                m.attention();
                                              },
                                              false, true},
                                         Kind{"a_token_late",
                                              [](test::RecurrentModel& m) {
                                                m.attention();
                                                m.convolution_of_part(test::RecurrentModel::LeftOut::kLastOfAll);
                                              },
                                              false, true},
                                         Kind{"window_that_stays",
                                              [](test::RecurrentModel& m) {
                                                m.convolution(test::RecurrentModel::kTaps - 1,
                                                              test::RecurrentModel::kWidth, false);
                                                m.attention();
                                              },
                                              true, true},
                                         Kind{"mean_of_the_step",
                                              [](test::RecurrentModel& m) {
                                                m.recurrence(false);
                                                m.attention();
                                              },
                                              true},
                                         Kind{"largest_of_few",
                                              [](test::RecurrentModel& m) {
                                                m.largest(2);
                                                m.attention();
                                              },
                                              true, true},
                                         Kind{"largest_of_many",  // beyond what a short prompt has
                                              [](test::RecurrentModel& m) {
                                                m.largest(16);
                                                m.attention();
                                              },
                                              true, true},
                                         Kind{"largest_of_more",
                                              [](test::RecurrentModel& m) {
                                                m.recurrence();
                                                m.largest(60);
                                              },
                                              true, true},
                                         Kind{"longer_steps",
                                              [](test::RecurrentModel& m) {
                                                m.longer_steps(30);
                                                m.recurrence();
                                              },
                                              true}),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Graphs, Recurrent, testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace situ
