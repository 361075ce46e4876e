"""Talks to the program vision_arrays: commands out, arrays back."""

import json
import subprocess

import numpy as np

TYPES = {"uint8": np.uint8, "float32": np.float32, "int64": np.int64, "bool": np.bool_}
MAX_PIXELS = 64_000_000


class VisionError(Exception):
    """What Situ says of an image, in `code` and one line."""

    def __init__(self, answer):
        super().__init__(answer["error"])
        self.code = answer["code"]
        self.peak_kib = answer["peak_kib"]


class VisionArrays:
    """One process for many commands."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.peak_kib = 0

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait()

    def ask(self, *fields):
        """{name: array} of the tensors; `self.answer` keeps the rest."""
        self.process.stdin.write("\t".join(map(str, fields)).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"vision_arrays ended with {self.process.wait()} at {fields}")
        self.answer = json.loads(line)
        self.peak_kib = self.answer["peak_kib"]
        if "error" in self.answer:
            raise VisionError(self.answer)
        arrays = {}
        for tensor in self.answer["tensors"]:
            kind = np.dtype(TYPES[tensor["type"]])
            count = int(np.prod(tensor["dims"]))
            data = self.process.stdout.read(count * kind.itemsize)
            arrays[tensor["name"]] = np.frombuffer(data, kind).reshape(tensor["dims"])
        return arrays

    def decode(self, file, max_pixels=MAX_PIXELS):
        return self.ask("decode", file, max_pixels)["rgb"]

    def resize(self, file, width, height, resample, max_pixels=MAX_PIXELS):
        return self.ask("resize", file, max_pixels, width, height, resample)["rgb"]

    def process_images(self, folder, files, **overrides):
        return self.ask("process", folder, len(overrides), *(f"{k}={v}" for k, v in overrides.items()), *files)
