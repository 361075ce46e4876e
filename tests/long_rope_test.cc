// Rotary factors that follow the length of a sequence: every logit is that of the whole sequence in one call of the
// graph, however it came to be so long.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "pipelines/llm.h"
#include "recurrent_models.h"
#include "situ/model.h"

namespace situ {
namespace {

using Tokens = std::vector<int64_t>;
using Logits = std::vector<float>;
using Rope = test::RecurrentModel::LongRope;

constexpr int64_t kTrained = 12, kContext = 48;
constexpr float kNear = 2e-4f;

Tokens some(int64_t count, int64_t seed) {
  Tokens ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back((i * i * 5 + i * 17 + seed * 23 + 1) % test::RecurrentModel::kVocabulary);
  return ids;
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

float difference(const Logits& a, const Logits& b) {
  float most = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) most = std::max(most, std::fabs(a[i] - b[i]));
  return most;
}

class LongRope : public testing::TestWithParam<Rope> {
 protected:
  void SetUp() override {
    test::RecurrentModel m;
    m.long_rope(GetParam(), kTrained);
    m.attention();
    m.feed_forward();
    m.attention();
    path_ = folder_.write("model.onnx", m.bytes());
  }
  Model load(LoadOptions options = {}) {
    options.context_length = kContext;
    options.threads = 1;
    options.pack_cache = false;
    Result<Model> model = Model::load(path_.string(), options);
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    if (!model.is_ok()) throw std::runtime_error(model.status().message());
    return std::move(*model);
  }
  static Session session(Model& model) { return std::move(*model.new_session()); }
  static Logits feed(Session& s, const Tokens& tokens) {
    const Result<std::span<const float>> logits = s.step(tokens);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    return logits.is_ok() ? Logits(logits->begin(), logits->end()) : Logits();
  }
  // The graph at once over all of it.
  const Logits& want(const Tokens& tokens) {
    if (!literal_) literal_.emplace(load({.naive = true}));
    const auto [known, fresh] = known_.try_emplace(tokens);
    if (fresh) {
      Session s = session(*literal_);
      known->second = feed(s, tokens);
    }
    return known->second;
  }
  void expect(const Logits& got, const Tokens& tokens, const std::string& what = "") {
    EXPECT_LT(difference(got, want(tokens)), kNear) << what << ", " << tokens.size() << " tokens";
  }

