"""Writes Whisper weights of a CTranslate2 folder (float16) as the GGML file that whisper.cpp reads.

usage: speech_ggml.py FOLDER OUT      needs numpy and the package faster-whisper (its mel filters)

Source of the formats: CTranslate2, python/ctranslate2/specs/model_spec.py (_serialize); whisper.cpp, models/convert-pt-to-ggml.py.
"""
import json
import struct
import sys
from pathlib import Path

import numpy as np

TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}


def read_ctranslate2(path):
    """{name: array}"""
    data, at = Path(path).read_bytes(), 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def text():
        nonlocal at
        size = take("H")
        at += size
        return data[at - size:at - 1].decode()

    version, _, _, count = take("I"), text(), take("I"), take("I")
    if version < 4:
        raise ValueError(f"{path}: version {version} of the format")
    found = {}
    for _ in range(count):
        name = text()
        rank = take("B")
        dims = [take("I") for _ in range(rank)]
        kind, size = take("B"), take("I")
        found[name] = np.frombuffer(data, TYPES[kind], size // TYPES[kind]().itemsize, at).reshape(dims)
        at += size
    for _ in range(take("I")):
        alias, name = text(), text()
        found[alias] = found[name]
    return found


def attention(w, name, to, cross):
    """Fused projections in parts; keys have no bias."""
    out = {}
    if cross:
        parts = [("query", w[f"{name}/linear_0/weight"], w[f"{name}/linear_0/bias"])]
        fused, bias = w[f"{name}/linear_1/weight"], w[f"{name}/linear_1/bias"]
        parts += zip(("key", "value"), np.split(fused, 2), np.split(bias, 2))
        last = "linear_2"
    else:
        parts = list(zip(("query", "key", "value"), np.split(w[f"{name}/linear_0/weight"], 3), np.split(w[f"{name}/linear_0/bias"], 3)))
        last = "linear_1"
    for part, weight, bias in [*parts, ("out", w[f"{name}/{last}/weight"], w[f"{name}/{last}/bias"])]:
        out[f"{to}.{part}.weight"] = weight
        if part != "key":
            out[f"{to}.{part}.bias"] = bias
    norm(w, f"{name}/layer_norm", f"{to}_ln", out)
    return out


def norm(w, name, to, out):
    out[f"{to}.weight"], out[f"{to}.bias"] = w[f"{name}/gamma"], w[f"{name}/beta"]


def tensors(w):
    out = {"encoder.positional_embedding": w["encoder/position_encodings/encodings"], "decoder.positional_embedding": w["decoder/position_encodings/encodings"],
           "decoder.token_embedding.weight": w["decoder/embeddings/weight"]}
    for i in (1, 2):
        out[f"encoder.conv{i}.weight"], out[f"encoder.conv{i}.bias"] = w[f"encoder/conv{i}/weight"], w[f"encoder/conv{i}/bias"].reshape(-1, 1)
    norm(w, "encoder/layer_norm", "encoder.ln_post", out)
    norm(w, "decoder/layer_norm", "decoder.ln", out)
    for side in ("encoder", "decoder"):
        layer = 0
        while f"{side}/layer_{layer}/ffn/linear_0/weight" in w:
            name, to = f"{side}/layer_{layer}", f"{side}.blocks.{layer}"
            out |= attention(w, f"{name}/self_attention", f"{to}.attn", False)
            if side == "decoder":
                out |= attention(w, f"{name}/attention", f"{to}.cross_attn", True)
            norm(w, f"{name}/ffn/layer_norm", f"{to}.mlp_ln", out)
            for i, part in ((0, 0), (1, 2)):
                out[f"{to}.mlp.{part}.weight"], out[f"{to}.mlp.{part}.bias"] = w[f"{name}/ffn/linear_{i}/weight"], w[f"{name}/ffn/linear_{i}/bias"]
            layer += 1
    return out


def bytes_of_tokens(folder):
    """Bytes of the text tokens, in order: those of the byte-level alphabet of GPT-2."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    to_byte = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    vocabulary = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return [bytes(to_byte[c] for c in token) for token, _ in sorted(vocabulary.items(), key=lambda item: item[1]) if not token.startswith("<|")]


def main():
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    w = read_ctranslate2(folder / "model.bin")
    found = tensors(w)
    width, layers = (lambda side: found[f"{side}.positional_embedding"].shape[1]), lambda side: sum(n.startswith(side) and n.endswith("mlp_ln.bias") for n in found)
    heads = lambda side: width(side) // 64
    mels = found["encoder.conv1.weight"].shape[1]
    from faster_whisper.feature_extractor import FeatureExtractor
    filters = np.asarray(FeatureExtractor(feature_size=mels).mel_filters, np.float32)
    tokens = bytes_of_tokens(folder)
    vocabulary = found["decoder.token_embedding.weight"].shape[0]
    with out.open("wb") as file:
        sizes = [vocabulary, *(x for side, rows in (("encoder", 1500), ("decoder", 448)) for x in (rows, width(side), heads(side), layers(side))), mels, 1]
        file.write(struct.pack("<12i", 0x67676D6C, *sizes))
        file.write(struct.pack("<2i", *filters.shape) + filters.tobytes())
        file.write(struct.pack("<i", len(tokens)))
        for token in tokens:
            file.write(struct.pack("<i", len(token)) + token)
        for name, value in found.items():
            half = value.ndim > 1 and "bias" not in name and "positional" not in name
            value = np.ascontiguousarray(value, np.float16 if half else np.float32)
            file.write(struct.pack("<3i", value.ndim, len(name), int(half)) + struct.pack(f"<{value.ndim}i", *value.shape[::-1]) + name.encode() + value.tobytes())


if __name__ == "__main__":
    main()
