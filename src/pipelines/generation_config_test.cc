// What the files of an encoder-decoder say of generation, and what happens where they are wrong.
#include "pipelines/generation_config.h"

#include <gtest/gtest.h>

#include "pipelines/sampling.h"
#include "text/test_models.h"

namespace situ {
namespace {

constexpr int64_t kVocabulary = 300;

// `generation`: "" for no generation_config.json.
ModelFolder configured(const std::string& config, const std::string& generation) {
  testing::TempFolder folder;
  folder.write("model.onnx", "");
  folder.write("config.json", config);
  if (!generation.empty()) folder.write("generation_config.json", generation);
  return open_model_folder(folder.path()).value();
}

ModelFolder encoder_decoder(const std::string& generation) {
  return configured(R"({"is_encoder_decoder": true, "eos_token_id": 2})", generation);
}

Result<ResolvedOptions> resolve(const ModelFolder& folder, const GenerateOptions& options = {}) {
  return resolve_options(options, folder, nullptr, kVocabulary);
}

TEST(GenerationConfig, TheDecoderStartsAsTheFilesSay) {
  const std::tuple<const char*, const char*, int64_t> says[] = {
      {R"({"is_encoder_decoder": true, "decoder_start_token_id": 5})", R"({"decoder_start_token_id": 7})", 7},
      {R"({"is_encoder_decoder": true, "decoder_start_token_id": 5})", R"({"bos_token_id": 1})", 5},
      {R"({"is_encoder_decoder": true, "decoder_start_token_id": 5})", "", 5},
      {R"({"is_encoder_decoder": true, "decoder_start_token_id": 5, "decoder": {"decoder_start_token_id": 6}})", "", 5},
      {R"({"is_encoder_decoder": true, "decoder_start_token_id": null, "decoder": {"decoder_start_token_id": 6}})",
       R"({"bos_token_id": 1})", 6},
      {R"({"is_encoder_decoder": true, "decoder": {"bos_token_id": 4}})", R"({"decoder_start_token_id": null})", 4},
      {R"({"is_encoder_decoder": true})", R"({"decoder_start_token_id": [9]})", 9}};
  for (const auto& [config, generation, id] : says)
    EXPECT_EQ(decoder_start_id(configured(config, generation), kVocabulary).value(), id) << config << generation;
  const std::pair<const char*, const char*> wrong[] = {
      {R"({})", "neither generation_config.json nor config.json has decoder_start_token_id"},
      {R"({"decoder_start_token_id": 300})",
       "generation_config.json: decoder_start_token_id: token 300 is outside the vocabulary of 300"},
      {R"({"decoder_start_token_id": -1})", "token -1 is outside"},
      {R"({"decoder_start_token_id": [1, 2]})", "decoder_start_token_id should be a token id, is [1,2]"},
      {R"({"decoder_start_token_id": "<s>"})", "decoder_start_token_id should be a token id, is \"<s>\""}};
  for (const auto& [generation, words] : wrong) {
    const Result<int64_t> refused = decoder_start_id(encoder_decoder(generation), kVocabulary);
    ASSERT_FALSE(refused.is_ok()) << generation;
    EXPECT_NE(refused.status().message().find(words), std::string::npos) << refused.status().message();
  }
}

TEST(GenerationConfig, ConfigJsonStandsInForAMissingFile) {
  const char* config = R"({"is_encoder_decoder": true, "num_beams": 4, "max_length": 9, "forced_eos_token_id": 2,
      "bad_words_ids": [[8]], "length_penalty": null, "decoder": {"num_beams": 2, "length_penalty": 2.5}})";
  ResolvedOptions r = resolve(configured(config, "")).value();
  EXPECT_EQ(r.beams.beams, 4);
  EXPECT_EQ(r.beams.length_penalty, 2.5);
  EXPECT_EQ(r.sampling.bad_words, (std::vector<std::vector<int64_t>>{{8}}));
  EXPECT_EQ(r.sampling.forced_last, (std::vector<int64_t>{2}));
  ASSERT_TRUE(r.begin(std::vector<int64_t>{5}, {}, 100).is_ok());
  EXPECT_EQ(r.sampling.max_new_tokens, 8);
  r = resolve(configured(config, R"({"max_length": 20})")).value();
  EXPECT_EQ(r.beams.beams, 1);
  EXPECT_TRUE(r.sampling.bad_words.empty());
  // Without an encoder it is no such file.
  r = resolve(configured(R"({"num_beams": 4, "forced_eos_token_id": 2})", "")).value();
  EXPECT_EQ(r.beams.beams, 1);
  EXPECT_TRUE(r.sampling.forced_last.empty());
}

