#include "pipelines/sampling.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>

namespace situ {
namespace {

std::string text_of(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}
std::string text_of(int64_t value) { return std::to_string(value); }

// What a setting may be. Scores are float32, so what goes into them must be finite there, and a divisor not 0.
struct Range {
  const char* words;
  bool (*holds)(double);
  bool integer = false;
};
constexpr double kMostCount = int64_t{1} << 30;
const Range kFinite{"a finite number", [](double x) { return std::isfinite(static_cast<float>(x)); }};
const Range kNotNegative{"a number of at least 0",
                         [](double x) { return x >= 0 && std::isfinite(static_cast<float>(x)); }};
const Range kPositive{"a number above 0",
                      [](double x) { return static_cast<float>(x) > 0 && std::isfinite(static_cast<float>(x)); }};
const Range kShare{"a number above 0 and at most 1", [](double x) { return x > 0 && x <= 1; }};
const Range kRatio{"a number from 0 to 1", [](double x) { return x >= 0 && x <= 1; }};
const Range kCount{"an integer from 0 to 1073741824", [](double x) { return x >= 0 && x <= kMostCount; }, true};

// Reads settings one after the other and remembers the first error.
struct Settings {
  const ModelFolder* folder;  // whose configuration says what the caller does not; null: none does
  Status status = Status::ok();