  onnx::test::TempFolder folder_;
  std::filesystem::path path_;
  std::optional<Model> literal_;
  std::map<Tokens, Logits> known_;
};

// Other tests would see nothing.
TEST_P(LongRope, TheFactorsMatter) {
  Model model = load();
  EXPECT_EQ(impl_of(model).in_place->switches().lengths(), std::vector<int64_t>{kTrained + 1});
  EXPECT_TRUE(impl_of(model).in_place->one_sequence().empty()) << impl_of(model).in_place->one_sequence();
  EXPECT_TRUE(impl_of(model).in_place->prefixes());
  const Tokens all = some(kTrained + 1, 1);
  EXPECT_GT(difference(want(all), want(joined({all[0]}, all))), 0.05f);
}

// A context that ends at the switch has the short factors alone.
TEST_P(LongRope, AContextThatEndsBefore) {
  for (const int64_t context : {kTrained, kTrained - 1})
    for (const bool naive : {false, true}) {
      LoadOptions options;
      options.context_length = context;
      options.naive = naive;
      options.pack_cache = false;
      Result<Model> model = Model::load(path_.string(), options);
      ASSERT_TRUE(model.is_ok()) << model.status().message();
      Session s = session(*model);
      const Tokens all = some(context, 1);
      expect(feed(s, all), all);
    }
}

TEST_P(LongRope, TokenByToken) {
  for (const bool naive : {false, true})
    for (const int64_t chunk : {1, 5, 512}) {
      if (naive && chunk > 1) continue;
      Model model = load({.naive = naive, .chunk = chunk});
      for (const int64_t length : {1, 5, 11, 12, 13, 30}) {
        Session s = session(model);
        Tokens all = some(length, length);
        model.reset_ledger();
        expect(feed(s, all), all, "the prompt");
        for (const int64_t id : some(8, length + 3)) {
          all.push_back(id);
          expect(feed(s, {id}), all, naive ? "naive" : "in place");
        }
        if (!naive) {
          EXPECT_EQ(model.ledger().copied, 0);
        }
      }
    }
}

TEST_P(LongRope, StepsOfSeveralTokens) {
  Model model = load({.chunk = 4});
  Session s = session(model);
  Tokens all;
  for (const int64_t count : {3, 9, 2, 7}) {
    const Tokens more = some(count, count);
    all = joined(all, more);
    expect(feed(s, more), all);
  }
}

TEST_P(LongRope, RewindsAndForks) {
  Model model = load();
  Session s = session(model);
  const Tokens all = some(16, 1);
  expect(feed(s, all), all);
  const auto first = [&](int64_t count) { return Tokens(all.begin(), all.begin() + count); };
  for (const int64_t length : {14, 12, 11, 10, 13, 12, 3}) {
    if (s.length() < length) feed(s, Tokens(all.begin() + s.length(), all.begin() + length));
    ASSERT_TRUE(s.rewind(length).is_ok());
    Session fork = std::move(*s.fork());
    const Tokens other{7, 9};
    expect(feed(fork, other), joined(first(length), other), "fork");
    expect(feed(s, {5}), joined(first(length), {5}), "rewound");
    Session late = std::move(*fork.fork());
    expect(feed(late, {1}), joined(first(length), {7, 9, 1}), "fork of a fork");
    ASSERT_TRUE(fork.rewind(length).is_ok());
    expect(feed(fork, {2}), joined(first(length), {2}), "rewound fork");
    ASSERT_TRUE(s.rewind(length).is_ok());
  }
  ASSERT_TRUE(s.rewind(0).is_ok());
  expect(feed(s, all), all, "anew");
}

// To the bit as alone, whatever the others in the step are computed with.
TEST_P(LongRope, BesideOthers) {
  for (const int64_t batch : {32, 3}) {
    const StepWidth width(batch);
    Model model = load();
    const int64_t lengths[] = {11, 3, 12, 30, 12, 10};
    std::vector<Session> together, alone;
    std::vector<Tokens> all;
    for (const int64_t length : lengths) {
      together.push_back(session(model));
      alone.push_back(session(model));
      all.push_back(some(length, length));
      feed(together.back(), all.back());
      feed(alone.back(), all.back());
    }
    for (int64_t round = 0; round < 4; ++round) {
      std::vector<Tokens> next;
      for (int64_t i = 0; i < std::ssize(lengths); ++i) next.push_back(some(i == 1 && round == 1 ? 9 : 1, round + i));
      std::vector<Model::Feed> feeds;
      for (size_t i = 0; i < next.size(); ++i) feeds.push_back({&together[i], next[i]});
      const Result<std::vector<Model::Logits>> rows = model.step(feeds);
      ASSERT_TRUE(rows.is_ok()) << rows.status().message();
      std::vector<Logits> got;
      for (const Model::Logits& row : *rows) {
        ASSERT_TRUE(row.is_ok()) << row.status().message();
        got.emplace_back(row->begin(), row->end());
      }
      for (size_t i = 0; i < next.size(); ++i) {
        all[i] = joined(all[i], next[i]);
        expect(got[i], all[i], "session " + std::to_string(i));
        EXPECT_EQ(got[i], feed(alone[i], next[i])) << "session " << i;
      }
    }
  }
}

TEST_P(LongRope, Answers) {
  Model model = load(), literal = load({.naive = true});
  GenerateOptions plain;
  plain.max_new_tokens = 9;
  plain.ignore_eos = true;
  GenerateOptions kept = plain, guesses = plain, beams = plain;
  kept.prefix_cache = PrefixReuse::kAll;
  guesses.prompt_lookup = 4;
  beams.beams = 3;
  std::vector<Tokens> prompts;
  // Beginnings that are kept: of short sequences, of long ones, and of some that became long.
  for (const int64_t length : {20, 8, 12, 9, 13, 10, 20}) prompts.push_back(some(length, 1));
  std::vector<Tokens> wanted;
  for (const Tokens& prompt : prompts) {
    const auto ids = [&](Model& m, const GenerateOptions& options) {
      const Result<Generation> g = m.generate(prompt, options, {});
      EXPECT_TRUE(g.is_ok()) << g.status().message();
      EXPECT_TRUE(&m == &literal || g->bytes_copied_per_token == 0);
      return g->output_ids;
    };
    wanted.push_back(ids(literal, plain));
    EXPECT_EQ(ids(model, plain), wanted.back());
    EXPECT_EQ(ids(model, kept), wanted.back());
    EXPECT_EQ(ids(model, guesses), wanted.back());
    EXPECT_EQ(ids(model, beams), ids(literal, beams));
  }
  const Result<std::vector<Generation>> list = model.generate(prompts, kept, {});
  ASSERT_TRUE(list.is_ok()) << list.status().message();
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ((*list)[i].output_ids, wanted[i]);
  // What is kept of short sequences serves short ones.
  kept.max_new_tokens = 2;
  EXPECT_EQ(model.generate(some(8, 1), kept, {})->cached_tokens, 7);
  EXPECT_EQ(model.generate(some(11, 1), kept, {})->cached_tokens, 10);
  EXPECT_EQ(model.generate(some(25, 1), kept, {})->cached_tokens, 20);
}

// Each token by the factors of the window up to it.
TEST_P(LongRope, Perplexity) {
  const StepWidth width(5);
  Model model = load();
  const Tokens text = some(40, 4);
  for (const int64_t context : {12, 20, 40}) {
    double nll = 0;
    int64_t scored = 1;
    for (int64_t begin = 0; scored < 40; begin += std::max<int64_t>(1, context / 2))
      for (const int64_t end = std::min<int64_t>(begin + context, 40); scored < end; ++scored) {
        const Logits& row = want(Tokens(text.begin() + begin, text.begin() + scored));
        double sum = 0;
        for (const float x : row) sum += std::exp(static_cast<double>(x));
        nll += std::log(sum) - static_cast<double>(row[static_cast<size_t>(text[static_cast<size_t>(scored)])]);
      }
    const Result<Perplexity> p = model.perplexity(text, {.context = context});
    ASSERT_TRUE(p.is_ok()) << p.status().message();
    EXPECT_NEAR(p->mean_nll, nll / 39, 1e-4) << context;
    EXPECT_EQ(p->bytes_copied, 0);
  }
}

// Rows that are lost on the way are made at the next step.
TEST_P(LongRope, StepsThatAreInterrupted) {
  Model model = load();
  std::atomic<bool> stop = false;
  model.interrupt_when(&stop);
  const Tokens all = some(kTrained, 2);
  Session s = session(model), other = session(model);
  feed(s, all);
  feed(other, some(5, 3));
  stop = true;
  EXPECT_EQ(s.step(Tokens{4}).status().code(), Code::kInterrupted);
  EXPECT_EQ(s.length(), kTrained);
  Session fork = std::move(*s.fork());
  const std::vector<Tokens> next{{3}, {4}};
  std::vector<Model::Feed> feeds{{&other, next[0]}, {&fork, next[1]}};
  EXPECT_EQ(model.step(feeds).status().code(), Code::kInterrupted);
  stop = false;
  EXPECT_EQ(other.length(), 5);
  expect(feed(s, {4}), joined(all, {4}));
  ASSERT_TRUE(fork.rewind(9).is_ok());
  expect(feed(fork, {6}), joined(Tokens(all.begin(), all.begin() + 9), {6}));
  expect(feed(other, {1}), joined(some(5, 3), {1}));
}

TEST_P(LongRope, NoWindow) {
  const Result<Model> refused = Model::load(path_.string(), {.window = 8, .pack_cache = false});
  ASSERT_FALSE(refused.is_ok());
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("no window"), std::string::npos) << refused.status().message();
}

INSTANTIATE_TEST_SUITE_P(Spellings, LongRope,
                         testing::Values(Rope::kWhere, Rope::kWhereTables, Rope::kConstants, Rope::kPositions,
                                         Rope::kComputed, Rope::kUnlike, Rope::kMoved, Rope::kBlend, Rope::kRows));

// What changes with each length stays as it is written, wherever prompts would be cut.
TEST(LongRopes, ThatChangeWithEachLength) {
  onnx::test::TempFolder folder;
  for (const Rope spelling : {Rope::kDynamic, Rope::kEvery}) {
    test::RecurrentModel m;
    m.long_rope(spelling, kTrained);
    m.attention();
    m.attention();
    const std::filesystem::path path = folder.write("model.onnx", m.bytes());
    std::vector<Model> models;
    for (const bool naive : {true, false}) {
      LoadOptions options;
      options.pack_cache = false;
      options.context_length = kContext;
      options.naive = naive;
      if (!naive) options.chunk = 4;
      Result<Model> model = Model::load(path.string(), options);
      ASSERT_TRUE(model.is_ok()) << model.status().message();
      models.push_back(std::move(*model));
    }
    Session naive = models[0].new_session().value(), placed = models[1].new_session().value();
    for (const int64_t count : {10, 1, 1, 1, 7, 1}) {
      const Tokens tokens = some(count, count);
      const std::span<const float> want = naive.step(tokens).value(), got = placed.step(tokens).value();
      EXPECT_LT(difference({got.begin(), got.end()}, {want.begin(), want.end()}), kNear) << count;
    }
    EXPECT_EQ(models[1].ledger().copied, 0);
  }
}

// What is another number for the same token by the past alone, or by no rule that is known.
TEST(LongRopes, ThatChangeOtherwise) {
  for (const Rope spelling : {Rope::kPast, Rope::kUnknown}) {
    onnx::test::TempFolder folder;
    test::RecurrentModel m;
    m.long_rope(spelling, kTrained);
    m.attention();
    m.attention();
    const std::filesystem::path path = folder.write("model.onnx", m.bytes());
    LoadOptions options;
    options.pack_cache = false;
    for (const bool naive : {false, true}) {
      options.context_length = kContext;
      options.naive = naive;
      const Result<Model> refused = Model::load(path.string(), options);
      ASSERT_FALSE(refused.is_ok());
      EXPECT_NE(refused.status().message().find("which is another one for the same token where the step ends later"),
                std::string::npos)
          << refused.status().message();
      options.context_length = kTrained;
      EXPECT_TRUE(Model::load(path.string(), options).is_ok());
    }
  }
}

}  // namespace
}  // namespace situ
