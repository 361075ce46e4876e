// The one table of fields of OpenAI's bodies, and how each is read.
#include <algorithm>
#include <cmath>
#include <limits>

#include "serve/body_reader.h"

namespace situ::serve {
namespace {

constexpr int kChat = static_cast<int>(Route::kChat), kText = static_cast<int>(Route::kCompletions),
              kBoth = kChat | kText;
constexpr int64_t kMostLogprobs = 20;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Use = BodyField::Use;
using Reader = BodyReader;

template <auto Field, int64_t least, int64_t most>
void read_integer(Reader& r, const char* name, const Json& value) {
  if (const std::optional<int64_t> n = r.integer(name, value, least, most)) r.options.*Field = *n;
}
template <auto Field, int least, int most>
void read_number(Reader& r, const char* name, const Json& value) {
  if (const std::optional<double> x = r.number(name, value, least, most)) r.options.*Field = *x;
}
// Its range is the engine's.
template <auto Field>
void read_any_number(Reader& r, const char* name, const Json& value) {
  if (const std::optional<double> x = r.number(name, value, -kInfinity, kInfinity)) r.options.*Field = *x;
}
template <auto Field>
void read_flag(Reader& r, const char* name, const Json& value) {
  if (const std::optional<bool> b = r.boolean(name, value)) r.options.*Field = *b;
}
template <auto Field>
void read_text(Reader& r, const char* name, const Json& value) {
  if (std::optional<std::string> text = r.string(name, value)) r.options.*Field = std::move(*text);
}

void read_later(Reader&, const char*, const Json&) {}  // with others, in read_body

void read_model(Reader& r, const char* name, const Json& value) {
  if (std::optional<std::string> text = r.string(name, value)) r.asked.model = std::move(*text);
}

void read_max_tokens(Reader& r, const char* name, const Json& value) {
  const bool score = r.route == Route::kCompletions;
  const std::optional<int64_t> given = r.integer(name, value, score ? 0 : 1, INT64_MAX);
  if (!given) return;
  const int64_t n = std::min(*given, kMostTokens);  // as what is more than the context leaves
  if (r.options.max_new_tokens && *r.options.max_new_tokens != n)
    return r.refuse(name, "max_tokens and max_completion_tokens say different things");
  r.options.max_new_tokens = n;
}

void read_temperature(Reader& r, const char* name, const Json& value) {
  const std::optional<double> x = r.number(name, value, 0, kInfinity);
  if (!x) return;
  r.options.temperature = *x;
  r.options.sample = *x > 0;
}

void read_seed(Reader& r, const char* name, const Json& value) {
  if (value.is_number_unsigned())
    r.options.seed = value.get<uint64_t>();
  else if (value.is_number_integer())
    r.options.seed = static_cast<uint64_t>(value.get<int64_t>());
  else
    r.refuse_type(name, value, "an integer of 64 bits");
}

void read_stop(Reader& r, const char* name, const Json& value) {
  if (!value.is_string() && !value.is_array()) return r.refuse_type(name, value, "a string or a list of strings");
  for (const Json& text : value.is_array() ? value : Json::array({value})) {
    if (!text.is_string()) return r.refuse_type(name, text, "a string or a list of strings");
    if (text.get_ref<const std::string&>().empty()) return r.refuse(name, "stop: a stop string is empty");
    r.options.stop.push_back(text.get<std::string>());
  }
}

void read_stop_ids(Reader& r, const char* name, const Json& value) {
  if (std::optional<std::vector<int64_t>> ids = r.ids(name, value)) r.options.stop_ids = std::move(*ids);
}

void read_bias(Reader& r, const char* name, const Json& value) {
  if (!value.is_object()) return r.refuse_type(name, value, "an object of token ids and numbers");
  for (const auto& [key, bias] : value.items()) {
    if (bias.is_null()) continue;
    constexpr size_t kMostDigits = 10;
    const bool digits =
        !key.empty() && key.size() <= kMostDigits && key.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) return r.refuse(name, "logit_bias: '" + key.substr(0, 100) + "' is no token id");
    const std::optional<double> x = r.number(name, bias, -100, 100);
    if (!x) return;
    r.options.logit_bias.emplace_back(std::stoll(key), static_cast<float>(*x));
  }
}

void read_n(Reader& r, const char* name, const Json& value) {
  if (const std::optional<int64_t> n = r.integer(name, value, 1, kMostBeams)) r.asked.choices = *n;
}

void read_logprobs(Reader& r, const char* name, const Json& value) {
  if (r.route == Route::kCompletions) {
    r.asked.logprobs = r.integer(name, value, 0, kMostLogprobs);
  } else if (const std::optional<bool> wanted = r.boolean(name, value); wanted && *wanted) {
    r.asked.logprobs = r.asked.logprobs.value_or(0);
  }
}

void read_top_logprobs(Reader& r, const char* name, const Json& value) {
  const std::optional<int64_t> n = r.integer(name, value, 0, kMostLogprobs);
  const Json* wanted = r.find("logprobs");
  if (n && (!wanted || *wanted != true)) return r.refuse(name, "top_logprobs is for logprobs: true");
  r.asked.logprobs = n;
}

void read_prompt_logprobs(Reader& r, const char* name, const Json& value) {
  r.asked.prompt_logprobs = r.integer(name, value, 0, kMostLogprobs);
}

void read_echo(Reader& r, const char* name, const Json& value) {
  if (const std::optional<bool> echo = r.boolean(name, value)) r.asked.echo = *echo;
}

void read_priority(Reader& r, const char* name, const Json& value) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (const std::optional<int64_t> n = r.integer(name, value, -kMost, kMost)) r.priority = static_cast<int>(*n);
}

