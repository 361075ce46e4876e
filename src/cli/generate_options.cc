// The options of `situ run` and `situ chat` that say how to choose tokens and when to stop.
#include <CLI/CLI.hpp>
#include <charconv>

#include "cli/commands.h"
#include "cli/options.h"

namespace situ::cli {

std::string whole_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return std::string();
  return "'" + text + "' is not an integer from 0 to 18446744073709551615";
}

void add_prefix_cache_option(CLI::App& command, PrefixReuse& reuse, const std::string& group) {
  const char* const fallback = reuse == PrefixReuse::kOff ? "off" : reuse == PrefixReuse::kPrompts ? "prompts" : "all";
  choice<PrefixReuse>(
      command, "--prefix-cache",
      {{"off", PrefixReuse::kOff}, {"prompts", PrefixReuse::kPrompts}, {"all", PrefixReuse::kAll}},
      [&reuse](const PrefixReuse& value) { reuse = value; }, "KV cache of earlier prompts to reuse")
      ->default_str(fallback)
      ->group(group);
}

void add_draft_tokens(CLI::App& command, RunArguments& arguments) {
  constexpr int64_t kUsual = 4;
  CLI::Option* const draft = command.get_option("--draft");
  command.add_option("--draft-tokens", arguments.generate.draft_tokens, "Most tokens that --draft guesses a step")
      ->check(whole(1, 255))
      ->default_str(std::to_string(kUsual))
      ->group(more("Speculative decoding"))
      ->needs(draft);
  draft->group(more("Speculative decoding"))->each([&arguments](const std::string&) {
    if (arguments.generate.draft_tokens == 0) arguments.generate.draft_tokens = kUsual;
  });
}

void add_generate_options(CLI::App& command, RunArguments& arguments) {
  GenerateOptions& g = arguments.generate;
  constexpr int64_t kMost = int64_t{1} << 30;
  const std::string length = "Length", sampling = "Sampling", output = "Output",
                    changes = more("Penalties and bans (greedy too; defaults: the model's files, else those here)"),
                    beams = more("Beam search"), faster = more("Speculative decoding");
  const auto add = [&](const std::string& group, const std::string& names, auto& value, const std::string& help,
                       const char* fallback = "") {
    return command.add_option(names, value, help)->group(group)->default_str(fallback);
  };
  const auto text = [&](const std::string& group, const char* name, auto& value, const char* help) {
    return add(group, name, value, help)->type_name("TEXT");
  };

  add(length, "-n,--tokens", g.max_new_tokens, "Most tokens of the answer")
      ->check(whole(1, kMost))
      ->default_str(std::to_string(g.max_new_tokens.value_or(128)));
  repeated(text(length, "--stop", g.stop, "End the answer before this text (repeatable)"), "TEXT");
  repeated(add(more(length), "--stop-id", g.stop_ids, "End the answer at this token id (repeatable)"), "N")
      ->check(integer());
  add(more(length), "--min-new-tokens", g.min_new_tokens, "Least tokens before the answer may end", "0")
      ->check(integer());
  command.add_flag("--ignore-eos", g.ignore_eos, "Go on after end-of-sequence tokens")->group(more(length));

  CLI::Option* greedy =
      command.add_flag_callback(
                 "--greedy", [&g] { g.temperature = 0; }, "Choose the most probable token each time")
          ->group(sampling);
  add(sampling, "--temperature", g.temperature, "Divide logits by X; 0 is --greedy", "the files', else 0.7 or 1")
      ->check(number())
      ->excludes(greedy);
  add(sampling, "--top-p", g.top_p, "Draw from the most probable tokens up to X", "the files', else 0.95 or 1")
      ->check(number());
  add(sampling, "--top-k", g.top_k, "Draw from the N most probable tokens; 0 is all", "the files', else 50")
      ->check(integer());
  add(sampling, "--seed", g.seed, "Seed of the draws: the same seed gives the same text", "drawn")
      ->check(whole_seed)
      ->type_name("N");
  command.add_flag("--sample", g.sample, "Draw tokens at random; implied by the options above and below")
      ->group(more(sampling))
      ->excludes(greedy);
  add(more(sampling), "--min-p", g.min_p, "Draw from tokens at least X times as probable as the first",
      "the files', else 0")
      ->check(number());
  add(more(sampling), "--typical-p", g.typical_p, "Draw from tokens of typical information, up to probability X",
      "the files', else 1")
      ->check(number());

  text(output, "--json-schema", g.json_schema, "Answer with a JSON document of this schema");
  text(more(output), "--regex", g.regex, "Answer with a match of this regular expression");
  text(more(output), "--grammar", g.grammar, "Answer with a match of this Lark grammar");
  add(more(output), "--json-schema-file", arguments.schema_file, "The schema, from a file")
      ->type_name("FILE")
      ->excludes(command.get_option("--json-schema"));
  add(more(output), "--grammar-file", arguments.grammar_file, "The grammar, from a file")
      ->type_name("FILE")
      ->excludes(command.get_option("--grammar"));

  add(changes, "--repetition-penalty", g.repetition_penalty, "Lower the logits of tokens of prompt and answer", "1")
      ->check(number());
  add(changes, "--presence-penalty", g.presence_penalty, "Subtract X from the logits of tokens of the answer", "0")
      ->check(number());
  add(changes, "--frequency-penalty", g.frequency_penalty, "Subtract X for each time that the answer has a token", "0")
      ->check(number());
  add(changes, "--no-repeat-ngram", g.no_repeat_ngram, "Never write N tokens in a row twice; 0 is off", "0")
      ->check(integer());
  add(changes, "--encoder-repetition-penalty", g.encoder_repetition_penalty,
      "Raise the logits of tokens that the encoder was given", "1")
      ->check(number());
  add(changes, "--encoder-no-repeat-ngram", g.encoder_no_repeat_ngram,
      "Never write N tokens in a row that the encoder was given", "0")
      ->check(integer());
  add(changes, "--forced-bos-id", g.forced_bos_id, "First token after the start token; -1 is none")->check(integer());
  add(changes, "--forced-eos-id", g.forced_eos_id, "Last token of an answer that ends by its length; -1 is none")
      ->check(integer());
  repeated(add(changes, "--logit-bias", arguments.logit_bias, "Add BIAS to a token's logit (repeatable); -inf bans it"),
           "ID=BIAS");
  repeated(add(changes, "--bad-words", g.bad_words, "Never write this text (repeatable)"), "TEXT");

  add(beams, "--beams", g.beams, "Beams of the search; 1 is none", "the files' of an encoder-decoder, else 1")
      ->check(integer());
  add(beams, "--beam-groups", g.beam_groups, "Groups of beams that avoid each other's tokens", "1")->check(integer());
  add(beams, "--diversity-penalty", g.diversity_penalty, "Subtract X for tokens that earlier groups take", "0")
      ->check(number());
  add(beams, "--length-penalty", g.length_penalty, "Score of a beam: log-probability / tokens^X", "1")->check(number());
  add(beams, "--early-stopping", arguments.early_stopping, "When to stop looking for better answers", "false")
      ->type_name("false|true|never");
  add(faster, "--prompt-lookup", g.prompt_lookup, "Guess N tokens a step by what followed the last ones before", "0")
      ->check(integer());
}

