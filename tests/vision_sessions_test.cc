// Sessions of models that see pictures: together, forked and rewound, against each alone and against recorded answers.
// Models: ../shared/models/vlm; skipped where they are not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/npy.h"
#include "pipelines/encoder_inputs.h"
#include "pipelines/llm.h"
#include "situ/model.h"

namespace situ {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string name;
  Prompt prompt;
  std::vector<int64_t> answer;
};

bool has_arrays(const Prompt& prompt) { return prompt.parts.size() > 1; }

class VisionSessions : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("SITU_SHARED");
    folder_ = fs::path(shared ? shared : SITU_SHARED_DEFAULT) / "models" / "vlm" / GetParam();
    if (!fs::exists(folder_ / "expected.json")) GTEST_SKIP() << folder_ << " is not there";
    std::ifstream file(folder_ / "expected.json");
    const nlohmann::json expected = nlohmann::json::parse(file);
    for (const auto& c : expected["cases"]) {
      Case& to = cases_.emplace_back();
      to.name = c["name"];
      to.prompt = Prompt(c["input_ids"].get<std::vector<int64_t>>());
      to.answer = c["greedy_ids"].get<std::vector<int64_t>>();
      const nlohmann::json arrays = c.value("encoder_inputs", nlohmann::json::object());
      for (const auto& [name, array] : arrays.items()) {
        const Result<Tensor> t = read_npy(folder_ / array["file"].get<std::string>());
        ASSERT_TRUE(t.is_ok()) << t.status().message();
        to.prompt.parts.push_back(array_part(name, *t));
      }
    }
    LoadOptions options;
    options.pack_cache = false;
    options.chunk = 7;
    Result<Model> model = Model::load(folder_.string(), options);
    ASSERT_TRUE(model.is_ok()) << model.status().message();
    model_.emplace(std::move(*model));
  }

  Session session(const Case& c) {
    Result<Session> s = !has_arrays(c.prompt) ? model_->new_session() : model_->new_session(c.prompt);
    EXPECT_TRUE(s.is_ok()) << s.status().message();
    return std::move(*s);
  }
  static std::vector<float> step(Session& s, std::span<const int64_t> tokens) {
    const Result<std::span<const float>> logits = s.step(tokens);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    return logits.is_ok() ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }
  static int64_t best(std::span<const float> logits) {
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  }
  // Greedy ids, `count` of them, from these logits on.
  static std::vector<int64_t> go_on(Session& s, std::vector<float> logits, size_t count) {
    std::vector<int64_t> ids{best(logits)};
    while (ids.size() < count) ids.push_back(best(step(s, {&ids.back(), 1})));
    return ids;
  }

  fs::path folder_;
  std::vector<Case> cases_;
  std::optional<Model> model_;
};

TEST_P(VisionSessions, TogetherAsAlone) {
  std::vector<std::vector<float>> alone;
  for (const Case& c : cases_) {
    Session s = session(c);
    alone.push_back(step(s, c.prompt.ids()));
    EXPECT_EQ(go_on(s, alone.back(), c.answer.size()), c.answer) << c.name;
  }
  std::vector<Session> sessions;
  std::vector<Model::Feed> feeds;
  for (const Case& c : cases_) sessions.push_back(session(c));
  for (size_t i = 0; i < cases_.size(); ++i) feeds.push_back({&sessions[i], cases_[i].prompt.ids()});
  std::vector<std::vector<int64_t>> answers(cases_.size());
  for (size_t n = 0; n < cases_[0].answer.size(); ++n) {
    const auto logits = model_->step(feeds);
    ASSERT_TRUE(logits.is_ok()) << logits.status().message();
    for (size_t i = 0; i < cases_.size(); ++i) {
      ASSERT_TRUE((*logits)[i].is_ok()) << (*logits)[i].status().message();
      const std::span<const float> row = *(*logits)[i];
      const bool first = n == 0;
      EXPECT_TRUE(!first || std::equal(row.begin(), row.end(), alone[i].begin(), alone[i].end())) << cases_[i].name;
      answers[i].push_back(best(row));
    }
    for (size_t i = 0; i < cases_.size(); ++i) feeds[i].tokens = {&answers[i].back(), 1};
  }
  for (size_t i = 0; i < cases_.size(); ++i) EXPECT_EQ(answers[i], cases_[i].answer) << cases_[i].name;
  EXPECT_EQ(model_->ledger().copied, 0);
}

