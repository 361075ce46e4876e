#include "pipelines/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "text/test_models.h"

namespace situ {
namespace {

constexpr int64_t kTokensDrawn = 300;

const FolderTokenizer& tokenizer() {
  static const FolderTokenizer loaded = [] {
    testing::TempFolder folder;
    folder.write("tokenizer.json", testing::byte_level_tokenizer().dump());
    return std::move(FolderTokenizer::load(folder.path())).value();
  }();
  return loaded;
}

ModelFolder drawing_folder(const std::string& generation_config, const std::string& genai_search = "") {
  testing::TempFolder folder;
  folder.write("model.onnx", "");
  folder.write("generation_config.json", generation_config);
  if (!genai_search.empty())
    folder.write("genai_config.json", R"({"model": {"decoder": {}}, "search": )" + genai_search + "}");
  return open_model_folder(folder.path()).value();
}

Result<ResolvedOptions> resolve_drawing(const GenerateOptions& options, const ModelFolder& folder = {}) {
  return resolve_options(options, folder, &tokenizer(), kTokensDrawn);
}

TEST(ResolveOptions, GreedyUnlessAskedOtherwise) {
  EXPECT_FALSE(resolve_drawing({})->sampling.sample);
  const std::function<void(GenerateOptions&)> asks[] = {
      [](GenerateOptions& o) { o.sample = true; }, [](GenerateOptions& o) { o.temperature = 1; },
      [](GenerateOptions& o) { o.top_k = 5; },     [](GenerateOptions& o) { o.top_p = 0.5; },
      [](GenerateOptions& o) { o.min_p = 0.5; },   [](GenerateOptions& o) { o.typical_p = 0.5; }};
  for (const auto& ask : asks) {
    GenerateOptions options;
    ask(options);
    EXPECT_TRUE(resolve_drawing(options)->sampling.sample);
    options.temperature = 0;
    EXPECT_FALSE(resolve_drawing(options)->sampling.sample);
  }
  GenerateOptions penalised;
  penalised.repetition_penalty = 1.5, penalised.seed = 3;
  EXPECT_FALSE(resolve_drawing(penalised)->sampling.sample);
  EXPECT_EQ(resolve_drawing(penalised)->sampling.repetition_penalty, 1.5f);
}

TEST(ResolveOptions, DrawsWhereTheFilesSaySo) {
  const ModelFolder draws = drawing_folder(R"({"do_sample": true, "temperature": 0.7, "top_k": 9})"),
                    greedy = drawing_folder(R"({"do_sample": false, "temperature": 0.7})");
  GenerateOptions o;
  EXPECT_FALSE(resolve_drawing(o, draws)->sampling.sample);
  o.sample_as_files = true;
  o.top_p = 0.5;
  EXPECT_FALSE(resolve_drawing(o)->sampling.sample);
  EXPECT_FALSE(resolve_drawing(o, greedy)->sampling.sample);
  const SamplingOptions drawn = resolve_drawing(o, draws)->sampling;
  EXPECT_TRUE(drawn.sample);
  EXPECT_EQ(drawn.temperature, 0.7f);
  EXPECT_EQ(drawn.top_k, 9);
  EXPECT_EQ(drawn.top_p, 0.5f);
  EXPECT_FALSE(resolve_drawing(o, drawing_folder("{}", R"({"do_sample": false})"))->sampling.sample);
  EXPECT_TRUE(resolve_drawing(o, drawing_folder("{}", R"({"do_sample": true})"))->sampling.sample);
  o.beams = 2;
  EXPECT_FALSE(resolve_drawing(o, draws)->sampling.sample);
  o.beams.reset();
  o.temperature = 0;
  EXPECT_FALSE(resolve_drawing(o, draws)->sampling.sample);
}

TEST(ResolveOptions, ChoicesAndScores) {
  GenerateOptions o;
  for (const int64_t n : {int64_t{0}, int64_t{-1}, int64_t{257}}) {
    o.choices = n;
    EXPECT_NE(resolve_drawing(o).status().message().find("choices"), std::string::npos);
  }
  o.choices = 2;
  o.beams = 2;
  EXPECT_NE(resolve_drawing(o).status().message().find("choices"), std::string::npos);
  o = {};
  o.max_new_tokens = 0;
  EXPECT_FALSE(resolve_drawing(o).is_ok());
  o.prompt_logprobs = 0;
  EXPECT_TRUE(resolve_drawing(o).is_ok());
  o.prompt_logprobs = -1;
  EXPECT_NE(resolve_drawing(o).status().message().find("prompt_logprobs"), std::string::npos);
}

TEST(ResolveOptions, DefaultsOfTheConfiguration) {
  const ModelFolder folder = drawing_folder(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.05, "typical_p": 0.9})",
      R"({"top_k": 7, "top_p": 0.8, "min_p": 0.1, "no_repeat_ngram_size": 3, "temperature": "never read"})");
  // Greedy decoding, whatever do_sample says: penalties alone.
  SamplingOptions s = resolve_drawing({}, folder)->sampling;
  EXPECT_FALSE(s.sample);
  EXPECT_EQ(s.repetition_penalty, 1.05f);
  EXPECT_EQ(s.no_repeat_ngram, 3);
  GenerateOptions options;
  options.repetition_penalty = 1, options.no_repeat_ngram = 0;
  s = resolve_drawing(options, folder)->sampling;
  EXPECT_EQ(s.repetition_penalty, 1);
  EXPECT_EQ(s.no_repeat_ngram, 0);
  options = {};
  options.beams = 2;
  EXPECT_EQ(resolve_drawing(options, folder)->beams.repetition_penalty, 1.05f);
  options = {};
  options.sample = true;
  s = resolve_drawing(options, folder)->sampling;
  EXPECT_EQ(s.temperature, 0.6f);
  EXPECT_EQ(s.top_k, 20);
  EXPECT_EQ(s.top_p, 0.8);
  EXPECT_EQ(s.min_p, 0.1);
  EXPECT_EQ(s.typical_p, 0.9);
  EXPECT_EQ(s.repetition_penalty, 1.05f);
  EXPECT_EQ(s.no_repeat_ngram, 3);
  options.top_k = 0, options.temperature = 2, options.repetition_penalty = 1;
  s = resolve_drawing(options, folder)->sampling;
  EXPECT_EQ(s.top_k, 0);
  EXPECT_EQ(s.temperature, 2);
  EXPECT_EQ(s.repetition_penalty, 1);
  options = {};
  options.sample = true;
  s = resolve_drawing(options)->sampling;
  EXPECT_EQ(s.temperature, 1);
  EXPECT_EQ(s.top_k, 50);
  EXPECT_EQ(s.top_p, 1);
  EXPECT_EQ(resolve_drawing(options, drawing_folder(R"({"top_k": null})"))->sampling.top_k, 0);
}

