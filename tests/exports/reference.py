"""What a model must answer: transformers in eager mode, in float32 and again in float64 so that no answer hangs on rounding.

Answers run on after end-of-sequence ids, which are not chosen more or less often than others: `situ run --ignore-eos`.
Those under "default_cases" do not: they are what `generate` gives with the settings of generation_config.json alone.
"""
import copy

import numpy as np
import torch
from transformers import GenerationMixin

NEW_TOKENS, NEW_TOKENS_OF_BEAMS, BEAMS = 24, 12, 3
PROMPTS = (1, 7, 40)
NEAR = 5e-4  # logits: an answer with two best ones this near is not kept


def prompts(model, vocabulary, seed=5):
    """The arguments of `generate` for each case."""
    rng = np.random.default_rng(seed)
    if model.features:
        return [{name: torch.tensor(rng.standard_normal(shapes[i]), dtype=torch.float32) for name, shapes in model.features.items()}
                for i in range(len(next(iter(model.features.values()))))]
    return [{"input_ids": torch.tensor(rng.integers(50, vocabulary, (1, n)))} for n in PROMPTS]


def generate(network, inputs, decoder_ids=None, settings=None, **options):
    """The ids of the answer; those of an encoder-decoder begin with the decoder's prompt, of a decoder alone with what is new."""
    config = copy.deepcopy(settings or network.generation_config)
    own, network.generation_config = network.generation_config, config  # `generate` takes special tokens from there
    if "max_new_tokens" in options:  # run on
        config.update(eos_token_id=None, forced_eos_token_id=None, max_length=None, min_length=0)
    if not config.num_beams > 1 or "num_beams" in options:
        config.update(early_stopping=False, length_penalty=1.0)
    config.update(do_sample=False, **options)
    more = {"decoder_input_ids": torch.tensor([decoder_ids])} if decoder_ids else {}
    if "input_ids" in inputs:
        more["attention_mask"] = torch.ones_like(inputs["input_ids"])
    with torch.no_grad():
        # Not the generate of Whisper, which adds prompts and time stamps.
        ids = GenerationMixin.generate(network, **inputs, **more, generation_config=config, use_model_defaults=False)[0].tolist()
    network.generation_config = own
    assert "max_new_tokens" not in options or len(ids) >= options["max_new_tokens"], ids
    return ids if network.config.is_encoder_decoder else ids[inputs["input_ids"].shape[1]:]


def in_double(inputs):
    return {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}


def logits(network, inputs, ids):
    """[ids, vocabulary]: what the answer was chosen by, without bans and penalties."""
    with torch.no_grad():
        if network.config.is_encoder_decoder:
            out = network(**inputs, decoder_input_ids=torch.tensor([ids[:-1]])).logits[0]
            return out
        whole = torch.cat([inputs["input_ids"], torch.tensor([ids[:-1]], dtype=torch.long)], 1)
        return network(input_ids=whole, attention_mask=torch.ones_like(whole)).logits[0, inputs["input_ids"].shape[1] - 1:]


def read_cases(network, double, model):
    """The cases of expected.json and the inputs of each, or a reason why these weights make a poor test."""
    vocabulary = network.config.vocab_size if hasattr(network.config, "vocab_size") else network.config.decoder.vocab_size
    cases, asked, prompt = [], prompts(model, min(vocabulary, 300)), list(model.prompt)
    for i, inputs in enumerate(asked):
        greedy = generate(network, inputs, prompt, max_new_tokens=NEW_TOKENS, num_beams=1)
        if greedy != generate(double, in_double(inputs), prompt, max_new_tokens=NEW_TOKENS, num_beams=1):
            return None, None, "rounding changes ids"
        scores = logits(network, inputs, greedy)[max(0, len(prompt) - 1):]
        margins = scores.topk(2).values
        case = {"input_ids": inputs["input_ids"][0].tolist()} if "input_ids" in inputs else {}
        case["greedy_ids"] = greedy
        case["first_logits"] = [round(x, 5) for x in scores[0, :8].tolist()]
        case["first_logits_argmax"] = int(scores[0].argmax())
        case["min_top1_margin"] = round(float((margins[:, 0] - margins[:, 1]).min()), 5)
        if case["min_top1_margin"] < NEAR:
            return None, None, "two best logits are too near"
        if len(set(greedy)) < 4 and len(inputs.get("input_ids", [[1, 2]])[0]) > 1:
            return None, None, "an answer repeats itself"
        if model.beams and (i == 1 or model.features):
            case["beam3_ids"] = generate(network, inputs, prompt, max_new_tokens=NEW_TOKENS_OF_BEAMS, num_beams=BEAMS)
            if case["beam3_ids"] != generate(double, in_double(inputs), prompt, max_new_tokens=NEW_TOKENS_OF_BEAMS, num_beams=BEAMS):
                return None, None, "rounding changes beams"
            if case["beam3_ids"] == greedy[:len(case["beam3_ids"])]:
                return None, None, "beams find what greedy search finds"
        cases.append(case)
    if len({tuple(c["greedy_ids"]) for c in cases}) < len(cases):
        return None, None, "two prompts have one answer"
    if "input_ids" in asked[1] and generate(network, {"input_ids": asked[1]["input_ids"].flip(1)}, max_new_tokens=NEW_TOKENS, num_beams=1) == cases[1]["greedy_ids"]:
        return None, None, "the order of the prompt does not matter"
    return cases, asked, None


def decoder_prompt_cases(network, double, inputs, start):
    """Longer prompts of the decoder: greedy_ids is what follows them."""
    found = []
    for tail in ([60], [61, 70, 90, 52], list(range(60, 95))):
        prompt = [start, *tail]
        ids = generate(network, inputs, prompt, max_new_tokens=8, num_beams=1)
        if ids == generate(double, in_double(inputs), prompt, max_new_tokens=8, num_beams=1):
            found.append({"decoder_input_ids": prompt, "greedy_ids": ids[len(prompt):]})
    return found


def default_cases(network, double, asked):
    """The answers with the settings of the file alone, where it says how long they are; an end-of-sequence id that ends an answer is in it."""
    if network.generation_config.max_length == 20 and network.generation_config.num_beams == 1:  # both the defaults of transformers
        return []
    return [{"input_ids": inputs["input_ids"][0].tolist(), "greedy_ids": ids[1:]} for inputs in asked
            if "input_ids" in inputs and (ids := generate(network, inputs)) == generate(double, inputs)]
