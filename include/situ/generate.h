// A request of a loaded model and its options: how tokens are chosen, when to stop; embeddings and scores. What comes
// back: situ/generation.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "situ/status.h"
#include "situ/tokenizer.h"

namespace situ {

inline constexpr int64_t kMostBeams = 256;

enum class PrefixReuse {
  kOff,
  kPrompts,  // rows that were computed as rows of a prompt
  kAll,      // rows of answers too: what is computed token by token here may have been computed together there
};

// When to stop looking for better answers of a beam search once there are as many as beams.
enum class EarlyStopping {
  kAttainable,  // "false": when the best beam, as long as it is now, is no better than the worst answer
  kFirst,       // "true": at once
  kNever,       // "never": when the best beam, as long as it may become, is no better than the worst answer
};
// By these names, as generation_config.json has them. Error: another one.
Result<EarlyStopping> early_stopping_of(const std::string& name);

// Tokens are chosen as transformers' generate does, in its order: bias, penalties, bans, forced and suppressed tokens,
// and when sampling temperature, top-k, top-p, min-p, typical, then the draw. Errors of generate() name the option and
// its value. What is not set is what generation_config.json says (for an encoder-decoder without that file:
// config.json), else what stands here.
struct GenerateOptions {
  // 128; at least 1. Only an encoder-decoder's files give another default: max_new_tokens, else max_length, which
  // counts the decoder's prompt too.
  std::optional<int64_t> max_new_tokens;
  // 0; the model's end-of-sequence tokens and stop_ids are not chosen before; at most max_new_tokens. The files'
  // default is min_new_tokens, else min_length, which counts the prompt (an encoder-decoder's: the decoder's) too.
  std::optional<int64_t> min_new_tokens;
  // Go on after the model's end-of-sequence tokens, which are then tokens as all others; none is forced.
  bool ignore_eos = false;
  // The prompt is a conversation, as Prompt::messages are: the eos_token of tokenizer_config.json ends the answer too,
  // as the tokens above do. A chat template may end its turns with a token that no other file names.
  std::optional<bool> end_of_turn;

  // Draw the next token at random; also when any of the next five is set. Else the most probable one is chosen. The
  // files' defaults are those of generation_config.json, else of "search" in genai_config.json.
  bool sample = false;
  // Without a temperature: drawn where the files say do_sample and there are no beams, else greedy, whatever of the
  // next five is set. Default: of a conversation, where neither `sample` nor any of the next five is.
  std::optional<bool> sample_as_files;
  std::optional<double> temperature;  // 1; at least 0, and 0 is the greedy choice
  std::optional<int64_t> top_k;       // 50; only the k most probable; 0: all
  std::optional<double> top_p;      // 1; only the most probable that come to this probability, one at least; in [0, 1]
  std::optional<double> min_p;      // 0; only those at least this many times as probable as the first; in [0, 1]
  std::optional<double> typical_p;  // 1; only those of typical information content, up to this probability; in (0, 1]
  std::optional<uint64_t> seed;     // same seed, same tokens; else one is drawn, and Generation says which

  // These apply without sampling too, and so do the files' defaults.
  std::optional<double> repetition_penalty;  // 1; above 0; for every token in the (decoder's) prompt or generated
  std::optional<int64_t> no_repeat_ngram;    // 0; no n-gram of (decoder's) prompt and answer twice; 0: off
  // 1; above 0; above 1 raises the tokens that the encoder was given, or the prompt has where there is no encoder.
  std::optional<double> encoder_repetition_penalty;
  std::optional<int64_t> encoder_no_repeat_ngram;  // 0; no n-gram of those tokens in the answer; 0: off
  // The first token, after a prompt of one token (as encoder-decoders have); the last one before the answer ends by its
  // length. -1: none, whatever the files say.
  std::optional<int64_t> forced_bos_id, forced_eos_id;
  // Never chosen, and not chosen first (or first after a forced token), not even where they are forced.
  std::optional<std::vector<int64_t>> suppress_ids, begin_suppress_ids;
  // As in OpenAI's API: subtracted once for every token that was generated, and once for each time. The prompt does not
  // count.
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<int64_t, float>> logit_bias;  // id, and what is added to its logit; -infinity bans it
  // Texts that never come: as the tokenizer writes them at the start of a text and after a space. The other: token ids.
  // Those of generation_config.json never come either.
  std::vector<std::string> bad_words;
  std::vector<std::vector<int64_t>> bad_words_ids;

  // What the answer must be, at most one of them: a JSON document of this schema (draft 2020-12; the JSON text of one),
  // a match of this regular expression (syntax of the Rust crate regex) or of this grammar (llguidance's Lark). Tokens
  // that cannot go on with it are not chosen; where it is whole the answer may end, and does where nothing can follow.
  // A schema that asks for something that is not supported, or that nothing satisfies, or that is too large, is an
  // error, and so is the end of one before min_new_tokens. Not with beams.
  std::optional<std::string> json_schema, regex, grammar;

