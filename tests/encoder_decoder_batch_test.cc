// Encoder-decoders in steps of several sequences: sources of different lengths, decoders of different pasts, and the
// same logits as alone, to the bit. Forks read the source of what they were forked from.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "pipelines/llm.h"
#include "situ/model.h"

namespace situ {
namespace {

std::filesystem::path shared_models() {
  const char* given = std::getenv("SITU_SHARED");
  return std::filesystem::path(given ? given : SITU_SHARED_DEFAULT) / "models";
}

class EncoderDecoder : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = shared_models() / GetParam();
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << path_ << " is not there";
  }
  std::filesystem::path path_;
};

std::vector<int64_t> source(int64_t length, int64_t seed) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(3 + (i * 37 + seed * 11) % 300);
  return ids;
}

struct Run {
  Session session;
  std::vector<int64_t> tokens;  // one a step
};

Prompt prompt_of(int64_t length, int64_t seed) { return source(length, seed); }

TEST_P(EncoderDecoder, SequencesTogetherAreAsAlone) {
  LoadOptions options;
  Result<Model> model = Model::load(path_.string(), options);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  const int64_t lengths[] = {1, 7, 40, 13};
  constexpr size_t kSteps = 6;
  std::vector<std::vector<std::vector<float>>> alone;  // by sequence and step
  for (int64_t i = 0; i < 4; ++i) {
    Result<Session> s = model->new_session(prompt_of(lengths[i], i));
    ASSERT_TRUE(s.is_ok()) << s.status().message();
    alone.emplace_back();
    for (size_t step = 0; step < kSteps; ++step) {
      const std::vector<int64_t> token{static_cast<int64_t>((step * 29 + static_cast<size_t>(i) * 7) % 300)};
      Result<std::span<const float>> logits = s->step(token);
      ASSERT_TRUE(logits.is_ok()) << logits.status().message();
      alone.back().emplace_back(logits->begin(), logits->end());
    }
  }
  // Each joins a step after the one before.
  std::vector<Session> sessions;
  std::vector<size_t> done;
  model->reset_ledger();
  while (done.empty() || done.back() < kSteps) {
    if (sessions.size() < 4) {
      const int64_t i = static_cast<int64_t>(sessions.size());
      Result<Session> s = model->new_session(prompt_of(lengths[i], i));
      ASSERT_TRUE(s.is_ok()) << s.status().message();
      sessions.push_back(std::move(*s));
      done.push_back(0);
    }
    std::vector<std::vector<int64_t>> tokens;
    std::vector<size_t> who;
    for (size_t i = 0; i < sessions.size(); ++i) {
      if (done[i] == kSteps) continue;
      tokens.push_back({static_cast<int64_t>((done[i] * 29 + i * 7) % 300)});
      who.push_back(i);
    }
    std::vector<Model::Feed> feeds;
    for (size_t k = 0; k < who.size(); ++k) feeds.push_back({&sessions[who[k]], tokens[k]});
    const auto rows = model->step(feeds);
    ASSERT_TRUE(rows.is_ok()) << rows.status().message();
    for (size_t k = 0; k < who.size(); ++k) {
      const std::vector<float>& want = alone[who[k]][done[who[k]]++];
      const std::span<const float> row = (*rows)[k].value();
      ASSERT_EQ(row.size(), want.size());
      EXPECT_EQ(std::memcmp(row.data(), want.data(), want.size() * sizeof(float)), 0)
          << "sequence " << who[k] << ", token " << done[who[k]];
    }
  }
  EXPECT_EQ(model->ledger().copied, 0);
}

TEST_P(EncoderDecoder, AListOfPromptsGivesWhatEachGivesAlone) {
  LoadOptions options;
  Result<Model> model = Model::load(path_.string(), options);
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  std::vector<std::vector<int64_t>> prompts;
  for (const int64_t length : {5, 40, 1, 17, 9}) prompts.push_back(source(length, length));
  GenerateOptions generate;
  generate.max_new_tokens = 12;
  generate.ignore_eos = true;
  generate.beams = 1;
  const auto together = model->generate(prompts, generate, nullptr);
  ASSERT_TRUE(together.is_ok()) << together.status().message();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto one = model->generate(prompts[i], generate, nullptr);
    ASSERT_TRUE(one.is_ok()) << one.status().message();
    EXPECT_EQ((*together)[i].output_ids, one->output_ids) << i;
    EXPECT_EQ((*together)[i].bytes_copied_per_token, 0);
  }
}

TEST_P(EncoderDecoder, AForkReadsTheSameSource) {
  Result<Model> model = Model::load(path_.string(), {});
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  Result<Session> s = model->new_session(prompt_of(9, 2));
  ASSERT_TRUE(s.is_ok()) << s.status().message();
  ASSERT_TRUE(s->step(std::vector<int64_t>{2}).is_ok());
  std::optional<Session> fork;
  {
    Result<Session> made = s->fork();
    ASSERT_TRUE(made.is_ok());
    fork.emplace(std::move(*made));
  }
  Result<std::span<const float>> of_first = s->step(std::vector<int64_t>{5});
  ASSERT_TRUE(of_first.is_ok());
  const std::vector<float> want(of_first->begin(), of_first->end());
  *s = std::move(*model->new_session(prompt_of(9, 3)));  // the first goes, its source stays
  Result<std::span<const float>> of_fork = fork->step(std::vector<int64_t>{5});
  ASSERT_TRUE(of_fork.is_ok());
  EXPECT_EQ(std::memcmp(of_fork->data(), want.data(), want.size() * sizeof(float)), 0);
}

TEST_P(EncoderDecoder, BadInputIsRefused) {
  Result<Model> model = Model::load(path_.string(), {});
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  const GenerateOptions options;
  EXPECT_NE(model->generate(Prompt{}, options, nullptr).status().message().find("an empty source"), std::string::npos);
  EXPECT_NE(model->generate(std::vector<int64_t>{1, 100000}, options, nullptr).status().message().find("vocabulary"),
            std::string::npos);
  Prompt begun = std::vector<int64_t>{1, 2};
  begun.decoder_ids = {100000};
  EXPECT_NE(model->generate(begun, options, nullptr).status().message().find("vocabulary"), std::string::npos);
  const float x = 0;
  Prompt unknown = std::vector<int64_t>{1, 2};
  unknown.parts.push_back(Part::of_array(Part::Kind::kArray, "pixels", Part::Type::kFloat32, {1}, Part::borrowed(&x)));
  EXPECT_NE(model->generate(unknown, options, nullptr).status().message().find("no input 'pixels'"), std::string::npos);
  Result<Session> without = model->new_session();
  ASSERT_TRUE(without.is_ok());
  EXPECT_NE(without->step(std::vector<int64_t>{1}).status().message().find("no source"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Folders, EncoderDecoder,
                         testing::Values("tiny/t5", "tiny/bart", "tiny/marian", "styles/condflag-handcross",
                                         "styles/ortO3-t5"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '/' || c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace situ
