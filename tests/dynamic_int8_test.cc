// Decoders that onnxruntime's quantize_dynamic made: products of bytes with bytes, of activations that are rounded in
// the range of one sequence's rows of one call. What sequences do beside each other changes nothing in that range.
#include <gtest/gtest.h>

#include <algorithm>

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

int64_t best(const Logits& logits) { return std::max_element(logits.begin(), logits.end()) - logits.begin(); }
float margin(Logits logits) {
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
  return *std::max_element(logits.begin(), logits.begin() + 1) - logits[1];
}

struct Kind {
  const char* name;
  DType weights;
  bool by_column;
};

class DynamicInt8 : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    test::RecurrentModel m;
    m.round_products(GetParam().weights, GetParam().by_column);
    m.attention();
    m.feed_forward();
    m.attention();
    path_ = folder_.write("model.onnx", m.bytes());
  }
  Model load(LoadOptions options = {}) {
    options.context_length = 96;
    options.pack_cache = false;
    Result<Model> model = Model::load(path_.string(), options);
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    if (!model.is_ok()) throw std::runtime_error(model.status().message());
    return std::move(*model);
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
  // Logits after the prompt, and after each of the tokens of `answer`.
  static std::vector<Logits> fed(Session& s, const Tokens& prompt, const Tokens& answer) {
    std::vector<Logits> all{feed(s, prompt)};
    for (const int64_t id : answer) all.push_back(feed(s, {id}));
    return all;
  }
  // Sums in another order round a byte in a thousand to its neighbour.
  static void expect_alike(const std::vector<Logits>& got, const std::vector<Logits>& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (margin(want[i]) > 0.1f) {
        EXPECT_EQ(best(got[i]), best(want[i])) << "token " << i;
      }
      for (size_t j = 0; j < got[i].size(); ++j) ASSERT_NEAR(got[i][j], want[i][j], 0.1) << "token " << i;
    }
  }

  onnx::test::TempFolder folder_;
  std::filesystem::path path_;
};

TEST_P(DynamicInt8, ProductsAreFused) {
  Model model = load();
  for (const Graph* graph :
       {&impl_of(model).in_place->module().prompt.graph, &impl_of(model).in_place->decode_graph()}) {
    const auto count = [&](const char* op) {
      return std::count_if(graph->nodes.begin(), graph->nodes.end(), [&](const Node& n) { return n.op == op; });
    };
    EXPECT_EQ(count("MatMulInteger") + count("DynamicQuantizeLinear") + count("Gelu") + count("Erf"), 0);
    EXPECT_EQ(count("IntegerMatMul"), 11);
    EXPECT_EQ(count("RoundRows"), 7);  // q, k and v share theirs
  }
}

TEST_P(DynamicInt8, AsTheNaiveEngineAndWithoutACopy) {
  LoadOptions literal;
  literal.naive = true;
  Model placed = load(), naive = load(literal);
  for (const int64_t length : {1, 2, 7, 40}) {
    Session a = session(placed), b = session(naive);
    placed.reset_ledger();
    const Tokens prompt = prompt_of(length, length), answer = prompt_of(12, length + 1);
    expect_alike(fed(a, prompt, answer), fed(b, prompt, answer));
    EXPECT_EQ(placed.ledger().copied, 0);
  }
}

// The range covers all of a prompt: in parts it would be another one.
TEST_P(DynamicInt8, PromptsAreNotCut) {
  LoadOptions parts;
  parts.chunk = 3;
  Model whole = load(), cut = load(parts);
  const Tokens prompt = prompt_of(40, 1), answer = prompt_of(6, 2);
  Session a = session(whole), b = session(cut), by_token = session(whole);
  const std::vector<Logits> want = fed(a, prompt, answer);
  EXPECT_EQ(fed(b, prompt, answer), want);
  for (size_t i = 0; i + 1 < prompt.size(); ++i) feed(by_token, {prompt[i]});
  EXPECT_NE(feed(by_token, {prompt.back()}), want[0]);
}

