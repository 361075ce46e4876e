// Answers that end in an error: what there is of them stays, alone, in company, of beams.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>

#include "onnx/test_model.h"
#include "runtime/compile.h"
#include "situ/model.h"

namespace situ {
namespace {

using Ids = std::vector<int64_t>;
constexpr int64_t kFewTokens = 8;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Token i is followed by i + 1, or, less probably, by i + 2; the last one by the first.
std::vector<float> chain() {
  std::vector<float> table(kFewTokens * kFewTokens);
  for (int64_t i = 0; i < kFewTokens; ++i) {
    table[static_cast<size_t>(i * kFewTokens + (i + 1) % kFewTokens)] = 5;
    table[static_cast<size_t>(i * kFewTokens + (i + 2) % kFewTokens)] = 4;
  }
  return table;
}
std::vector<float> chain_with(int64_t row, int64_t column, float value) {
  std::vector<float> table = chain();
  for (int64_t c = 0; c < kFewTokens; ++c)
    if (column < 0 || c == column) table[static_cast<size_t>(row * kFewTokens + c)] = value;
  return table;
}

Model load(const std::vector<float>& table, LoadOptions options = {}) {
  const onnx::test::TempFolder folder;
  folder.write("model.onnx", onnx::test::table_model(table, kFewTokens));
  options.context_length = 64;
  options.threads = 1;
  Result<Model> model = Model::load(folder.path().string(), options);
  EXPECT_TRUE(model.is_ok()) << model.status().message();
  return std::move(*model);
}

GenerateOptions tokens(int64_t count) {
  GenerateOptions options;
  options.max_new_tokens = count;
  return options;
}

void expect_failed(const Generation& g, const Ids& ids, const std::string& words) {
  EXPECT_EQ(g.output_ids, ids);
  EXPECT_EQ(g.finish_reason, FinishReason::kError);
  EXPECT_STREQ(finish_reason_name(g.finish_reason), "error");
  EXPECT_NE(g.error.find(words), std::string::npos) << g.error;
  EXPECT_NE(g.error.find("model.onnx: "), std::string::npos) << g.error;
  EXPECT_NE(g.error_code, Code::kOk);
}

// A table, and what ends an answer that comes to token 4.
const std::pair<std::vector<float>, const char*> kFailures[] = {
    {chain_with(4, 7, NAN), "logits of id 7 are not a number after 4 new tokens"},
    {chain_with(4, -1, -kInfinity), "no token can be chosen after 4 new ones"}};
const char* const kShort = "index out of range (5, limit 5)";
std::vector<float> short_table() {
  std::vector<float> table = chain();
  table.resize(5 * kFewTokens);
  return table;
}

TEST(FailingAnswers, KeepWhatTheyHave) {
  for (const bool naive : {false, true})
    for (const bool sample : {false, true}) {
      LoadOptions load_options;
      load_options.naive = naive;
      GenerateOptions options = tokens(20);
      if (sample) options.top_k = 1;
      for (const auto& [table, words] : kFailures) {
        Model model = load(table, load_options);
        Ids shown;
        const auto show = [&](const Event& t) { return shown.push_back(t.id), true; };
        expect_failed(model.generate(Ids{0}, options, show).value(), {1, 2, 3, 4}, words);
        EXPECT_EQ(shown, (Ids{1, 2, 3, 4}));
        EXPECT_FALSE(model.generate(Ids{4}, options, nullptr).is_ok());
        EXPECT_EQ(model.generate(Ids{5}, tokens(3), nullptr).value().finish_reason, FinishReason::kLength);
      }
      Model model = load(short_table(), load_options);
      expect_failed(model.generate(Ids{0}, options, nullptr).value(), {1, 2, 3, 4, 5}, kShort);
      EXPECT_NE(model.generate(Ids{6}, options, nullptr).status().message().find("out of range"), std::string::npos);
    }
}

TEST(FailingAnswers, SingleInfinitiesAreAllowed) {
  Model model = load(chain_with(4, 5, -kInfinity));
  for (const int64_t beams : {1, 2}) {
    GenerateOptions options = tokens(6);
    options.beams = beams;
    EXPECT_EQ(model.generate(Ids{2}, options, nullptr).value().finish_reason, FinishReason::kLength);
  }
  EXPECT_EQ(model.generate(Ids{2}, tokens(4), nullptr).value().output_ids, (Ids{3, 4, 6, 7}));
  model = load(chain_with(4, -1, -kInfinity));
  GenerateOptions options = tokens(6);
  options.beams = 2;  // one of them comes to a dead end, the other jumps over it
  EXPECT_EQ(model.generate(Ids{2}, options, nullptr).value().finish_reason, FinishReason::kLength);
}

TEST(FailingAnswers, OfBeams) {
  GenerateOptions options = tokens(20);
  options.beams = options.num_return = 2;
  Model model = load(chain_with(4, 7, NAN));
  const Generation g = model.generate(Ids{0}, options, nullptr).value();
  EXPECT_EQ(g.finish_reason, FinishReason::kError);
  EXPECT_NE(g.error.find("logits of id 7 are not a number"), std::string::npos) << g.error;
  ASSERT_EQ(g.answers.size(), 2u);
  EXPECT_EQ(g.output_ids, g.answers[0].output_ids);
  for (const Generation::Answer& a : g.answers) {
    EXPECT_EQ(a.finish_reason, FinishReason::kError);
    EXPECT_EQ(a.output_ids.size(), g.output_ids.size());
  }
  EXPECT_FALSE(model.generate(Ids{4}, options, nullptr).is_ok());
  std::vector<float> nothing(kFewTokens * kFewTokens, -kInfinity);
  model = load(nothing);
  EXPECT_NE(model.generate(Ids{4}, options, nullptr).status().message().find("no token can be chosen after 0"),
            std::string::npos);
  nothing[2] = 1;  // token 0 is followed by 2, and 2 by none
  model = load(nothing);
  expect_failed(model.generate(Ids{0}, options, nullptr).value(), {2}, "no token can be chosen after 1");
  // What has ended before stays, whichever is better.
  options.stop_ids = {2};
  model = load(chain_with(4, 7, NAN));
  const Generation ended = model.generate(Ids{0}, options, nullptr).value();
  EXPECT_EQ(ended.finish_reason, FinishReason::kError);
  EXPECT_TRUE(std::any_of(ended.answers.begin(), ended.answers.end(), [](const auto& a) {
    return a.finish_reason == FinishReason::kStop && a.output_ids.size() == 1;
  }));
}

TEST(FailingAnswers, InAListLeaveTheOthers) {
  std::vector<std::pair<std::vector<float>, const char*>> failures(std::begin(kFailures), std::end(kFailures));
  failures.emplace_back(short_table(), kShort);
  for (const int64_t batch : {32, 1})
    for (const auto& [table, words] : failures) {
      const StepWidth width(batch);
      Model model = load(table);
      const bool is_short = words == kShort;
      // The last one fails at once.
      const std::vector<Ids> prompts{{0}, {0, 1, 2}, {0}, {is_short ? 5 : 4}};
      size_t calls = 0;
      const auto end_third = [&](size_t i, const Event&) { return ++calls, i != 2; };
      const std::vector<Generation> all = model.generate(prompts, tokens(20), end_third).value();
      ASSERT_EQ(all.size(), 4u);
      const Ids end = is_short ? Ids{1, 2, 3, 4, 5} : Ids{1, 2, 3, 4};
      const std::string reason = std::string(words).substr(0, 20);
      expect_failed(all[0], end, reason);
      expect_failed(all[1], {end.begin() + 2, end.end()}, reason);
      EXPECT_EQ(all[2].output_ids, Ids{1});
      EXPECT_EQ(all[2].finish_reason, FinishReason::kCallback);
      expect_failed(all[3], {}, reason);
      EXPECT_EQ(calls, 2 * end.size() - 2 + 1);
      // An error of the call where nothing came of any.
      const Status none = model.generate(std::vector<Ids>{prompts[3], prompts[3]}, tokens(20), nullptr).status();
      EXPECT_NE(none.message().find(reason), std::string::npos) << none.message();
    }
}

TEST(Callbacks, WhatTheyThrowIsOfTheirOwnCall) {
  Model model = load(chain());
  const auto throws = [](const Event&) -> bool { throw std::range_error("mine"); };
  EXPECT_THROW(static_cast<void>(model.generate(Prompt(Ids{0}), tokens(20), throws)), std::range_error);
  const auto of_the_second = [](size_t prompt, const Event&) -> bool {
    if (prompt == 1) throw std::range_error("mine");
    return true;
  };
  const std::vector<Ids> prompts = {{0}, {1}};
  EXPECT_THROW(static_cast<void>(model.generate(prompts, tokens(20), of_the_second)), std::range_error);
  // Those of a ticket are called by the thread that steps: the request fails, and no other one.
  Result<Ticket> other = model.submit({Prompt(Ids{0}), tokens(30)}),
                 ticket = model.submit({Prompt(Ids{1}), tokens(30)});
  ASSERT_TRUE(other.is_ok() && ticket.is_ok());
  bool at_once = false;  // something was there: it is called by this thread
  try {
    ticket->on_ready([] { throw std::range_error("mine"); });
  } catch (const std::range_error&) {
    at_once = true;
  }
  const Result<Generation> failed = ticket->result(), whole = other->result();
  EXPECT_TRUE(at_once || !failed.is_ok());
  if (!failed.is_ok()) {
    EXPECT_NE(failed.status().message().find("on_ready threw: mine"), std::string::npos);
  }
  ASSERT_TRUE(whole.is_ok());
  EXPECT_EQ(whole->output_ids.size(), 30U);
  EXPECT_TRUE(model.generate(Prompt(Ids{0}), tokens(3), EventCallback()).is_ok());
}

TEST(Callbacks, AFlagEndsTheCallsOfItsThread) {
  Model model = load(chain());
  const auto flag = std::make_shared<std::atomic<bool>>(true);
  {
    const CallsOfThread ended(flag);
    const Result<Generation> mine = model.generate(Prompt(Ids{0}), tokens(30), EventCallback());
    ASSERT_TRUE(mine.is_ok());
    EXPECT_EQ(mine->finish_reason, FinishReason::kCancelled);
    std::thread([&] {
      const Result<Generation> others = model.generate(Prompt(Ids{0}), tokens(30), EventCallback());
      ASSERT_TRUE(others.is_ok());
      EXPECT_EQ(others->output_ids.size(), 30U);
    }).join();
  }
  EXPECT_EQ(model.generate(Prompt(Ids{0}), tokens(30), EventCallback())->output_ids.size(), 30U);
}

TEST(FailingAnswers, WrongPromptsAreSaidBeforeAnybodyIsAnswered) {
  Model model = load(chain());
  int calls = 0;
  const auto count = [&](size_t, const Event&) { return ++calls, true; };
  for (const Ids& wrong : {Ids{}, Ids{kFewTokens}, Ids(65, 1)})
    EXPECT_FALSE(model.generate(std::vector<Ids>{{0}, wrong}, tokens(4), count).is_ok());
  EXPECT_EQ(calls, 0);
}

// Counts that no memory holds are refused, or as many as there can be.
TEST(Numbers, OfAnySize) {
  const onnx::test::TempFolder folder;
  folder.write("model.onnx", onnx::test::table_model(chain(), kFewTokens));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::pair<const char*, int64_t LoadOptions::*> counts[] = {{"a state of ", &LoadOptions::slots},
                                                                   {"", &LoadOptions::chunk}};
  for (const auto& [words, count] : counts)
    for (const int64_t value : {int64_t{1} << 20, int64_t{1} << 40, int64_t{1} << 62, kMost - 1, kMost}) {
      LoadOptions options;
      options.*count = value;
      const Result<Model> model = Model::load(folder.path().string(), options);
      if (model.is_ok()) continue;
      EXPECT_NE(*words, 0) << model.status().message();
      EXPECT_GT(value, int64_t{1} << 30);
      EXPECT_EQ(model.status().code(), Code::kInvalidArgument);
      const std::string said = words + std::to_string(value) + " slots; from 1 to ";
      EXPECT_NE(model.status().message().find(said), std::string::npos) << model.status().message();
    }
  Model model = load(chain());
  const std::vector<Generation> all = model.generate(std::vector<Ids>{{0, 1}, {3}}, tokens(kMost), nullptr).value();
  EXPECT_EQ(all[0].output_ids.size(), 64u - 2 + 1);
  EXPECT_EQ(model.generate(Ids{0}, tokens(kMost), nullptr).value().output_ids.size(), 64u);
}

TEST(FailingAnswers, PerplexityToo) {
  Model model = load(chain_with(4, 7, NAN));
  EXPECT_TRUE(model.perplexity(Ids{0, 1, 2, 3}, {}).is_ok());
  const std::string message = model.perplexity(Ids{0, 1, 4, 5, 6}, {}).status().message();
  EXPECT_NE(message.find("logits of id 7 are not a number"), std::string::npos) << message;
  model = load(chain_with(4, -1, -kInfinity));
  const std::string nothing = model.perplexity(Ids{0, 4, 5}, {}).status().message();
  EXPECT_NE(nothing.find("no token can be chosen after 2 tokens of the text: every logit is -infinity"),
            std::string::npos)
      << nothing;
}

}  // namespace
}  // namespace situ
