"""Keyword arguments: of load (include/situ/load_options.h in Python's words), and of Model.generate and Model.stream
(include/situ/generate.h)."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from numpy.typing import NDArray

from situ.prompts import Ids, Image, Sound


class LoadOptions(TypedDict, total=False):
    """How a model is loaded. Behind each: the default, which None asks for too."""

    threads: int | None  # 0: one for each CPU that the process may use; at most 1024
    naive: bool | None  # False; run the graph literally, copies included: the baseline
    context_length: int | None  # 0: most tokens of a session are what the model declares, if it holds as many
    # 0; bytes for weights, activations and state; what the first two leave is state, which all requests and sessions share. 0:
    # the state may grow to half of what machine and control group have free
    memory: int | None
    slots: int | None  # 0: tokens of that state are what `memory` leaves
    chunk: int | None  # 512 prompt tokens at most in one step; fewer where `memory` asks for it
    # 0: tokens attend to all before them; else to the last `window` and the first `sink` ones only, and sequences have no end
    window: int | None
    sink: int | None
    kv_type: Literal["auto", "f32", "f16", "bf16", "q8"] | None  # "auto"; element type of attention states
    draft: str | os.PathLike[str] | None  # None; a smaller model with the same tokens, which guesses (Options.draft_tokens)
    variants: str | Sequence[str] | None  # (); which precision of the graphs, where a folder has several: ["q4"], or ["encoder_model=fp16", ...]
    pack_cache: bool | None  # True; save weights that are laid out anew, and map what an earlier load saved


class Options(TypedDict, total=False):
    """How tokens are chosen, and when to stop. Tokens are chosen as transformers' generate does, in its order.

    Names of transformers, OpenAI's API, vLLM and llama.cpp that mean the same are taken too: max_tokens, num_beams, do_sample,
    num_return_sequences, n, stop_token_ids and others (situ/names.py).
    An unknown name or a value of another type is a TypeError, which proposes the name that is meant; a value out of its range is a SituError that names the
    option. None means: not set. What is not set is what generation_config.json says (for an encoder-decoder without that
    file: config.json), else what stands here.
    """

    # 128; at least 1. Only an encoder-decoder's files give another default: max_new_tokens, else max_length, which counts
    # the decoder's prompt too.
    max_new_tokens: int | None
    # 0; the model's end-of-sequence tokens and stop_ids are not chosen before. The files' default is min_new_tokens, else
    # min_length, which counts the prompt (an encoder-decoder's: the decoder's) too.
    min_new_tokens: int | None
    # False; go on after the model's end-of-sequence tokens, which are then tokens as all others; none is forced
    ignore_eos: bool | None
    # The eos_token of tokenizer_config.json ends the answer too, as that of a turn in a conversation. Default: of messages,
    # encode_chat and chat=True.
    end_of_turn: bool | None

    # Draw the next token at random; also when any of the next five is set. Else the most probable one is chosen. The files'
    # defaults are those of generation_config.json, else of "search" in genai_config.json.
    sample: bool | None  # False
    # Without a temperature: drawn where the files say do_sample and there are no beams, else greedy, whatever of the
    # next five is set. Default: of a conversation, where neither `sample` nor any of the next five is set.
    sample_as_files: bool | None
    temperature: float | None  # 1; at least 0, and 0 is the greedy choice
    top_k: int | None  # 50; only the k most probable; 0: all
    top_p: float | None  # 1; only the most probable that come to this probability, one at least; in [0, 1]
    min_p: float | None  # 0; only those at least this many times as probable as the first; in [0, 1]
    typical_p: float | None  # 1; only those of typical information content, up to this probability; in (0, 1]
    seed: int | None  # same seed, same tokens; else one is drawn, and Generation.seed says which

    # These apply without sampling too, and so do the files' defaults.
    repetition_penalty: float | None  # 1; above 0; for every token in the (decoder's) prompt or generated
    no_repeat_ngram: int | None  # 0; no n-gram of (decoder's) prompt and answer twice; 0: off
    # 1; above 0; above 1 raises the tokens that the encoder was given, or the prompt has where there is no encoder
    encoder_repetition_penalty: float | None
    encoder_no_repeat_ngram: int | None  # 0; no n-gram of those tokens in the answer; 0: off
    # The first token, after a prompt of one token (as encoder-decoders have); the last one before the answer ends by its
    # length. -1: none, whatever the files say.
    forced_bos_id: int | None
    forced_eos_id: int | None
    # Never chosen, and not chosen first (or first after a forced token), not even where they are forced
    suppress_ids: Sequence[int] | None
    begin_suppress_ids: Sequence[int] | None
    presence_penalty: float | None  # 0; subtracted once for every token that was generated
    frequency_penalty: float | None  # 0; subtracted for each time that a token was generated
    logit_bias: Mapping[int, float] | None  # id: what is added to its logit; -math.inf bans it
    bad_words: Sequence[str] | None  # texts that never come: as the tokenizer writes them first in a text and after a space
    bad_words_ids: Sequence[Sequence[int]] | None  # the same as token ids

    # What the answer must be, at most one of them: a JSON document of this schema (draft 2020-12, as JSON text or as Python has it),
    # a match of this regular expression (syntax of the Rust crate regex) or of this grammar (llguidance's Lark). A schema that
    # asks for something that is not supported, that nothing satisfies or that is too large, is an error, and so is the end of
    # one before min_new_tokens. Not with beams.
    json_schema: str | Mapping[str, object] | bool | None
    regex: str | None
    grammar: str | None

    # End the answer. Nothing of a stop string is in the text or in a stream's tokens, not even half of one.
    stop: str | Sequence[str] | None
    stop_ids: Sequence[int] | None

    # Beam search, from 2 beams on: the answers of the highest score, not tokens drawn or chosen one by one. Sampling,
    # logprobs and stop strings do not go with it. The folder's configuration gives the defaults of the two penalties and of
    # early_stopping.
    beams: int | None  # 1; an encoder-decoder's files give a default where nothing is drawn
    beam_groups: int | None  # 1; beams are a multiple; a group avoids the tokens that earlier ones take in the same step
    diversity_penalty: float | None  # 0; by subtracting this from their log-probability
    length_penalty: float | None  # 1; score = log-probability / tokens**length_penalty
    early_stopping: bool | Literal["false", "true", "never"] | None  # "false"; "true": stop at so many answers as beams; "never": when none can do better
    num_return: int | None  # 1; answers in Generation.answers, at most beams

    # Guesses so many tokens at most by what followed the last ones where they came before, and checks all of them in one
    # step: the same answer in fewer steps where a text repeats itself. Less than the tokens of which a step gives logits, 64 where
    # there is memory. Not with beams.
    prompt_lookup: int | None  # 0: off
    # The same, but guessed by the model that load() was given as `draft`.
    draft_tokens: int | None  # 0: off

    report_perplexity: bool | None  # False; of the answer's tokens; not with beams
    logprobs: int | None  # report log-probabilities, with so many alternatives for each token
    # Report how the model foretells the prompt's tokens, with so many alternatives: Generation.prompt_logprobs. The answer is
    # what it is without; max_new_tokens may be 0.
    prompt_logprobs: int | None
    echo: bool | None  # False; the prompt's text before the answer's

    # Answers to the prompt, drawn by seed, seed + 1, ...: Generation.answers. Not with beams.
    choices: int | None  # 1

    # What is used of the states that earlier requests left: "off", "prompts" (rows that were computed as rows of a prompt,
    # and are what they are whoever computes them), or "all" (rows of answers too: the same but for rounding).
    prefix_cache: Literal["off", "prompts", "all"] | None  # "prompts"


class RequestOptions(Options, total=False):
    """What makes a prompt of text, ids or messages, and the options of its answer."""

    chat: bool | None  # False; the text is what a user says, and the model's chat template makes the prompt of it
    # Of a text or of ids, for models with encoders of them: files, their bytes, PIL images, pixels uint8 [height, width, 3];
    # samples float [samples], mono at 16 kHz. Each takes the place of a placeholder ("<image>") in the text, in order; they stand
    # before a text without. In ids their tokens are there already. Messages have their own.
    images: Sequence[Image] | None
    sounds: Sequence[Sound] | None
    arrays: Mapping[str, NDArray[Any]] | None  # inputs of encoders by their names, exactly
    decoder_prompt: Ids | None  # of an encoder-decoder: its decoder's first tokens; default: the start token
    parse_special: bool | None  # True; what is spelled like a special token in a text is one; for messages see Message
    # Of a conversation: functions that the answer may call, {"type": "function", "function": {"name", "description", "parameters": a
    # JSON schema}} or what "function" has alone; "auto" (text or calls), "required" (a call), "none", or the name of one of them;
    # whether several calls may come. Where the chat template shows no tools they stand behind the system message, and
    # Generation.notes says so.
    tools: Sequence[Mapping[str, object]] | None
    tool_choice: str | Mapping[str, object] | None  # "auto"
    parallel_tool_calls: bool | None  # True
    # Other variables of the template ("enable_thinking"); whether an answer is begun; whether the answer goes on with the text of
    # the last message.
    template_variables: Mapping[str, object] | None
    add_generation_prompt: bool | None  # True
    continue_last: bool | None  # False