TEST(ResolveOptions, DefaultsOfBeamsInTheConfiguration) {
  GenerateOptions options;
  options.beams = 4, options.beam_groups = 2;
  const std::tuple<const char*, EarlyStopping> says[] = {{"true", EarlyStopping::kFirst},
                                                         {"false", EarlyStopping::kAttainable},
                                                         {"\"never\"", EarlyStopping::kNever},
                                                         {"null", EarlyStopping::kAttainable}};
  for (const auto& [value, meant] : says) {
    const std::string json =
        "{\"early_stopping\": " + std::string(value) + ", \"length_penalty\": 2, \"diversity_penalty\": 0.5}";
    for (const ModelFolder& folder : {drawing_folder(json), drawing_folder("{}", json),
                                      drawing_folder(json, R"({"early_stopping": "not read"})")}) {
      const BeamOptions b = resolve_drawing(options, folder)->beams;
      EXPECT_EQ(b.early_stopping, meant) << value;
      EXPECT_EQ(b.length_penalty, 2);
      EXPECT_EQ(b.diversity_penalty, 0.5);
      GenerateOptions given = options;
      given.early_stopping = EarlyStopping::kNever, given.length_penalty = 1, given.diversity_penalty = 0;
      const BeamOptions own = resolve_drawing(given, folder)->beams;
      EXPECT_EQ(own.early_stopping, EarlyStopping::kNever);
      EXPECT_EQ(own.length_penalty, 1);
      EXPECT_EQ(own.diversity_penalty, 0);
      given = {};
      given.beams = 2;  // of one group
      EXPECT_EQ(resolve_drawing(given, folder)->beams.diversity_penalty, 0);
    }
  }
  EXPECT_EQ(resolve_drawing(options)->beams.early_stopping, EarlyStopping::kAttainable);
  for (const char* value : {"\"true\"", "1", "\"maybe\""}) {
    const ModelFolder folder = drawing_folder("{\"early_stopping\": " + std::string(value) + "}");
    EXPECT_TRUE(resolve_drawing({}, folder).is_ok());
    const std::string message = resolve_drawing(options, folder).status().message();
    EXPECT_NE(message.find("generation_config.json: early_stopping should be true, false or \"never\", is " +
                           std::string(value)),
              std::string::npos)
        << message;
  }
}

