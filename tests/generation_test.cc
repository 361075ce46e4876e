// Model::generate from a program's side, on the real model: what the callback gets, seeds, stop strings,
// log-probabilities.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "base/sweep_for_tests.h"
#include "kernels/replace_kernels.h"
#include "runtime/compile.h"
#include "situ/model.h"

namespace situ {
namespace {

namespace fs = std::filesystem;

// The user's cache of packed weights is left alone.
[[maybe_unused]] const int kNothingSaved = setenv("SITU_CACHE_DIR", "", 1);

class GenerationTest : public testing::Test {
 protected:
  static fs::path models() {
    const char* shared = std::getenv("SITU_SHARED");
    return fs::path(shared ? shared : SITU_SHARED_DEFAULT) / "models";
  }
  // A real model, or where it is not there a tiny one that also has a tokenizer.
  static fs::path path() {
    const fs::path real = models() / "smollm2-135m-instruct-int4";
    return fs::exists(real) ? real : models() / "tiny" / "words";
  }
  static void SetUpTestSuite() {
    if (fs::exists(path())) model_ = new Model(std::move(Model::load(path().string(), {})).value());
  }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }
  void SetUp() override {
    if (!model_) GTEST_SKIP() << "no model; set SITU_SHARED";
    options_.max_new_tokens = 24;
    prompt_ = model_->tokenizer().encode("Once upon a time").value();
  }
  Generation generate(const EventCallback& on_token = nullptr) {
    return model_->generate(prompt_, options_, on_token).value();
  }

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
  const Generation g = generate([&](const Event& t) {
    text += t.text;
    if (t.id >= 0) ids.push_back(t.id);
    EXPECT_FALSE(t.logprob);
    return true;
  });
  EXPECT_EQ(text, g.text);
  EXPECT_TRUE(text.starts_with("Once upon a time"));
  EXPECT_EQ(text, model_->tokenizer().decode(prompt_).value() + model_->tokenizer().decode(ids).value());
  EXPECT_EQ(ids, g.output_ids);
  EXPECT_FALSE(g.seed);
}

TEST_F(GenerationTest, TheCallbackEndsIt) {
  int calls = 0;
  const Generation g = generate([&](const Event&) { return ++calls < 5; });
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(g.output_ids.size(), 5u);
  EXPECT_EQ(g.finish_reason, FinishReason::kCallback);
  EXPECT_EQ(g.text, model_->tokenizer().decode(g.output_ids).value());
  options_.echo = true;
  EXPECT_EQ(generate([](const Event&) { return false; }).output_ids.size(), 0u);
}

TEST_F(GenerationTest, NothingOfAStopStringIsStreamed) {
  const std::string whole = generate().text;
  for (size_t begin = 0; begin + 3 < whole.size(); begin += 5) {
    if ((static_cast<unsigned char>(whole[begin]) & 0xC0) == 0x80) continue;
    options_.stop = {whole.substr(begin, 7), whole + "and more"};
    const std::string expected = whole.substr(0, whole.find(options_.stop[0]));
    std::string text;
    const Generation g = generate([&](const Event& t) {
      text += t.text;
      EXPECT_TRUE(expected.starts_with(text)) << text;
      return true;
    });
    EXPECT_EQ(text, expected);
    EXPECT_EQ(g.text, expected);
    EXPECT_EQ(g.finish_reason, FinishReason::kStopString);
    EXPECT_TRUE(model_->tokenizer().decode(g.output_ids).value().starts_with(expected + options_.stop[0]));
  }
}

TEST_F(GenerationTest, ASeedGivesTheSameTokens) {
  options_.temperature = 1.5;
  const Generation first = generate();
  ASSERT_TRUE(first.seed);
  options_.seed = first.seed;
  options_.logprobs = 2;
  size_t at = 0;
  const Generation again = generate([&](const Event& t) {
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
  EXPECT_NE(model_->generate(prompt_, options_, [](const Event&) { return ADD_FAILURE(), true; })
                .status()
                .message()
                .find("top_p"),
            std::string::npos);
}

// Each prompt has the tokens that it has alone, whatever else is in its steps: prompts of other lengths, answers that
// end early, more prompts than a step has room for.
TEST_F(GenerationTest, PromptsTogetherHaveTheAnswersOfEachAlone) {
  LoadOptions load;
  const StepWidth width(3);
  load.chunk = 16;
  Model model = std::move(Model::load(path().string(), load)).value();
  options_.temperature = 1.2;
  options_.seed = 7;
  options_.stop = {"."};
  options_.max_new_tokens = 20;
  std::vector<std::vector<int64_t>> prompts;
  for (const char* text :
       {"Once upon a time", "The", "A list of prime numbers: 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47",
        "Dear Sir or Madam,", "def f(x):", "One two three"})
    prompts.push_back(model.tokenizer().encode(text).value());
  std::vector<Generation> alone;
  for (const std::vector<int64_t>& prompt : prompts) alone.push_back(model.generate(prompt, options_, nullptr).value());
  model.reset_ledger();
  std::vector<std::string> streamed(prompts.size());
  const std::vector<Generation> together =
      model.generate(prompts, options_, [&](size_t i, const Event& t) { return streamed[i] += t.text, true; }).value();
  ASSERT_EQ(together.size(), prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(together[i].output_ids, alone[i].output_ids) << i;
    EXPECT_EQ(together[i].text, alone[i].text);
    EXPECT_EQ(together[i].finish_reason, alone[i].finish_reason);
    EXPECT_EQ(streamed[i], alone[i].text);
    EXPECT_EQ(together[i].bytes_copied_per_token, 0);
  }
  EXPECT_EQ(model.ledger().copied, 0);
  // One of them may be ended alone.
  options_.stop.clear();
  const std::vector<Generation> ended =
      model.generate(prompts, options_, [](size_t i, const Event&) { return i != 1; }).value();
  EXPECT_EQ(ended[1].output_ids.size(), 1u);
  EXPECT_EQ(ended[0].output_ids.size(), 20u);
  options_.echo = true;
  const std::vector<Generation> refused = model
                                              .generate(std::span<const std::vector<int64_t>>(prompts).first(2),
                                                        options_, [](size_t, const Event&) { return false; })
                                              .value();
  for (const Generation& g : refused) EXPECT_EQ(g.output_ids.size(), 0u);
}

TEST_F(GenerationTest, GuessesChangeNothingButTheNumberOfSteps) {
  const std::vector<int64_t> repeats =
      model_->tokenizer()
          .encode("one two three four five six seven one two three four five six seven one two three")
          .value();
  for (const double temperature : {0.0, 0.7, 1.5}) {
    options_.temperature = temperature;
    options_.seed = 11;
    options_.max_new_tokens = temperature == 0 || sweeping() ? 48 : 20;
    for (const std::vector<int64_t>& prompt : {prompt_, repeats}) {
      options_.prompt_lookup = 0;
      const Generation plain = model_->generate(prompt, options_, nullptr).value();
      EXPECT_EQ(plain.guessed_tokens, 0);
      options_.prompt_lookup = 5;
      const Generation guessed = model_->generate(prompt, options_, nullptr).value();
      EXPECT_EQ(guessed.output_ids, plain.output_ids) << temperature;
      EXPECT_EQ(guessed.text, plain.text);
      EXPECT_EQ(guessed.bytes_copied_per_token, 0);
      EXPECT_LE(guessed.accepted_tokens, guessed.guessed_tokens);
      if (temperature == 0 && &prompt != &prompt_) {
        EXPECT_GT(guessed.guessed_tokens, 0);
      }
    }
  }
  options_.prompt_lookup = 64;
  EXPECT_NE(model_->generate(prompt_, options_, nullptr).status().message().find("a step gives 64"), std::string::npos);
}

// It is called by the thread that waits, while other requests go on.
TEST_F(GenerationTest, TheCallbackMayUseTheModel) {
  LoadOptions load;
  Model model = std::move(Model::load(path().string(), load)).value();
  const std::vector<int64_t> repeats =
      model.tokenizer()
          .encode("one two three four five six seven one two three four five six seven one two three")
          .value();
  const std::vector<std::vector<int64_t>> prompts = {prompt_, repeats, {1, 2, 3}};
  options_.logprobs = 1;
  options_.report_perplexity = true;
  if (!sweeping()) options_.max_new_tokens = 10;
  const auto same = [](const Generation& a, const Generation& b) {
    EXPECT_EQ(a.output_ids, b.output_ids);
    EXPECT_EQ(a.text, b.text);
    EXPECT_DOUBLE_EQ(*a.perplexity, *b.perplexity);
    ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
    for (size_t i = 0; i < a.logprobs.size(); ++i) EXPECT_EQ(a.logprobs[i].logprob, b.logprobs[i].logprob);
  };
  int calls = 0;
  const auto disturb = [&] {
    if (++calls % 3 == 0) {
      GenerateOptions others = options_;
      others.max_new_tokens = 3;
      EXPECT_EQ(model
                    .generate(std::vector<std::vector<int64_t>>{{5, 6}, {7}}, others,
                              [&](size_t, const Event&) { return model.new_session().value().step(prompt_).is_ok(); })
                    .value()
                    .size(),
                2u);
    } else {
      Session other = model.new_session().value();
      EXPECT_TRUE(other.step(calls % 3 == 1 ? std::vector<int64_t>{4} : repeats).is_ok());
    }
    return true;
  };
  const std::vector<Generation> plain = model.generate(prompts, options_, nullptr).value();
  model.reset_ledger();
  const std::vector<Generation> disturbed =
      model.generate(prompts, options_, [&](size_t, const Event&) { return disturb(); }).value();
  for (size_t i = 0; i < prompts.size(); ++i) same(plain[i], disturbed[i]);
  EXPECT_EQ(model.ledger().copied, 0);
  options_.prompt_lookup = 6;
  const Generation guessed = model.generate(repeats, options_, [&](const Event&) { return disturb(); }).value();
  EXPECT_GT(guessed.accepted_tokens, 0);
  same(plain[1], guessed);
}

// Threads hand the model over between two tokens, where logits of the same step are still to be read: their steps end
// in any order.
TEST_F(GenerationTest, ThreadsTakeTurnsBetweenTokens) {
#ifdef __SANITIZE_THREAD__
  constexpr int kRounds = 1, kTokens = 16;  // a step takes half a second there
#else
  const int kRounds = sweeping() ? 3 : 1, kTokens = sweeping() ? 48 : 32;
#endif
  LoadOptions load;
  Model model = std::move(Model::load(path().string(), load)).value();
  const std::vector<int64_t> repeats =
      model.tokenizer()
          .encode("one two three four five six seven one two three four five six seven one two three")
          .value();
  const std::vector<std::vector<int64_t>> prompts = {
      repeats, {repeats.begin() + 2, repeats.end()}, {repeats.begin() + 5, repeats.end()}};
  options_.prompt_lookup = 6;
  options_.max_new_tokens = kTokens;
  options_.logprobs = 1;
  std::vector<Generation> alone, together(prompts.size());
  for (const auto& p : prompts) alone.push_back(model.generate(p, options_, nullptr).value());
  for (int round = 0; round < kRounds; ++round) {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<char> running(prompts.size(), 1);
    size_t turn = 0, given = 0;
    std::mt19937 random(static_cast<uint32_t>(round));
    const auto hand_over = [&] {  // with the mutex: to any that runs
      do turn = random() % prompts.size();
      while (!running[turn] && std::count(running.begin(), running.end(), 1) > 0);
      ++given;
      changed.notify_all();
    };
    std::vector<std::thread> threads;
    for (size_t i = 0; i < prompts.size(); ++i)
      threads.emplace_back([&, i] {
        std::unique_lock held(mutex);
        changed.wait(held, [&] { return turn == i; });
        together[i] = model
                          .generate(prompts[i], options_,
                                    [&](const Event&) {
                                      hand_over();
                                      changed.wait(held, [&] { return turn == i; });
                                      return true;
                                    })
                          .value();
        running[i] = 0;
        hand_over();
      });
    for (std::thread& t : threads) t.join();
    EXPECT_GT(given, prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_GT(together[i].accepted_tokens, 0);
      EXPECT_EQ(together[i].output_ids, alone[i].output_ids) << "prompt " << i;
      for (size_t t = 0; t < together[i].logprobs.size(); ++t)
        EXPECT_EQ(together[i].logprobs[t].logprob, alone[i].logprobs[t].logprob) << "prompt " << i << ", token " << t;
    }
  }
}

// The kernels of models loaded meanwhile: they count their calls, and set a flag at one of them.
class CountedKernels {
 public:
  explicit CountedKernels(std::atomic<bool>& flag) {
    flag_ = &flag;
    chosen_ = &kernels();
    static KernelTable table;
    table.isa = chosen_->isa;
    table.base = chosen_->base;
#define SITU_KERNEL(name) table.name = count<&KernelTable::name>;
#include "kernels/kernels.inc"
#undef SITU_KERNEL
    replace_kernels(&table);
  }
  ~CountedKernels() { replace_kernels(nullptr); }
  // Counts from 0; the flag is set at call `at`.
  void start(int64_t at) {
    calls_ = 0;
    at_ = at;
    *flag_ = false;
  }
  int64_t calls() const { return calls_; }

 private:
  template <KernelFn KernelTable::* kKernel>
  static void count(const KernelCall& call, int thread, int threads) {
    if (thread == 0 && calls_++ == at_) *flag_ = true;
    (chosen_->*kKernel)(call, thread, threads);
  }
  static inline std::atomic<int64_t> calls_{0}, at_{-1};
  static inline std::atomic<bool>* flag_ = nullptr;
  static inline const KernelTable* chosen_ = nullptr;
};

TEST_F(GenerationTest, ErrorsHaveCodes) {
  const auto load = [&](const std::string& folder, const std::function<void(LoadOptions&)>& change = nullptr) {
    LoadOptions options;
    if (change) change(options);
    return Model::load(folder, options).status().code();
  };
  EXPECT_EQ(load("/nothing/there"), Code::kNotFound);
  EXPECT_EQ(load("/dev/null"), Code::kBadFile);
  EXPECT_EQ(load(path().string(), [](LoadOptions& o) { o.window = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(kv_type_of("f7").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(load(path().string(), [](LoadOptions& o) { o.memory = 1; }), Code::kNoRoom);
  GenerateOptions wrong;
  wrong.top_p = 2;
  EXPECT_EQ(model_->generate(prompt_, wrong, nullptr).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(model_->generate(std::vector<int64_t>{-1}, {}, nullptr).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(model_->generate(std::vector<int64_t>(100000, 1), {}, nullptr).status().code(), Code::kContextExceeded);
  EXPECT_EQ(model_->tokenizer().encode("\xFF").status().code(), Code::kInvalidArgument);
  std::atomic<bool> flag{true};
  model_->interrupt_when(&flag);
  Session session = model_->new_session().value();
  EXPECT_EQ(session.step(prompt_).status().code(), Code::kInterrupted);
  model_->interrupt_when(nullptr);
  EXPECT_TRUE(session.step(prompt_).is_ok());
  EXPECT_EQ(session.step(prompt_).status().code(), Code::kOk);
  const Status status = Status::error("x");
  EXPECT_EQ(status.or_code(Code::kNoRoom).with_context("y").or_code(Code::kBadFile).code(), Code::kNoRoom);
  EXPECT_STREQ(code_name(status.code()), "internal");
  EXPECT_STREQ(code_name(Code::kContextExceeded), "context_exceeded");
  EXPECT_STREQ(finish_reason_name(FinishReason::kNotStarted), "not_started");
}

TEST_F(GenerationTest, AFlagInterrupts) {
  std::atomic<bool> flag{true};
  CountedKernels counted(flag);
  LoadOptions load;
  for (const bool naive : {false, true}) {
    load.naive = naive;
    Model model = std::move(Model::load(path().string(), load)).value();
    const Generation plain = model.generate(prompt_, options_, nullptr).value();
    std::vector<int64_t> text;
    while (text.size() < 60) text.insert(text.end(), prompt_.begin(), prompt_.end());
    flag = true;
    model.interrupt_when(&flag);
    Session session = model.new_session().value();
    EXPECT_EQ(session.step(prompt_).status().code(), Code::kInterrupted);
    EXPECT_EQ(session.length(), 0);
    EXPECT_EQ(model.perplexity(prompt_, {}).status().code(), Code::kInterrupted);
    EXPECT_EQ(model.tokenizer().encode("Once").status().code(), Code::kInterrupted);
    for (const int64_t beams : {1, 2}) {
      GenerateOptions options = options_;
      options.beams = naive ? 1 : beams;
      const std::vector<Generation> found =
          model.generate(std::vector<std::vector<int64_t>>(3, prompt_), options, nullptr).value();
      ASSERT_EQ(found.size(), 3u);
      for (const Generation& g : found) {
        EXPECT_TRUE(g.finish_reason == FinishReason::kCancelled || g.finish_reason == FinishReason::kNotStarted);
        EXPECT_TRUE(g.output_ids.empty());
      }
    }
    const auto calls_of = [&](const std::vector<int64_t>& prompt, int64_t tokens) {
      counted.start(-1);
      GenerateOptions few = options_;
      few.max_new_tokens = tokens;
      EXPECT_EQ(model.generate(prompt, few, nullptr).value().output_ids.size(), static_cast<size_t>(tokens));
      return counted.calls();
    };
    const int64_t calls = calls_of(text, 1);
    EXPECT_GT(calls, 20);
    for (const int64_t at : {int64_t{0}, int64_t{1}, calls / 3, calls * 3 / 4}) {  // within the prompt
      counted.start(at);
      EXPECT_TRUE(model.generate(text, options_, nullptr).value().output_ids.empty());
      EXPECT_LT(counted.calls(), at + 50);  // ends soon
    }
    counted.start(calls_of(prompt_, 5) + 1);  // within the step of the sixth token
    const Generation part = model.generate(prompt_, options_, nullptr).value();
    EXPECT_EQ(part.output_ids.size(), 5u);
    EXPECT_TRUE(std::equal(part.output_ids.begin(), part.output_ids.end(), plain.output_ids.begin()));
    EXPECT_EQ(part.finish_reason, FinishReason::kCancelled);
    flag = false;
    EXPECT_EQ(model.generate(prompt_, options_, nullptr).value().output_ids, plain.output_ids);
    model.interrupt_when(nullptr);
  }
}

// Attention of several sequences has a barrier of its own, so all threads must end a step at the same place: within one
// that is interrupted at any time.
TEST_F(GenerationTest, ThreadsEndABatchAtTheSamePlace) {
  LoadOptions load;
  load.threads = 3;
  const fs::path tiny = models() / "tiny" / "llama";
  if (!fs::exists(tiny)) GTEST_SKIP() << tiny << " is not there";
  Model model = std::move(Model::load(tiny.string(), load)).value();
  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3}, {4, 5}, {6, 7, 8, 9}};
  options_.max_new_tokens = 40;
  options_.ignore_eos = true;
  const std::vector<Generation> plain = model.generate(prompts, options_, nullptr).value();
  std::atomic<bool> flag{false};
  model.interrupt_when(&flag);
  for (int i = 0; i < 2000; i += sweep_stride(5)) {
    flag = false;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(1 + i * 7 % 1000));
      flag = true;
    });
    const std::vector<Generation> part = model.generate(prompts, options_, nullptr).value();
    other.join();
    for (size_t s = 0; s < part.size(); ++s) {
      const std::vector<int64_t>&ids = part[s].output_ids, &all = plain[s].output_ids;
      ASSERT_LE(ids.size(), all.size());
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), all.begin()));
    }
  }
  model.interrupt_when(nullptr);
}

// In the model's memory until the next step, in the caller's as long as he likes; for more sessions than a step
// computes too.
std::vector<std::span<const float>> values(const Result<std::vector<Model::Logits>>& stepped) {
  std::vector<std::span<const float>> rows;
  for (const Model::Logits& logits : stepped.value()) rows.push_back(logits.value());
  return rows;
}

TEST_F(GenerationTest, LogitsAreWrittenWhereTheCallerSays) {
  constexpr size_t kCount = 5;
  LoadOptions load;
  const StepWidth narrow(2);
  Model model = std::move(Model::load(path().string(), load)).value();
  const size_t width = static_cast<size_t>(model.facts().vocabulary);
  std::vector<Session> sessions;
  std::vector<std::vector<int64_t>> tokens;
  std::vector<Model::Feed> feeds, others;
  for (size_t i = 0; i < 2 * kCount; ++i) sessions.push_back(model.new_session().value());
  for (size_t i = 0; i < kCount; ++i) tokens.push_back({static_cast<int64_t>(i + 1), 2, 3});
  for (size_t i = 0; i < kCount; ++i)
    feeds.push_back({&sessions[i], tokens[i]}), others.push_back({&sessions[kCount + i], tokens[i]});
  model.reset_ledger();
  std::vector<float> own(kCount * width, NAN);
  const std::vector<std::span<const float>> rows = values(model.step(feeds, own));
  EXPECT_EQ(model.ledger().copied, 0);
  const std::vector<float> before = own;
  const std::vector<std::span<const float>> kept = values(model.step(others));
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(rows[i].data(), own.data() + i * width);
    EXPECT_TRUE(std::equal(rows[i].begin(), rows[i].end(), kept[i].begin(), kept[i].end()));
  }
  for (const size_t count : {1, 3}) {  // the programs of one token and of prompts
    std::vector<float> alone(width, NAN);
    const std::vector<float> wanted = [&] {
      const std::span<const float> row = sessions[0].step({tokens[0].data(), count}).value();
      return std::vector<float>(row.begin(), row.end());
    }();
    EXPECT_EQ(sessions[kCount].step({tokens[0].data(), count}, alone).value().data(), alone.data());
    EXPECT_EQ(alone, wanted);
  }
  EXPECT_EQ(own, before);
  EXPECT_EQ(model.ledger().copied, 0);
  EXPECT_NE(model.step(feeds, std::span(own).first(width)).status().message().find("room for"), std::string::npos);
}

