// Requests in company: whoever else is there, however prompts are cut, whoever was preempted and whatever is kept of
// earlier prompts, each has what it has alone, to the bit.
#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/npy.h"
#include "base/sweep_for_tests.h"
#include "pipelines/encoder_inputs.h"
#include "runtime/compile.h"
#include "text/test_models.h"
#include "tiny_sessions.h"

namespace situ::test {
namespace {

using Requests = TinyModel;
using OneModel = TinyModel;

// What has to be the same.
std::string told(const Generation& g) {
  std::string all = std::string(finish_reason_name(g.finish_reason)) + "|" + g.text + "|" + g.error + "|";
  const auto add = [&](double x) { all.append(reinterpret_cast<const char*>(&x), sizeof(x)); };
  for (const int64_t id : g.output_ids) all += std::to_string(id) + ",";
  for (const Generation::Logprobs& l : g.logprobs) {
    add(l.logprob);
    for (const TokenLogprob& t : l.top) add(t.logprob), all += std::to_string(t.id);
  }
  for (const Generation::Answer& a : g.answers) {
    add(a.score), all += finish_reason_name(a.finish_reason);
    for (const int64_t id : a.output_ids) all += std::to_string(id) + ";";
  }
  for (const Generation::PromptLogprob& p : g.prompt_logprobs) add(p.logprob), all += std::to_string(p.rank);
  if (g.perplexity) add(*g.perplexity);
  return all;
}

// Whether somebody ended it, or one of its answers: of two choices one may have been whole before.
bool ended_early(const Generation& g) {
  const auto early = [](FinishReason r) { return r == FinishReason::kCancelled || r == FinishReason::kDeadline; };
  return early(g.finish_reason) || std::ranges::any_of(g.answers, early, &Generation::Answer::finish_reason);
}

// Of every kind that the model can do, as `number` says. `pictures`: prompts with arrays for encoders.
Request request_of(const Model& model, int64_t number, std::span<const Prompt> pictures = {}) {
  std::mt19937_64 random(static_cast<uint64_t>(number));
  const auto draw = [&](int64_t from, int64_t to) {
    return from + static_cast<int64_t>(random() % static_cast<uint64_t>(to - from + 1));
  };
  Request r;
  const int64_t length = draw(1, 40);
  const Tokens shared = some_tokens(length, number % 7), own = some_tokens(draw(1, 9), 100 + number);
  std::vector<int64_t> ids = shared;
  ids.insert(ids.end(), own.begin(), own.end());
  r.prompt = Prompt(std::move(ids));
  const bool picture = !pictures.empty() && number % 3 != 1, texts = model.tokenizer().is_there(),
             plain = !model.has_encoder() && !picture;
  if (picture) r.prompt = pictures[static_cast<size_t>(number) % pictures.size()];
  GenerateOptions& o = r.options;
  o.max_new_tokens = draw(1, 24);
  o.ignore_eos = number % 3 != 0;
  switch (number % 13) {
    case 1:
      o.temperature = 1.3;
      o.seed = static_cast<uint64_t>(number);
      break;
    case 2:
      o.beams = 3;
      o.num_return = 2;
      break;
    case 3:
      if (plain && model.facts().one_sequence.empty()) o.prompt_lookup = 4;
      break;
    case 4:
      o.logprobs = 3;
      break;
    case 5:
      o.repetition_penalty = 1.3;
      o.no_repeat_ngram = 3;
      break;
    case 6:
      o.choices = 3;
      o.temperature = 0.9;
      o.top_k = 20;
      o.seed = static_cast<uint64_t>(number);
      break;
    case 7:
      o.stop_ids = {5, 17, 33, 60};
      break;
    case 8:
      o.report_perplexity = true;
      break;
    case 9:
      if (texts) o.regex = "(yes|no|[0-9]{1,9})+";
      o.logit_bias = {{7, 3.0f}};
      break;
    case 10:
      if (texts) o.json_schema = R"({"type": "array", "items": {"enum": ["a", "b", 12]}})";
      o.temperature = 1;
      o.choices = 2;
      o.seed = static_cast<uint64_t>(number);
      break;
    case 11:
      if (texts) o.stop = {"k", "ab", "\n"};
      o.presence_penalty = o.frequency_penalty = 0.5;
      break;
    case 12:
      if (plain) o.prompt_logprobs = 2;
      break;
    default:
      break;
  }
  r.interactive = number % 4 == 0;
  r.priority = static_cast<int>(number % 3);
  r.client = std::to_string(number % 5);
  return r;
}

// The same with a tokenizer, and with what the folder has for encoders of pictures.
class Mixed : public TinyModel {
 protected:
  void SetUp() override {
    TinyModel::SetUp();
    if (IsSkipped()) return;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      std::filesystem::create_symlink(entry.path(), folder_.path() / entry.path().filename());
    folder_.write("tokenizer.json", testing::byte_level_tokenizer().dump());
    std::ifstream file(path_ / "expected.json");
    const nlohmann::json expected = nlohmann::json::parse(file);
    for (const auto& c : expected.value("cases", nlohmann::json::array())) {
      Prompt prompt(c.value("input_ids", Tokens()));
      const nlohmann::json arrays = c.value("encoder_inputs", nlohmann::json::object());
      for (const auto& [name, array] : arrays.items()) {
        const Result<Tensor> t = read_npy(path_ / array["file"].get<std::string>());
        ASSERT_TRUE(t.is_ok()) << t.status().message();
        prompt.parts.push_back(array_part(name, *t));
      }
      if (prompt.parts.size() > 1) pictures_.push_back(std::move(prompt));
    }
    path_ = folder_.path();
  }
  testing::TempFolder folder_;
  std::vector<Prompt> pictures_;
};

TEST_P(Mixed, OfAllKindsHaveWhatEachHasAlone) {
  const int64_t kCount = sweeping() || std::string(GetParam()) == "tiny/llama" ? 200 : 60;
  LoadOptions roomy, tight;
  roomy.context_length = tight.context_length = 112;
  tight.slots = 240;
  tight.chunk = 16;
  Model alone = load(roomy);
  std::vector<std::string> want;
  for (int64_t i = 0; i < kCount; ++i) {
    Request r = request_of(alone, i, pictures_);
    r.options.prefix_cache = PrefixReuse::kOff;
    const Result<Generation> g = alone.generate(r.prompt, r.options, nullptr);
    ASSERT_TRUE(g.is_ok()) << i << ": " << g.status().message();
    want.push_back(told(*g));
  }
  for (const bool small : {false, true}) {
    Model model = load(small ? tight : roomy);
    if (small) impl_of(model).in_place->suspend_encoders_always();
    const bool bounded = model.facts().state_bytes_per_token > 0;
    const int64_t free = free_slots(model);
    std::vector<Ticket> tickets;
    std::vector<int64_t> cancelled;
    std::mt19937_64 random(7);
    for (int64_t i = 0; i < kCount; ++i) {
      Request r = request_of(model, i, pictures_);
      if (i % 17 == 5) r.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 20);
      Result<Ticket> ticket = model.submit(std::move(r));
      ASSERT_TRUE(ticket.is_ok()) << ticket.status().message();
      tickets.push_back(std::move(*ticket));
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      if (i % 11 == 3) tickets[static_cast<size_t>(i) - random() % 3].cancel();
    }
    int64_t equal = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const Result<Generation> g = tickets[static_cast<size_t>(i)].result();
      ASSERT_TRUE(g.is_ok()) << i << ": " << g.status().message();
      EXPECT_EQ(g->bytes_copied_per_token, 0) << i;
      if (ended_early(*g)) continue;
      EXPECT_EQ(told(*g), want[static_cast<size_t>(i)]) << "request " << i << (small ? ", tight" : "");
      ++equal;
    }
    EXPECT_GT(equal, kCount / 2);
    const Stats stats = model.stats();
    EXPECT_EQ(stats.running + stats.waiting, 0);
    EXPECT_EQ(stats.bytes_copied, 0);
    if (small && bounded && !model.has_encoder() && kCount > 100) {
      EXPECT_GT(stats.preemptions, 0);
    }
    tickets.clear();
    EXPECT_EQ(free_slots(model) + stats.slots_kept, free);
  }
}

