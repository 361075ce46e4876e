#!/usr/bin/env python3
"""Compares src/vision with the slow image processors of transformers: compare_processors.py PROGRAM [--images N] [--seed S]

PROGRAM is build/tests/vision_arrays. Needs transformers 4.57.6, Pillow 13.0.0 and numpy in the Python that runs it (no torch).
Prints for every family the number of images and the largest difference; any difference above 0 fails, and so does another
number of tokens. Not part of make test: tests/image_test.py has these rules in a few lines of NumPy each.
"""
import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from transformers import (CLIPImageProcessor, Gemma3ImageProcessor, Idefics3ImageProcessor, PixtralImageProcessor, Qwen2VLImageProcessor,
                          SiglipImageProcessor, SmolVLMImageProcessor)
from transformers.image_utils import load_image

from image_arrays import VisionArrays

# Family, its class, config.json, settings that differ from the class's.
CASES = [
    ("llava", CLIPImageProcessor, {"model_type": "llava", "vision_config": {"patch_size": 14}},
     [{}, {"size": {"shortest_edge": 336}, "crop_size": 336}, {"do_center_crop": False, "size": {"height": 70, "width": 91}},
      {"size": {"shortest_edge": 40}, "crop_size": {"height": 57, "width": 64}}, {"resample": 2, "do_normalize": False}, {"do_rescale": False},
      {"resample": 0}, {"do_resize": False, "crop_size": 65}]),
    ("llava", SiglipImageProcessor, {"model_type": "llava", "vision_config": {"patch_size": 14, "model_type": "siglip_vision_model"}}, [{}]),
    ("idefics3", Idefics3ImageProcessor, {"model_type": "idefics3"},
     [{}, {"do_image_splitting": False}, {"size": {"longest_edge": 120}, "max_image_size": {"longest_edge": 56}}]),
    ("idefics3", SmolVLMImageProcessor, {"model_type": "smolvlm"},
     [{"size": {"longest_edge": 2048}, "max_image_size": {"longest_edge": 512}}, {"size": {"longest_edge": 300}, "max_image_size": {"longest_edge": 128}},
      {"size": {"longest_edge": 5000}, "max_image_size": {"longest_edge": 1024}}]),
    ("qwen2_vl", Qwen2VLImageProcessor, {"model_type": "qwen2_vl"},
     [{}, {"min_pixels": 12544, "max_pixels": 50176}, {"patch_size": 16, "merge_size": 3, "temporal_patch_size": 1}, {"max_pixels": 3136}]),
    ("paligemma", SiglipImageProcessor, {"model_type": "paligemma"}, [{}, {"size": {"height": 448, "width": 448}}]),
    ("gemma3", Gemma3ImageProcessor, {"model_type": "gemma3"},
     [{"size": {"height": 96, "width": 96}}, {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 30, "pan_and_scan_max_num_crops": 4,
                                             "pan_and_scan_min_ratio_to_activate": 1.2}]),
    ("pixtral", PixtralImageProcessor, {"model_type": "pixtral"},
     [{}, {"size": {"longest_edge": 200}, "patch_size": {"height": 14, "width": 14}}, {"size": {"longest_edge": 77}, "patch_size": {"height": 7, "width": 9}}]),
]
PROCESSOR = {"idefics3": {"image_seq_len": 169}, "paligemma": {"image_seq_length": 256}}


def make_image(rng, folder, index):
    """Writes one image of any shape and format."""
    edge = rng.choice([60, 300, 900])
    width, height = rng.randint(5, edge), rng.randint(5, edge)
    noise = np.random.default_rng(rng.randrange(1 << 30)).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    if rng.random() < 0.5:
        image = image.resize((max(width // 4, 2), max(height // 4, 2))).resize((width, height), 3)
    file = folder / f"{index}.{rng.choice(['png', 'jpg', 'webp'])}"
    image.save(file)
    return file


def reference(processor, images):
    """transformers' tensors; those of one prompt."""
    images = [load_image(str(file)) for file in images]
    # Else edges of 1, 3 and 4 may be taken for channels.
    given = dict(return_tensors="np", input_data_format="channels_last")
    if isinstance(processor, (Idefics3ImageProcessor, SmolVLMImageProcessor)):
        images, given = [images], dict(given, return_row_col_info=True)
    return processor(images, **given)


def compare(arrays, folder, case, settings, files):
    """The largest difference of one request."""
    family, kind, config, _ = case
    processor = kind(**settings)
    written = json.loads(processor.to_json_string())
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(written))
    (folder / "processor_config.json").write_text(json.dumps(PROCESSOR.get(family, {})))
    wanted = reference(processor, files)
    got = arrays.process_images(folder, files)
    if arrays.answer["family"] != family:
        sys.exit(f"{family}: taken for {arrays.answer['family']}")
    worst = 0.0
    for name, array in got.items():
        expected = np.asarray(wanted[name])
        if expected.shape != array.shape:
            sys.exit(f"{family} {settings} {files}: {name} is {array.shape}, not {expected.shape}")
        worst = max(worst, float(np.abs(array.astype(np.float64) - expected.astype(np.float64)).max()))
    check_tokens(family, arrays.answer["images"], wanted, settings)
    return worst


def check_tokens(family, images, wanted, settings):
    tokens = [image["tokens"] for image in images]
    if family == "idefics3":
        expected = [(rows * columns + 1) * 169 for rows, columns in zip(wanted["rows"][0], wanted["cols"][0])]
    elif family == "qwen2_vl":
        expected = [int(grid.prod()) // settings.get("merge_size", 2) ** 2 for grid in wanted["image_grid_thw"]]
    elif family == "gemma3":
        expected = [256 * (1 + crops) for crops in wanted["num_crops"]]
    else:
        return
    if tokens != expected:
        sys.exit(f"{family} {settings}: {tokens} tokens, not {expected}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--images", type=int, default=12, help="for each line of settings")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, failed = random.Random(options.seed), False
    arrays = VisionArrays(options.program)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in CASES:
            worst, count = 0.0, 0
            for settings in case[3]:
                fixed = settings.get("do_resize", True) and settings.get("do_center_crop", "size" not in settings or "height" in settings["size"])
                for first in range(0, options.images, 2):
                    # Two at once where they become one size.
                    files = [make_image(rng, folder, i) for i in range(first, first + (2 if fixed or case[0] != "llava" else 1))]
                    worst = max(worst, compare(arrays, folder, case, settings, files))
                    count += len(files)
            failed |= worst > 0
            print(f"{case[0]:10} {case[1].__name__:24} {count:4} images  largest difference {worst:g}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