static Status parse_logit_bias(const std::vector<std::string>& texts, GenerateOptions& options) {
  for (const std::string& text : texts) {
    const char* end = text.data() + text.size();
    int64_t id = 0;
    float bias = 0;
    const auto [equals, id_error] = std::from_chars(text.data(), end, id);
    if (id_error != std::errc() || equals == end || *equals != '=')
      return Status::error("--logit-bias: '" + text + "' should be ID=BIAS");
    const auto [rest, bias_error] = std::from_chars(equals + 1, end, bias);
    if (bias_error != std::errc() || rest != end)
      return Status::error("--logit-bias: '" + text + "' should be ID=BIAS, and '" + std::string(equals + 1, end) +
                           "' is no number");
    options.logit_bias.emplace_back(id, bias);
  }
  return Status::ok();
}

static Status check_texts(const RunArguments& a) {
  const GenerateOptions& g = a.generate;
  for (const auto& [text, name] : {std::pair{&a.prompt, "--prompt"},
                                   {&a.system, "--system"},
                                   {&g.regex, "--regex"},
                                   {&g.grammar, "the grammar"},
                                   {&g.json_schema, "the JSON schema"}})
    if (*text) SITU_RETURN_IF_ERROR(check_utf8(**text, name));
  for (const std::string& text : g.stop) SITU_RETURN_IF_ERROR(check_utf8(text, "--stop"));
  for (const std::string& text : g.bad_words) SITU_RETURN_IF_ERROR(check_utf8(text, "--bad-words"));
  return Status::ok();
}

Status resolve_arguments(RunArguments& a) {
  SITU_RETURN_IF_ERROR(parse_logit_bias(a.logit_bias, a.generate));
  for (const auto& [path, option] :
       {std::pair{&a.schema_file, &a.generate.json_schema}, std::pair{&a.grammar_file, &a.generate.grammar}}) {
    if (path->empty()) continue;
    Result<std::string> text = read_file(*path);
    if (!text.is_ok()) return text.status();
    *option = std::move(*text);
  }
  if (a.early_stopping) {
    const Result<EarlyStopping> named = early_stopping_of(*a.early_stopping);
    if (!named.is_ok()) return named.status();
    a.generate.early_stopping = *named;
  }
  SITU_RETURN_IF_ERROR(check_texts(a));
  return check_options(a.generate);
}

}  // namespace situ::cli
