// The one table of fields of OpenAI's bodies, and how each is read.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/one_line.h"
#include "pipelines/llm.h"
#include "serve/protocols/openai/openai.h"
#include "serve/tools.h"

namespace situ::serve {
namespace {

constexpr int64_t kMostLogprobs = 20;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Use = BodyField::Use;
using Reader = BodyReader;

// Its range is the engine's.
template <auto Field>
void read_any_number(Reader& r, const char* name, const Json& value) {
  if (const std::optional<double> x = r.number(name, value, -kInfinity, kInfinity)) r.ask.options.*Field = *x;
}
template <auto Field>
void read_flag(Reader& r, const char* name, const Json& value) {
  if (const std::optional<bool> b = r.boolean(name, value)) r.ask.options.*Field = *b;
}
template <auto Field>
void read_off_number(Reader& r, const char* name, const Json& value) {  // 1 is "off", also where nothing searches
  if (value != 1) read_any_number<Field>(r, name, value);
}

void read_max_tokens(Reader& r, const char* name, const Json& value) {
  if (value == -1 || (value == -2 && name == std::string_view("n_predict"))) return;  // elsewhere: no bound
  const bool score = r.route == kText;
  const std::optional<int64_t> given = r.integer(name, value, score ? 0 : 1, INT64_MAX);
  if (!given) return;
  const int64_t n = std::min(*given, kMostTokens);  // as what is more than the context leaves
  if (r.ask.options.max_new_tokens && *r.ask.options.max_new_tokens != n)
    return r.refuse(name, r.ask.fields_of_options["max_new_tokens"] + " and " + name + " say different things");
  r.ask.options.max_new_tokens = n;
  r.says("max_new_tokens", name);
}

// -1: elsewhere the word for one that is drawn.
void read_seed(Reader& r, const char* name, const Json& value) {
  if (value == -1) return;
  if (value.is_number_unsigned())
    r.ask.options.seed = value.get<uint64_t>();
  else if (value.is_number_integer())
    r.ask.options.seed = static_cast<uint64_t>(value.get<int64_t>());
  else
    r.refuse_type(name, value, "an integer of 64 bits");
}

void read_stop(Reader& r, const char* name, const Json& value) {
  if (!value.is_string() && !value.is_array()) return r.refuse_type(name, value, "a string or a list of strings");
  for (const Json& text : value.is_array() ? value : Json::array({value})) {
    if (!text.is_string()) return r.refuse_type(name, text, "a string or a list of strings");
    if (text.get_ref<const std::string&>().empty()) return r.refuse(name, "stop: a stop string is empty");
    r.ask.options.stop.push_back(text.get<std::string>());
  }
}

void read_stop_ids(Reader& r, const char* name, const Json& value) {
  if (std::optional<std::vector<int64_t>> ids = r.ids(name, value)) r.ask.options.stop_ids = std::move(*ids);
}

void read_bias(Reader& r, const char* name, const Json& value) {
  if (value.is_array() && value.empty()) return;
  if (!value.is_object()) return r.refuse_type(name, value, "an object of token ids and numbers");
  for (const auto& [key, bias] : value.items()) {
    if (bias.is_null()) continue;
    constexpr size_t kMostDigits = 10;
    const bool digits =
        !key.empty() && key.size() <= kMostDigits && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) return r.refuse(name, "logit_bias: '" + key.substr(0, 100) + "' is no token id");
    const std::optional<double> x = r.number(name, bias, -100, 100);
    if (!x) return;
    r.ask.options.logit_bias.emplace_back(std::stoll(key), static_cast<float>(*x));
  }
}

// -1: elsewhere the word for all.
void read_top_k(Reader& r, const char* name, const Json& value) {
  if (const std::optional<int64_t> k = r.integer(name, value, -1, kMostTokens))
    r.ask.options.top_k = std::max<int64_t>(0, *k);
}

void read_bad_words(Reader& r, const char* name, const Json& value) {
  if (!value.is_array()) return r.refuse_type(name, value, "a list of strings");
  for (const Json& word : value) {
    if (!word.is_string()) return r.refuse_type(name, word, "a list of strings");
    r.ask.options.bad_words.push_back(word.get<std::string>());
  }
}

void read_n(Reader& r, const char* name, const Json& value) {
  if (const std::optional<int64_t> n = r.integer(name, value, 1, kMostBeams)) r.ask.choices = *n;
  r.says("choices", name);
  r.says("num_return", name);
}

// As many candidates as answers: none of them is left out.
void read_best_of(Reader& r, const char* name, const Json& value) {
  const std::optional<int64_t> best = r.integer(name, value, 1, kMostBeams);
  if (best && *best != r.ask.choices)
    r.refuse(name, "best_of is not supported: n answers are all that are made", Refusal::Kind::kUnsupported);
}

void read_logprobs(Reader& r, const char* name, const Json& value) {
  if (r.route == kText) {
    if (value == false) return;
    r.ask.logprobs = r.integer(name, value, 0, kMostLogprobs);
  } else if (const std::optional<bool> wanted = value == 0 ? false : r.boolean(name, value); wanted && *wanted) {
    r.ask.logprobs = r.ask.logprobs.value_or(0);
  }
}

void read_top_logprobs(Reader& r, const char* name, const Json& value) {
  const std::optional<int64_t> n = r.integer(name, value, 0, kMostLogprobs);
  const Json* wanted = r.find("logprobs");
  if (n && (!wanted || *wanted != true)) return *n == 0 ? void() : r.refuse(name, "top_logprobs is for logprobs: true");
  r.ask.logprobs = n;
}

void read_prompt_logprobs(Reader& r, const char* name, const Json& value) {
  r.ask.prompt_logprobs = r.integer(name, value, 0, kMostLogprobs);
}

void read_echo(Reader& r, const char* name, const Json& value) {
  const std::optional<bool> echo = r.boolean(name, value);
  if (echo && *echo && r.route == kChat)
    return r.refuse(name, "echo is not supported: a conversation is not told again", Refusal::Kind::kUnsupported);
  if (echo) r.ask.echo = *echo;
}

void read_priority(Reader& r, const char* name, const Json& value) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (const std::optional<int64_t> n = r.integer(name, value, -kMost, kMost)) r.ask.priority = static_cast<int>(*n);
}