TEST(ResolveOptions, WrongConfigurationsAreErrorsWhenTheyAreUsed) {
  const std::pair<const char*, const char*> wrong[] = {{"temperature", "\"hot\""},
                                                       {"temperature", "-1"},
                                                       {"top_k", "2.5"},
                                                       {"top_k", "-1"},
                                                       {"top_p", "-0.1"},
                                                       {"top_p", "[1]"},
                                                       {"top_p", "1.5"},
                                                       {"min_p", "true"},
                                                       {"typical_p", "2"},
                                                       {"top_k", "1e+300"},
                                                       {"repetition_penalty", "0"},
                                                       {"no_repeat_ngram_size", "-2"}};
  for (const auto& [field, value] : wrong) {
    SCOPED_TRACE(std::string(field) + " " + value);
    const ModelFolder folder = drawing_folder("{\"" + std::string(field) + "\": " + value + "}");
    const bool penalty = std::string(field).find("repe") != std::string::npos;  // which hold in greedy decoding too
    EXPECT_EQ(resolve_drawing({}, folder).is_ok(), !penalty);
    GenerateOptions options;
    options.sample = true;
    const Result<ResolvedOptions> refused = resolve_drawing(options, folder);
    ASSERT_FALSE(refused.is_ok());
    const std::string message = refused.status().message();
    EXPECT_NE(message.find("generation_config.json: " + std::string(field) + " should be"), std::string::npos)
        << message;
    EXPECT_TRUE(message.ends_with(std::string(", is ") + value)) << message;
    options.temperature = 1, options.top_k = 1, options.top_p = 1, options.min_p = 0, options.typical_p = 1,
    options.repetition_penalty = 1, options.no_repeat_ngram = 0;
    EXPECT_TRUE(resolve_drawing(options, folder).is_ok());
  }
}

TEST(ResolveOptions, WrongOptionsAreErrors) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::pair<const char*, std::function<void(GenerateOptions&)>> wrong[] = {
      {"temperature should be a number of at least 0, is -1", [](GenerateOptions& o) { o.temperature = -1; }},
      {"temperature should be a number of at least 0 in float32, is 1e+300",
       [](GenerateOptions& o) { o.temperature = 1e300; }},
      {"repetition_penalty should be a number above 0 in float32, is 1e-300",
       [](GenerateOptions& o) { o.repetition_penalty = 1e-300; }},
      {"temperature", [](GenerateOptions& o) { o.temperature = NAN; }},
      {"temperature", [=](GenerateOptions& o) { o.temperature = kInfinity; }},
      {"top_k should be an integer from 0 to 1073741824, is -1", [](GenerateOptions& o) { o.top_k = -1; }},
      {"top_p should be a number from 0 to 1, is -0.1", [](GenerateOptions& o) { o.top_p = -0.1; }},
      {"top_p", [](GenerateOptions& o) { o.top_p = 1.01; }},
      {"top_p", [](GenerateOptions& o) { o.top_p = NAN; }},
      {"top_p", [](GenerateOptions& o) { o.temperature = 0, o.top_p = NAN; }},
      {"min_p should be a number from 0 to 1, is 1.5", [](GenerateOptions& o) { o.min_p = 1.5; }},
      {"typical_p", [](GenerateOptions& o) { o.typical_p = 0; }},
      {"repetition_penalty should be a number above 0, is 0", [](GenerateOptions& o) { o.repetition_penalty = 0; }},
      {"repetition_penalty", [](GenerateOptions& o) { o.repetition_penalty = 1e-60; }},
      {"presence_penalty", [](GenerateOptions& o) { o.presence_penalty = NAN; }},
      {"frequency_penalty should be a finite number, is 1e+60", [](GenerateOptions& o) { o.frequency_penalty = 1e60; }},
      {"no_repeat_ngram", [](GenerateOptions& o) { o.no_repeat_ngram = -3; }},
      {"min_new_tokens", [](GenerateOptions& o) { o.min_new_tokens = -1; }},
      {"min_new_tokens 5 is more than max_new_tokens 4",
       [](GenerateOptions& o) { o.min_new_tokens = 5, o.max_new_tokens = 4; }},
      {"not 0", [](GenerateOptions& o) { o.max_new_tokens = 0; }},
      {"logit_bias: token 300 is outside the vocabulary of 300",
       [](GenerateOptions& o) { o.logit_bias = {{300, 1.0f}}; }},
      {"logit_bias of token 5", [](GenerateOptions& o) { o.logit_bias = {{5, NAN}}; }},
      {"logit_bias names token 5 twice", [](GenerateOptions& o) { o.logit_bias = {{5, 1}, {6, 1}, {5, 1}}; }},
      {"bad_words: token -1", [](GenerateOptions& o) { o.bad_words_ids = {{1, -1}}; }},
      {"bad_words_ids", [](GenerateOptions& o) { o.bad_words_ids = {{}}; }},
      {"bad_words: a word is empty", [](GenerateOptions& o) { o.bad_words = {""}; }},
      {"bad_words: '\xFF'", [](GenerateOptions& o) { o.bad_words = {"\xFF"}; }},
      {"stop: a stop string is empty", [](GenerateOptions& o) { o.stop = {"a", ""}; }},
      {"whole UTF-8", [](GenerateOptions& o) { o.stop = {"\xA9"}; }},
      {"stop_ids: token 1000", [](GenerateOptions& o) { o.stop_ids = {1000}; }},
      {"logprobs should be an integer from 0 to the vocabulary's 300, is 301",
       [](GenerateOptions& o) { o.logprobs = 301; }},
      {"logprobs", [](GenerateOptions& o) { o.logprobs = -1; }},
  };
  for (const auto& [words, change] : wrong) {
    GenerateOptions options;
    change(options);
    const Result<ResolvedOptions> refused = resolve_drawing(options);
    ASSERT_FALSE(refused.is_ok()) << words;
    EXPECT_NE(refused.status().message().find(words), std::string::npos) << words << ": " << refused.status().message();
  }
}