// Keys of an object that this server does not know, but for null values.
bool check_keys(Reader& r, const std::string& name, const Json& value, std::initializer_list<const char*> known) {
  for (const auto& [key, inner] : value.items())
    if (!inner.is_null() && std::none_of(known.begin(), known.end(), [&](const char* k) { return key == k; })) {
      r.refuse(name + "." + key.substr(0, 100), "unknown parameter: '" + name + "." + key.substr(0, 100) + "'",
               "unknown_parameter");
      return false;
    }
  return true;
}

void read_format(Reader& r, const char* name, const Json& value) {
  if (!value.is_object()) return r.refuse_type(name, value, "an object");
  const Json type = value.value("type", Json());
  if (type == "text" || type == "json_object") {
    if (check_keys(r, name, value, {"type"}) && type == "json_object") r.options.json_schema = R"({"type": "object"})";
    return;
  }
  const std::string param = std::string(name) + ".type";
  if (type != "json_schema")
    return r.refuse(param, param + " should be text, json_object or json_schema, is " + shown(type));
  if (!check_keys(r, name, value, {"type", "json_schema"})) return;
  const std::string inner = std::string(name) + ".json_schema";
  const Json schema = value.value("json_schema", Json());
  if (!schema.is_object()) return r.refuse_type(inner, schema, "an object with a schema");
  if (!check_keys(r, inner, schema, {"name", "description", "schema", "strict"})) return;
  const auto found = schema.find("schema");
  if (found == schema.end() || !(found->is_object() || found->is_boolean()))
    return r.refuse_type(inner + ".schema", found == schema.end() ? Json() : *found, "a JSON schema");
  r.options.json_schema = found->dump();
}

void read_tools(Reader& r, const char* name, const Json& value) {
  if (!value.is_array()) return r.refuse_type(name, value, "a list");
  const Json* choice = r.find("tool_choice");
  if (!value.empty() && (!choice || *choice != "none"))
    r.refuse(name, "tools are taken with tool_choice \"none\" only: tool calls are not supported",
             "unsupported_parameter");
}

void read_tool_choice(Reader& r, const char* name, const Json& value) {
  const Json* tools = r.find("tools");
  const bool idle = value == "auto" && (!tools || tools->empty());
  if (value != "none" && !idle)
    r.refuse(name, "tool_choice should be \"none\", is " + shown(value) + ": tool calls are not supported",
             "unsupported_parameter");
}

void read_stream(Reader& r, const char* name, const Json& value) {
  if (const std::optional<bool> stream = r.boolean(name, value)) r.asked.stream = *stream;
}

void read_stream_options(Reader& r, const char* name, const Json& value) {
  if (!value.is_object()) return r.refuse_type(name, value, "an object");
  if (!check_keys(r, name, value, {"include_usage", "include_obfuscation"})) return;
  if (const auto usage = value.find("include_usage"); usage != value.end() && !usage->is_null())
    r.asked.include_usage = r.boolean(std::string(name) + ".include_usage", *usage).value_or(false);
}