  template <typename T>
  void check(const std::string& name, T value, const Range& range) {
    if (status.is_ok() && !range.holds(static_cast<double>(value)))
      status = Status::error(name + " should be " + range.words + ", is " + text_of(value));
  }
  void check_id(const std::string& name, int64_t id, int64_t vocabulary) {
    if (status.is_ok() && (id < 0 || id >= vocabulary))
      status = Status::error(name + ": token " + std::to_string(id) + " is outside the vocabulary of " +
                             std::to_string(vocabulary));
  }
  // The caller's value, else the configuration's, else `fallback`. null in a configuration means `off`, as in
  // transformers.
  template <typename T>
  T number(const char* name, const std::optional<T>& given, const Range& range, const char* field, T fallback, T off) {
    if (given) {
      check(name, *given, range);
      return *given;
    }
    if (!folder || !folder->sampling.contains(field)) return fallback;
    const ConfigField& found = folder->sampling.at(field);
    if (found.text == "null") return off;
    if (found.number && range.holds(*found.number) && (found.is_integer || !range.integer))
      return static_cast<T>(*found.number);
    if (status.is_ok()) status = Status::error(found.where + " should be " + range.words + ", is " + found.text);
    return fallback;
  }
};

// Temperatures whose reciprocal is not finite in float32 choose as 0 does.
constexpr double kLeastTemperature = 1e-37;

void resolve_numbers(const GenerateOptions& o, Settings& settings, SamplingOptions& s) {
  s.sample = o.sample || o.temperature || o.top_k || o.top_p || o.min_p || o.typical_p;
  const ModelFolder* folder = settings.folder;
  if (!s.sample) settings.folder = nullptr;
  const double temperature = settings.number("temperature", o.temperature, kNotNegative, "temperature", 1.0, 1.0);
  s.sample = s.sample && temperature >= kLeastTemperature;
  settings.folder = s.sample ? folder : nullptr;
  s.temperature = static_cast<float>(temperature);
  s.top_k = settings.number<int64_t>("top_k", o.top_k, kCount, "top_k", 50, 0);
  s.top_p = settings.number("top_p", o.top_p, kShare, "top_p", 1.0, 1.0);
  s.min_p = settings.number("min_p", o.min_p, kRatio, "min_p", 0.0, 0.0);
  s.typical_p = settings.number("typical_p", o.typical_p, kShare, "typical_p", 1.0, 1.0);
  s.repetition_penalty = static_cast<float>(
      settings.number("repetition_penalty", o.repetition_penalty, kPositive, "repetition_penalty", 1.0, 1.0));
  s.no_repeat_ngram =
      settings.number<int64_t>("no_repeat_ngram", o.no_repeat_ngram, kCount, "no_repeat_ngram_size", 0, 0);
  settings.folder = folder;
  settings.check("presence_penalty", o.presence_penalty, kFinite);
  settings.check("frequency_penalty", o.frequency_penalty, kFinite);
  s.presence_penalty = static_cast<float>(o.presence_penalty);
  s.frequency_penalty = static_cast<float>(o.frequency_penalty);
  settings.check("min_new_tokens", o.min_new_tokens, kCount);
  s.min_new_tokens = o.min_new_tokens;
  if (s.sample) s.seed = o.seed ? *o.seed : draw_seed();
}

// The configuration has true, false or "never".
EarlyStopping resolve_early_stopping(const GenerateOptions& o, Settings& settings) {
  const auto meant = [](const std::string& text) -> std::optional<EarlyStopping> {
    if (text == "true") return EarlyStopping::kFirst;
    if (text == "false") return EarlyStopping::kAttainable;
    return text == "never" ? std::optional(EarlyStopping::kNever) : std::nullopt;
  };
  std::string text = o.early_stopping.value_or("false"),
              problem = "early_stopping should be false, true or never, is '" + text + "'";
  if (!o.early_stopping && settings.folder && settings.folder->sampling.contains("early_stopping")) {
    const ConfigField& found = settings.folder->sampling.at("early_stopping");
    text = found.text == "null" ? "false" : found.text == "\"never\"" ? "never" : found.text;
    problem = found.where + " should be true, false or \"never\", is " + found.text;
  }
  const std::optional<EarlyStopping> e = meant(text);
  if (!e && settings.status.is_ok()) settings.status = Status::error(problem);
  return e.value_or(EarlyStopping::kAttainable);
}

Status resolve_beams(const GenerateOptions& o, Settings& settings, ResolvedOptions& r) {
  BeamOptions& b = r.beams;
  if (o.beams < 1 || o.beams > kMostBeams)
    return Status::error("beams should be an integer from 1 to " + std::to_string(kMostBeams) + ", is " +
                         std::to_string(o.beams));
  if (o.beam_groups < 1 || o.beams % o.beam_groups != 0)
    return Status::error("beam_groups " + std::to_string(o.beam_groups) + " does not divide beams " +
                         std::to_string(o.beams));
  if (o.num_return < 1 || o.num_return > o.beams)
    return Status::error("num_return should be an integer from 1 to beams " + std::to_string(o.beams) + ", is " +
                         std::to_string(o.num_return));
  b.beams = o.beams;
  b.groups = o.beam_groups;
  b.repetition_penalty = r.sampling.repetition_penalty;
  if (o.beams == 1) {
    const char* for_beams = o.length_penalty                       ? "length_penalty"
                            : o.early_stopping                     ? "early_stopping"
                            : o.diversity_penalty.value_or(0) != 0 ? "diversity_penalty"
                                                                   : nullptr;
    return for_beams ? Status::error(std::string(for_beams) + " is for beam search, and beams is 1") : settings.status;
  }
  SITU_RETURN_IF_ERROR(settings.status);
  if (o.beam_groups > 1 || o.diversity_penalty)
    b.diversity_penalty =
        settings.number("diversity_penalty", o.diversity_penalty, kNotNegative, "diversity_penalty", 0.0, 0.0);
  if (b.diversity_penalty != 0 && o.beam_groups == 1)
    return Status::error("diversity_penalty is between the groups of a beam search, and beam_groups is 1");
  b.length_penalty = settings.number("length_penalty", o.length_penalty, kFinite, "length_penalty", 1.0, 1.0);
  b.early_stopping = resolve_early_stopping(o, settings);
  const char* beside = r.sampling.sample                       ? "sampling"
                       : o.logprobs                            ? "logprobs"
                       : !o.stop.empty()                       ? "stop strings"
                       : o.prompt_lookup > 0                   ? "prompt_lookup"
                       : o.draft_tokens > 0                    ? "draft_tokens"
                       : o.report_perplexity                   ? "report_perplexity"
                       : o.json_schema || o.regex || o.grammar ? "a grammar"
                                                               : nullptr;
  if (beside)
    return Status::error("beams " + std::to_string(o.beams) + ": " + beside + " and beam search do not go together");
  return settings.status;
}

Status resolve_biases(const GenerateOptions& o, Settings& settings, int64_t vocabulary, SamplingOptions& s) {
  for (const auto& [id, bias] : o.logit_bias) {
    settings.check_id("logit_bias", id, vocabulary);
    if (!(bias < std::numeric_limits<float>::infinity()))
      return Status::error("logit_bias of token " + std::to_string(id) +
                           " should be a finite number or -infinity, is " + text_of(bias));
    s.biases.push_back({id, bias});
  }
  std::sort(s.biases.begin(), s.biases.end(), [](const LogitBias& a, const LogitBias& b) { return a.id < b.id; });
  const auto twice = std::adjacent_find(s.biases.begin(), s.biases.end(),
                                        [](const LogitBias& a, const LogitBias& b) { return a.id == b.id; });
  if (twice != s.biases.end()) return Status::error("logit_bias names token " + std::to_string(twice->id) + " twice");
  return settings.status;
}

// A word that is an end of the answer alone is no word, as in transformers: an answer must be able to end.
Status resolve_bad_words(const GenerateOptions& o, const Tokenizer* tokenizer, Settings& settings, int64_t vocabulary,
                         SamplingOptions& s) {
  std::vector<std::vector<int64_t>> words = o.bad_words_ids;
  for (const std::string& text : o.bad_words) {
    if (!tokenizer) return Status::error("bad_words: '" + text + "' is text, and the model has no tokenizer.json");
    if (text.empty()) return Status::error("bad_words: a word is empty");
    for (const std::string& form : {text, " " + text}) {
      Result<std::vector<int64_t>> ids = tokenizer->encode(form, false);
      if (!ids.is_ok()) return ids.status().with_context("bad_words: '" + text + "'");
      if (!ids->empty()) words.push_back(*ids);
    }
  }
  for (const std::vector<int64_t>& word : words) {
    if (word.empty()) return Status::error("bad_words_ids: a word has no tokens");
    for (const int64_t id : word) settings.check_id("bad_words", id, vocabulary);
    const bool is_end = word.size() == 1 && std::find(s.end_ids.begin(), s.end_ids.end(), word[0]) != s.end_ids.end();
    if (!is_end) s.bad_words.push_back(word);
  }
  return settings.status;
}

Status resolve_ends(const GenerateOptions& o, const ModelFolder& folder, const Tokenizer* tokenizer, Settings& settings,
                    int64_t vocabulary, ResolvedOptions& r) {
  std::vector<int64_t>& ends = r.sampling.end_ids;
  for (const int64_t id : folder.eos_ids)  // some configurations name ids that no token has
    if (!o.ignore_eos && id >= 0 && id < vocabulary) ends.push_back(id);
  for (const int64_t id : o.stop_ids) {
    settings.check_id("stop_ids", id, vocabulary);
    ends.push_back(id);
  }
  for (const std::string& text : o.stop) {
    if (text.empty()) return Status::error("stop: a stop string is empty");
    if (!tokenizer)
      return Status::error("stop: '" + text + "' is text, and the model has no tokenizer.json; stop_ids takes ids");
    if ((static_cast<unsigned char>(text[0]) & 0xC0) == 0x80)
      return Status::error("stop: '" + text + "' does not begin with a whole UTF-8 character");
    const std::optional<int64_t> id = tokenizer->token_to_id(text);
    if (id && tokenizer->is_special(*id) && *id < vocabulary)
      ends.push_back(*id);  // its text never comes
    else
      r.stop.push_back(text);
  }
  return settings.status;
}

}  // namespace

uint64_t draw_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) >> 11;
}