TEST(GenerationConfig, CallersSayOtherwise) {
  const ModelFolder folder = encoder_decoder(R"({"num_beams": 3, "num_beam_groups": 3, "diversity_penalty": 0.5,
      "forced_bos_token_id": 7, "forced_eos_token_id": [2, 3], "suppress_tokens": [1, -1, 999],
      "begin_suppress_tokens": [4], "max_length": 50, "min_length": 20, "repetition_penalty": 2,
      "encoder_repetition_penalty": 3, "no_repeat_ngram_size": 2, "encoder_no_repeat_ngram_size": 4})");
  ResolvedOptions r = resolve(folder).value();
  EXPECT_EQ(r.beams.beams, 3);
  EXPECT_EQ(r.beams.groups, 3);
  EXPECT_EQ(r.sampling.forced_first, 7);
  EXPECT_EQ(r.sampling.forced_last, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(r.sampling.repetition_penalty, 2);
  EXPECT_EQ(r.sampling.encoder_repetition_penalty, 3);
  EXPECT_EQ(r.sampling.no_repeat_ngram, 2);
  EXPECT_EQ(r.sampling.encoder_no_repeat_ngram, 4);
  ASSERT_TRUE(r.begin(std::vector<int64_t>{5, 6}, std::vector<int64_t>{8}, 4096).is_ok());
  EXPECT_EQ(r.sampling.max_new_tokens, 48);
  EXPECT_EQ(r.sampling.min_new_tokens, 18);
  EXPECT_EQ(r.sampling.encoder_ids, (std::vector<int64_t>{8}));
  ASSERT_TRUE(r.begin(std::vector<int64_t>{5, 6}, {}, 40).is_ok());
  EXPECT_EQ(r.sampling.max_new_tokens, 39);  // the last one is not fed
  EXPECT_EQ(r.notes.size(), 1u);             // no ids to look at
  EXPECT_FALSE(r.begin(std::vector<int64_t>(50, 5), {}, 4096).is_ok());

  GenerateOptions o;
  o.beams = 1, o.max_new_tokens = 4, o.min_new_tokens = 1, o.forced_bos_id = -1, o.ignore_eos = true;
  o.suppress_ids = std::vector<int64_t>{}, o.begin_suppress_ids = std::vector<int64_t>{9};
  o.repetition_penalty = 1, o.encoder_repetition_penalty = 1, o.no_repeat_ngram = 0, o.encoder_no_repeat_ngram = 0;
  r = resolve(folder, o).value();
  EXPECT_EQ(r.beams.beams, 1);
  EXPECT_FALSE(r.sampling.forced_first.has_value());
  EXPECT_TRUE(r.sampling.forced_last.empty());
  EXPECT_TRUE(r.sampling.suppressed.empty());
  EXPECT_EQ(r.sampling.suppressed_first, (std::vector<int64_t>{9}));
  EXPECT_EQ(r.sampling.encoder_repetition_penalty, 1);
  ASSERT_TRUE(r.begin(std::vector<int64_t>{5, 6}, {}, 4096).is_ok());
  EXPECT_EQ(r.sampling.max_new_tokens, 4);
  EXPECT_EQ(r.sampling.min_new_tokens, 1);

  GenerateOptions drawn;
  drawn.sample = true;  // beams do not draw
  EXPECT_EQ(resolve(folder, drawn)->beams.beams, 1);
  GenerateOptions stops;
  stops.logprobs = 1;
  const std::string message = resolve(folder, stops).status().message();
  EXPECT_NE(message.find("generation_config.json: num_beams asks for beams, beams 1 for none"), std::string::npos)
      << message;
}

