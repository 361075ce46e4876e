"""Options as other libraries name and spell them: taken where they mean the same, else the error proposes the name."""

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from situ import _situ
from situ.lists import as_list, naming, text_of, token_ids

# Names of transformers, OpenAI's API, vLLM, llama.cpp and Ollama that mean the same.
_GENERATE = {
    "max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens", "max_output_tokens": "max_new_tokens",
    "n_predict": "max_new_tokens", "num_predict": "max_new_tokens", "min_tokens": "min_new_tokens",
    "random_seed": "seed", "no_repeat_ngram_size": "no_repeat_ngram", "encoder_no_repeat_ngram_size": "encoder_no_repeat_ngram",
    "forced_bos_token_id": "forced_bos_id", "forced_eos_token_id": "forced_eos_id", "suppress_tokens": "suppress_ids",
    "begin_suppress_tokens": "begin_suppress_ids", "guided_json": "json_schema", "guided_regex": "regex",
    "stop_strings": "stop", "stop_sequences": "stop", "stop_words": "stop", "stop_token_ids": "stop_ids",
    "num_beams": "beams", "beam_size": "beams", "beam_width": "beams", "num_beam_groups": "beam_groups", "n": "choices",
    "prompt_lookup_num_tokens": "prompt_lookup", "chat_template_kwargs": "template_variables",
    "decoder_input_ids": "decoder_prompt", "audios": "sounds",
}  # fmt: skip
_LOAD = {
    "num_threads": "threads", "n_threads": "threads", "cpu_threads": "threads", "intra_op_num_threads": "threads",
    "max_model_len": "context_length", "n_ctx": "context_length", "max_seq_len": "context_length",
    "draft_model": "draft", "assistant_model": "draft",
}  # fmt: skip
_SPEECH = {
    "beam_size": "beams", "num_beams": "beams", "vad_filter": "vad", "initial_prompt": "prompt", "batch_size": "batched",
    "log_prob_threshold": "logprob_threshold", "condition_on_prev_tokens": "condition_on_previous_text",
    "temperature": "temperatures",
}  # fmt: skip

# Names that do not mean the same, and what to write.
_ADVICE = {
    "generate": {
        "max_length": "max_new_tokens counts the tokens of the answer alone",
        "min_length": "min_new_tokens counts the tokens of the answer alone",
        "eos_token_id": "stop_ids are ends beside those of the model", "pad_token_id": "prompts are not padded: leave it out",
        "best_of": "choices are answers that are drawn, beams those of a beam search", "use_beam_search": "beams",
        "repeat_penalty": "repetition_penalty, of all tokens so far", "sequence_bias": "logit_bias, of single tokens",
        "output_scores": "logprobs", "output_logits": "logprobs", "return_dict_in_generate": "logprobs", "top_n_tokens": "logprobs",
        "num_assistant_tokens": "draft_tokens", "num_speculative_tokens": "draft_tokens", "assistant_model": "load(draft=...) and draft_tokens",
        "guided_choice": "regex", "guided_grammar": "grammar", "response_schema": "json_schema", "structured_outputs": "json_schema, regex or grammar",
        "stream": "Model.stream()", "streamer": "Model.stream()", "messages": "the first argument of the call",
        "prompts": "the first argument of the call", "input_ids": "the first argument of the call", "inputs": "the first argument of the call",
        "attention_mask": "prompts are not padded: leave it out", "system": "a message of the role 'system'", "system_prompt": "a message of the role 'system'",
        "use_cache": "prefix_cache", "cache_prompt": "prefix_cache", "enable_thinking": "template_variables={'enable_thinking': ...}",
        "generation_config": "options by their names", "sampling_params": "options by their names",
        "pixel_values": "images, or arrays={'pixel_values': ...}", "input_features": "sounds, or arrays={'input_features': ...}",
        "multi_modal_data": "images and sounds", "skip_special_tokens": "Model.decode(output_ids, skip_special=...)",
        "add_special_tokens": "Model.encode(text, add_special=...)",
    },
    "load": {
        "kv_cache_dtype": "kv_type", "cache_type_k": "kv_type", "dtype": "variants", "torch_dtype": "variants", "compute_type": "variants",
        "quantization": "variants", "subfolder": "the path of the folder", "file_name": "the path of the file or variants",
        "n_batch": "chunk", "n_ubatch": "chunk", "max_num_batched_tokens": "chunk", "device": "models run on the CPU: leave it out",
        "device_map": "models run on the CPU: leave it out", "provider": "models run on the CPU: leave it out", "providers": "models run on the CPU: leave it out",
    },
    "transcribe": {
        "vad_parameters": "vad", "chunk_length": "batched", "chunk_length_s": "batched", "generate_kwargs": "options by their names",
        "fp16": "load(variants=...)", "stream": "the segments come as they are decided",
    },
}  # fmt: skip