// "auto", "none", "required", or {"type": "function", "function": {"name"}}
void read_tool_choice(Reader& r, const char* name, const Json& value) {
  using Kind = ToolChoice::Kind;
  ToolChoice& choice = r.ask.tool_choice;
  const Json function = value.is_object() ? value.value("function", Json()) : Json();
  // Some clients leave the inner object out.
  const Json& named = function.is_null() ? value : function;
  const Json called = named.is_object() ? named.value("name", Json()) : Json();
  if (called.is_string() && value.value("type", Json("function")) == "function") {
    choice.kind = Kind::kNamed;
    choice.name = called.get<std::string>();
  } else if (value == "auto" || value == "none" || value == "required") {
    choice.kind = value == "auto" ? Kind::kAuto : value == "none" ? Kind::kNone : Kind::kRequired;
  } else {
    r.refuse(name, "tool_choice should be \"auto\", \"none\", \"required\" or a function, is " + shown(value));
  }
}

void read_parallel(Reader& r, const char* name, const Json& value) {
  if (const std::optional<bool> several = r.boolean(name, value)) r.ask.tool_choice.parallel = *several;
}

void read_effort(Reader& r, const char* name, const Json& value) {
  if (!value.is_string()) return r.refuse_type(name, value, "a string");
  const ModelForm* const form = r.form();
  const std::string off = form ? form->form.reasoning.switch_name : "";
  if ((value == "none" || value == "minimal") && !off.empty())
    r.variables[off] = false;
  else if (r.template_reads(name))
    r.variables[name] = value;
  else
    r.ask.ignored.add(name);
}

