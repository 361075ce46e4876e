// Model::generate from a program's side, on the real model: what the callback gets, seeds, stop strings, log-probabilities.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "situ/model.h"

namespace situ {
namespace {

namespace fs = std::filesystem;

// The user's cache of packed weights is left alone.
[[maybe_unused]] const int kNothingSaved = setenv("SITU_CACHE_DIR", "", 1);

class GenerationTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* shared = std::getenv("SITU_SHARED");
    const fs::path path = fs::path(shared ? shared : SITU_SHARED_DEFAULT) / "models" / "smollm2-135m-instruct-int4";
    if (fs::exists(path)) model_ = new Model(std::move(Model::load(path.string(), {})).value());
  }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }
  void SetUp() override {
    if (!model_) GTEST_SKIP() << "no model; set SITU_SHARED";
    options_.max_new_tokens = 24;
    prompt_ = model_->encode("Once upon a time").value();
  }
  Generation generate(const TokenCallback& on_token = nullptr) { return model_->generate(prompt_, options_, on_token).value(); }

  static Model* model_;
  GenerateOptions options_;
  std::vector<int64_t> prompt_;
};
Model* GenerationTest::model_ = nullptr;

TEST_F(GenerationTest, TheCallbackGetsTheWholeTextInPieces) {
  options_.stop = {"never said"};
  options_.echo = true;
  std::string text;
  std::vector<int64_t> ids;
  const Generation g = generate([&](const Token& t) {
    text += t.text;
    if (t.id >= 0) ids.push_back(t.id);
    EXPECT_FALSE(t.logprob);
    return true;
  });
  EXPECT_EQ(text, g.text);
  EXPECT_TRUE(text.starts_with("Once upon a time"));
  EXPECT_EQ(text, model_->decode(prompt_).value() + model_->decode(ids).value());
  EXPECT_EQ(ids, g.output_ids);
  EXPECT_FALSE(g.seed);
}

TEST_F(GenerationTest, TheCallbackEndsIt) {
  int calls = 0;
  const Generation g = generate([&](const Token&) { return ++calls < 5; });
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(g.output_ids.size(), 5u);
  EXPECT_EQ(g.finish_reason, "stop");
  EXPECT_EQ(g.text, model_->decode(g.output_ids).value());
  options_.echo = true;
  EXPECT_EQ(generate([](const Token&) { return false; }).output_ids.size(), 0u);
}

TEST_F(GenerationTest, NothingOfAStopStringIsStreamed) {
  const std::string whole = generate().text;
  for (size_t begin = 0; begin + 3 < whole.size(); begin += 5) {
    if ((static_cast<unsigned char>(whole[begin]) & 0xC0) == 0x80) continue;
    options_.stop = {whole.substr(begin, 7), whole + "and more"};
    const std::string expected = whole.substr(0, whole.find(options_.stop[0]));
    std::string text;
    const Generation g = generate([&](const Token& t) {
      text += t.text;
      EXPECT_TRUE(expected.starts_with(text)) << text;
      return true;
    });
    EXPECT_EQ(text, expected);
    EXPECT_EQ(g.text, expected);
    EXPECT_EQ(g.finish_reason, "stop");
    EXPECT_TRUE(model_->decode(g.output_ids).value().starts_with(expected + options_.stop[0]));
  }
}

TEST_F(GenerationTest, ASeedGivesTheSameTokens) {
  options_.temperature = 1.5;
  const Generation first = generate();
  ASSERT_TRUE(first.seed);
  options_.seed = first.seed;
  options_.logprobs = 2;
  size_t at = 0;
  const Generation again = generate([&](const Token& t) {
    EXPECT_TRUE(t.logprob && *t.logprob <= 0);
    EXPECT_EQ(t.id, first.output_ids[at++]);
    return true;
  });
  EXPECT_EQ(again.output_ids, first.output_ids);
  EXPECT_EQ(again.logprobs.size(), again.output_ids.size());
  for (const Generation::Logprobs& l : again.logprobs) {
    EXPECT_EQ(l.top.size(), 2u);
    EXPECT_GE(l.top[0].logprob, l.logprob);
  }
}

TEST_F(GenerationTest, ErrorsComeBeforeAnythingIsGenerated) {
  options_.top_p = 2;
  EXPECT_NE(model_->generate(prompt_, options_, [](const Token&) { return ADD_FAILURE(), true; }).status().message().find("top_p"), std::string::npos);
}

}  // namespace
}  // namespace situ