INSTANTIATE_TEST_SUITE_P(Folders, Mixed, ::testing::ValuesIn([] {
                           std::vector<const char*> all{"tiny/llama", "genai/lfm2-int4", "vlm/llava", "tiny/t5"};
                           if (sweeping())
                             all.insert(all.end(), {"genai/llama-int4", "genai/qwen3_5-int4", "vlm/smolvlm",
                                                    "vlm/qwen2_vl", "tiny/gpt2", "tiny/bart"});
                           return all;
                         }()),
                         test_name);

TEST_P(Requests, FromManyThreads) {
  LoadOptions options;
  options.context_length = 96;
  Model model = load(options);
  constexpr int64_t kThreads = 32;
  std::vector<std::string> want(kThreads), got(kThreads);
  const auto ask = [&](int64_t i, std::string* to) {
    Request r = request_of(model, i);
    const Result<Generation> g = i % 2 == 0 ? model.generate(r.prompt, r.options, nullptr) : [&] {
      Result<Ticket> ticket = model.submit(r);
      while (!ticket->ended()) ticket->next(std::chrono::milliseconds(1));
      return ticket->result();
    }();
    *to = g.is_ok() ? told(*g) : g.status().message();
  };
  for (int64_t i = 0; i < kThreads; ++i) ask(i, &want[static_cast<size_t>(i)]);
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { ask(i, &got[static_cast<size_t>(i)]); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(got, want);
}

// Sessions step between the requests of others, and have their own logits.
TEST_P(Requests, SessionsBesideThem) {
  LoadOptions options;
  options.context_length = 96;
  Model model = load(options);
  const Tokens tokens = some_tokens(30, 2);
  std::vector<std::vector<float>> want;
  const auto walk = [&] {
    std::vector<std::vector<float>> rows;
    Session s = session_of(model, 1);
    for (const int64_t id : tokens) rows.push_back(copy_of(s.step({&id, 1}).value()));
    return rows;
  };
  want = walk();
  std::vector<Ticket> others;
  for (int64_t i = 0; i < 30; ++i) others.push_back(model.submit(request_of(model, i)).value());
  EXPECT_EQ(walk(), want);
}

TEST_P(Requests, AFullQueueIsBusyAndListsWait) {
  Model model = load({});
  impl_of(model).queue_limit = 3;
  impl_of(model).running_limit = 2;
  const Request r = request_of(model, 0);
  Request slow = r;
  slow.options.max_new_tokens = 60;
  slow.options.ignore_eos = true;
  std::vector<Ticket> tickets;
  Status busy;
  for (int i = 0; i < 500 && busy.is_ok(); ++i) {
    Result<Ticket> ticket = model.submit(slow);
    if (ticket.is_ok())
      tickets.push_back(std::move(*ticket));
    else
      busy = ticket.status();
  }
  EXPECT_EQ(busy.code(), Code::kBusy) << busy.message();
  const std::vector<Prompt> prompts(40, r.prompt);
  EXPECT_EQ(model.generate(prompts, r.options, nullptr).value().size(), 40u);
}

// Waits for all of them; false: so many steps were not enough.
bool all_end(const Model& model, std::span<Ticket> tickets, int64_t steps) {
  const int64_t before = model.stats().steps;
  for (Ticket& ticket : tickets)
    while (!ticket.wait(std::chrono::milliseconds(1)))
      if (model.stats().steps - before > steps) return false;
  return true;
}

// Prompts and answers that do not fit the state together give way, and come to an end, with what they have alone.
TEST_P(OneModel, WhoeverRunsLongestComesToAnEnd) {
  LoadOptions options;
  options.context_length = 256;
  options.slots = 300;
  options.threads = 1;
  Model model = load(options);
  std::vector<Request> requests;
  std::vector<std::string> alone;
  for (const auto& [prompt, answer] : {std::pair<int64_t, int64_t>{50, 60}, {145, 60}, {225, 3}, {97, 60}}) {
    Request& r = requests.emplace_back();
    r.prompt = Prompt(some_tokens(prompt, prompt));
    r.options.max_new_tokens = answer;
    r.options.ignore_eos = true;
    r.options.prefix_cache = PrefixReuse::kOff;
  }
  requests[0].options.choices = 3;
  requests[0].options.temperature = 1;
  requests[0].options.seed = 5;
  for (const Request& r : requests) alone.push_back(told(model.generate(r.prompt, r.options, nullptr).value()));
  for (int round = 0; round < 24; ++round) {
    std::vector<Ticket> tickets;
    for (size_t i = 0; i < requests.size(); ++i)
      tickets.push_back(model.submit(requests[(i + static_cast<size_t>(round)) % requests.size()]).value());
    ASSERT_TRUE(all_end(model, tickets, 5000)) << "round " << round;
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(told(tickets[i].result().value()), alone[(i + static_cast<size_t>(round)) % requests.size()]) << round;
  }
}

// Who looks at a model does not wait for what its thread does.
TEST_P(OneModel, StatisticsWaitForNothing) {
  Model model = load({});
  std::atomic<bool> seen{false};
  std::thread looks;
  impl_of(model).between_steps([&] {
    looks = std::thread([&] {
      static_cast<void>(model.stats());
      seen = true;
    });
    for (int i = 0; i < 10000 && !seen; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(seen);
    return true;
  });
  looks.join();
}

// What was computed of a prompt is kept though its answer ended with its first token; others do not see it.
TEST_P(OneModel, PromptsOfOneTokenAnswersAreKeptForTheirSalt) {
  LoadOptions options;
  options.slots = 1024;
  Model model = load(options);
  Request r;
  r.prompt = Prompt(some_tokens(60, 1));
  r.options.max_new_tokens = 1;
  r.salt = "one";
  EXPECT_EQ(model.submit(r).value().result().value().cached_tokens, 0);
  EXPECT_EQ(model.submit(r).value().result().value().cached_tokens, 59);
  r.salt = "other";
  EXPECT_EQ(model.submit(r).value().result().value().cached_tokens, 0);
}

// Choices that do not fit the state together are fed one after the other: each has what it has alone.
TEST_P(OneModel, ChoicesBeyondTheStateAreAsAlone) {
  LoadOptions options;
  options.context_length = 96;
  options.slots = 64;
  options.threads = 1;
  Model model = load(options);
  Request many, one;
  many.prompt = one.prompt = Prompt(some_tokens(17, 1));
  many.options.max_new_tokens = one.options.max_new_tokens = 40;
  many.options.ignore_eos = one.options.ignore_eos = true;
  many.options.choices = 8;
  many.options.temperature = 1.5;
  many.options.seed = 3;
  one.priority = 1;
  const Result<Generation> alone = model.generate(many.prompt, many.options, nullptr);  // the prompt is kept
  ASSERT_TRUE(alone.is_ok()) << alone.status().message();
  ASSERT_EQ(alone->answers.size(), 8u);
  for (size_t k = 0; k < alone->answers.size(); ++k) {
    GenerateOptions single = many.options;
    single.choices = 1;
    single.seed = 3 + k;
    EXPECT_EQ(alone->answers[k].output_ids, model.generate(many.prompt, single, nullptr).value().output_ids) << k;
    EXPECT_EQ(alone->answers[k].output_ids.size(), 40u);
  }
  std::vector<Ticket> tickets;
  impl_of(model).between_steps([&] {  // both begin with the same step
    for (const Request& r : {one, many}) tickets.push_back(model.submit(r).value());
    return true;
  });
  const Result<Generation> first = tickets[0].result(), second = tickets[1].result();
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  EXPECT_EQ(first->output_ids.size(), 40u);
  ASSERT_TRUE(second.is_ok()) << second.status().message();
  EXPECT_EQ(second->error, "");
  EXPECT_GE(model.stats().preemptions, 1);
  EXPECT_EQ(told(*second), told(*alone));
}

// Beams that give way begin again with what they have in common, in no more slots than they had.
TEST_P(OneModel, BeamsThatGiveWayAreAsAlone) {
  LoadOptions options;
  options.context_length = 160;
  options.slots = 210;
  options.threads = 1;
  Model model = load(options);
  for (int seed = 0; seed < 4; ++seed) {
    Request beams, other;
    beams.prompt = Prompt(some_tokens(20, seed));
    const bool groups = seed % 2 == 1;  // have less in common
    beams.options.max_new_tokens = groups ? 80 : 110;
    beams.options.ignore_eos = true;
    beams.options.beams = 4;
    beams.options.num_return = 4;
    if (groups) beams.options.beam_groups = 2, beams.options.diversity_penalty = 1;
    other.prompt = Prompt(some_tokens(10, seed));
    other.options.max_new_tokens = 120;
    other.options.ignore_eos = true;
    other.priority = 1;
    beams.options.prefix_cache = other.options.prefix_cache = PrefixReuse::kOff;
    const Result<Generation> alone = model.generate(beams.prompt, beams.options, nullptr);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    EXPECT_EQ(std::ssize(alone->output_ids), beams.options.max_new_tokens);
    const int64_t before = model.stats().preemptions;
    std::vector<Ticket> tickets;
    impl_of(model).between_steps([&] {  // both begin with the same step
      for (const Request& r : {other, beams}) tickets.push_back(model.submit(r).value());
      return true;
    });
    EXPECT_EQ(tickets[0].result().value().output_ids.size(), 120u);
    const Result<Generation> found = tickets[1].result();
    ASSERT_TRUE(found.is_ok()) << found.status().message();
    EXPECT_EQ(told(*found), told(*alone)) << seed;
    EXPECT_GE(model.stats().preemptions, before + 1);
  }
  EXPECT_EQ(model.ledger().copied, 0);
}

// An answer waits for no whole step of another model's prompts, be it a stream or not, and before its first token.
TEST_P(OneModel, PromptsLeaveTimeToAnswersOfAnotherModel) {
  LoadOptions options;
  options.context_length = 256;
  options.threads = 1;
  Request long_prompt, short_one;
  long_prompt.prompt = Prompt(some_tokens(200, 1));
  long_prompt.options.max_new_tokens = 1;
  short_one.prompt = Prompt(some_tokens(3, 1));
  short_one.options.max_new_tokens = 4;
  long_prompt.options.ignore_eos = short_one.options.ignore_eos = true;
  long_prompt.interactive = short_one.interactive = false;
  const auto steps_of_prompt = [&](bool in_company) {
    Model model = load(options), other = load(options);  // nobody knows yet what a row takes: few of them are fed first
    std::vector<Ticket> tickets;
    impl_of(model).between_steps([&] {
      tickets.push_back(model.submit(long_prompt).value());
      if (in_company) tickets.push_back(other.submit(short_one).value());
      return true;
    });
    for (Ticket& ticket : tickets) EXPECT_TRUE(ticket.result().is_ok());
    return model.stats().steps;
  };
  EXPECT_EQ(steps_of_prompt(false), 1);
  EXPECT_GE(steps_of_prompt(true), 2);
}

// Programs of encoders take what they need from the end of the state: it may have become too short for a prompt that
// gave way before it was read. That has no answer, not an empty one.
TEST_P(OneModel, APromptThatFitsNoMoreIsRefused) {
  LoadOptions options;
  options.context_length = options.slots = 64;
  options.chunk = options.threads = 1;
  Model model = load(options);
  Served& served = impl_of(model);
  Request first, second;
  first.prompt = Prompt(some_tokens(3, 1));
  first.options.max_new_tokens = 60;
  first.options.ignore_eos = true;
  first.priority = 1;
  second.prompt = Prompt(some_tokens(40, 2));
  Space& slots = const_cast<StatePool&>(served.in_place->states()).space(SpaceKind::kAppend);
  std::vector<Ticket> tickets;
  impl_of(model).between_steps([&] {  // both begin with the same step
    for (const Request& r : {first, second}) tickets.push_back(model.submit(r).value());
    tickets[0].on_ready([&] {  // by the scheduler's thread, after a step, and at its end
      while (served.waiting == 1 && served.running <= 1 && slots.capacity() >= 40 && slots.cut(1)) {
      }
    });
    return true;
  });
  EXPECT_TRUE(tickets[0].result().is_ok());
  const Result<Generation> refused = tickets[1].result();
  EXPECT_EQ(model.stats().preemptions, 1);
  EXPECT_EQ(refused.status().code(), Code::kNoRoom);
  EXPECT_NE(refused.status().message().find("a prompt of 40 tokens does not fit the state of 39 slots"),
            std::string::npos)
      << refused.status().message();
}

// Where attention is not recognised choices are fed one after the other; each may fill the state.
TEST_P(OneModel, ChoicesThatShareNothingAreAsAlone) {
  setenv("SITU_DISABLE_PASSES", "recognise_attention", 1);
  LoadOptions options;
  options.context_length = 96;
  options.threads = 1;
  for (const int64_t slots : {0, 64}) {
    options.slots = slots;
    Model model = load(options);
    ASSERT_FALSE(impl_of(model).in_place->can_fork());
    Request all;
    all.prompt = Prompt(some_tokens(17, 1));
    all.options.max_new_tokens = 70;
    all.options.ignore_eos = true;
    all.options.temperature = 1;
    all.options.logprobs = 1;
    all.options.choices = 3;
    all.options.seed = 5;
    std::vector<Ticket> tickets;
    for (int i = 0; i < 2; ++i) tickets.push_back(model.submit(all).value());
    std::vector<size_t> last(3);  // the number of the last event of each choice, of the first ticket
    for (size_t i = 0; const std::optional<Event> event = tickets[0].next(); ++i) last[event->choice] = i;
    EXPECT_TRUE(last[0] < last[1] && last[1] < last[2]);
    for (Ticket& ticket : tickets) {
      const Result<Generation> g = ticket.result();
      ASSERT_TRUE(g.is_ok()) << g.status().message();
      ASSERT_EQ(g->answers.size(), 3u);
      for (size_t k = 0; k < 3; ++k) {
        Request one = all;
        one.options.choices = 1;
        one.options.seed = 5 + k;
        const Result<Generation> alone = model.generate(one.prompt, one.options, nullptr);
        ASSERT_TRUE(alone.is_ok()) << alone.status().message();
        EXPECT_EQ(g->answers[k].output_ids, alone->output_ids) << k;
        EXPECT_EQ(g->answers[k].finish_reason, alone->finish_reason);
        for (size_t i = 0; i < alone->logprobs.size(); ++i)
          EXPECT_EQ(g->answers[k].logprobs[i].logprob, alone->logprobs[i].logprob);
      }
    }
    EXPECT_EQ(model.stats().bytes_copied, 0);
  }
  unsetenv("SITU_DISABLE_PASSES");
}

INSTANTIATE_TEST_SUITE_P(Folders, OneModel, ::testing::Values("tiny/llama"), test_name);

// A process that lives long: what it takes does not grow, and no slot is lost. SITU_LONG_LIFE=N: so many requests.
// SITU_LONG_LIFE_MODEL=FOLDER: of this model, whose texts are shorter.
TEST(LongLife, ManyRequestsOfRandomLength) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps what is freed";
#endif
  const char *shared = std::getenv("SITU_SHARED"), *given = std::getenv("SITU_LONG_LIFE_MODEL");
  const std::filesystem::path tiny =
      std::filesystem::path(shared ? shared : SITU_SHARED_DEFAULT) / "models" / "tiny/llama";
  const std::filesystem::path path = given ? given : tiny;
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const char* asked = std::getenv("SITU_LONG_LIFE");
  const int64_t count = asked ? std::atoll(asked) : 20000, early = count / 20;
  const uint64_t longest_prompt = given ? 24 : 100, longest_answer = given ? 8 : 20;
  LoadOptions options;
  options.pack_cache = false;
  options.threads = 1;
  Model model = std::move(Model::load(path.string(), options)).value();
  const int64_t free = free_slots(model);
  const auto resident = [] {
    std::ifstream status("/proc/self/statm");
    int64_t all = 0, pages = 0;
    status >> all >> pages;
    return pages * 4096;
  };
  std::deque<Ticket> running;
  std::mt19937_64 random(3);
  int64_t at_early = 0;
  for (int64_t i = 0; i < count; ++i) {
    Request r;
    const auto length = 1 + static_cast<int64_t>(random() % longest_prompt);
    r.prompt = Prompt(some_tokens(length, static_cast<int64_t>(random() % 1000)));
    r.options.max_new_tokens = 1 + static_cast<int64_t>(random() % longest_answer);
    r.options.ignore_eos = true;
    if (i % 50 == 7) r.options.temperature = 1;
    running.push_back(model.submit(std::move(r)).value());
    if (running.size() < 32) continue;
    if (i % 97 == 0) running.front().cancel();
    ASSERT_TRUE(running.front().result().is_ok());
    running.pop_front();
    if (i == early) at_early = resident();
  }
  running.clear();
  while (model.stats().running > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const int64_t at_end = resident();
  if (given) std::printf("resident after %ld requests: %ld, after %ld: %ld\n", early, at_early, count, at_end);
  EXPECT_LE(static_cast<double>(at_end), 1.05 * static_cast<double>(at_early))
      << at_early << " bytes after " << early << " requests";
  EXPECT_EQ(free_slots(model) + model.stats().slots_kept, free);
}

INSTANTIATE_TEST_SUITE_P(Folders, Requests,
                         ::testing::Values("tiny/llama", "genai/llama-int4", "tiny/t5", "tiny/gpt2", "tiny/bart"),
                         test_name);

}  // namespace
}  // namespace situ::test