Result<ResolvedOptions> resolve_options(const GenerateOptions& o, const ModelFolder& folder, const Tokenizer* tokenizer,
                                        int64_t vocabulary) {
  ResolvedOptions r;
  Settings settings{&folder};
  if (o.max_new_tokens < 1)
    return Status::error("at least one token must be asked for, not " + std::to_string(o.max_new_tokens));
  resolve_numbers(o, settings, r.sampling);
  SITU_RETURN_IF_ERROR(settings.status);
  if (o.min_new_tokens > o.max_new_tokens)
    return Status::error("min_new_tokens " + std::to_string(o.min_new_tokens) + " is more than max_new_tokens " +
                         std::to_string(o.max_new_tokens));
  SITU_RETURN_IF_ERROR(resolve_beams(o, settings, r));
  for (const auto& [name, count] :
       {std::pair{"prompt_lookup", o.prompt_lookup}, std::pair{"draft_tokens", o.draft_tokens}})
    if (count < 0) return Status::error(std::string(name) + " should be at least 0, is " + std::to_string(count));
  if (o.prompt_lookup > 0 && o.draft_tokens > 0)
    return Status::error("prompt_lookup and draft_tokens: only one of them can guess");
  SITU_RETURN_IF_ERROR(resolve_biases(o, settings, vocabulary, r.sampling));
  SITU_RETURN_IF_ERROR(resolve_ends(o, folder, tokenizer, settings, vocabulary, r));
  r.beams.end_ids = r.sampling.end_ids;
  SITU_RETURN_IF_ERROR(resolve_bad_words(o, tokenizer, settings, vocabulary, r.sampling));
  if (o.logprobs && (*o.logprobs < 0 || *o.logprobs > vocabulary))
    return Status::error("logprobs should be an integer from 0 to the vocabulary's " + std::to_string(vocabulary) +
                         ", is " + std::to_string(*o.logprobs));
  if (o.echo && !tokenizer) return Status::error("echo gives the prompt's text, and the model has no tokenizer.json");
  return r;
}

}  // namespace situ