TEST_F(GenerationTest, PromptsWaitForRoomInTheState) {
  LoadOptions load;
  load.context_length = load.slots = 64;
  Model model = std::move(Model::load(path().string(), load)).value();
  const std::vector<std::vector<int64_t>> prompts(5, prompt_);
  const std::vector<Generation> answers = model.generate(prompts, options_, nullptr).value();
  ASSERT_EQ(answers.size(), prompts.size());
  const std::vector<int64_t> alone_ids = generate().output_ids;
  for (const Generation& g : answers) EXPECT_EQ(g.output_ids, alone_ids);
  EXPECT_EQ(model.generate(std::vector<std::vector<int64_t>>{}, options_, nullptr).value().size(), 0u);
  EXPECT_NE(model.generate(std::vector<std::vector<int64_t>>{prompt_, {}}, options_, nullptr)
                .status()
                .message()
                .find("prompt 1"),
            std::string::npos);
  // Where there is none and nobody leaves, the message is about the prompt, not the piece of it that did not fit.
  load.chunk = 8;
  model = std::move(Model::load(path().string(), load)).value();
  Session other = model.new_session().value();
  ASSERT_TRUE(other.step(std::vector<int64_t>(40, 1)).is_ok());
  const std::vector<std::vector<int64_t>> long_ones(2, std::vector<int64_t>(33, 1));
  const std::string together = model.generate(long_ones, options_, nullptr).status().message(),
                    alone = model.generate(long_ones[0], options_, nullptr).status().message();
  EXPECT_TRUE(together.starts_with("prompt 0 of 33 tokens: ") && together.find("all 64 slots") != std::string::npos)
      << together;
  EXPECT_TRUE(alone.find("the prompt of 33 tokens: ") != std::string::npos &&
              alone.find("all 64 slots") != std::string::npos)
      << alone;
}

}  // namespace
}  // namespace situ
