// The options of `situ run` and `situ chat` that say how to choose tokens and when to stop, and those that say what
// `run` reports.
#include <CLI/CLI.hpp>
#include <charconv>

#include "cli/commands.h"
#include "cli/repeated.h"

namespace situ::cli {

std::string whole_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return std::string();
  return "'" + text + "' is not an integer from 0 to 18446744073709551615";
}

void add_generate_options(CLI::App& command, RunArguments& arguments) {
  GenerateOptions& g = arguments.generate;
  const auto text = [&](const char* name, std::vector<std::string>& values, const char* help) {
    repeated(command.add_option(name, values, help), "TEXT");
  };
  command
      .add_option("-n,--tokens", g.max_new_tokens,
                  "Most tokens to generate (128; an encoder-decoder's files may say otherwise)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command.add_option("--min-new-tokens", g.min_new_tokens, "No end-of-sequence token before so many tokens");
  command.add_flag("--ignore-eos", g.ignore_eos, "Go on after end-of-sequence tokens; none is forced");
  text("--stop", g.stop, "Stop before this text (may be repeated)");
  command.add_option("--stop-id", g.stop_ids, "Stop at this token id (may be repeated)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);

  const std::string group =
      "Sampling (defaults: generation_config.json, else genai_config.json, else those in brackets)";
  command.add_flag("--sample", g.sample, "Draw tokens at random; each of the next five says so too")->group(group);
  command.add_option("--temperature", g.temperature, "Divide logits by it (1); 0: greedy")->group(group);
  command.add_option("--top-k", g.top_k, "Only the K most probable tokens (50); 0: all")->group(group);
  command.add_option("--top-p", g.top_p, "Only the most probable tokens up to this probability (1); 0: the best one")
      ->group(group);
  command.add_option("--min-p", g.min_p, "Only tokens at least this many times as probable as the first (0)")
      ->group(group);
  command.add_option("--typical-p", g.typical_p, "Only tokens of typical information, up to this probability (1)")
      ->group(group);
  command.add_option("--seed", g.seed, "Same seed, same text (default: drawn, and reported with --json)")
      ->check(whole_seed)
      ->group(group);

  const std::string changes = "Penalties and bans (greedy too; defaults: the same files)";
  command
      .add_option("--repetition-penalty", g.repetition_penalty,
                  "Lower the logits of tokens of prompt and answer (1: off)")
      ->group(changes);
  command.add_option("--presence-penalty", g.presence_penalty, "Subtract from tokens of the answer (0)")
      ->group(changes);
  command.add_option("--frequency-penalty", g.frequency_penalty, "The same, once for each time (0)")->group(changes);
  command.add_option("--no-repeat-ngram", g.no_repeat_ngram, "No N tokens in a row twice (0: off)")->group(changes);
  command
      .add_option("--encoder-repetition-penalty", g.encoder_repetition_penalty,
                  "Raise the logits of tokens that the encoder was given (1: off)")
      ->group(changes);
  command
      .add_option("--encoder-no-repeat-ngram", g.encoder_no_repeat_ngram,
                  "No N tokens in a row that the encoder was given (0: off)")
      ->group(changes);
  command.add_option("--forced-bos-id", g.forced_bos_id, "The first token after the start token (-1: none)")
      ->group(changes);
  command
      .add_option("--forced-eos-id", g.forced_eos_id, "The last token of an answer that ends by its length (-1: none)")
      ->group(changes);
  repeated(
      command.add_option("--logit-bias", arguments.logit_bias, "ID=BIAS: add to a token's logit (may be repeated)"),
      "ID=BIAS")
      ->group(changes);
  text("--bad-words", g.bad_words, "Never this text (may be repeated)");
  command.get_option("--bad-words")->group(changes);
  const std::string grammars = "What the answer must be (one of these)";
  const auto source = [&](const char* name, std::optional<std::string>& option, const char* help) {
    return command.add_option(name, option, help)->type_name("TEXT")->group(grammars);
  };
  CLI::Option* schema = source("--json-schema", g.json_schema, "A JSON document of this schema");
  command.add_option("--json-schema-file", arguments.schema_file, "The same, from a file")
      ->type_name("FILE")
      ->group(grammars)
      ->excludes(schema);
  source("--regex", g.regex, "A match of this regular expression");
  CLI::Option* grammar = source("--grammar", g.grammar, "A match of this Lark grammar");
  command.add_option("--grammar-file", arguments.grammar_file, "The same, from a file")
      ->type_name("FILE")
      ->group(grammars)
      ->excludes(grammar);
  const std::string beams = "Beam search";
  command.add_option("--beams", g.beams, "So many beams (1: none; default: 1, an encoder-decoder's num_beams)")
      ->check(CLI::Range(int64_t{1}, int64_t{kMostBeams}))
      ->group(beams);
  command.add_option("--beam-groups", g.beam_groups, "In so many groups that avoid each other's tokens (1)")
      ->group(beams);
  command.add_option("--diversity-penalty", g.diversity_penalty, "By subtracting this from their log-probability (0)")
      ->group(beams);
  command.add_option("--length-penalty", g.length_penalty, "Score = log-probability / tokens^PENALTY (1)")
      ->group(beams);
  command
      .add_option("--early-stopping", arguments.early_stopping,
                  "false, true (at so many answers as beams) or never (false)")
      ->group(beams);
  command
      .add_option("--prompt-lookup", g.prompt_lookup,
                  "Guess up to N tokens by what followed the last ones before, and check them in one step (0: off)")
      ->check(CLI::Range(int64_t{0}, int64_t{255}));
}

void add_report_options(CLI::App& command, GenerateOptions& options) {
  command.add_flag("--echo", options.echo, "Print the prompt's text before the answer's");
  command.add_option("--num-return", options.num_return, "So many answers, best first (1)")->group("Beam search");
  command.add_flag("--report-perplexity", options.report_perplexity, "Report the perplexity of the answer");
  command.add_option("--logprobs", options.logprobs, "With --json: log-probabilities, and of N alternatives a token");
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
  return check_texts(a);
}

}  // namespace situ::cli