TEST_P(VisionSessions, ForksGoOn) {
  for (const Case& c : cases_) {
    Session s = session(c);
    const std::vector<float> logits = step(s, c.prompt.ids());
    Result<Session> fork = s.fork();
    ASSERT_TRUE(fork.is_ok());
    EXPECT_EQ(go_on(*fork, logits, 6), std::vector<int64_t>(c.answer.begin(), c.answer.begin() + 6)) << c.name;
    EXPECT_EQ(go_on(s, logits, c.answer.size()), c.answer) << c.name;
  }
}

// To every length of the prompt, into pictures too: the rest again, or other text in its place.
TEST_P(VisionSessions, RewoundAndFedAgain) {
  for (const Case& c : cases_) {
    const std::vector<int64_t>& ids = c.prompt.ids();
    Session s = session(c);
    const std::vector<float> logits = step(s, ids);
    for (size_t length = 1; length < ids.size(); length += 3) {
      ASSERT_TRUE(s.rewind(static_cast<int64_t>(length)).is_ok());
      EXPECT_EQ(step(s, std::span(ids).subspan(length)), logits) << c.name << " from " << length;
      go_on(s, logits, 3);
    }
    const size_t first = static_cast<size_t>(std::find(ids.begin(), ids.end(), 500) - ids.begin());
    if (first == ids.size()) continue;
    // Text in the place of the picture, and then the picture's tokens as text.
    const std::vector<int64_t> text{7, 500, 9, 11};
    Result<Session> plain = model_->new_session();
    ASSERT_TRUE(plain.is_ok());
    std::vector<int64_t> all(ids.begin(), ids.begin() + static_cast<long>(first));
    all.insert(all.end(), text.begin(), text.end());
    const std::vector<float> wanted = step(*plain, all);
    ASSERT_TRUE(s.rewind(static_cast<int64_t>(first)).is_ok());
    EXPECT_EQ(step(s, text), wanted) << c.name;
    EXPECT_EQ(go_on(s, wanted, 4), go_on(*plain, wanted, 4)) << c.name;
  }
}

// A prompt of which the picture is the last.
TEST_P(VisionSessions, EndsWithARow) {
  for (const Case& c : cases_) {
    std::vector<int64_t> ids = c.prompt.ids();
    while (has_arrays(c.prompt) && ids.back() != 500) ids.pop_back();
    if (!has_arrays(c.prompt)) continue;
    Case ends{c.name, c.prompt, {}};
    ends.prompt.parts[0].ids = ids;
    Session s = session(ends);
    const std::vector<float> logits = step(s, ids);
    ASSERT_TRUE(s.rewind(std::ssize(ids) - 1).is_ok());
    EXPECT_EQ(step(s, std::span(ids).last(1)), logits) << c.name;
    Session two[] = {session(ends), session(ends)};
    const Model::Feed feeds[] = {{&two[0], ids}, {&two[1], ids}};
    const auto both = model_->step(feeds);
    ASSERT_TRUE(both.is_ok());
    for (const auto& l : *both) {
      ASSERT_TRUE(l.is_ok()) << l.status().message();
      EXPECT_EQ(std::vector<float>(l->begin(), l->end()), logits) << c.name;
    }
  }
}

