// Whatever computes is a request: sessions, texts that are scored, alignments, texts for embeddings and masks of
// grammars are pieces of steps, beside which answers go on; what one of them throws is its own error.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <latch>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "requests/align_decoding.h"
#include "requests/job.h"
#include "text/test_models.h"
#include "tiny_sessions.h"

namespace situ::test {
namespace {

class Pieces : public TinyModel {
 protected:
  // The model's folder and a tokenizer of bytes.
  std::filesystem::path with_tokenizer(const testing::TempFolder& folder) const {
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      std::filesystem::create_symlink(entry.path(), folder.path() / entry.path().filename());
    folder.write("tokenizer.json", testing::byte_level_tokenizer().dump());
    return folder.path();
  }
};
using Aligned = TinyModel;
using Texts = TinyModel;

Request answer_of(int64_t tokens) {
  Request r;
  r.prompt = Prompt(some_tokens(4, 5));
  r.options.max_new_tokens = tokens;
  r.options.ignore_eos = true;
  return r;
}

void wait_until(const std::function<bool()>& done) {
  while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Begins `work`, a call that is one request, and an answer with the same step; how many tokens the answer had before
// `work` was over.
template <typename Work>
int64_t tokens_beside(Model& model, Work work) {
  Served& served = impl_of(model);
  std::future<void> call;
  std::optional<Ticket> answer;
  std::atomic<int64_t> beside{0};
  impl_of(model).between_steps([&] {
    call = std::async(std::launch::async, work);
    wait_until([&] { return served.waiting == 1; });
    answer = model.submit(answer_of(40)).value();
    answer->on_ready([&] {  // by the scheduler's thread, after each step
      if (served.running == 2) ++beside;
    });
    return true;
  });
  call.get();
  EXPECT_EQ(answer->result().value().output_ids.size(), 40u);
  return beside;
}

LoadOptions small() {
  LoadOptions options;
  options.context_length = 96;
  options.chunk = 8;
  options.threads = 1;
  return options;
}

TEST_P(Pieces, ASessionsPromptIsFedBesideAnswers) {
  Model model = load(small());
  const Tokens prompt = some_tokens(64, 3);
  Session alone = session_of(model, 1), beside = session_of(model, 1);
  const std::vector<float> want = copy_of(alone.step(prompt).value());
  const Stats before = model.stats();
  std::vector<float> got;
  EXPECT_GE(tokens_beside(model, [&] { got = copy_of(beside.step(prompt).value()); }), 6);
  EXPECT_EQ(got, want);
  EXPECT_GE(model.stats().rows - before.rows, 64 + 40);  // it counts as other requests do
  EXPECT_EQ(model.ledger().copied, 0);
}

TEST_P(Pieces, AScoredTextLeavesRowsToAnswers) {
  const StepWidth narrow(4);
  Model model = load(small());
  const Tokens text = some_tokens(64, 3);
  const double want = model.perplexity(text, {}).value().mean_nll;
  double got = 0;
  const int64_t steps = model.stats().steps;
  EXPECT_GE(tokens_beside(model, [&] { got = model.perplexity(text, {}).value().mean_nll; }), 16);
  EXPECT_EQ(got, want);
  // Of four rows of a step the answer has one and the text three, not all four of each second step.
  EXPECT_LE(model.stats().steps - steps, 40 + 5);
}

// What a session is fed beside an older answer for which there is no room any more it gives back, and is fed again.
TEST_P(Pieces, ASessionsStepGivesWay) {
  LoadOptions options = small();
  options.slots = 70;
  Model model = load(options);
  const int64_t free = free_slots(model);
  const Tokens prompt = some_tokens(60, 1);
  const std::vector<float> want = copy_of(model.new_session().value().step(prompt).value());
  Request older = answer_of(40);
  older.options.prefix_cache = PrefixReuse::kOff;
  const Tokens alone = model.generate(older.prompt, older.options, nullptr).value().output_ids;
  std::optional<Session> session = model.new_session().value();
  std::optional<Ticket> answer;
  std::future<std::vector<float>> call;
  impl_of(model).between_steps([&] {
    answer = model.submit(older).value();
    call = std::async(std::launch::async, [&] { return copy_of(session->step(prompt).value()); });
    wait_until([&] { return impl_of(model).waiting == 2; });
    return true;
  });
  EXPECT_EQ(call.get(), want);
  EXPECT_EQ(answer->result().value().output_ids, alone);
  EXPECT_EQ(model.stats().preemptions, 1);
  session.reset();
  EXPECT_EQ(free_slots(model), free);
}

// What is cancelled in the middle leaves the session as it was.
TEST_P(Pieces, ACancelledSessionIsWhatItWas) {
  Model model = load(small());
  const auto flag = std::make_shared<std::atomic<bool>>(false);
  Session session = session_of(model, 1, some_tokens(5, 1)), other = session_of(model, 1, some_tokens(5, 1));
  const auto free = [&] { return free_slots(model) + model.stats().slots_kept; };
  const int64_t before = free();
  Served& served = impl_of(model);
  std::future<Code> call;
  std::optional<Ticket> answer;
  int64_t steps = 0;
  impl_of(model).between_steps([&] {
    call = std::async(std::launch::async, [&] {
      const CallsOfThread ended(flag);
      return session.step(some_tokens(64, 2)).status().code();
    });
    wait_until([&] { return served.waiting == 1; });
    answer = model.submit(answer_of(30)).value();
    answer->on_ready([&] { *flag = *flag || ++steps == 3; });
    return true;
  });
  EXPECT_EQ(call.get(), Code::kInterrupted);
  EXPECT_EQ(session.length(), 5);
  EXPECT_TRUE(answer->result().is_ok());
  answer.reset();
  EXPECT_EQ(free(), before);
  EXPECT_EQ(copy_of(session.step(some_tokens(2, 3)).value()), copy_of(other.step(some_tokens(2, 3)).value()));
}

// Of one that throws wherever the scheduler calls it.
class Throwing : public Errand {
 public:
  Throwing(Served& served, int where) : Errand(served), where_(where), strand_(served) {}
  int64_t tokens_to_feed() const override { return 1; }
  Result<bool> begin(Clock::time_point, Figures&) override { return at(0), true; }
  Status wants(std::vector<Want>& wants) override {
    at(1);
    Want want;
    want.strand = &strand_;
    want.tokens = tokens_;
    wants.push_back(want);
    return Status::ok();
  }
  void take(const Want&, situ::Rows) override { at(2); }
  void settle() override {
    at(3);
    end_with(Status::ok());
  }
  Result<Generation> finish(const Figures& figures) override { return at(4), Errand::finish(figures); }
  void release() override { strand_ = Strand(); }

 private:
  void at(int place) const {
    if (place == where_) throw std::range_error("mine");
  }
  const int where_;
  Strand strand_;
  const Tokens tokens_{4};
};

TEST_P(Pieces, WhatARequestThrowsIsItsOwnError) {
  Model model = load(small());
  const int64_t free = free_slots(model);
  const Tokens want = model.generate(answer_of(12).prompt, answer_of(12).options, nullptr).value().output_ids;
  for (int where = 0; where <= 5; ++where) {
    std::optional<Ticket> answer;
    std::shared_ptr<Job> thrown;
    impl_of(model).between_steps([&] {
      answer = model.submit(answer_of(12)).value();
      thrown = impl_of(model).scheduler->submit_part(std::make_unique<Throwing>(impl_of(model), where), {});
      return true;
    });
    const Result<Generation> result = thrown->result();
    EXPECT_EQ(result.is_ok(), where == 5);
    if (where < 5) {
      EXPECT_NE(result.status().message().find("an exception: mine"), std::string::npos) << where;
    }
    EXPECT_EQ(answer->result().value().output_ids, want) << where;
  }
  EXPECT_EQ(free_slots(model) + model.stats().slots_kept, free);
}

// A text that cannot fit the context is refused before it becomes tokens: how many it would be is not known.
TEST_P(Pieces, ALongTextIsRefusedUnread) {
  const testing::TempFolder folder;
  path_ = with_tokenizer(folder);
  const Status refused = load(small()).read(Prompt(std::string(70 << 10, 'a'))).status();
  EXPECT_EQ(refused.code(), Code::kContextExceeded);
  EXPECT_NE(refused.message().find("at least 97 tokens"), std::string::npos) << refused.message();
}

// An answer whose mask is not there sits out: another one comes to its end meanwhile.
TEST_P(Pieces, LateMasksHoldNobodyUp) {
  const testing::TempFolder folder;
  path_ = with_tokenizer(folder);
  Model model = load(small());
  Request constrained = answer_of(20);
  constrained.options.ignore_eos = false;
  constrained.options.regex = "(yes|no){2}";
  const std::string want = model.generate(constrained.prompt, constrained.options, nullptr).value().text;
  std::latch held(1), release(1);
  ASSERT_TRUE(impl_of(model).scheduler->beside().quick.post([&] {
    held.count_down();
    release.wait();
  }));
  held.wait();
  Ticket late = model.submit(constrained).value(), other = model.submit(answer_of(30)).value();
  EXPECT_EQ(other.result().value().output_ids.size(), 30u);
  EXPECT_FALSE(late.ended());
  EXPECT_FALSE(late.next(std::chrono::milliseconds(0)).has_value());
  release.count_down();
  EXPECT_EQ(late.result().value().text, want);
}

INSTANTIATE_TEST_SUITE_P(Folders, Pieces, ::testing::Values("tiny/llama"), test_name);

// Alignments are suspended as encoders are, one after the other, and give what each gives alone.
TEST_P(Aligned, BesideAnswersAndEachOther) {
  Model model = load(small());
  InPlaceEngine& engine = *impl_of(model).in_place;
  const auto heads = engine.attending_heads();
  ASSERT_TRUE(heads.is_ok()) << heads.status().message();
  std::vector<AttentionHead> all;
  for (int64_t layer = 0; layer < heads->first; ++layer)
    for (int64_t head = 0; head < heads->second; ++head) all.push_back({layer, head});
  Session source = session_of(model, 1);
  const int64_t free = free_slots(model), copied = model.ledger().copied;
  const auto submit = [&](int64_t number, std::vector<float>* weights) {
    return impl_of(model).scheduler->submit_part(
        std::make_unique<AlignDecoding>(impl_of(source).strand().fork(), some_tokens(7, number), all, weights), {});
  };
  constexpr size_t kCount = 4;
  std::vector<std::vector<float>> want(kCount), got(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_TRUE(submit(static_cast<int64_t>(i), &want[i])->result().is_ok());
    EXPECT_EQ(want[i].size() % (7 * all.size()), 0u);
    const size_t rows = want[i].size() / (7 * all.size());
    for (size_t at = 0; at < want[i].size(); at += rows)  // weights of a token sum to 1
      EXPECT_NEAR(std::accumulate(want[i].begin() + static_cast<std::ptrdiff_t>(at),
                                  want[i].begin() + static_cast<std::ptrdiff_t>(at + rows), 0.0),
                  1, 1e-5);
  }
  std::vector<std::shared_ptr<Job>> jobs;
  std::optional<Ticket> answer;
  impl_of(model).between_steps([&] {
    answer = model.submit(answer_of(10)).value();
    for (size_t i = 0; i < kCount; ++i) jobs.push_back(submit(static_cast<int64_t>(i), &got[i]));
    return true;
  });
  for (const auto& job : jobs) EXPECT_TRUE(job->result().is_ok());
  EXPECT_EQ(got, want);
  EXPECT_TRUE(answer->result().is_ok());
  std::shared_ptr<Job> cancelled;
  impl_of(model).between_steps([&] {
    cancelled = submit(0, &got[0]);
    cancelled->cancel();
    return true;
  });
  EXPECT_EQ(cancelled->result().status().code(), Code::kInterrupted);
  EXPECT_EQ(free_slots(model), free);
  EXPECT_EQ(model.ledger().copied, copied);
}

INSTANTIATE_TEST_SUITE_P(Folders, Aligned, ::testing::Values("tiny/t5", "tiny/bart"), test_name);

// Texts of several callers are computed by one step.
TEST_P(Texts, OfAllCallersShareSteps) {
  Model model = load({});
  const std::vector<std::vector<int64_t>> texts[] = {{some_tokens(5, 1)}, {some_tokens(9, 2)}, {some_tokens(3, 3)}};
  std::vector<std::vector<float>> want, got(std::size(texts));
  for (const auto& text : texts) want.push_back(model.embed(text).value().rows[0]);
  std::vector<std::future<void>> calls;
  const int64_t steps = model.stats().steps;
  impl_of(model).between_steps([&] {
    for (size_t i = 0; i < std::size(texts); ++i)
      calls.push_back(std::async(std::launch::async, [&, i] { got[i] = model.embed(texts[i]).value().rows[0]; }));
    wait_until([&] { return impl_of(model).waiting == std::ssize(texts); });
    return true;
  });
  for (auto& call : calls) call.get();
  EXPECT_EQ(got, want);
  EXPECT_EQ(model.stats().steps - steps, 1);
}

INSTANTIATE_TEST_SUITE_P(Folders, Texts, ::testing::Values("embed/bert_mean"), test_name);

}  // namespace
}  // namespace situ::test