void read_stream_options(Reader& r, const char* name, const Json& value) {
  if (!value.is_object()) return r.refuse_type(name, value, "an object");
  for (const auto& [key, inner] : value.items()) {
    if (inner.is_null() || key == "include_obfuscation") continue;
    if (key == "include_usage")
      r.ask.include_usage = r.boolean(std::string(name) + ".include_usage", inner).value_or(false);
    else if (key != "continuous_usage_stats" || inner != false)
      r.ignore(std::string(name) + "." + key);
  }
}

void read_template_variables(Reader& r, const char* name, const Json& value) {
  if (!value.is_object()) r.refuse_type(name, value, "an object");
}

// A template that does not show them would answer without them.
void read_documents(Reader& r, const char* name, const Json& value) {
  if (!value.is_array()) return r.refuse_type(name, value, "a list");
  if (!value.empty() && !r.template_reads(name))
    r.refuse(name, "documents is not supported: the model's chat template does not show them",
             Refusal::Kind::kUnsupported);
}

void read_generation_prompt(Reader& r, const char* name, const Json& value) {
  if (const std::optional<bool> added = r.boolean(name, value)) r.chat.add_generation_prompt = *added;
}

void read_continue(Reader& r, const char* name, const Json& value) {
  const std::optional<bool> goes_on = r.boolean(name, value);
  if (!goes_on || !*goes_on) return;
  const Json* begun = r.find("add_generation_prompt");
  if (begun && *begun == true)
    return r.refuse(name,
                    "continue_final_message and add_generation_prompt do not go together: an answer continues the "
                    "last message, or begins one");
  r.chat.continue_last = true;
}

void read_add_special(Reader& r, const char* name, const Json& value) {
  const std::optional<bool> added = r.boolean(name, value);
  if (added && *added && r.route == kChat)
    return r.refuse(name, "add_special_tokens is not supported: the chat template writes them",
                    Refusal::Kind::kUnsupported);
  if (added) r.ask.add_special = *added;
}

using O = GenerateOptions;
constexpr const char *kString = R"({"type":"string"})", *kBool = R"({"type":"boolean"})",
                     *kObject = R"({"type":"object"})", *kRatio = R"({"type":"number","minimum":0,"maximum":1})",
                     *kNotNegative = R"({"type":"number","minimum":0})",
                     *kPenalty = R"({"type":"number","minimum":-2,"maximum":2})",
                     *kCount = R"({"type":"integer","minimum":0,"maximum":1073741824})",
                     *kAnyCount = R"({"type":"integer","minimum":0})",
                     *kIds = R"({"type":"array","items":{"type":"integer","minimum":0}})",
                     *kFewLogprobs = R"({"type":"integer","minimum":0,"maximum":20})";