// Prompts with pictures and prompts of text: one step takes tokens of all of them, and each has what it has alone. So
// it is where encoders are suspended at every barrier, and others go on meanwhile.
TEST_P(VisionSessions, RequestsShareSteps) {
  LoadOptions load;
  load.pack_cache = false;
  Result<Model> loaded = Model::load(folder_.string(), load);
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
  Model& model = *loaded;
  std::vector<Request> requests;
  for (const Case& c : cases_)
    for (const bool text : {false, true}) {
      Request& r = requests.emplace_back();
      std::vector<int64_t> ids = c.prompt.ids();
      std::erase(ids, 500);
      r.prompt = text ? Prompt(ids) : c.prompt;
      r.options.max_new_tokens = 6;
      r.options.ignore_eos = true;
      r.options.logprobs = 2;
      r.options.prefix_cache = PrefixReuse::kOff;
      if (text) {
        r.options.temperature = 0.8;
        r.options.seed = 3;
      }
    }
  const auto told = [](const Generation& g) {
    std::vector<std::pair<int64_t, double>> all;
    for (size_t i = 0; i < g.output_ids.size(); ++i) all.emplace_back(g.output_ids[i], g.logprobs[i].logprob);
    return all;
  };
  std::vector<std::vector<std::pair<int64_t, double>>> want;
  int64_t apart = 0;  // steps of all, each alone
  for (const Request& r : requests) {
    const int64_t before = model.stats().steps;
    const Result<Generation> g = model.generate(r.prompt, r.options, nullptr);
    ASSERT_TRUE(g.is_ok()) << g.status().message();
    want.push_back(told(*g));
    apart += model.stats().steps - before;
  }
  for (const bool suspended : {false, true}) {
    if (suspended) impl_of(model).in_place->suspend_encoders_always();
    const int64_t before = model.stats().steps;
    std::vector<Ticket> tickets;
    impl_of(model).between_steps([&] {  // so that all are there before the next step
      for (const Request& r : requests) tickets.push_back(model.submit(r).value());
      return true;
    });
    for (size_t i = 0; i < tickets.size(); ++i) {
      const Result<Generation> g = tickets[i].result();
      ASSERT_TRUE(g.is_ok()) << g.status().message();
      EXPECT_EQ(told(*g), want[i]) << "request " << i;
    }
    EXPECT_LT(model.stats().steps - before, apart);
  }
  EXPECT_EQ(model.ledger().copied, 0);
}

// Of a budget an encoder that is built for a picture takes slots of the state, once they are free.
TEST_P(VisionSessions, EncodersAreCountedInTheMemory) {
  const auto with = [&](int64_t memory, int64_t slots) {
    LoadOptions load;
    load.pack_cache = false;
    load.context_length = 128;
    load.memory = memory;
    load.slots = slots;
    Result<Model> model = Model::load(folder_.string(), load);
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    return std::move(*model);
  };
  const Case& c = cases_[0];
  Model model = with(int64_t{64} << 20, 0);
  const Stats before = model.stats();
  GenerateOptions options;
  options.max_new_tokens = static_cast<int64_t>(c.answer.size());
  options.ignore_eos = true;
  for (const bool again : {false, true}) {
    const Result<Generation> g = model.generate(c.prompt, options, nullptr);
    ASSERT_TRUE(g.is_ok()) << g.status().message();
    EXPECT_EQ(g->output_ids, c.answer) << again;
  }
  const int64_t slot = model.facts().state_bytes_per_token, cut = before.slots - model.stats().slots;
  const int64_t arena = impl_of(model).in_place->media()->newest(0)->plan.arena_bytes;
  EXPECT_GE((cut + 1) * slot, arena);
  EXPECT_LE((cut - 1) * slot, arena + (int64_t{1} << 20));  // and what the host writes
  EXPECT_EQ(model.stats().slots_free + model.stats().slots_kept, model.stats().slots);
  // As many slots as there were are the caller's own then, and nothing is left.
  Model fixed = with(int64_t{64} << 20, before.slots);
  const Result<Generation> refused = fixed.generate(c.prompt, options, nullptr);
  EXPECT_EQ(refused.status().code(), Code::kNoRoom);
  EXPECT_NE(refused.status().message().find("one run needs"), std::string::npos) << refused.status().message();
  EXPECT_EQ(fixed.stats().slots, before.slots);
  EXPECT_TRUE(fixed.generate(Prompt(std::vector<int64_t>{5, 6, 7}), options, nullptr).is_ok());
  // More slots than fit are refused with both numbers.
  LoadOptions more;
  more.memory = int64_t{64} << 20;
  more.slots = before.slots + 100000;
  const Status why = Model::load(folder_.string(), more).status();
  EXPECT_EQ(why.code(), Code::kNoRoom);
  EXPECT_NE(why.message().find(std::to_string(more.slots)), std::string::npos) << why.message();
}

