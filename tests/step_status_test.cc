// Each feed of a step has its own status: one that is refused leaves its session and the others as they are without it.
#include "tiny_sessions.h"

namespace situ::test {
namespace {

using StepStatus = TinyModel;

struct Fed {
  size_t session;
  Tokens tokens;
};

// The logits of each, in order; nothing for one that is refused.
Rows step(Model& model, std::vector<Session>& sessions, const std::vector<Fed>& fed, std::vector<Status>* refused) {
  std::vector<Model::Feed> feeds;
  for (const Fed& f : fed) feeds.push_back({&sessions[f.session], f.tokens});
  const Result<std::vector<Model::Logits>> stepped = model.step(feeds);
  EXPECT_TRUE(stepped.is_ok()) << stepped.status().message();
  Rows rows;
  for (const Model::Logits& logits : *stepped) {
    rows.push_back(logits.is_ok() ? copy_of(*logits) : std::vector<float>());
    if (refused) refused->push_back(logits.status());
    EXPECT_TRUE(refused || logits.is_ok()) << logits.status().message();
  }
  return rows;
}

// Two models with the same sessions: one makes the step with the feeds that are refused, one without. Then both go on.
void compare(Model& with, Model& without, const std::vector<Tokens>& before, const std::vector<Fed>& fed,
             const std::vector<Code>& codes) {
  std::vector<Session> ours, theirs;
  for (size_t i = 0; i < before.size(); ++i) {
    ours.push_back(session_of(with, static_cast<int64_t>(i), before[i]));
    theirs.push_back(session_of(without, static_cast<int64_t>(i), before[i]));
  }
  std::vector<Fed> good;
  for (size_t i = 0; i < fed.size(); ++i)
    if (codes[i] == Code::kOk) good.push_back(fed[i]);
  std::vector<Status> refused;
  const Rows all = step(with, ours, fed, &refused), want = step(without, theirs, good, nullptr);
  for (size_t i = 0, k = 0; i < fed.size(); ++i) {
    EXPECT_EQ(refused[i].code(), codes[i]) << "feed " << i << ": " << refused[i].message();
    if (codes[i] == Code::kOk) {
      EXPECT_EQ(all[i], want[k++]) << "feed " << i;
    }
  }
  EXPECT_EQ(free_slots(with), free_slots(without));
  std::vector<Fed> next;
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].length(), theirs[i].length()) << "session " << i;
    next.push_back({i, {static_cast<int64_t>(7 + i)}});
  }
  EXPECT_EQ(step(with, ours, next, nullptr), step(without, theirs, next, nullptr));
}

TEST_P(StepStatus, WrongFeedsLeaveTheOthers) {
  for (const int64_t batch : {32, 2, 1})
    for (const bool naive : {false, true}) {
      LoadOptions options;
      options.context_length = 32;
      const StepWidth width(batch);
      options.chunk = 8;
      options.naive = naive;
      Model with = load(options), without = load(options);
      const std::vector<Tokens> before{{}, some_tokens(9, 1), some_tokens(20, 2), {}, some_tokens(1, 4)};
      const std::vector<Fed> fed{{0, some_tokens(19, 5)}, {1, {5, -1}}, {2, some_tokens(13, 6)},
                                 {3, {1000000}},          {1, {4}},     {2, {}},
                                 {4, some_tokens(5, 7)},  {4, {2}}};
      // A session is there as often as it is named, refused or not.
      compare(with, without, before, fed,
              {Code::kOk, Code::kInvalidArgument, Code::kContextExceeded, Code::kInvalidArgument,
               Code::kInvalidArgument, Code::kInvalidArgument, Code::kOk, Code::kInvalidArgument});
    }
}

TEST_P(StepStatus, AFeedWithoutRoomLeavesTheOthers) {
  for (const int64_t batch : {32, 2}) {
    LoadOptions options;
    options.context_length = 32;
    options.slots = 64;
    const StepWidth width(batch);
    options.chunk = 8;
    Model with = load(options), without = load(options);
    // 16 slots are free, and the first feed takes 10 of them.
    const std::vector<Tokens> before{some_tokens(28, 1), some_tokens(20, 2), {}, {}};
    compare(with, without, before, {{2, some_tokens(10, 3)}, {3, some_tokens(20, 4)}, {0, {9}}, {1, {8}}},
            {Code::kOk, Code::kNoRoom, Code::kOk, Code::kOk});
  }
}

TEST_P(StepStatus, ASessionWithoutASourceLeavesTheOthers) {
  Model model = load({});
  if (!model.has_encoder()) GTEST_SKIP() << "no encoder";
  std::vector<Session> sessions;
  sessions.push_back(session_of(model, 0));
  sessions.push_back(std::move(*model.new_session()));
  std::vector<Status> refused;
  const Rows rows = step(model, sessions, {{1, {4}}, {0, {5}}}, &refused);
  EXPECT_EQ(refused[0].code(), Code::kInvalidArgument);
  Session alone = session_of(model, 0);
  EXPECT_EQ(rows[1], copy_of(alone.step(Tokens{5}).value()));
}

// Slots come back as the window moves on; whoever gets none in the middle of its prompt has nothing of it afterwards.
TEST_P(StepStatus, WithAWindowToo) {
  LoadOptions options;
  options.window = 8;
  options.chunk = 8;
  const StepWidth width(4);
  options.slots = 60;
  Result<Model> tried = Model::load(path_.string(), options);
  if (!tried.is_ok()) GTEST_SKIP() << tried.status().message();
  Model& model = *tried;
  std::vector<Session> sessions;
  std::vector<Fed> fed;
  for (size_t i = 0; i < 4; ++i) {
    sessions.push_back(session_of(model, 0));
    fed.push_back({i, some_tokens(50 + static_cast<int64_t>(i), static_cast<int64_t>(i))});
  }
  std::vector<Status> refused;
  const Rows rows = step(model, sessions, fed, &refused);
  int good = 0;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sessions[i].length(), refused[i].is_ok() ? std::ssize(fed[i].tokens) : 0);
    EXPECT_EQ(refused[i].code(), refused[i].is_ok() ? Code::kOk : Code::kNoRoom) << refused[i].message();
    good += refused[i].is_ok();
  }
  EXPECT_TRUE(good > 0 && good < 4) << good;
  sessions.clear();
  for (size_t i = 0; i < 4; ++i) {
    if (!refused[i].is_ok()) continue;
    Session alone = session_of(model, 0);
    EXPECT_EQ(rows[i], copy_of(alone.step(fed[i].tokens).value())) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, StepStatus, ::testing::Values("tiny/llama", "tiny/gpt2", "tiny/t5", "tiny/bart"),
                         test_name);

}  // namespace
}  // namespace situ::test