void read_template_variables(Reader& r, const char* name, const Json& value) {
  if (!value.is_object()) r.refuse_type(name, value, "an object");
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
    {"temperature", kBoth, Use::kOption, kNotNegative,
     "0: the most probable token each time. Default: the model's files where they say do_sample, else 0",
     read_temperature},
    {"top_p", kBoth, Use::kOption, kRatio, "Only the most probable tokens that come to this probability are drawn",
     read_any_number<&O::top_p>},
    {"top_k", kBoth, Use::kOption, kCount, "Only the k most probable tokens are drawn; 0: all",
     read_integer<&O::top_k, 0, kMostTokens>},
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
    {"frequency_penalty", kBoth, Use::kOption, kPenalty, "Subtracted for each time that the answer has a token",
     read_number<&O::frequency_penalty, -2, 2>},
    {"repetition_penalty", kBoth, Use::kOption, R"({"type":"number","exclusiveMinimum":0})",
     "Above 1: tokens of prompt and answer become less probable", read_any_number<&O::repetition_penalty>},
    {"no_repeat_ngram", kBoth, Use::kOption, kCount, "No n-gram of prompt and answer comes twice; 0: off",
     read_integer<&O::no_repeat_ngram, 0, kMostTokens>},
    {"response_format", kBoth, Use::kOption, kObject,
     "text, json_object, or json_schema with a schema that the answer follows", read_format},
    {"regex", kBoth, Use::kOption, kString, "The answer is a match of this regular expression", read_text<&O::regex>},
    {"grammar", kBoth, Use::kOption, kString, "The answer is a match of this Lark grammar", read_text<&O::grammar>},
    {"num_beams", kBoth, Use::kOption, R"({"type":"integer","minimum":1,"maximum":256})", "Beam search",
     read_integer<&O::beams, 1, kMostBeams>},
    {"length_penalty", kBoth, Use::kOption, R"({"type":"number"})", "Of a beam search",
     read_any_number<&O::length_penalty>},
    {"logprobs", kBoth, Use::kOption, R"({"oneOf":[{"type":"boolean"},{"type":"integer","minimum":0,"maximum":20}]})",
     "Log-probabilities of the answer's tokens (completions: with so many alternatives)", read_logprobs},
    {"top_logprobs", kChat, Use::kOption, kFewLogprobs, "So many alternatives for each token", read_top_logprobs},
    {"prompt_logprobs", kBoth, Use::kOption, kFewLogprobs,
     "Log-probabilities of the prompt's tokens, with so many alternatives", read_prompt_logprobs},
    {"echo", kText, Use::kOption, kBool, "The prompt's text before the answer's", read_echo},
    {"tools", kChat, Use::kUsed, R"({"type":"array"})", "With tool_choice none only, and then not shown to the model",
     read_tools},
    {"tool_choice", kChat, Use::kUsed, "{}", "none", read_tool_choice},
    {"chat_template_kwargs", kChat, Use::kUsed, kObject, "Variables of the chat template", read_template_variables},
    {"priority", kBoth, Use::kUsed, R"({"type":"integer"})",
     "Calls of a higher one are begun first; at most that of the key", read_priority},
    {"stream", kBoth, Use::kUsed, kBool, "The answer in pieces; a batch has no pieces", read_stream},
    {"stream_options", kBoth, Use::kUsed, kObject, "include_usage: a last piece with usage", read_stream_options},
    {"user", kBoth, Use::kAccepted, "{}", ""},
    {"store", kBoth, Use::kAccepted, "{}", ""},
    {"metadata", kBoth, Use::kAccepted, "{}", ""},
    {"service_tier", kBoth, Use::kAccepted, "{}", ""},
    {"prompt_cache_key", kBoth, Use::kAccepted, "{}", ""},
    {"suffix", kText, Use::kRefused, "{}", "nothing is inserted before a text"},
    {"best_of", kText, Use::kRefused, "{}", "n answers are all that are made"},
};

}  // namespace

std::span<const BodyField> body_fields() { return kFields; }

void BodyReader::refuse_type(const std::string& param, const Json& value, const std::string& wanted) {
  refuse(param, param + " should be " + wanted + ", is " + shown(value), "invalid_type");
}

std::optional<double> BodyReader::number(const std::string& name, const Json& value, double least, double most) {
  const auto text = [](double x) { return Json(x).dump(); };
  const std::string range = std::isfinite(least) && std::isfinite(most) ? " from " + text(least) + " to " + text(most)
                            : std::isfinite(least)                      ? " of at least " + text(least)
                                                                        : "";
  if (!value.is_number()) {
    refuse_type(name, value, "a number" + range);
    return std::nullopt;
  }
  const double x = value.get<double>();
  if (x >= least && x <= most) return x;
  refuse(name, name + " should be a number" + range + ", is " + shown(value));
  return std::nullopt;
}

std::optional<int64_t> BodyReader::integer(const std::string& name, const Json& value, int64_t least, int64_t most) {
  const std::string wanted = "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  if (!value.is_number_integer()) {
    refuse_type(name, value, wanted);
    return std::nullopt;
  }
  const bool large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX};
  const int64_t n = large ? INT64_MAX : value.get<int64_t>();
  if ((!large || most == INT64_MAX) && n >= least && n <= most) return n;
  refuse(name, name + " should be " + wanted + ", is " + shown(value));
  return std::nullopt;
}

std::optional<bool> BodyReader::boolean(const std::string& name, const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  refuse_type(name, value, "true or false");
  return std::nullopt;
}

std::optional<std::string> BodyReader::string(const std::string& name, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  refuse_type(name, value, "a string");
  return std::nullopt;
}

std::optional<std::vector<int64_t>> BodyReader::ids(const std::string& name, const Json& value) {
  std::vector<int64_t> ids;
  if (!value.is_array()) {
    refuse_type(name, value, "a list of token ids");
    return std::nullopt;
  }
  for (const Json& item : value) {
    if (!item.is_number_integer() || (item.is_number_unsigned() && item.get<uint64_t>() > uint64_t{INT64_MAX})) {
      refuse_type(name, item, "a list of token ids");
      return std::nullopt;
    }
    ids.push_back(item.get<int64_t>());
  }
  return ids;
}

}  // namespace situ::serve