constexpr BodyField kFields[] = {
    {"model", kBoth, Use::kUsed, kString, "The model's name, as the answer has it too", read_model},
    {"messages", kChat, Use::kUsed, R"({"type":"array","items":{"type":"object"},"minItems":1})",
     "The conversation: role (system, developer, user, assistant, tool) and content, a text or parts of the types "
     "text, "
     "image_url and input_audio",
     read_later},
    {"prompt", kText, Use::kUsed, R"({"oneOf":[{"type":"string"},{"type":"array"}]})",
     "A text, token ids, or a list of either, each of which is answered", read_later},
    {"prompt_token_ids", kBoth, Use::kUsed, kIds, "In place of messages or prompt", read_later},
    {"max_tokens", kBoth, Use::kOption, kAnyCount,
     "Most tokens of an answer. Default: what is left of the context (completions: 16); 0 with echo: the prompt alone",
     read_max_tokens},
    {"max_completion_tokens", kChat, Use::kOption, kAnyCount, "The same as max_tokens", read_max_tokens},
    {"n_predict", kBoth, Use::kOption, kAnyCount, "The same as max_tokens", read_max_tokens},
    {"temperature", kBoth, Use::kOption, kNotNegative,
     "0: the most probable token each time. Default: the model's files where they say do_sample, else 0",
     read_temperature},
    {"top_p", kBoth, Use::kOption, kRatio, "Only the most probable tokens that come to this probability are drawn",
     read_any_number<&O::top_p>},
    {"top_k", kBoth, Use::kOption, R"({"type":"integer","minimum":-1,"maximum":1073741824})",
     "Only the k most probable tokens are drawn; 0, -1: all", read_top_k},
    {"min_p", kBoth, Use::kOption, kRatio, "Only tokens at least so many times as probable as the first are drawn",
     read_any_number<&O::min_p>},
    {"typical_p", kBoth, Use::kOption, kRatio, "Only tokens of typical information content are drawn",
     read_any_number<&O::typical_p>},
    {"seed", kBoth, Use::kOption, R"({"type":"integer"})",
     "Same seed, same tokens; choice k is drawn with seed + k. Default: drawn; situ.seed of the answer has it",
     read_seed},
    {"n", kBoth, Use::kOption, R"({"type":"integer","minimum":1,"maximum":256})",
     "Answers to each prompt; with num_beams the best n", read_n},
    {"stop", kBoth, Use::kOption, R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]})",
     "Texts that end the answer, and are not in it", read_stop},
    {"stop_token_ids", kBoth, Use::kOption, kIds, "Tokens that end the answer", read_stop_ids},
    {"ignore_eos", kBoth, Use::kOption, kBool, "Go on after the model's end tokens", read_flag<&O::ignore_eos>},
    {"min_tokens", kBoth, Use::kOption, kCount, "The answer does not end before",
     read_integer<&O::min_new_tokens, 0, kMostTokens>},
    {"logit_bias", kBoth, Use::kOption,
     R"({"type":"object","additionalProperties":{"type":"number","minimum":-100,"maximum":100}})",
     "Token id to what is added to its logit", read_bias},
    {"presence_penalty", kBoth, Use::kOption, kPenalty, "Subtracted for each token that the answer has",
     read_number<&O::presence_penalty, -2, 2>},
    {"bad_words", kBoth, Use::kOption, R"({"type":"array","items":{"type":"string"}})", "Texts that never come",
     read_bad_words},
    {"frequency_penalty", kBoth, Use::kOption, kPenalty, "Subtracted for each time that the answer has a token",
     read_number<&O::frequency_penalty, -2, 2>},
    {"repetition_penalty", kBoth, Use::kOption, R"({"type":"number","exclusiveMinimum":0})",
     "Above 1: tokens of prompt and answer become less probable", read_any_number<&O::repetition_penalty>},
    {"no_repeat_ngram", kBoth, Use::kOption, kCount, "No n-gram of prompt and answer comes twice; 0: off",
     read_integer<&O::no_repeat_ngram, 0, kMostTokens>},
    {"response_format", kBoth, Use::kOption, kObject,
     "text, json_object, or json_schema with a schema that the answer follows", read_format},
    {"regex", kBoth, Use::kOption, kString, "The answer is a match of this regular expression", read_regex},
    {"grammar", kBoth, Use::kOption, kString, "The answer is a match of this Lark grammar", read_lark},
    {"structured_outputs", kBoth, Use::kOption, kObject, "json, regex, choice or json_object, as the next four",
     read_structured_outputs},
    {"guided_json", kBoth, Use::kOption, "{}", "A JSON schema that the answer follows, or the text of one",
     read_schema},
    {"guided_regex", kBoth, Use::kOption, kString, "The same as regex", read_regex},
    {"guided_choice", kBoth, Use::kOption, R"({"type":"array","items":{"type":"string"}})",
     "The answer is one of these texts", read_choice},
    {"json_schema", kBoth, Use::kOption, "{}", "The same as guided_json", read_schema},
    {"format", kBoth, Use::kOption, "{}", "\"json\", or a schema that the answer follows", read_json_format},
    {"num_beams", kBoth, Use::kOption, R"({"type":"integer","minimum":1,"maximum":256})", "Beam search",
     read_integer<&O::beams, 1, kMostBeams>},
    {"length_penalty", kBoth, Use::kOption, R"({"type":"number"})", "Of a beam search",
     read_off_number<&O::length_penalty>},
    {"logprobs", kBoth, Use::kOption, R"({"oneOf":[{"type":"boolean"},{"type":"integer","minimum":0,"maximum":20}]})",
     "Log-probabilities of the answer's tokens (completions: with so many alternatives)", read_logprobs},
    {"top_logprobs", kChat, Use::kOption, kFewLogprobs, "So many alternatives for each token", read_top_logprobs},
    {"prompt_logprobs", kBoth, Use::kOption, kFewLogprobs,
     "Log-probabilities of the prompt's tokens, with so many alternatives", read_prompt_logprobs},
    {"echo", kBoth, Use::kOption, kBool, "Completions: the prompt's text before the answer's", read_echo},
    {"tools", kChat, Use::kUsed, R"({"type":"array"})",
     "Functions that the answer may call: name, description, parameters (a JSON schema)", read_tools},
    {"tool_choice", kChat, Use::kUsed, "{}",
     "auto: a text or calls (the default); required: one call at least; a function: a call of it; none: tools are not "
     "shown",
     read_tool_choice},
    {"parallel_tool_calls", kChat, Use::kUsed, kBool, "Whether an answer may have several calls (true)", read_parallel},
    {"reasoning_effort", kChat, Use::kUsed, kString,
     "none, minimal: no reasoning, where the chat template has a switch for it; others: handed to a chat template that "
     "reads them",
     read_effort},
    {"chat_template_kwargs", kChat, Use::kUsed, kObject, "Variables of the chat template", read_template_variables},
    {"documents", kChat, Use::kUsed, R"({"type":"array"})", "Where the chat template shows them", read_documents},
    {"add_generation_prompt", kChat, Use::kUsed, kBool, "Whether the prompt begins the answer's turn (true)",
     read_generation_prompt},
    {"continue_final_message", kChat, Use::kUsed, kBool, "The answer goes on with the last message, and has no more",
     read_continue},
    {"add_special_tokens", kBoth, Use::kUsed, kBool,
     "Completions: with the tokens that begin and end a text (true); chat: false", read_add_special},
    {"priority", kBoth, Use::kUsed, R"({"type":"integer"})",
     "Calls of a higher one are begun first; at most that of the key", read_priority},
    {"stream", kBoth, Use::kUsed, kBool, "The answer in pieces; a batch has no pieces", read_stream},
    {"stream_options", kBoth, Use::kUsed, kObject, "include_usage: a last piece with usage", read_stream_options},
    {"n_cmpl", kBoth, Use::kOption, R"({"type":"integer","minimum":1,"maximum":256})", "The same as n", read_n},
    {"best_of", kText, Use::kUsed, R"({"type":"integer","minimum":1})", "The same as n, or refused", read_best_of},
};

}  // namespace

// [{"type": "function", "function": {"name", "description", "parameters"}}]
void read_tools(BodyReader& r, const char* name, const Json& value) {
  if (!value.is_array()) return r.refuse_type(name, value, "a list");
  for (size_t i = 0; i < value.size() && !r.refusal; ++i) {
    const std::string here = std::string(name) + "[" + std::to_string(i) + "]";
    const Json& tool = value[i];
    if (!tool.is_object()) return r.refuse_type(here, tool, "an object");
    const Json type = tool.value("type", Json("function"));
    if (type != "function") return r.refuse(here + ".type", here + ".type should be function, is " + shown(type));
    r.ignore_others(tool, here, {"type", "function"});
    read_tool(r, here + ".function", tool.value("function", Json()), "parameters");
  }
}

std::span<const BodyField> body_fields() { return kFields; }

}  // namespace situ::serve