TEST(GenerationConfig, WrongFieldsAreErrors) {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"forced_bos_token_id": 300})", "forced_bos_token_id: token 300 is outside the vocabulary of 300"},
      {R"({"forced_bos_token_id": [1, 2]})", "forced_bos_token_id should be one token id, is [1,2]"},
      {R"({"forced_eos_token_id": [1, 500]})", "forced_eos_token_id: token 500"},
      {R"({"forced_eos_token_id": 1.5})", "forced_eos_token_id should be a token id or a list of them, is 1.5"},
      {R"({"suppress_tokens": [[1]]})", "suppress_tokens should be a token id or a list of them, is [[1]]"},
      {R"({"begin_suppress_tokens": "x"})", "begin_suppress_tokens should be"},
      {R"({"bad_words_ids": [1]})", "bad_words_ids should be a list of lists of token ids, is [1]"},
      {R"({"bad_words_ids": [[]]})", "bad_words_ids should be a list of lists of token ids, is [[]]"},
      {R"({"bad_words_ids": [[1, 300]]})", "bad_words_ids: token 300"},
      {R"({"bad_words_ids": [[18446744073709551615]]})", "bad_words_ids should be"},
      {R"({"num_beams": 0})", "num_beams should be an integer from 1 to 256, is 0"},
      {R"({"num_beams": 1000000})", "num_beams should be an integer from 1 to 256"},
      {R"({"num_beams": 4, "num_beam_groups": 3})", "beam_groups 3 does not divide beams 4"},
      {R"({"max_length": 0})", "max_length should be an integer from 1 to 1073741824, is 0"},
      {R"({"max_new_tokens": -3})", "max_new_tokens should be an integer from 1"},
      {R"({"min_length": "x"})", "min_length should be an integer from 0"},
      {R"({"min_new_tokens": 1.5})", "min_new_tokens should be an integer from 0"},
      {R"({"encoder_repetition_penalty": 0})", "encoder_repetition_penalty should be a number above 0, is 0"},
      {R"({"encoder_no_repeat_ngram_size": -1})", "encoder_no_repeat_ngram_size should be an integer from 0"}};
  for (const auto& [generation, words] : wrong) {
    const Result<ResolvedOptions> refused = resolve(encoder_decoder(generation));
    ASSERT_FALSE(refused.is_ok()) << generation;
    EXPECT_NE(refused.status().message().find("generation_config.json"), std::string::npos)
        << refused.status().message();
    EXPECT_NE(refused.status().message().find(words), std::string::npos) << refused.status().message();
  }
}

TEST(GenerationConfig, NamesWhatIsLeftOut) {
  const ModelFolder folder = encoder_decoder(R"({"guidance_scale": 1.5, "penalty_alpha": 0.0, "epsilon_cutoff": 0.1,
      "renormalize_logits": true, "sequence_bias": null, "stop_strings": ["x"], "lang_to_id": {}})");
  const auto names = [&](const GenerateOptions& options) {
    std::string all;
    const ResolvedOptions resolved = resolve(folder, options).value();
    for (const std::string& note : resolved.notes)
      all += note.substr(note.rfind(": ") + 2, note.find(" is left out") - note.rfind(": ") - 2) + " ";
    return all;
  };
  EXPECT_EQ(names({}), "guidance_scale stop_strings ");
  GenerateOptions options;
  options.sample = true;
  EXPECT_EQ(names(options), "guidance_scale stop_strings epsilon_cutoff ");
  options = {};
  options.beams = 2;
  EXPECT_EQ(names(options), "guidance_scale renormalize_logits stop_strings ");
  EXPECT_EQ(resolve(encoder_decoder("{}"))->notes.size(), 0u);
}

}  // namespace
}  // namespace situ