// What tokens are that depend on how many are computed with them cannot be told once some of those are gone.
TEST_P(DynamicInt8, ARewindGoesToWhereAStepBegan) {
  Model model = load();
  Session s = session(model), other = session(model);
  const Tokens all = prompt_of(40, 3);
  const auto part = [&](size_t from, size_t to) { return Tokens(all.begin() + from, all.begin() + to); };
  feed(s, part(0, 17));
  feed(s, part(17, 40));
  Session fork = std::move(*s.fork());
  for (Session* session : {&s, &fork})
    for (const int64_t length : {16, 33}) {
      const Status refused = session->rewind(length);
      EXPECT_NE(refused.message().find("rewind to " + std::to_string(length < 17 ? 0 : 17)), std::string::npos)
          << refused.message();
      EXPECT_EQ(session->length(), 40);
    }
  ASSERT_TRUE(s.rewind(17).is_ok());
  feed(other, part(0, 17));
  EXPECT_EQ(feed(s, part(17, 18)), feed(other, part(17, 18)));
  EXPECT_TRUE(s.rewind(0).is_ok());
}

TEST_P(DynamicInt8, SequencesTogetherAreAsAlone) {
  for (const int threads : {1, 2}) {
    LoadOptions options;
    options.threads = threads;
    Model model = load(options);
    const int64_t lengths[] = {1, 9, 30, 4};
    std::vector<std::vector<Logits>> alone;
    for (const int64_t length : lengths) {
      Session s = session(model);
      alone.push_back(fed(s, prompt_of(length, length), prompt_of(9, length + 5)));
    }
    // Each joins a step after the one before: prompts and single tokens in one step.
    std::vector<Session> sessions;
    std::vector<size_t> at(std::size(lengths), 0);
    for (size_t i = 0; i < std::size(lengths); ++i) sessions.push_back(session(model));
    model.reset_ledger();
    for (size_t step = 0; step < 13; ++step) {
      std::vector<Tokens> tokens(sessions.size());
      std::vector<Model::Feed> feeds;
      std::vector<size_t> who;
      for (size_t i = 0; i < sessions.size(); ++i) {
        if (step < i || at[i] >= alone[i].size()) continue;
        tokens[i] = at[i] == 0 ? prompt_of(lengths[i], lengths[i]) : Tokens{prompt_of(9, lengths[i] + 5)[at[i] - 1]};
        feeds.push_back({&sessions[i], tokens[i]});
        who.push_back(i);
      }
      const auto logits = model.step(feeds);
      ASSERT_TRUE(logits.is_ok()) << logits.status().message();
      for (size_t k = 0; k < who.size(); ++k) {
        const size_t i = who[k];
        const Logits got((*logits)[k]->begin(), (*logits)[k]->end());
        EXPECT_EQ(got, alone[i][at[i]]) << "sequence " << i << " step " << step;
        ++at[i];
      }
    }
    for (size_t i = 0; i < at.size(); ++i) EXPECT_EQ(at[i], alone[i].size());
    EXPECT_EQ(model.ledger().copied, 0);
  }
}

TEST_P(DynamicInt8, PlacementIsVerified) {
  Model model = load();
  const InPlaceEngine& e = *impl_of(model).in_place;
  const CompiledModule& m = e.module();
  const Status prompt = verify_plan(m.prompt.graph, m.prompt.binding, e.prefill_plan(), {3, 2, 1, 4});
  EXPECT_TRUE(prompt.is_ok()) << prompt.message();
  const Status token = verify_plan(m.token.graph, m.token.binding, e.decode_plan(), {1, 1, 1, 1});
  EXPECT_TRUE(token.is_ok()) << token.message();
}

TEST_P(DynamicInt8, RunsWithoutOptionalPasses) {
  Model model = load();
  const Tokens prompt = prompt_of(9, 1), answer = prompt_of(5, 2);
  Session s = session(model);
  const std::vector<Logits> want = fed(s, prompt, answer);
  for (const char* passes : {"all", "fuse_integer", "recognise_attention", "recognise_functions", "last_token"}) {
    SCOPED_TRACE(passes);
    setenv("SITU_DISABLE_PASSES", passes, 1);
    Model other = load();
    unsetenv("SITU_DISABLE_PASSES");
    Session t = session(other);
    expect_alike(fed(t, prompt, answer), want);
  }
}

const Kind kKinds[] = {{"int8", DType::kI8, false},
                       {"int8_by_column", DType::kI8, true},
                       {"uint8", DType::kU8, false},
                       {"uint8_by_column", DType::kU8, true}};
INSTANTIATE_TEST_SUITE_P(Graphs, DynamicInt8, testing::ValuesIn(kKinds),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace situ