  // End the answer. Nothing of a stop string is in the text or given to the callback, not even half of one that is
  // still coming; the tokens that spell it stay in output_ids. A stop string that is a special token stops at the
  // token.
  std::vector<std::string> stop;
  std::vector<int64_t> stop_ids;

  // Beam search, from 2 beams on: the answers of the highest score, not tokens drawn or chosen one by one. Source:
  // transformers' generate; num_beam_groups makes it diverse beam search. Sampling, logprobs and stop strings do not go
  // with it. The folder's configuration gives the defaults of the two penalties and of early_stopping.
  std::optional<int64_t>
      beams;                // 1; at most kMostBeams. An encoder-decoder's files give a default where nothing is drawn
  int64_t beam_groups = 1;  // beams are a multiple; a group avoids the tokens that earlier ones take in the same step:
  std::optional<double> diversity_penalty;      // 0; subtracted from their log-probability; at least 0
  std::optional<double> length_penalty;         // 1; score = log-probability / tokens^length_penalty
  std::optional<EarlyStopping> early_stopping;  // kAttainable
  int64_t num_return = 1;                       // answers in Generation::answers, at most beams

  // Guesses so many tokens at most by what followed the last ones where they came before, and checks all of them in one
  // step: the same answer in fewer steps where a text repeats itself. Less than the tokens of which a step gives
  // logits, 64 where there is memory; 0: off. Not with beams.
  int64_t prompt_lookup = 0;
  // The same, but guessed by LoadOptions::draft, and while at most 4 answers of the model run.
  int64_t draft_tokens = 0;

  bool report_perplexity = false;   // of the answer's tokens; not with beams
  std::optional<int64_t> logprobs;  // report log-probabilities, with so many alternatives for each token
  // Report how the model foretells the prompt's tokens, with so many alternatives; they are computed for this, and do
  // not change the answer. max_new_tokens may then be 0. Not for prompts of an encoder, of pictures or of sounds.
  std::optional<int64_t> prompt_logprobs;
  bool echo = false;  // the prompt's text before the answer's

  // Answers to the prompt, each drawn by a seed of its own: seed, seed + 1, ...; Generation::answers has them in this
  // order. At most kMostBeams; not with beams.
  int64_t choices = 1;

  // What is used of the states that earlier requests left, with LoadOptions::window as long as no token has left it,
  // and is kept of this one until slots are needed, or a quarter of all is kept. Rows of prompts are what they are
  // whoever computes them; rows of answers differ from them in last bits.
  PrefixReuse prefix_cache = PrefixReuse::kPrompts;
};

// What is asked for. Requests of all threads share the model's steps; each has the answer that it has alone, to the
// bit.
struct Request {
  Prompt prompt;
  GenerateOptions options;
  // Somebody waits for the tokens: beside them a step takes at most twice the time that it takes without prompts, or
  // 30 ms. Else whole pieces of prompts are fed beside them: a list is done sooner.
  bool interactive = true;
  int priority = 0;         // higher ones are begun first; a second of waiting counts as one
  std::string client = {};  // within a priority clients take turns; requests of one are begun in their order
  // Kept beginnings of prompts are shared by requests with the same one: others do not learn what was asked.
  std::string salt = {};
  // When it ends at the latest, waiting or not: FinishReason::kDeadline, with what there is by then.
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
};

// Embeddings of texts and scores of pairs (Model::embed, Model::score). Texts are prepared as docs/embeddings.md says.
struct EmbedOptions {
  std::optional<std::string> prompt;       // in front of every text; default: that of the folder, if it names one
  std::optional<std::string> prompt_name;  // one of `prompts` in config_sentence_transformers.json; not with `prompt`
  // Numbers of a row. ModelFacts::embedding_size is always possible. Fewer: the first ones, normalised again where the
  // folder normalises, if its files name such sizes (matryoshka_dimensions, is_matryoshka, truncate_dim) or it
  // normalises. Default: all, or the first truncate_dim, as they are. Not for pairs.
  std::optional<int64_t> dimensions = {};
  std::string client = {};  // who asks, as Request::client
};

struct Embeddings {
  std::vector<std::vector<float>> rows;  // by text, of `dims` numbers each
  int64_t dims = 0;
  std::vector<int64_t> tokens;     // by text, special ones included
  std::vector<size_t> cut;         // the numbers of texts that were cut
  std::vector<std::string> notes;  // the same in words
};

// A question and a text that may answer it, say: the first text of the pair and the second.
struct TextPair {
  std::string first, second;
};

struct PairScores {
  std::vector<std::vector<float>> rows;  // by pair, of `labels` numbers each, behind the folder's activation function
  int64_t labels = 0;
  std::vector<int64_t> tokens;
  std::vector<std::string> notes;
};

}  // namespace situ
