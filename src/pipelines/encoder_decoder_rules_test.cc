// Whole generations of an encoder-decoder, from generation_config.json to the answer, on a model that is a formula.
#include <gtest/gtest.h>

#include <cmath>

#include "generate/logprobs.h"
#include "pipelines/sampling.h"
#include "text/test_models.h"

namespace situ {
namespace {

constexpr int64_t kTokensOfRules = 12;
const std::vector<int64_t> kEncoderIds{3, 4, 5, 6, 3, 4};
constexpr int64_t kEncoderSum = 25;

// Logits after the last of the decoder's ids. `encoder`: the sum of its ids.
std::vector<float> model(std::span<const int64_t> ids, int64_t encoder) {
  const int64_t last = ids.back(), position = static_cast<int64_t>(ids.size()) - 1;
  std::vector<float> logits;
  for (int64_t v = 0; v < kTokensOfRules; ++v) {
    const int64_t coarse = (last * 7 + position * 5 + v * 11 + encoder * 3 + (last + v) * (position + 2)) % 23;
    const int64_t fine = (last * 5 + v * 3 + position * 2 + last * v) % 17;
    logits.push_back(static_cast<float>(coarse) / 4 - 3 + static_cast<float>(fine) / 128);
  }
  return logits;
}

ModelFolder folder_of_rules(const std::string& generation_config, bool encoder) {
  testing::TempFolder folder;
  folder.write("model.onnx", "");
  const std::string is_encoder_decoder = encoder ? "true" : "false";
  folder.write("config.json",
               R"({"decoder_start_token_id": 4, "eos_token_id": 2, "is_encoder_decoder": )" + is_encoder_decoder + "}");
  folder.write("generation_config.json", generation_config);
  return open_model_folder(folder.path()).value();
}

bool ends_with_end(const std::vector<int64_t>& ids, const std::vector<int64_t>& ends) {
  return std::find(ends.begin(), ends.end(), ids.back()) != ends.end();
}

std::vector<int64_t> greedy(const ResolvedOptions& resolved, std::span<const int64_t> prompt) {
  Sampler sampler(resolved.sampling, prompt, kTokensOfRules);
  std::vector<int64_t> ids;
  while (static_cast<int64_t>(ids.size()) < resolved.sampling.max_new_tokens) {
    ids.push_back(sampler.choose(model(sampler.ids(), resolved.encoder_decoder ? kEncoderSum : 0)).value());
    sampler.append(ids.back());
    if (ends_with_end(ids, resolved.sampling.end_ids)) break;
  }
  return ids;
}

// As BeamDecoder does it.
BeamSearch::Answer best_of_beams(const ResolvedOptions& resolved, std::span<const int64_t> prompt) {
  BeamSearch search(resolved.beams);
  std::vector<Sampler> samplers{Sampler(resolved.sampling, prompt, kTokensOfRules)};
  std::vector<float> log_probabilities(kTokensOfRules);
  for (; !search.running().empty(); search.advance()) {
    std::vector<Sampler> next;
    for (const BeamSearch::Beam& beam : search.running()) {
      next.push_back(samplers[static_cast<size_t>(beam.parent)]);
      if (!beam.ids.empty()) next.back().append(beam.ids.back());
    }
    samplers = std::move(next);
    for (size_t i = 0; i < samplers.size(); ++i) {
      log_softmax(model(samplers[i].ids(), kEncoderSum), log_probabilities);
      search.offer(i, samplers[i].scores(log_probabilities));
    }
  }
  return search.answers().at(0);
}

// Recorded from generate() of transformers 4.57.6: a PreTrainedModel whose forward() is the formula above, with
// decoder_start_token_id 4 and, if not said otherwise, eos_token_id 2. `prompt`: decoder_input_ids, empty for the start
// token alone.
struct Recorded {
  const char* generation_config;
  std::vector<int64_t> prompt, ids;  // ids: after the prompt, end tokens included
  double score;                      // of the best beam
};
const Recorded kEncoderDecoder[] = {
    {R"({"max_new_tokens": 8, "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "num_beams": 1})", {4, 8, 3}, {1, 5, 0, 11, 5, 10, 5, 4}, 0},
    {R"({"max_new_tokens": 8, "num_beams": 3})", {}, {9, 9, 3, 5, 4, 4, 7, 6}, -1.05516},
    {R"({"max_new_tokens": 8, "num_beams": 3})", {4, 8, 3}, {1, 5, 4, 4, 7, 6, 6, 0}, -1.06334},
    {R"({"max_new_tokens": 8, "num_beams": 3, "length_penalty": 2.0, "early_stopping": true})",
     {},
     {9, 9, 3, 2},
     -0.292546},
    {R"({"max_new_tokens": 8, "num_beams": 3, "length_penalty": 2.0, "early_stopping": true})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6, 6, 0},
     -0.132917},
    {R"({"max_new_tokens": 8, "num_beams": 3, "length_penalty": -1.0, "early_stopping": "never"})", {}, {2}, -1.15225},
    {R"({"max_new_tokens": 8, "num_beams": 3, "length_penalty": -1.0, "early_stopping": "never"})",
     {4, 8, 3},
     {7, 2},
     -5.01004},
    {R"({"max_new_tokens": 8, "num_beams": 3, "early_stopping": "never", "length_penalty": 0.5})", {}, {2}, -1.15225},
    {R"({"max_new_tokens": 8, "num_beams": 3, "early_stopping": "never", "length_penalty": 0.5})",
     {4, 8, 3},
     {7, 2},
     -1.77132},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "num_beams": 1})", {}, {9, 9, 3, 5, 0, 11, 5, 10}, 0},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "num_beams": 1})", {4, 8, 3}, {1, 5, 0, 11, 5, 10, 5, 4}, 0},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "num_beams": 3})", {}, {9, 4, 2}, -0.818451},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "num_beams": 3})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6, 6, 0},
     -1.06334},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "num_beams": 3, "length_penalty": 2.0, "early_stopping": true})",
     {},
     {9, 9, 3, 5, 0, 2},
     -0.148545},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "num_beams": 3, "length_penalty": 2.0, "early_stopping": true})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6, 6, 0},
     -0.132917},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "num_beams": 3, "length_penalty": -1.0, "early_stopping": "never"})",
     {},
     {9, 4, 2},
     -7.36606},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "num_beams": 3, "length_penalty": -1.0, "early_stopping": "never"})",
     {4, 8, 3},
     {7, 2},
     -5.01004},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "num_beams": 3, "early_stopping": "never", "length_penalty": 0.5})",
     {},
     {9, 4, 2},
     -1.4176},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "num_beams": 3, "early_stopping": "never", "length_penalty": 0.5})",
     {4, 8, 3},
     {7, 2},
     -1.77132},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "forced_eos_token_id": 2, "num_beams": 1})",
     {},
     {9, 9, 3, 5, 0, 11, 5, 2},
     0},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "forced_eos_token_id": 2, "num_beams": 1})",
     {4, 8, 3},
     {1, 5, 0, 11, 5, 10, 5, 2},
     0},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "forced_eos_token_id": 2, "num_beams": 3})",
     {},
     {9, 4, 2},
     -0.818451},
    {R"({"max_new_tokens": 8, "forced_bos_token_id": 9, "forced_eos_token_id": 2, "num_beams": 3})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6, 6, 2},
     -0.884969},
    {R"({"max_length": 6, "forced_eos_token_id": 2, "num_beams": 1})", {}, {2}, 0},
    {R"({"max_length": 6, "forced_eos_token_id": 2, "num_beams": 1})", {4, 8, 3}, {1, 5, 2}, 0},
    {R"({"max_length": 6, "forced_eos_token_id": 2, "num_beams": 3})", {}, {9, 9, 3, 5, 2}, -0.861146},
    {R"({"max_length": 6, "forced_eos_token_id": 2, "num_beams": 3})", {4, 8, 3}, {1, 5, 2}, -0.676198},
    {R"({"max_length": 9, "min_length": 7, "num_beams": 1})", {}, {9, 9, 3, 5, 0, 11, 5, 10}, 0},
    {R"({"max_length": 9, "min_length": 7, "num_beams": 1})", {4, 8, 3}, {1, 5, 0, 11, 5, 10}, 0},
    {R"({"max_length": 9, "min_length": 7, "num_beams": 3})", {}, {9, 9, 3, 5, 4, 4, 7, 6}, -1.05516},
    {R"({"max_length": 9, "min_length": 7, "num_beams": 3})", {4, 8, 3}, {1, 5, 4, 4, 7, 6}, -1.02735},
    {R"({"max_length": 9, "min_length": 7, "num_beams": 3, "length_penalty": 2.0, "early_stopping": true})",
     {},
     {9, 9, 3, 5, 4, 4, 7, 6},
     -0.131895},
    {R"({"max_length": 9, "min_length": 7, "num_beams": 3, "length_penalty": 2.0, "early_stopping": true})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6},
     -0.171226},
    {R"({"max_length": 9, "min_length": 7, "num_beams": 3, "length_penalty": -1.0, "early_stopping": "never"})",
     {},
     {9, 9, 3, 5, 4, 4, 7, 6},
     -67.53},
    {R"({"max_length": 9, "min_length": 7, "num_beams": 3, "length_penalty": -1.0, "early_stopping": "never"})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6},
     -36.9847},
    {R"({"max_length": 9, "min_length": 7, "num_beams": 3, "early_stopping": "never", "length_penalty": 0.5})",
     {},
     {9, 9, 3, 5, 4, 4, 7, 6},
     -2.98443},
    {R"({"max_length": 9, "min_length": 7, "num_beams": 3, "early_stopping": "never", "length_penalty": 0.5})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6},
     -2.51649},
    {R"({"max_length": 9, "min_new_tokens": 6, "num_beams": 1})", {}, {9, 9, 3, 5, 0, 11, 5, 10}, 0},
    {R"({"max_length": 9, "min_new_tokens": 6, "num_beams": 1})", {4, 8, 3}, {1, 5, 0, 11, 5, 10}, 0},
    {R"({"max_length": 9, "min_new_tokens": 6, "num_beams": 3})", {}, {9, 9, 3, 5, 4, 4, 7, 6}, -1.05516},
    {R"({"max_length": 9, "min_new_tokens": 6, "num_beams": 3})", {4, 8, 3}, {1, 5, 4, 4, 7, 6}, -1.02735},
    {R"({"max_new_tokens": 8, "repetition_penalty": 1.5, "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "repetition_penalty": 1.5, "num_beams": 1})", {4, 8, 3}, {1, 5, 0, 11, 5, 10, 6, 2}, 0},
    {R"({"max_new_tokens": 8, "repetition_penalty": 1.5, "num_beams": 3})", {}, {2}, -1.15225},
    {R"({"max_new_tokens": 8, "repetition_penalty": 1.5, "num_beams": 3})", {4, 8, 3}, {1, 5, 0, 2}, -1.08889},
    {R"({"max_new_tokens": 8, "encoder_repetition_penalty": 3.0, "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "encoder_repetition_penalty": 3.0, "num_beams": 1})",
     {4, 8, 3},
     {4, 4, 6, 5, 5, 3, 3, 0},
     0},
    {R"({"max_new_tokens": 8, "encoder_repetition_penalty": 0.4, "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "encoder_repetition_penalty": 0.4, "num_beams": 1})", {4, 8, 3}, {1, 2}, 0},
    {R"({"max_new_tokens": 8, "no_repeat_ngram_size": 2, "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "no_repeat_ngram_size": 2, "num_beams": 1})", {4, 8, 3}, {1, 5, 0, 11, 5, 10, 5, 4}, 0},
    {R"({"max_new_tokens": 8, "no_repeat_ngram_size": 2, "num_beams": 3})", {}, {9, 9, 3, 5, 4, 4, 7, 6}, -1.05516},
    {R"({"max_new_tokens": 8, "no_repeat_ngram_size": 2, "num_beams": 3})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6, 6, 0},
     -1.06334},
    {R"({"max_new_tokens": 8, "no_repeat_ngram_size": 1, "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "no_repeat_ngram_size": 1, "num_beams": 1})", {4, 8, 3}, {1, 5, 0, 11, 6, 9, 10, 2}, 0},
    {R"({"max_new_tokens": 8, "no_repeat_ngram_size": 1, "num_beams": 3})", {}, {2}, -1.15225},
    {R"({"max_new_tokens": 8, "no_repeat_ngram_size": 1, "num_beams": 3})", {4, 8, 3}, {1, 5, 0, 2}, -1.08889},
    {R"({"max_new_tokens": 8, "encoder_no_repeat_ngram_size": 1, "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "encoder_no_repeat_ngram_size": 1, "num_beams": 1})", {4, 8, 3}, {1, 2}, 0},
    {R"({"max_new_tokens": 8, "encoder_no_repeat_ngram_size": 1, "num_beams": 3})", {}, {2}, -1.15225},
    {R"({"max_new_tokens": 8, "encoder_no_repeat_ngram_size": 1, "num_beams": 3})", {4, 8, 3}, {7, 2}, -1.25251},
    {R"({"max_new_tokens": 8, "encoder_no_repeat_ngram_size": 2, "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "encoder_no_repeat_ngram_size": 2, "num_beams": 1})",
     {4, 8, 3},
     {1, 5, 0, 11, 5, 10, 5, 4},
     0},
    {R"({"max_new_tokens": 8, "encoder_no_repeat_ngram_size": 2, "num_beams": 3})",
     {},
     {9, 9, 3, 5, 4, 4, 7, 6},
     -1.05516},
    {R"({"max_new_tokens": 8, "encoder_no_repeat_ngram_size": 2, "num_beams": 3})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6, 6, 0},
     -1.06334},
    {R"({"max_new_tokens": 8, "bad_words_ids": [[7], [9, 3]], "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "bad_words_ids": [[7], [9, 3]], "num_beams": 1})",
     {4, 8, 3},
     {1, 5, 0, 11, 5, 10, 5, 4},
     0},
    {R"({"max_new_tokens": 8, "bad_words_ids": [[7], [9, 3]], "num_beams": 3})",
     {},
     {9, 9, 9, 9, 1, 0, 4, 5},
     -1.09286},
    {R"({"max_new_tokens": 8, "bad_words_ids": [[7], [9, 3]], "num_beams": 3})",
     {4, 8, 3},
     {1, 5, 0, 11, 11, 4, 0, 6},
     -1.0692},
    {R"({"max_new_tokens": 8, "suppress_tokens": [7, 9, 10], "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "suppress_tokens": [7, 9, 10], "num_beams": 1})",
     {4, 8, 3},
     {1, 5, 0, 11, 5, 3, 3, 0},
     0},
    {R"({"max_new_tokens": 8, "suppress_tokens": [7, 9, 10], "num_beams": 3})", {}, {2}, -1.15225},
    {R"({"max_new_tokens": 8, "suppress_tokens": [7, 9, 10], "num_beams": 3})",
     {4, 8, 3},
     {1, 5, 0, 11, 11, 4, 0, 6},
     -1.0692},
    {R"({"max_new_tokens": 8, "begin_suppress_tokens": [7, 8, 9, 10], "num_beams": 1})", {}, {2}, 0},
    {R"({"max_new_tokens": 8, "begin_suppress_tokens": [7, 8, 9, 10], "num_beams": 1})",
     {4, 8, 3},
     {1, 5, 0, 11, 5, 10, 5, 4},
     0},
    {R"({"max_new_tokens": 8, "begin_suppress_tokens": [7, 8, 9, 10], "num_beams": 3})",
     {},
     {0, 9, 3, 5, 4, 4, 7, 6},
     -1.12383},
    {R"({"max_new_tokens": 8, "begin_suppress_tokens": [7, 8, 9, 10], "num_beams": 3})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6, 6, 0},
     -1.06334},
    {R"({"max_new_tokens": 8, "begin_suppress_tokens": [7, 8, 9, 10], "forced_bos_token_id": 9, "num_beams": 1})",
     {},
     {9, 4, 2},
     0},
    {R"({"max_new_tokens": 8, "begin_suppress_tokens": [7, 8, 9, 10], "forced_bos_token_id": 9, "num_beams": 1})",
     {4, 8, 3},
     {1, 5, 0, 11, 5, 10, 5, 4},
     0},
    {R"({"max_new_tokens": 8, "begin_suppress_tokens": [7, 8, 9, 10], "forced_bos_token_id": 9, "num_beams": 3})",
     {},
     {9, 4, 2},
     -0.818451},
    {R"({"max_new_tokens": 8, "begin_suppress_tokens": [7, 8, 9, 10], "forced_bos_token_id": 9, "num_beams": 3})",
     {4, 8, 3},
     {1, 5, 4, 4, 7, 6, 6, 0},
     -1.06334},
    {R"({"max_new_tokens": 9, "eos_token_id": [2, 6], "forced_eos_token_id": 6, "no_repeat_ngram_size": 3, "num_beams": 1})",
     {},
     {2},
     0},
    {R"({"max_new_tokens": 9, "eos_token_id": [2, 6], "forced_eos_token_id": 6, "no_repeat_ngram_size": 3, "num_beams": 1})",
     {4, 8, 3},
     {1, 5, 0, 11, 5, 10, 5, 4, 6},
     0},
    {R"({"max_new_tokens": 9, "eos_token_id": [2, 6], "forced_eos_token_id": 6, "no_repeat_ngram_size": 3, "num_beams": 3})",
     {},
     {9, 9, 3, 5, 0, 11, 11, 4, 6},
     -0.95099},
    {R"({"max_new_tokens": 9, "eos_token_id": [2, 6], "forced_eos_token_id": 6, "no_repeat_ngram_size": 3, "num_beams": 3})",
     {4, 8, 3},
     {4, 10, 7, 3, 9, 1, 9, 7, 6},
     -0.949819},
    {R"({"max_new_tokens": 8, "suppress_tokens": [5], "forced_bos_token_id": 9, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "min_length": 5, "forced_eos_token_id": [2], "num_beams": 1})",
     {},
     {9, 9, 9, 9, 1, 0, 10, 2},
     0},
    {R"({"max_new_tokens": 8, "suppress_tokens": [5], "forced_bos_token_id": 9, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "min_length": 5, "forced_eos_token_id": [2], "num_beams": 1})",
     {4, 8, 3},
     {1, 9, 1, 0, 10, 7, 7, 2},
     0},
    {R"({"max_new_tokens": 8, "suppress_tokens": [5], "forced_bos_token_id": 9, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "min_length": 5, "forced_eos_token_id": [2], "num_beams": 3})",
     {},
     {9, 9, 9, 9, 1, 0, 10, 2},
     -0.996736},
    {R"({"max_new_tokens": 8, "suppress_tokens": [5], "forced_bos_token_id": 9, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "min_length": 5, "forced_eos_token_id": [2], "num_beams": 3})",
     {4, 8, 3},
     {7, 9, 1, 0, 10, 0, 1, 2},
     -1.31975},
    {R"({"max_new_tokens": 8, "suppress_tokens": [5], "forced_bos_token_id": 9, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "min_length": 5, "forced_eos_token_id": [2], "num_beams": 3, "length_penalty": 2.0, "early_stopping": true})",
     {},
     {9, 9, 9, 9, 1, 0, 10, 2},
     -0.124592},
    {R"({"max_new_tokens": 8, "suppress_tokens": [5], "forced_bos_token_id": 9, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "min_length": 5, "forced_eos_token_id": [2], "num_beams": 3, "length_penalty": 2.0, "early_stopping": true})",
     {4, 8, 3},
     {7, 9, 1, 0, 10, 0, 1, 2},
     -0.164968},
    {R"({"max_new_tokens": 8, "suppress_tokens": [5], "forced_bos_token_id": 9, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "min_length": 5, "forced_eos_token_id": [2], "num_beams": 3, "length_penalty": -1.0, "early_stopping": "never"})",
     {},
     {9, 9, 9, 9, 1, 0, 10, 2},
     -63.7911},
    {R"({"max_new_tokens": 8, "suppress_tokens": [5], "forced_bos_token_id": 9, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "min_length": 5, "forced_eos_token_id": [2], "num_beams": 3, "length_penalty": -1.0, "early_stopping": "never"})",
     {4, 8, 3},
     {7, 9, 1, 0, 10, 0, 2},
     -75.2341},
    {R"({"max_new_tokens": 8, "suppress_tokens": [5], "forced_bos_token_id": 9, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "min_length": 5, "forced_eos_token_id": [2], "num_beams": 3, "early_stopping": "never", "length_penalty": 0.5})",
     {},
     {9, 9, 9, 9, 1, 0, 10, 2},
     -2.8192},
    {R"({"max_new_tokens": 8, "suppress_tokens": [5], "forced_bos_token_id": 9, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3, "min_length": 5, "forced_eos_token_id": [2], "num_beams": 3, "early_stopping": "never", "length_penalty": 0.5})",
     {4, 8, 3},
     {7, 9, 1, 0, 10, 0, 1, 2},
     -3.73281},
};
// The same of a model without an encoder.
const Recorded kDecoderOnly[] = {
    {R"({"max_new_tokens": 6})", {4}, {6, 10, 1, 4, 1, 8}, 0},
    {R"({"max_new_tokens": 6})", {4, 8, 3}, {0, 9, 0, 10, 5, 8}, 0},
    {R"({"max_new_tokens": 6, "min_length": 6, "suppress_tokens": [7, 9]})", {4}, {6, 10, 1, 4, 1, 8}, 0},
    {R"({"max_new_tokens": 6, "min_length": 6, "suppress_tokens": [7, 9]})", {4, 8, 3}, {0, 6, 5, 10, 5, 8}, 0},
    {R"({"max_new_tokens": 6, "begin_suppress_tokens": [1, 5, 9, 3], "bad_words_ids": [[5, 0]]})",
     {4},
     {6, 10, 1, 4, 1, 8},
     0},
    {R"({"max_new_tokens": 6, "begin_suppress_tokens": [1, 5, 9, 3], "bad_words_ids": [[5, 0]]})",
     {4, 8, 3},
     {0, 9, 0, 10, 5, 8},
     0},
    {R"({"max_new_tokens": 6, "forced_bos_token_id": 9, "forced_eos_token_id": 2})", {4}, {9, 3, 0, 9, 0, 2}, 0},
    {R"({"max_new_tokens": 6, "forced_bos_token_id": 9, "forced_eos_token_id": 2})", {4, 8, 3}, {0, 9, 0, 10, 5, 2}, 0},
};