def generate_options(given: Mapping[str, Any], prompt_names: Iterable[str]) -> dict[str, Any]:
    """Options of generate by their own names, of which None says nothing. TypeError: there is no such option."""
    options = dict(given)
    if isinstance(options.get("logprobs"), bool):  # OpenAI's: whether, and how many alternatives
        top = options.pop("top_logprobs", None)
        options["logprobs"] = (top or 0) if options["logprobs"] else None
    if options.get("do_sample") is False:  # transformers does not look at these then
        options = {name: value for name, value in options.items() if name not in _OF_DRAWING}
    found = {name: value for name, value in options.items() if name not in _REWRITTEN}
    for name, rewritten in _REWRITTEN.items():
        if options.get(name) is not None:
            for other, value in rewritten(options[name], options).items():
                _put(found, other, value, name)
    found = _renamed(found, _GENERATE, [*_situ.option_names(), *prompt_names], "generate")
    spelled = {name: _SPELLED[name](value) if name in _SPELLED else value for name, value in found.items()}
    if spelled.get("beams") in (None, 1):  # transformers does not look at these then; a length penalty of 1 is none
        spelled.pop("early_stopping", None)
        if spelled.get("length_penalty") == 1:
            del spelled["length_penalty"]
    return {name: value for name, value in spelled.items() if value is not None}


def load_options(given: Mapping[str, Any]) -> dict[str, Any]:
    found = _renamed(given, _LOAD, _situ.load_option_names(), "load")
    if isinstance(found.get("variants"), str):
        found["variants"] = [found["variants"]]
    return found


