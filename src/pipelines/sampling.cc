#include "pipelines/sampling.h"

#include <algorithm>

#include "base/random_number.h"
#include "pipelines/settings.h"

namespace situ {
namespace {

// Temperatures whose reciprocal is not finite in float32 choose as 0 does.
constexpr double kLeastTemperature = 1e-37;

void resolve_numbers(const GenerateOptions& o, Settings& settings, SamplingOptions& s) {
  const GenerationConfig* config = settings.config;
  if (o.sample_as_files.value_or(false) && !o.sample && !o.temperature)
    s.sample = config->find("do_sample") && config->find("do_sample")->text == "true" && o.beams.value_or(1) == 1;
  else
    s.sample = o.sample || o.temperature || o.top_k || o.top_p || o.min_p || o.typical_p;
  if (!s.sample) settings.config = nullptr;
  const double temperature = settings.number("temperature", o.temperature, kNotNegative, "temperature", 1.0, 1.0);
  s.sample = s.sample && temperature >= kLeastTemperature;
  settings.config = s.sample ? config : nullptr;
  s.temperature = static_cast<float>(temperature);
  s.top_k = settings.number<int64_t>("top_k", o.top_k, kCount, "top_k", 50, 0);
  s.top_p = settings.number("top_p", o.top_p, kRatio, "top_p", 1.0, 1.0);
  s.min_p = settings.number("min_p", o.min_p, kRatio, "min_p", 0.0, 0.0);
  s.typical_p = settings.number("typical_p", o.typical_p, kShare, "typical_p", 1.0, 1.0);
  settings.config = config;
  s.repetition_penalty = static_cast<float>(
      settings.number("repetition_penalty", o.repetition_penalty, kPositive, "repetition_penalty", 1.0, 1.0));
  s.no_repeat_ngram =
      settings.number<int64_t>("no_repeat_ngram", o.no_repeat_ngram, kCount, "no_repeat_ngram_size", 0, 0);
  s.encoder_repetition_penalty = settings.number("encoder_repetition_penalty", o.encoder_repetition_penalty, kPositive,
                                                 "encoder_repetition_penalty", 1.0, 1.0);
  s.encoder_no_repeat_ngram = settings.number<int64_t>("encoder_no_repeat_ngram", o.encoder_no_repeat_ngram, kCount,
                                                       "encoder_no_repeat_ngram_size", 0, 0);
  settings.check("presence_penalty", o.presence_penalty, kFinite);
  settings.check("frequency_penalty", o.frequency_penalty, kFinite);
  s.presence_penalty = static_cast<float>(o.presence_penalty);
  s.frequency_penalty = static_cast<float>(o.frequency_penalty);
  if (s.sample) s.seed = o.seed ? *o.seed : draw_seed();
}

// The configuration has true, false or "never".
EarlyStopping resolve_early_stopping(const GenerateOptions& o, Settings& settings) {
  const ConfigField* const found = o.early_stopping ? nullptr : settings.configured("early_stopping");
  if (!found) return o.early_stopping.value_or(EarlyStopping::kAttainable);
  const Result<EarlyStopping> meant = early_stopping_of(found->text == "null"        ? "false"
                                                        : found->text == "\"never\"" ? "never"
                                                                                     : found->text);
  if (meant.is_ok()) return *meant;
  settings.refuse(
      Status::error(Code::kInvalidArgument, found->where + " should be true, false or \"never\", is " + found->text));
  return EarlyStopping::kAttainable;
}

// How many beams in how many groups. `where`: the field that says so, "" if the caller does.
Status resolve_beam_count(const GenerateOptions& o, Settings& settings, bool sampling, BeamOptions& b,
                          std::string* where) {
  b.beams = o.beams.value_or(1);
  b.groups = o.beam_groups;
  if (!o.beams && !sampling && settings.config->encoder_decoder) {
    b.beams = settings.number<int64_t>("beams", o.beams, kBeamCount, "num_beams", 1, 1);
    if (b.beams > 1 && b.groups == 1)
      b.groups = settings.number<int64_t>("beam_groups", std::nullopt, kBeamCount, "num_beam_groups", 1, 1);
    if (b.beams > 1) *where = settings.config->find("num_beams")->where + " ";
  }
  SITU_RETURN_IF_ERROR(settings.status);
  if (b.beams < 1 || b.beams > kMostBeams)
    return Status::wrong_option("beams", "beams should be an integer from 1 to " + std::to_string(kMostBeams) +
                                             ", is " + std::to_string(b.beams));
  if (b.groups < 1 || b.beams % b.groups != 0)
    return Status::wrong_option("beam_groups", *where + "beam_groups " + std::to_string(b.groups) +
                                                   " does not divide beams " + std::to_string(b.beams));
  if (o.num_return < 1 || o.num_return > b.beams)
    return Status::wrong_option("num_return", "num_return should be an integer from 1 to beams " +
                                                  std::to_string(b.beams) + ", is " + std::to_string(o.num_return));
  return Status::ok();
}

Status resolve_beams(const GenerateOptions& o, Settings& settings, ResolvedOptions& r) {
  BeamOptions& b = r.beams;
  std::string where;
  SITU_RETURN_IF_ERROR(resolve_beam_count(o, settings, r.sampling.sample, b, &where));
  b.repetition_penalty = r.sampling.repetition_penalty;
  if (b.beams == 1) {
    const char* for_beams = o.length_penalty                       ? "length_penalty"
                            : o.early_stopping                     ? "early_stopping"
                            : o.diversity_penalty.value_or(0) != 0 ? "diversity_penalty"
                                                                   : nullptr;
    return for_beams ? Status::wrong_option(for_beams, std::string(for_beams) + " is for beam search, and beams is 1")
                     : settings.status;
  }
  if (b.groups > 1 || o.diversity_penalty)
    b.diversity_penalty =
        settings.number("diversity_penalty", o.diversity_penalty, kNotNegative, "diversity_penalty", 0.0, 0.0);
  if (b.diversity_penalty != 0 && b.groups == 1)
    return Status::wrong_option("diversity_penalty",
                                "diversity_penalty is between the groups of a beam search, and beam_groups is 1");
  b.length_penalty = settings.number("length_penalty", o.length_penalty, kFinite, "length_penalty", 1.0, 1.0);
  b.early_stopping = resolve_early_stopping(o, settings);
  struct Beside {
    bool given;
    const char *words, *option;
  };
  const Beside all[] = {{r.sampling.sample, "sampling", "temperature"},
                        {o.logprobs.has_value(), "logprobs", "logprobs"},
                        {!o.stop.empty(), "stop strings", "stop"},
                        {o.prompt_lookup > 0, "prompt_lookup", "prompt_lookup"},
                        {o.draft_tokens > 0, "draft_tokens", "draft_tokens"},
                        {o.report_perplexity, "report_perplexity", "report_perplexity"},
                        {o.json_schema.has_value(), "a grammar", "json_schema"},
                        {o.regex.has_value(), "a grammar", "regex"},
                        {o.grammar.has_value(), "a grammar", "grammar"}};
  for (const Beside& beside : all)
    if (beside.given)
      return Status::wrong_option(beside.option,
                                  "beams " + std::to_string(b.beams) + ": " + beside.words +
                                      " and beam search do not go together" +
                                      (where.empty() ? "" : "; " + where + "asks for beams, beams 1 for none"));
  return settings.status;
}

// As transformers' generate: its max_length and min_length stand back behind max_new_tokens and min_new_tokens.
Status resolve_lengths(const GenerateOptions& o, Settings& settings, LengthRules& l) {
  if (o.max_new_tokens && *o.max_new_tokens < (o.prompt_logprobs ? 0 : 1))
    return Status::wrong_option("max_new_tokens",
                                "at least one token must be asked for, not " + std::to_string(*o.max_new_tokens));
  if (o.min_new_tokens) settings.check("min_new_tokens", *o.min_new_tokens, kCount);
  SITU_RETURN_IF_ERROR(settings.status);
  const auto count = [&](const char* field, const Range& range) {
    return settings.number<int64_t>(field, std::nullopt, range, field, 0, 0);
  };
  const int64_t of_file = settings.config->encoder_decoder ? count("max_new_tokens", kLength) : 0;
  if (o.max_new_tokens || of_file > 0) {
    l.most_new = o.max_new_tokens.value_or(of_file);
  } else if (settings.config->encoder_decoder) {
    l.most_total = count("max_length", kLength);
    if (l.most_total > 0) l.most_total_where = settings.config->find("max_length")->where;
  }
  if (const ConfigField* least = settings.configured("min_new_tokens");
      o.min_new_tokens || (least && least->text != "null"))
    l.least_new = o.min_new_tokens ? *o.min_new_tokens : count("min_new_tokens", kCount);
  else
    l.least_total = count("min_length", kCount);
  SITU_RETURN_IF_ERROR(settings.status);
  if (l.least_new > l.most_new && o.min_new_tokens && l.most_total == 0)
    return Status::wrong_option("max_new_tokens", "min_new_tokens " + std::to_string(l.least_new) +
                                                      " is more than max_new_tokens " + std::to_string(l.most_new));
  return Status::ok();
}

// Tokens that only one place can have, and tokens that none or one place cannot.
Status resolve_forced(const GenerateOptions& o, Settings& settings, SamplingOptions& s) {
  const std::vector<int64_t> first = settings.forced("forced_bos_id", o.forced_bos_id, "forced_bos_token_id");
  if (first.size() > 1)
    settings.refuse(Status::error(Code::kInvalidArgument, settings.configured("forced_bos_token_id")->where +
                                                              " should be one token id, is " +
                                                              settings.configured("forced_bos_token_id")->text));
  if (!first.empty()) s.forced_first = first[0];
  if (!o.ignore_eos) s.forced_last = settings.forced("forced_eos_id", o.forced_eos_id, "forced_eos_token_id");
  const auto suppressed = [&](const char* name, const std::optional<std::vector<int64_t>>& given, const char* field) {
    if (!given) return settings.ids(field);
    settings.check_ids(name, *given);
    return *given;
  };
  s.suppressed = suppressed("suppress_ids", o.suppress_ids, "suppress_tokens");
  s.suppressed_first = suppressed("begin_suppress_ids", o.begin_suppress_ids, "begin_suppress_tokens");
  return settings.status;
}

Status resolve_biases(const GenerateOptions& o, Settings& settings, SamplingOptions& s) {
  for (const auto& [id, bias] : o.logit_bias) {
    settings.check_id("logit_bias", id);
    if (!(bias < std::numeric_limits<float>::infinity()))
      return Status::wrong_option("logit_bias", "logit_bias of token " + std::to_string(id) +
                                                    " should be a finite number or -infinity, is " + text_of(bias));
    s.biases.push_back({id, bias});
  }
  std::sort(s.biases.begin(), s.biases.end(), [](const LogitBias& a, const LogitBias& b) { return a.id < b.id; });
  const auto twice = std::adjacent_find(s.biases.begin(), s.biases.end(),
                                        [](const LogitBias& a, const LogitBias& b) { return a.id == b.id; });
  if (twice != s.biases.end())
    return Status::wrong_option("logit_bias", "logit_bias names token " + std::to_string(twice->id) + " twice");
  return settings.status;
}

// A word that is an end of the answer alone is no word, as in transformers: an answer must be able to end.
Status resolve_bad_words(const GenerateOptions& o, const FolderTokenizer* tokenizer, Settings& settings,
                         SamplingOptions& s) {
  std::vector<std::vector<int64_t>> words = o.bad_words_ids;
  for (const std::string& text : o.bad_words) {
    if (!tokenizer)
      return Status::error(Code::kNotFound, "bad_words: '" + text + "' is text, and the model has no tokenizer.json")
          .or_option("bad_words");
    if (text.empty()) return Status::wrong_option("bad_words", "bad_words: a word is empty");
    for (const std::string& form : {text, " " + text}) {
      Result<std::vector<int64_t>> ids = tokenizer->encode(form, false);
      if (!ids.is_ok()) return ids.status().with_context("bad_words: '" + text + "'").or_option("bad_words");
      if (!ids->empty()) words.push_back(*ids);
    }
  }
  const auto add = [&](const std::string& name, const std::vector<int64_t>& word) {
    settings.check_ids(name, word);
    const bool is_end = word.size() == 1 && std::find(s.end_ids.begin(), s.end_ids.end(), word[0]) != s.end_ids.end();
    if (!is_end && settings.status.is_ok()) s.bad_words.push_back(word);
  };
  for (const std::vector<int64_t>& word : words) {
    if (word.empty()) return Status::wrong_option("bad_words_ids", "bad_words_ids: a word has no tokens");
    add("bad_words", word);
  }
  if (const ConfigField* found = settings.configured("bad_words_ids"); found && found->text != "null") {
    const bool some = found->words && std::none_of(found->words->begin(), found->words->end(),
                                                   [](const std::vector<int64_t>& word) { return word.empty(); });
    if (!some)
      return Status::error(Code::kInvalidArgument,
                           found->where + " should be a list of lists of token ids, is " + found->text);
    for (const std::vector<int64_t>& word : *found->words) add(found->where, word);
  }
  return settings.status;
}

Status resolve_ends(const GenerateOptions& o, const ModelFolder& folder, const FolderTokenizer* tokenizer,
                    Settings& settings, ResolvedOptions& r) {
  std::vector<int64_t>& ends = r.sampling.end_ids;
  for (const int64_t id : folder.eos_ids)  // some configurations name ids that no token has
    if (!o.ignore_eos && id >= 0 && id < settings.vocabulary) ends.push_back(id);
  if (o.end_of_turn.value_or(false) && !o.ignore_eos && tokenizer) {
    const std::optional<int64_t> id = tokenizer->special_token_id("eos_token");
    if (id && *id < settings.vocabulary && std::find(ends.begin(), ends.end(), *id) == ends.end()) ends.push_back(*id);
  }
  for (const int64_t id : o.stop_ids) {
    settings.check_id("stop_ids", id);
    ends.push_back(id);
    if (tokenizer && tokenizer->is_special(id)) r.sampling.stop_ids.push_back(id);
  }
  for (const std::string& text : o.stop) {
    if (text.empty()) return Status::wrong_option("stop", "stop: a stop string is empty");
    if (!tokenizer)
      return Status::error(Code::kNotFound,
                           "stop: '" + text + "' is text, and the model has no tokenizer.json; stop_ids takes ids")
          .or_option("stop");
    if ((static_cast<unsigned char>(text[0]) & 0xC0) == 0x80)
      return Status::wrong_option("stop", "stop: '" + text + "' does not begin with a whole UTF-8 character");
    const std::optional<int64_t> id = tokenizer->token_to_id(text);
    if (id && tokenizer->is_special(*id) && *id < settings.vocabulary) {  // its text never comes
      ends.push_back(*id);
      r.sampling.stop_ids.push_back(*id);
    } else {
      r.stop.push_back(text);
    }
  }
  return settings.status;
}

}  // namespace

uint64_t draw_seed() { return random_number() >> 11; }

Result<int64_t> decoder_start_id(const ModelFolder& folder, int64_t vocabulary) {
  const ConfigField* start = decoder_start(folder.generation);
  if (!start)
    return Status::error(
        Code::kInvalidArgument,
        folder.folder.string() +
            ": neither generation_config.json nor config.json has decoder_start_token_id or bos_token_id");
  if (!start->ids || start->ids->size() != 1)
    return Status::error(Code::kInvalidArgument, start->where + " should be a token id, is " + start->text);
  Settings settings{&folder.generation, vocabulary};
  settings.check_id(start->where, start->ids->front());
  if (!settings.status.is_ok()) return settings.status;
  return start->ids->front();
}

Status ResolvedOptions::begin(std::span<const int64_t> prompt, std::span<const int64_t> encoder_ids,
                              int64_t context_length) {
  const int64_t before = static_cast<int64_t>(prompt.size());
  if (length.most_total > 0 && length.most_total <= before)
    return Status::error(Code::kInvalidArgument, length.most_total_where + " " + std::to_string(length.most_total) +
                                                     " leaves no room after a prompt of " + std::to_string(before) +
                                                     " tokens; max_new_tokens says otherwise");
  const int64_t most = length.most_new_after(before);
  sampling.max_new_tokens = std::min(most, context_length - before + 1);  // the last token is not fed
  sampling.min_new_tokens = std::max(length.least_new, length.least_total - before);
  beams.max_new_tokens = sampling.max_new_tokens;
  const bool looks = sampling.encoder_repetition_penalty != 1 || sampling.encoder_no_repeat_ngram > 0;
  if (!looks) return Status::ok();
  const std::span<const int64_t> ids = encoder_decoder ? encoder_ids : prompt;
  sampling.encoder_ids.assign(ids.begin(), ids.end());
  if (ids.empty())
    notes.push_back("encoder_repetition_penalty and encoder_no_repeat_ngram are left out: the encoder is given no ids");
  return Status::ok();
}

Result<ResolvedOptions> resolve_options(const GenerateOptions& o, const ModelFolder& folder,
                                        const FolderTokenizer* tokenizer, int64_t vocabulary) {
  ResolvedOptions r;
  r.encoder_decoder = folder.generation.encoder_decoder;
  r.notes = folder.notes;
  Settings settings{&folder.generation, vocabulary};
  SITU_RETURN_IF_ERROR(resolve_lengths(o, settings, r.length));
  resolve_numbers(o, settings, r.sampling);
  SITU_RETURN_IF_ERROR(settings.status);
  SITU_RETURN_IF_ERROR(resolve_beams(o, settings, r));
  for (const auto& [name, count] :
       {std::pair{"prompt_lookup", o.prompt_lookup}, std::pair{"draft_tokens", o.draft_tokens}})
    if (count < 0)
      return Status::wrong_option(name, std::string(name) + " should be at least 0, is " + std::to_string(count));
  if (o.choices < 1 || o.choices > kMostBeams)
    return Status::wrong_option("choices", "choices should be an integer from 1 to " + std::to_string(kMostBeams) +
                                               ", is " + std::to_string(o.choices));
  if (o.choices > 1 && r.beams.beams > 1)
    return Status::wrong_option("choices", "beams " + std::to_string(r.beams.beams) + " and choices " +
                                               std::to_string(o.choices) +
                                               " do not go together: num_return says how many answers");
  if (o.prompt_lookup > 0 && o.draft_tokens > 0)
    return Status::wrong_option("draft_tokens", "prompt_lookup and draft_tokens: only one of them can guess");
  SITU_RETURN_IF_ERROR(resolve_biases(o, settings, r.sampling));
  SITU_RETURN_IF_ERROR(resolve_ends(o, folder, tokenizer, settings, r));
  r.beams.end_ids = r.sampling.end_ids;
  SITU_RETURN_IF_ERROR(resolve_bad_words(o, tokenizer, settings, r.sampling));
  SITU_RETURN_IF_ERROR(resolve_forced(o, settings, r.sampling));
  for (const auto& [name, count] : {std::pair{"logprobs", o.logprobs}, std::pair{"prompt_logprobs", o.prompt_logprobs}})
    if (count && (*count < 0 || *count > vocabulary))
      return Status::wrong_option(name, std::string(name) + " should be an integer from 0 to the vocabulary's " +
                                            std::to_string(vocabulary) + ", is " + std::to_string(*count));
  if (o.echo && !tokenizer)
    return Status::error(Code::kNotFound, "echo gives the prompt's text, and the model has no tokenizer.json")
        .or_option("echo");
  for (const std::string& field : fields_left_out(folder.generation, r.sampling.sample, r.beams.beams > 1))
    r.notes.push_back(field + " is left out, so that tokens may differ from transformers'");
  return r;
}

}  // namespace situ
