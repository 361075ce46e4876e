"""A folder for tests to use in the place of ../shared where that is not there: tiny models of each kind, with random weights, and what
they answer by their oracles in NumPy.

    python tests/made_models.py OUT [--seeds]    writes OUT/models/<set>/<name>, under the names of models of the same kind in ../shared

--seeds prints, for each model, the first seed of its weights whose answers are clear, as SEEDS has to hold them. Vocabularies have 512 tokens,
contexts 256, and the tag of an image is token 500, as those of ../shared.
"""
import argparse
import hashlib
import itertools
import json
import os
import shutil
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

import tiny_exports
import tiny_models
import tiny_seq2seq
import tiny_vision

SIZES = {"vocabulary": 512, "context": 256}
LENGTHS = (1, 7, 40)  # of prompts
BEAMS, COUNT = 3, 12
CLEAR, CLEAR_BEAMS = 2e-3, 1e-3  # least distance of the two best logits, of a kept beam to the next one
IMAGE = 500
SIDE, PATCH = 28, 7  # of the model that takes image files
MEAN, STD = np.float32([0.48145466, 0.4578275, 0.40821073]), np.float32([0.26862954, 0.26130258, 0.27577711])

DECODERS = {"tiny/llama": "llama", "tiny/gpt2": "gpt", "tiny/bloom": "bloom"}
WORDS = {"tiny/words": "llama"}
PAIRS = {"tiny/t5": "t5", "tiny/bart": "bart", "tiny/marian": "unmasked", "styles/condflag-handcross": "layers-flag", "styles/ortO3-t5": "layers-t5"}
SEEING = {"vlm/llava": "fixed", "vlm/smolvlm": "tiles", "vlm/qwen2_vl": "grid"}
SEEDS = {"tiny/llama": 0, "tiny/gpt2": 1, "tiny/bloom": 0, "tiny/words": 7, "tiny/t5": 0, "tiny/bart": 0, "tiny/marian": 0,
         "styles/condflag-handcross": 0, "styles/ortO3-t5": 0, "vlm/llava": 1, "vlm/smolvlm": 0, "vlm/qwen2_vl": 0}


def some_ids(length):
    return [int(t) for t in np.random.default_rng(length).integers(3, SIZES["vocabulary"] - 20, length)]


def spec_of(module, name):
    return replace(next(s for s in module.SPECS if s.name == name), **SIZES)


def clear(*margins):
    if min(margins) < CLEAR:
        raise ValueError("answers that rounding could change: another seed (--seeds)")


class Decoder:
    def __init__(self, name):
        self.spec = spec_of(tiny_models, DECODERS[name])

    def case(self, w, ids):
        answer, margin = tiny_models.greedy(self.spec, w, ids, COUNT)
        clear(margin)
        first = tiny_models.forward(self.spec, w, ids)[:8]
        return {"input_ids": ids, "greedy_ids": answer, "first_logits": [round(float(x), 6) for x in first]}

    def cases(self, seed):
        w = tiny_models.make_weights(self.spec, seed)
        made = [self.case(w, some_ids(length)) for length in LENGTHS]
        beams, gap = tiny_models.beam_search(lambda ids: tiny_models.forward(self.spec, w, ids), made[1]["input_ids"], BEAMS, COUNT)
        clear(gap * CLEAR / CLEAR_BEAMS)
        made[1]["beam3_ids"] = beams
        return made

    def write(self, seed, folder):
        tiny_exports.write_weights(self.spec, tiny_models.make_weights(self.spec, seed), folder)
        return self.cases(seed)


class Words(Decoder):
    """One that has a tokenizer of ASCII: its characters, and words of two letters for its answers alone; what it says goes round in circles."""

    def __init__(self, name):
        self.spec = spec_of(tiny_models, WORDS[name])

    def cases(self, seed):
        w, made = tiny_models.make_weights(self.spec, seed), []
        for text in ("one two three four five six seven one two three four five six seven one two three", "Once upon a time"):
            made.append(self.case(w, [ord(c) - 32 for c in text]))
        if not goes_round(made[0]["greedy_ids"][3:10]):
            raise ValueError("an answer that repeats nothing")
        return made

    def write(self, seed, folder):
        made = super().write(seed, folder)
        pairs = (a + b for a in string.ascii_lowercase for b in string.ascii_lowercase)
        words = [*map(chr, range(32, 127)), *pairs][:self.spec.vocabulary]
        model = {"type": "BPE", "vocab": {word: i for i, word in enumerate(words)}, "merges": [], "unk_token": None, "byte_fallback": False}
        empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
        (folder / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], **empty, "decoder": {"type": "Fuse"}, "model": model}))
        return made


def goes_round(ids):
    """Whether each token is that of two steps before, so that guesses by what stands before come true."""
    return ids[2:] == ids[:-2]


class Pair:
    def __init__(self, name):
        self.spec = spec_of(tiny_seq2seq, PAIRS[name])

    def cases(self, seed):
        oracle, made = tiny_seq2seq.Oracle(self.spec, tiny_seq2seq.make_weights(self.spec, seed)), []
        for length in LENGTHS:
            ids = some_ids(length)
            answer, margin = oracle.greedy(ids)
            clear(margin)
            made.append({"input_ids": ids, "greedy_ids": [tiny_seq2seq.START, *answer]})
        beams, gap = oracle.beams(made[1]["input_ids"], BEAMS)
        clear(gap * CLEAR / CLEAR_BEAMS)
        made[1]["beam3_ids"] = [tiny_seq2seq.START, *beams]
        return made

    def write(self, seed, folder):
        files = tiny_seq2seq.files_of(self.spec, tiny_seq2seq.make_weights(self.spec, seed))
        tiny_seq2seq.write_folder(folder, files, tiny_seq2seq.config(self.spec))
        return self.cases(seed)


