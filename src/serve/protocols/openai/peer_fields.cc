// Fields that clients of OpenAI, vLLM, llama.cpp and Ollama send, and that change nothing here: at all, or at the
// values that mean "off" there. A name that stands neither here nor in body_fields.cc is ignored and told in the
// answer.
#include "serve/protocols/openai/openai.h"

namespace situ::serve {
namespace {

using Use = BodyField::Use;

constexpr BodyField without_effect(const char* name, int routes = kBoth) {
  return {name, routes, Use::kAccepted, "{}", ""};
}
// `neutral`: the values at which nothing is asked for.
constexpr BodyField refused_but(const char* name, int routes, const char* neutral, const char* why) {
  return {name, routes, Use::kRefused, "{}", why, nullptr, neutral};
}
constexpr BodyField of_template(const char* name) {
  return {name, kChat, Use::kTemplate, "{}", "Handed to a chat template that reads it; else ignored"};
}

constexpr BodyField kPeerFields[] = {
    // OpenAI
    without_effect("user"),
    without_effect("store"),
    without_effect("metadata"),
    without_effect("service_tier"),
    without_effect("prompt_cache_key"),
    without_effect("prompt_cache_retention"),
    without_effect("safety_identifier"),
    without_effect("prediction", kChat),
    of_template("verbosity"),
    refused_but("modalities", kChat, R"([["text"], []])", "answers are texts"),
    refused_but("audio", kChat, "[]", "answers are texts"),
    refused_but("functions", kChat, "[[]]", "tools is"),
    refused_but("function_call", kChat, R"(["none", "auto"])", "tool_choice is"),
    refused_but("web_search_options", kChat, "[]", "nothing is fetched"),
    refused_but("suffix", kText, R"([""])", "nothing is inserted before a text"),
    // vLLM
    without_effect("spaces_between_special_tokens"),
    without_effect("request_id"),
    without_effect("cache_salt"),
    without_effect("guided_decoding_backend"),
    without_effect("include_reasoning"),
    of_template("enable_thinking"),
    refused_but("return_token_ids", kBoth, "[false]", "tokens are told by their text"),
    refused_but("return_tokens_as_token_ids", kBoth, "[false]", "tokens are told by their text"),
    refused_but("use_beam_search", kBoth, "[false]", "num_beams is"),
    refused_but("early_stopping", kBoth, "[false]", "beam searches stop when no better answer is in reach"),
    refused_but("include_stop_str_in_output", kBoth, "[false]", "a stop string is not part of the answer"),
    refused_but("skip_special_tokens", kBoth, "[true]", "special tokens are not part of the text"),
    refused_but("truncate_prompt_tokens", kBoth, "[-1]", "a prompt is taken as it is"),
    refused_but("allowed_token_ids", kBoth, "[]", "logit_bias, regex and grammar say which tokens may come"),
    refused_but("logits_processors", kBoth, "[[]]", "no code is taken"),
    refused_but("chat_template", kChat, R"([""])", "the template is that of the model"),
    refused_but("mm_processor_kwargs", kChat, "[{}]", "the settings of images are those of the model"),
    refused_but("media_io_kwargs", kChat, "[{}]", "the settings of images are those of the model"),
    refused_but("guided_grammar", kBoth, R"([""])", "grammar takes a Lark grammar"),
    refused_but("guided_whitespace_pattern", kBoth, R"([""])", "white space of JSON is free"),
    refused_but("structural_tag", kBoth, "[]", "response_format is"),
    refused_but("kv_transfer_params", kBoth, "[{}]", "states are not handed on"),
    refused_but("vllm_xargs", kBoth, "[{}]", "these are options of another engine"),
    refused_but("prompt_embeds", kText, "[]", "a prompt is a text or token ids"),
    refused_but("extra_body", kBoth, "[{}]", "its fields belong into the body itself, where clients put them"),
    // llama.cpp
    without_effect("cache_prompt"),
    without_effect("id_slot"),
    without_effect("n_keep"),
    without_effect("n_discard"),
    without_effect("n_indent"),
    without_effect("repeat_last_n"),
    without_effect("penalize_nl"),
    without_effect("dry_base"),
    without_effect("dry_allowed_length"),
    without_effect("dry_penalty_last_n"),
    without_effect("dry_sequence_breakers"),
    without_effect("dynatemp_exponent"),
    without_effect("xtc_threshold"),
    without_effect("mirostat_tau"),
    without_effect("mirostat_eta"),
    without_effect("adaptive_decay"),
    without_effect("timings_per_token"),
    without_effect("return_progress"),
    without_effect("verbose"),
    without_effect("reasoning_format"),
    without_effect("thinking_forced_open"),
    without_effect("parse_tool_calls"),
    without_effect("backend_sampling"),
    refused_but("return_tokens", kBoth, "[false]", "tokens are told by their text"),
    refused_but("post_sampling_probs", kBoth, "[false]", "log-probabilities are the model's own"),
    refused_but("min_keep", kBoth, "[0, 1]", "rules of choosing leave one token at least"),
    refused_but("repeat_penalty", kBoth, "[1]", "repetition_penalty is"),
    refused_but("dry_multiplier", kBoth, "[0]", "DRY is not among the rules of choosing"),
    refused_but("dynatemp_range", kBoth, "[0]", "temperature is one number"),
    refused_but("xtc_probability", kBoth, "[0]", "XTC is not among the rules of choosing"),
    refused_but("mirostat", kBoth, "[0]", "Mirostat is not among the rules of choosing"),
    refused_but("tfs_z", kBoth, "[0, 1]", "tail-free sampling is not among the rules of choosing"),
    refused_but("top_n_sigma", kBoth, "[-1, 0]", "top-n-sigma is not among the rules of choosing"),
    refused_but("adaptive_target", kBoth, "[-1]", "adaptive sampling is not among the rules of choosing"),
    refused_but(
        "samplers", kBoth,
        R"([[], "", "edskypmxt", "edkypmxt", ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]])",
        "rules of choosing have one order, transformers'"),
    refused_but("n_probs", kBoth, "[0]", "logprobs is"),
    refused_but("t_max_predict_ms", kBoth, "[0, -1]", "max_tokens is"),
    refused_but("lora", kBoth, "[[]]", "adapters are not supported"),
    refused_but("grammar_lazy", kBoth, "[false]", "a grammar holds from the first token on"),
    refused_but("response_fields", kBoth, "[[]]", "an answer has all its fields"),
    refused_but("input_prefix", kBoth, R"([""])", "nothing is inserted before a text"),
    refused_but("input_suffix", kBoth, R"([""])", "nothing is inserted before a text"),
    // Ollama's OpenAI route
    without_effect("keep_alive"),
    of_template("think"),
};

}  // namespace

std::span<const BodyField> peer_fields() { return kPeerFields; }

}  // namespace situ::serve
