// Fields that clients of OpenAI, vLLM, llama.cpp and Ollama send, and that change nothing here: at all, or at the values
// that mean "off" there. A name that stands neither here nor in body_fields.cc is ignored and told in the answer.
#include "serve/body_reader.h"

namespace situ::serve {
namespace {

constexpr int kChat = static_cast<int>(Route::kChat), kText = static_cast<int>(Route::kCompletions),
              kBoth = kChat | kText;
using Use = BodyField::Use;

constexpr BodyField accepted(const char* name, int routes = kBoth) { return {name, routes, Use::kAccepted, "{}", ""}; }
// `neutral`: the values at which nothing is asked for.
constexpr BodyField refused(const char* name, int routes, const char* neutral, const char* why) {
  return {name, routes, Use::kRefused, "{}", why, nullptr, neutral};
}
constexpr BodyField variable(const char* name) {
  return {name, kChat, Use::kTemplate, "{}", "Handed to a chat template that reads it; else ignored"};
}

constexpr BodyField kFields[] = {
    // OpenAI
    accepted("user"),
    accepted("store"),
    accepted("metadata"),
    accepted("service_tier"),
    accepted("prompt_cache_key"),
    accepted("prompt_cache_retention"),
    accepted("safety_identifier"),
    accepted("parallel_tool_calls", kChat),
    accepted("prediction", kChat),
    variable("reasoning_effort"),
    variable("verbosity"),
    refused("modalities", kChat, R"([["text"]])", "answers are texts"),
    refused("audio", kChat, "[]", "answers are texts"),
    refused("functions", kChat, "[[]]", "tool calls are not supported"),
    refused("function_call", kChat, R"(["none", "auto"])", "tool calls are not supported"),
    refused("web_search_options", kChat, "[]", "nothing is fetched"),
    refused("suffix", kText, R"([""])", "nothing is inserted before a text"),
    // vLLM
    accepted("spaces_between_special_tokens"),
    accepted("request_id"),
    accepted("cache_salt"),
    accepted("guided_decoding_backend"),
    accepted("include_reasoning"),
    variable("enable_thinking"),
    refused("return_token_ids", kBoth, "[false]", "tokens are told by their text"),
    refused("return_tokens_as_token_ids", kBoth, "[false]", "tokens are told by their text"),
    refused("use_beam_search", kBoth, "[false]", "num_beams is"),
    refused("early_stopping", kBoth, "[false]", "beam searches stop when no better answer is in reach"),
    refused("include_stop_str_in_output", kBoth, "[false]", "a stop string is not part of the answer"),
    refused("skip_special_tokens", kBoth, "[true]", "special tokens are not part of the text"),
    refused("truncate_prompt_tokens", kBoth, "[]", "a prompt is taken as it is"),
    refused("allowed_token_ids", kBoth, "[]", "logit_bias, regex and grammar say which tokens may come"),
    refused("logits_processors", kBoth, "[[]]", "no code is taken"),
    refused("chat_template", kChat, R"([""])", "the template is that of the model"),
    refused("mm_processor_kwargs", kChat, "[{}]", "the settings of images are those of the model"),
    refused("media_io_kwargs", kChat, "[{}]", "the settings of images are those of the model"),
    refused("guided_grammar", kBoth, R"([""])", "grammar takes a Lark grammar"),
    refused("guided_whitespace_pattern", kBoth, R"([""])", "white space of JSON is free"),
    refused("structural_tag", kBoth, "[]", "response_format is"),
    refused("kv_transfer_params", kBoth, "[{}]", "states are not handed on"),
    refused("vllm_xargs", kBoth, "[{}]", "these are options of another engine"),
    refused("prompt_embeds", kText, "[]", "a prompt is a text or token ids"),
    refused("extra_body", kBoth, "[{}]", "its fields belong into the body itself, where clients put them"),
    // llama.cpp
    accepted("cache_prompt"),
    accepted("id_slot"),
    accepted("n_keep"),
    accepted("n_discard"),
    accepted("n_indent"),
    accepted("repeat_last_n"),
    accepted("penalize_nl"),
    accepted("dry_base"),
    accepted("dry_allowed_length"),
    accepted("dry_penalty_last_n"),
    accepted("dry_sequence_breakers"),
    accepted("dynatemp_exponent"),
    accepted("xtc_threshold"),
    accepted("mirostat_tau"),
    accepted("mirostat_eta"),
    accepted("adaptive_decay"),
    accepted("timings_per_token"),
    accepted("return_progress"),
    accepted("verbose"),
    accepted("reasoning_format"),
    accepted("thinking_forced_open"),
    accepted("parse_tool_calls"),
    accepted("backend_sampling"),
    refused("return_tokens", kBoth, "[false]", "tokens are told by their text"),
    refused("post_sampling_probs", kBoth, "[false]", "log-probabilities are the model's own"),
    refused("min_keep", kBoth, "[0, 1]", "rules of choosing leave one token at least"),
    refused("repeat_penalty", kBoth, "[1]", "repetition_penalty is"),
    refused("dry_multiplier", kBoth, "[0]", "DRY is not among the rules of choosing"),
    refused("dynatemp_range", kBoth, "[0]", "temperature is one number"),
    refused("xtc_probability", kBoth, "[0]", "XTC is not among the rules of choosing"),
    refused("mirostat", kBoth, "[0]", "Mirostat is not among the rules of choosing"),
    refused("tfs_z", kBoth, "[0, 1]", "tail-free sampling is not among the rules of choosing"),
    refused("top_n_sigma", kBoth, "[-1, 0]", "top-n-sigma is not among the rules of choosing"),
    refused("adaptive_target", kBoth, "[-1]", "adaptive sampling is not among the rules of choosing"),
    refused("samplers", kBoth, R"([[], "", "edskypmxt", "edkypmxt", ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]])", "rules of choosing have one order, transformers'"),
    refused("n_probs", kBoth, "[0]", "logprobs is"),
    refused("t_max_predict_ms", kBoth, "[0, -1]", "max_tokens is"),
    refused("lora", kBoth, "[[]]", "adapters are not supported"),
    refused("grammar_lazy", kBoth, "[false]", "a grammar holds from the first token on"),
    refused("response_fields", kBoth, "[[]]", "an answer has all its fields"),
    refused("input_prefix", kBoth, R"([""])", "nothing is inserted before a text"),
    refused("input_suffix", kBoth, R"([""])", "nothing is inserted before a text"),
    // Ollama's OpenAI route
    accepted("keep_alive"),
    variable("think"),
};

}  // namespace

std::span<const BodyField> peer_fields() { return kFields; }

}  // namespace situ::serve