TEST(ResolveOptions, EndsAndWords) {
  ModelFolder folder;
  folder.eos_ids = {-1, 42, 5000};
  GenerateOptions options;
  options.stop_ids = {7};
  options.stop = {"x", "</s>"};  // the second is a special token, whose text is never there
  options.bad_words = {"he"};
  options.bad_words_ids = {{42}, {42, 1}, {7}};
  ResolvedOptions resolved = resolve_drawing(options, folder).value();
  EXPECT_EQ(resolved.sampling.end_ids, (std::vector<int64_t>{42, 7, 259}));
  EXPECT_EQ(resolved.stop, (std::vector<std::string>{"x"}));
  EXPECT_EQ(resolved.sampling.bad_words, (std::vector<std::vector<int64_t>>{{42, 1}, {256}, {' ', 256}}));
  options.ignore_eos = true;
  EXPECT_EQ(resolve_drawing(options, folder)->sampling.end_ids, (std::vector<int64_t>{7, 259}));
}

TEST(ResolveOptions, TurnsEndWhereTheTokenizersTokenSaysSo) {
  ModelFolder folder;
  folder.eos_ids = {42};
  const auto ends = [&](const std::string& config, bool end_of_turn, bool ignore_eos = false) {
    testing::TempFolder files;
    files.write("tokenizer.json", testing::byte_level_tokenizer().dump());
    files.write("tokenizer_config.json", config);
    const FolderTokenizer loaded = std::move(FolderTokenizer::load(files.path())).value();
    GenerateOptions options;
    options.end_of_turn = end_of_turn;
    options.ignore_eos = ignore_eos;
    return resolve_options(options, folder, &loaded, kTokensDrawn)->sampling.end_ids;
  };
  using Ids = std::vector<int64_t>;
  for (const char* config : {R"({"eos_token": "</s>"})", R"({"eos_token": {"content": "</s>", "special": true}})"}) {
    EXPECT_EQ(ends(config, true), (Ids{42, 259}));
    EXPECT_EQ(ends(config, false), (Ids{42}));
    EXPECT_EQ(ends(config, true, true), (Ids{}));
  }
  EXPECT_EQ(ends(R"({"eos_token": "never heard of"})", true), (Ids{42}));
  EXPECT_EQ(ends(R"({"eos_token": null})", true), (Ids{42}));
  folder.eos_ids = {259};
  EXPECT_EQ(ends(R"({"eos_token": "</s>"})", true), (Ids{259}));
}

TEST(ResolveOptions, TextNeedsATokenizer) {
  const std::function<void(GenerateOptions&)> texts[] = {[](GenerateOptions& o) { o.stop = {"x"}; },
                                                         [](GenerateOptions& o) { o.bad_words = {"x"}; },
                                                         [](GenerateOptions& o) { o.echo = true; }};
  for (const auto& ask : texts) {
    GenerateOptions options;
    ask(options);
    EXPECT_TRUE(resolve_drawing(options).is_ok());
    EXPECT_NE(resolve_options(options, {}, nullptr, kTokensDrawn).status().message().find("no tokenizer.json"),
              std::string::npos);
  }
}

TEST(ResolveOptions, SeedsThatAreNotGivenDiffer) {
  GenerateOptions options;
  options.sample = true;
  const uint64_t first = resolve_drawing(options)->sampling.seed, second = resolve_drawing(options)->sampling.seed;
  EXPECT_NE(first, second);
  EXPECT_LT(first, uint64_t{1} << 53);
  options.seed = ~uint64_t{0};
  EXPECT_EQ(resolve_drawing(options)->sampling.seed, ~uint64_t{0});
}

}  // namespace
}  // namespace situ
