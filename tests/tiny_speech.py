"""A tiny model of Whisper's kind, its side files, and recordings to give it.

The vocabulary of 64 is laid out as Whisper's: text, the end, the start, languages, tasks, the other special tokens, and
timestamps in steps of 0.02 s. A window has one second, and timestamps reach to 0.52 s of it.
"""
import json
import shutil
import wave
from dataclasses import replace

import numpy as np

import tiny_seq2seq as tiny
from tiny_seq2seq import CONTEXT, FEATURES, FRAMES, SPEECH, VOCABULARY

TEXT = " abcdefghijklmnopqrstuvwxy"  # one character a token
LANGUAGES = ["en", "de", "fr"]
NAMES = ["<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in LANGUAGES), "<|translate|>", "<|transcribe|>",
         "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
END, START, EN, DE, FR, TRANSLATE, TRANSCRIBE, START_OF_LM, PREVIOUS, NO_SPEECH, NO_TIMESTAMPS = range(len(TEXT), len(TEXT) + len(NAMES))
TIMES = NO_TIMESTAMPS + 1
RATE, HOP = 16000, 160
SUPPRESSED = [3, 7, START, TRANSLATE, TRANSCRIBE, START_OF_LM, PREVIOUS, NO_SPEECH]
SUPPRESSED_FIRST = [0, END]
MAX_INITIAL = 10


def make_weights(seed):
    """Logits far enough apart for clear answers; times together about as probable as the best text."""
    w = tiny.make_weights(SPEECH, seed)
    w["encoder.features"] *= 2
    w["head"] *= 3
    w["head"][:, TIMES:] *= 0.6
    w["head"][:, END] *= 1.5
    return w


def tokenizer_json():
    empty = {k: None for k in ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor")}
    names = [*NAMES, *(f"<|{i * 0.02:.2f}|>" for i in range(VOCABULARY - TIMES))]
    added = [{"id": END + i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": END + i < TIMES}
             for i, name in enumerate(names)]
    model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(TEXT)}, "merges": [], "unk_token": None, "byte_fallback": False}
    return json.dumps({"version": "1.0", "added_tokens": added, **empty, "decoder": {"type": "Fuse"}, "model": model})


def generation_config():
    return {"decoder_start_token_id": START, "eos_token_id": END, "no_timestamps_token_id": NO_TIMESTAMPS, "prev_sot_token_id": PREVIOUS,
            "is_multilingual": True, "lang_to_id": {f"<|{code}|>": EN + i for i, code in enumerate(LANGUAGES)},
            "task_to_id": {"translate": TRANSLATE, "transcribe": TRANSCRIBE}, "max_initial_timestamp_index": MAX_INITIAL,
            "suppress_tokens": SUPPRESSED, "begin_suppress_tokens": SUPPRESSED_FIRST}


def preprocessor_config():
    return {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": FEATURES, "n_fft": 400, "hop_length": 160,
            "sampling_rate": RATE, "chunk_length": 1, "nb_max_frames": FRAMES}


def write_folder(folder, w, layout="merged", generation={}, preprocessor={}):
    """generation, preprocessor: fields that are changed; None takes one away. The layout "genai" has no preprocessor_config.json."""
    shutil.rmtree(folder, ignore_errors=True)
    spec = replace(SPEECH, layout=layout)
    files = {"generation_config.json": {**generation_config(), **generation}, "preprocessor_config.json": {**preprocessor_config(), **preprocessor}}
    settings = {"model_type": "whisper", "is_encoder_decoder": True, "vocab_size": VOCABULARY, "max_target_positions": CONTEXT,
                "num_mel_bins": FEATURES, "decoder_start_token_id": START, "eos_token_id": END}
    if layout == "genai":
        tiny.write_folder(folder, tiny.files_of(spec, w), tiny.genai_config(spec), "genai_config.json")
        del files["preprocessor_config.json"]
    else:
        tiny.write_folder(folder, tiny.files_of(spec, w), settings)
    for name, fields in files.items():
        (folder / name).write_text(json.dumps({k: v for k, v in fields.items() if v is not None}))
    (folder / "tokenizer.json").write_text(tokenizer_json())
    return folder


# -- recordings: float32 samples in -1..1 at RATE

def tones(seconds, seed=0):
    """Syllables of 0.1 to 0.3 s, each of two tones, with gaps, above a little noise."""
    rng = np.random.default_rng(seed)
    count = int(seconds * RATE)
    x = 0.003 * rng.standard_normal(count)
    at = 0
    while at < count:
        length, gap = (int(RATE * rng.uniform(*bounds)) for bounds in ((0.1, 0.3), (0.02, 0.12)))
        t = np.arange(min(length, count - at)) / RATE
        for hz, loud in zip(rng.uniform((150, 800), (800, 5000)), rng.uniform(0.05, 0.3, 2)):
            x[at:at + len(t)] += loud * np.sin(2 * np.pi * hz * t)
        at += length + gap
    return x.astype(np.float32)


def noise(seconds, level=0.1, seed=0):
    return (level * np.random.default_rng(seed).standard_normal(int(seconds * RATE))).astype(np.float32)


def write_wav(path, samples, rate=RATE):
    """16 bits, mono. Returns the samples that the file holds."""
    numbers = np.clip(np.round(np.asarray(samples, np.float64) * 32768), -32768, 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(rate)
        file.writeframes(numbers.tobytes())
    return numbers.astype(np.float32) / 32768