// Prompts of pictures in one call, each with its own, and twice: the second time what the first kept is there.
TEST_P(VisionSessions, BatchesAndPrefixes) {
  std::vector<Prompt> prompts;
  for (const Case& c : cases_) prompts.push_back(c.prompt);
  GenerateOptions options;
  options.ignore_eos = true;
  options.prefix_cache = PrefixReuse::kAll;
  options.max_new_tokens = static_cast<int64_t>(cases_[0].answer.size());
  for (const bool again : {false, true}) {
    const Result<std::vector<Generation>> answers = model_->generate(prompts, options, {});
    ASSERT_TRUE(answers.is_ok()) << answers.status().message();
    for (size_t i = 0; i < cases_.size(); ++i) {
      EXPECT_EQ((*answers)[i].output_ids, cases_[i].answer) << cases_[i].name << (again ? " again" : "");
      // The first time it has what those before it have left by then.
      const int64_t cached = (*answers)[i].cached_tokens, whole = std::ssize(prompts[i].ids()) - 1;
      EXPECT_TRUE(again ? cached == whole : cached < whole) << cases_[i].name << ": " << cached;
    }
  }
  // Another picture at the same tokens is another beginning.
  int others_seen = 0;
  for (const Case& c : cases_) {
    if (!has_arrays(c.prompt)) continue;
    std::vector<std::vector<float>> others;
    Prompt other = c.prompt;
    for (Part& a : other.parts) {
      if (a.kind != Part::Kind::kArray || a.type != Part::Type::kFloat32) continue;
      size_t count = 1;
      for (const int64_t d : a.shape) count *= static_cast<size_t>(d);
      std::vector<float>& values =
          others.emplace_back(static_cast<const float*>(a.data.get()), static_cast<const float*>(a.data.get()) + count);
      for (float& v : values) v = -v;
      a.data = Part::borrowed(values.data());
    }
    const Result<Generation> seen = model_->generate(other, options, {});
    ASSERT_TRUE(seen.is_ok()) << seen.status().message();
    const auto first = std::find(other.ids().begin(), other.ids().end(), 500) - other.ids().begin();
    // What an earlier other picture kept may be the beginning of this one.
    if (others_seen++ == 0) {
      EXPECT_EQ(seen->cached_tokens, first) << c.name;
    }
    EXPECT_GE(seen->cached_tokens, first) << c.name;
    options.prefix_cache = PrefixReuse::kOff;
    const Result<Generation> anew = model_->generate(other, options, {});
    options.prefix_cache = PrefixReuse::kAll;
    ASSERT_TRUE(anew.is_ok());
    EXPECT_EQ(seen->output_ids, anew->output_ids) << c.name;
    // From where the kept tokens end in the midst of a picture.
    const Result<Generation> back = model_->generate(c.prompt, options, {});
    ASSERT_TRUE(back.is_ok());
    EXPECT_EQ(back->output_ids, c.answer) << c.name;
  }
  EXPECT_EQ(model_->ledger().copied, 0);
}

// The programs beside those of text, by the verifier of plans: debug builds ask it at every load.
TEST_P(VisionSessions, PlansHold) {
  for (const Case& c : cases_) step(*std::make_unique<Session>(session(c)), c.prompt.ids());
  const InPlaceEngine& engine = *impl_of(*model_).in_place;
  const MediaWriter& media = *engine.media();
  const CutGraphs& cut = engine.cut();
  Status held = verify_plan(cut.decoder.graph, cut.decoder.binding, engine.behind_plan(), {2, 3, 1});
  EXPECT_TRUE(held.is_ok()) << held.message();
  held = verify_plan(cut.lookup.graph, cut.lookup.binding, media.lookup_plan(), {3});
  EXPECT_TRUE(held.is_ok()) << held.message();
  const auto entry = media.newest(0);
  ASSERT_TRUE(entry != nullptr);
  held = verify_plan(entry->compiled.graph, entry->compiled.binding, entry->plan, {1});
  EXPECT_TRUE(held.is_ok()) << held.message();
  // The buffer of the embeddings is where the caller says, for all that write and read it.
  EXPECT_EQ(media.lookup_plan().values[cut.lookup.binding.rows].region, RegionKind::kPort);
  EXPECT_EQ(engine.behind_plan().values[cut.decoder.embeddings].region, RegionKind::kPort);
  EXPECT_EQ(entry->plan.values[entry->compiled.binding.rows].region, RegionKind::kPort);
}

INSTANTIATE_TEST_SUITE_P(Folders, VisionSessions, testing::Values("llava", "smolvlm", "qwen2_vl"));

}  // namespace
}  // namespace situ