TEST(EncoderDecoderRules, GenerateAsTransformersDoes) {
  for (const Recorded& want : kEncoderDecoder) {
    SCOPED_TRACE(want.generation_config + std::string(want.prompt.empty() ? "" : " with a prompt"));
    const ModelFolder folder = folder_of_rules(want.generation_config, true);
    const std::vector<int64_t> prompt =
        want.prompt.empty() ? std::vector<int64_t>{decoder_start_id(folder, kTokensOfRules).value()} : want.prompt;
    Result<ResolvedOptions> resolved = resolve_options({}, folder, nullptr, kTokensOfRules);
    ASSERT_TRUE(resolved.is_ok()) << resolved.status().message();
    ASSERT_TRUE(resolved->begin(prompt, kEncoderIds, 4096).is_ok());
    EXPECT_EQ(resolved->notes, std::vector<std::string>());
    if (resolved->beams.beams == 1) {
      EXPECT_EQ(greedy(*resolved, prompt), want.ids);
    } else {
      const BeamSearch::Answer best = best_of_beams(*resolved, prompt);
      std::vector<int64_t> ids = want.ids;
      if (best.ended) ids.pop_back();
      EXPECT_EQ(best.ids, ids);
      EXPECT_EQ(best.ended, ends_with_end(want.ids, resolved->sampling.end_ids));
      EXPECT_NEAR(best.score, want.score, 1e-4 * std::abs(want.score));
    }
  }
}

TEST(EncoderDecoderRules, ModelsWithoutAnEncoderFollowThoseOfTokens) {
  for (const Recorded& want : kDecoderOnly) {
    SCOPED_TRACE(want.generation_config + std::to_string(want.prompt.size()));
    GenerateOptions options;
    options.max_new_tokens = 6;  // of files, only those of encoder-decoders say it
    Result<ResolvedOptions> resolved =
        resolve_options(options, folder_of_rules(want.generation_config, false), nullptr, kTokensOfRules);
    ASSERT_TRUE(resolved.is_ok()) << resolved.status().message();
    ASSERT_TRUE(resolved->begin(want.prompt, {}, 4096).is_ok());
    EXPECT_EQ(greedy(*resolved, want.prompt), want.ids);
  }
}

}  // namespace
}  // namespace situ