def speech_options(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """None says nothing, but of a threshold, which is then not looked at."""
    found = dict(given)
    for name, values in _TIMESTAMPS.items():
        value = found.pop(name, None)
        value = tuple(value) if isinstance(value, list) else value
        if value is None:
            continue
        if value not in values:
            raise TypeError(f"option {name} cannot be {value!r}")
        if values[value] is not None:
            _put(found, "timestamps", values[value], name)
    thresholds = {name: None for name, value in found.items() if value is None and name.endswith("_threshold")}
    found = {**_renamed(found, _SPEECH, names, "transcribe"), **{_SPEECH.get(name, name): None for name in thresholds}}
    if "temperatures" in found:
        value = found["temperatures"]
        found["temperatures"] = [float(value)] if isinstance(value, (int, float)) else as_list(value, "temperatures")
    return found


def _renamed(given: Mapping[str, Any], names: Mapping[str, str], known: Iterable[str], call: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    known = set(known)
    for name, value in sorted(given.items(), key=lambda item: item[0] in names):
        own = names.get(name, name)
        if own not in known:
            raise TypeError(f"there is no option '{name}' of {call}{_proposal(name, names, known, call)}")
        if value is not None:
            _put(found, own, value, name)
    return found


def _put(found: dict[str, Any], name: str, value: Any, as_name: str) -> None:
    if found.get(name) is not None:
        raise TypeError(f"{as_name} is another name of {name}: give one of the two")
    found[name] = value


def _proposal(name: str, names: Mapping[str, str], known: set[str], call: str) -> str:
    if name in _ADVICE[call]:
        return f"; write: {_ADVICE[call][name]}"
    alike = difflib.get_close_matches(name, [*known, *names, *_ADVICE[call], *(_REWRITTEN if call == "generate" else _TIMESTAMPS if call == "transcribe" else ())], 1, 0.7)
    if not alike:
        return ""
    return f"; did you mean '{alike[0] if alike[0] in known else names.get(alike[0], alike[0])}'?"


def _sequences(value: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    beams = any((options.get(name) or 1) > 1 for name, own in {**_GENERATE, "beams": "beams"}.items() if own == "beams")
    return {"num_return" if beams else "choices": value}


def _response_format(value: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"json_schema": {"type": "object"}}
    schema = value.get("json_schema") if kind == "json_schema" else None
    if not isinstance(schema, Mapping) or schema.get("schema") is None:
        raise TypeError("response_format is {'type': 'text'}, {'type': 'json_object'} or {'type': 'json_schema', 'json_schema': {'schema': ...}}")
    return {"json_schema": schema["schema"]}


_OF_DRAWING = ("sample", "sample_as_files", "temperature", "top_k", "top_p", "min_p", "typical_p")
# Options that become others.
_REWRITTEN: dict[str, Callable[[Any, Mapping[str, Any]], dict[str, Any]]] = {
    "do_sample": lambda value, options: {"sample": True} if value else {"sample": False, "sample_as_files": False},
    "num_return_sequences": _sequences,
    "top_logprobs": lambda value, options: {"logprobs": value},
    "response_format": _response_format,
    "continue_final_message": lambda value, options: {"continue_last": bool(value)},
    "image": lambda value, options: {"images": [value]},
    "audio": lambda value, options: {"sounds": [value]},
}

_TIMESTAMPS: dict[str, dict[object, str | None]] = {
    "word_timestamps": {True: "word", False: None},
    "without_timestamps": {True: "none", False: None},
    "return_timestamps": {True: "segment", False: None, "word": "word"},
    "timestamp_granularities": {("word",): "word", ("segment",): "segment", ("word", "segment"): "word", ("segment", "word"): "word"},
}


def _texts(what: str) -> Callable[[Any], list[str]]:
    return lambda value: [value] if isinstance(value, str) else [text_of(t, f"{what}: text {n}") for n, t in enumerate(as_list(value, what))]


def _ids(what: str) -> Callable[[Any], list[int]]:
    def spelled(value: Any) -> list[int]:
        with naming(what):
            return [int(value)] if isinstance(value, int) else token_ids(value)

    return spelled


def _lists_of_ids(value: Any) -> list[list[int]]:
    found = []
    for number, ids in enumerate(as_list(value, "bad_words_ids")):
        with naming(f"bad_words_ids: {number}"):
            found.append(token_ids(ids))
    return found


def _biases(value: Any) -> dict[int, Any]:
    """OpenAI's API has the ids as texts."""
    if not isinstance(value, Mapping):
        raise TypeError(f"option logit_bias cannot be {value!r}: it is a mapping of ids to biases")
    return {int(id) if isinstance(id, str) and id.strip().isdecimal() else id: bias for id, bias in value.items()}


def _schema(value: Any) -> str:
    if isinstance(value, str):
        return value
    of_class = getattr(value, "model_json_schema", None)  # a class of pydantic
    return json.dumps(of_class() if callable(of_class) else dict(value) if isinstance(value, Mapping) else value)


_SPELLED: dict[str, Callable[[Any], Any]] = {
    "top_k": lambda value: 0 if value == -1 else value,  # vLLM's all
    "stop": _texts("stop"),
    "bad_words": _texts("bad_words"),
    "stop_ids": _ids("stop_ids"),
    "suppress_ids": _ids("suppress_ids"),
    "begin_suppress_ids": _ids("begin_suppress_ids"),
    "bad_words_ids": _lists_of_ids,
    "logit_bias": _biases,
    "json_schema": _schema,
    "seed": lambda value: None if value == -1 and not isinstance(value, bool) else value,  # vLLM's drawn one
    "early_stopping": lambda value: {True: "true", False: "false"}[value] if isinstance(value, bool) else value,
}