class Seeing:
    """One picture, another one, both, and none. Arrays of pictures are .npy files beside expected.json."""

    def __init__(self, name):
        self.spec, self.llava = replace(spec_of(tiny_vision, SEEING[name]), image=IMAGE), name == "vlm/llava"
        self.images = [np.random.default_rng(n).integers(0, 256, shape, np.uint8) for n, shape in enumerate([(40, 52, 3), (61, 40, 3)])]

    def pixels(self, image):
        """[3, SIDE, SIDE] as CLIP"s processor makes them."""
        height, width = image.shape[:2]
        short, long = min(height, width), max(height, width)
        size = (SIDE, SIDE * long // short) if width <= height else (SIDE * long // short, SIDE)
        resized = Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)
        left, top = (resized.width - SIDE) // 2, (resized.height - SIDE) // 2
        cut = np.asarray(resized.crop((left, top, left + SIDE, top + SIDE)))
        return (((cut * (1 / 255)).astype(np.float32) - MEAN) / STD).transpose(2, 0, 1)

    def arrays(self, which):
        """What the encoder takes for these pictures, its rows [N, C], and how many each has."""
        if self.llava:
            pixels = np.stack([self.pixels(self.images[i]) for i in which])
            features = pixels.reshape(-1, 3 * PATCH * PATCH).astype(np.float64) @ tiny_vision.llava_weights(PATCH)
            return {"pixel_values": pixels}, features, [(SIDE // PATCH) ** 2] * len(which)
        rng = [np.random.default_rng(100 + i) for i in which]
        if self.spec.takes == "grid":
            grids = np.array([[[1, 4, 6], [1, 6, 4]][i] for i in which], np.int64)
            arrays = {"pixel_values": np.concatenate([r.standard_normal((int(g.prod()), tiny_vision.PATCH)).astype(np.float32) for r, g in zip(rng, grids)]), "grid_thw": grids}
            return arrays, None, [int(g.prod()) // tiny_vision.MERGE**2 for g in grids]
        tiles = 3  # of a picture
        pixels = np.concatenate([r.standard_normal((tiles, tiny_vision.ROWS, tiny_vision.PATCH)).astype(np.float32) for r in rng])
        return {"pixel_values": pixels[None], "pixel_mask": np.ones((1, len(pixels)), bool)}, None, [tiles * tiny_vision.ROWS] * len(which)

    def cases(self, seed):
        w, made = tiny_vision.make_weights(seed, self.spec.vocabulary), []
        for name, which in (("one_image", [0]), ("one_image_b", [1]), ("two_images", [0, 1]), ("text_only", [])):
            arrays, features, rows = self.arrays(which) if which else ({}, None, [])
            ids = [1, *some_ids(4), *itertools.chain.from_iterable([*[IMAGE] * n, 7 + i, 9] for i, n in enumerate(rows)), *some_ids(3)]
            answer, margin = tiny_vision.greedy(self.spec, w, ids, arrays, COUNT, features)
            clear(margin)
            files = {"images": [f"image{i + 1}.png" for i in which], "num_image_tokens": sum(rows)} if self.llava else {}
            made.append({"name": name, "input_ids": ids, "greedy_ids": answer, **files, "arrays": arrays})
        return made

    def write(self, seed, folder):
        w, cases = tiny_vision.make_weights(seed, self.spec.vocabulary), self.cases(seed)
        if self.llava:
            tiny_vision.write_seeing(folder, self.spec, w, SIDE, PATCH)
            for i, image in enumerate(self.images):
                Image.fromarray(image).save(folder / f"image{i + 1}.png")
        else:
            tiny_vision.write_folder(folder, tiny_vision.files_of(self.spec, w), {"image_token_id": IMAGE, "text_config": {"max_position_embeddings": self.spec.context}})
        for case in cases:
            arrays = case.pop("arrays")
            for name, array in arrays.items():
                np.save(folder / f"{case['name']}.{name}.npy", array)
            if arrays:
                case["encoder_inputs"] = {name: {"file": f"{case['name']}.{name}.npy"} for name in arrays}
        return cases


def models():
    for kind, names in ((Decoder, DECODERS), (Words, WORDS), (Pair, PAIRS), (Seeing, SEEING)):
        for name in names:
            yield name, kind(name)


def first_clear_seed(model):
    for seed in range(1000):
        try:
            model.cases(seed)
            return seed
        except ValueError:
            continue
    raise RuntimeError("no seed gives clear answers")


def write(out):
    """All of it, in a folder that is whole or not there; once for each state of the files that say what is written."""
    sources = [Path(module.__file__) for module in (tiny_exports, tiny_models, tiny_seq2seq, tiny_vision)]
    made_by = hashlib.sha256(b"".join(f.read_bytes() for f in [Path(__file__), *sources])).hexdigest()
    if (out / "made_by").is_file() and (out / "made_by").read_text() == made_by:
        return
    made = out.with_name(f"{out.name}.{os.getpid()}")
    shutil.rmtree(made, ignore_errors=True)
    for name, model in models():
        folder = made / "models" / name
        more = {"image_token_id": IMAGE} if isinstance(model, Seeing) else {}
        cases = model.write(SEEDS[name], folder)
        (folder / "expected.json").write_text(json.dumps({"source": "NumPy", **more, "cases": cases}))
    (made / "made_by").write_text(made_by)
    shutil.rmtree(out, ignore_errors=True)
    made.rename(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", action="store_true")
    a = parser.parse_args()
    if a.seeds:
        print({name: first_clear_seed(model) for name, model in models()})
    else:
        write(a.out)


if __name__ == "__main__":
    main()
