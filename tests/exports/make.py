"""Makes the models of models.py as Optimum exports, each with an expected.json: make.sh says how it is called.

Weights are drawn until the answers say something (reference.py), then ONNX Runtime must give the same answers from the files.
"""
import copy
import json
import logging
import shutil
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import transformers as hf
from models import MODELS
from optimum.exporters.onnx import onnx_export_from_model
from optimum.onnxruntime import ORTModelForCausalLM, ORTModelForSeq2SeqLM, ORTModelForSpeechSeq2Seq, ORTModelForVision2Seq

import reference

CLASSES = {"text2text-generation-with-past": (hf.AutoModelForSeq2SeqLM, ORTModelForSeq2SeqLM), "text-generation-with-past": (hf.AutoModelForCausalLM, ORTModelForCausalLM),
           "image-to-text-with-past": (hf.AutoModelForVision2Seq, ORTModelForVision2Seq),
           "automatic-speech-recognition-with-past": (hf.AutoModelForSpeechSeq2Seq, ORTModelForSpeechSeq2Seq)}
NOTE = "generation runs to max_new_tokens; EOS ignored; greedy_ids and beam3_ids begin with the decoder start token where the prompt is the encoder's"
SEEDS = 400


class Poor(Exception):
    """A model that cannot be made into a test, and why."""


def draw(model, seed):
    """The network with weights of `seed`, wide enough apart that every part of it changes the answer."""
    torch.manual_seed(seed)
    network = CLASSES[model.task][0].from_config(copy.deepcopy(model.config), attn_implementation="eager").eval()
    # Tied tables draw the answer towards the last token: it repeats itself, unless the rest of the network weighs more.
    table = model.table / (network.config.d_model ** 0.5 if getattr(network.config, "scale_embedding", False) else 1)
    with torch.no_grad():
        for name, p in network.named_parameters():
            if not p.requires_grad:  # sines
                continue
            if p.ndim > 1:
                p.normal_(0, table if any(word in name for word in ("embed_tokens", "shared", "wte", "lm_head")) else model.spread)
            elif "norm" in name and "weight" in name:
                p.normal_(1, 0.2)
            else:
                p.normal_(0, 0.1)
        for name, b in network.named_buffers():
            if name.endswith("final_logits_bias"):
                b.normal_(0, 0.05)
    network.tie_weights()
    for key, value in model.generation.items():
        setattr(network.generation_config, key, value)
    return network


def choose(model):
    """The first weights whose answers make a good test: (seed, network, its double, cases, inputs)."""
    reasons = {}
    for seed in range(SEEDS):
        network = draw(model, seed)
        double = copy.deepcopy(network).double()
        cases, asked, reason = reference.read_cases(network, double, model)
        if cases:
            return seed, network, double, cases, asked
        reasons[reason] = reasons.get(reason, 0) + 1
    raise Poor(f"no weights make a good test: {reasons}")


def check(folder, model, expected, asked):
    """ONNX Runtime gives the same ids from the files."""
    options = {} if model.task.startswith("text-generation") else {"use_merged": model.merged}
    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = 1
    runtime = CLASSES[model.task][1].from_pretrained(folder, session_options=session, **options)
    for part in ("decoder", "decoder_with_past"):  # the width of their empty past is not always hidden size / heads
        if hasattr(model.config, "d_kv") and getattr(runtime, part, None):
            getattr(runtime, part).embed_size_per_head = model.config.d_kv
    settings = hf.GenerationConfig.from_pretrained(folder)
    for case, inputs in zip(expected["cases"], asked):
        for key, count, beams in (("greedy_ids", reference.NEW_TOKENS, 1), ("beam3_ids", reference.NEW_TOKENS_OF_BEAMS, reference.BEAMS)):
            if key in case:
                ids = reference.generate(runtime, inputs, list(model.prompt), settings=settings, max_new_tokens=count, num_beams=beams)
                if ids != case[key]:
                    raise Poor(f"{key} of ONNX Runtime {ids}, of transformers {case[key]}")


def make(folder, model):
    seed, network, double, cases, asked = choose(model)
    expected = {"model": network.config.model_type, "source": f"transformers {hf.__version__} eager fp32; Optimum export unmodified, seed {seed}", "note": NOTE, "cases": cases}
    if network.config.is_encoder_decoder:
        if not model.features:
            start = network.generation_config.decoder_start_token_id
            expected["decoder_prompt_cases"] = [{"input_ids": asked[1]["input_ids"][0].tolist(), **c} for c in reference.decoder_prompt_cases(network, double, asked[1], start)]
        defaults = reference.default_cases(network, double, asked)
        if defaults:
            expected["default_cases"] = defaults
    onnx_export_from_model(network, folder, task=model.task, no_post_process=not model.merged, do_validation=False, **model.traced)
    if model.merged:  # the merged file holds both
        for name in ("decoder_model.onnx", "decoder_with_past_model.onnx"):
            (folder / name).unlink(missing_ok=True)
    check(folder, model, expected, asked)
    for i, inputs in enumerate(asked if model.features else []):
        store_features(folder, cases[i], i, inputs, model.prompt)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def store_features(folder, case, i, inputs, prompt):
    """The encoder's arrays as .npy files. Answers are what follows the decoder's prompt."""
    if prompt:
        case["decoder_input_ids"] = list(prompt)
    for key in {"greedy_ids", "beam3_ids"} & set(case):
        case[key] = case[key][max(1, len(prompt)):]
    case["encoder_inputs"] = {}
    for name, array in inputs.items():
        file = f"case{i}.{name}.npy"
        np.save(folder / file, array.numpy())
        if name == "input_features":
            case[name] = file
        case["encoder_inputs"][name] = {"file": file, "dtype": str(array.numpy().dtype), "shape": list(array.shape)}


def main():
    warnings.filterwarnings("ignore")
    hf.logging.set_verbosity_error()
    logging.getLogger("optimum").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    out, names = Path(sys.argv[1]), sys.argv[2:]
    unknown = [n for n in names if n not in MODELS]
    if unknown:
        raise SystemExit(f"{', '.join(unknown)}: none of {', '.join(MODELS)}")
    failed = 0
    for name in names or MODELS:
        folder = out / name
        if not names and (folder / "expected.json").exists():
            continue
        start = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        try:
            make(folder, MODELS[name])
            print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        except Exception as reason:  # the others are made all the same
            failed += 1
            print(f"{name}: {'' if isinstance(reason, Poor) else traceback.format_exc()}{reason}", file=sys.stderr, flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
