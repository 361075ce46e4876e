"""From the pixels of images to the first token by ONNX Runtime, driven as transformers.js does; printed as JSON.

usage: vision_peer.py MODEL ARRAYS.npz [--threads T] [--runs R]

Sessions run one after the other: the lookup of the prompt's ids, the encoder, then on the host the encoder's rows are written over those of their
tokens, then the decoder with an empty past gives logits for the whole prompt, of which the last row is read. ARRAYS holds `input_ids` [1, S],
`position_ids`, and the encoder's inputs. Runs are in one process; the first has to make its memory. Loading is not counted.
"""
import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort


def first_token(sessions, arrays, token):
    lookup, encoder, decoder = sessions
    stages, begin = [], time.perf_counter()

    def stage(name, copied, written):
        nonlocal begin
        now = time.perf_counter()
        stages.append({"name": name, "ms": 1000 * (now - begin), "bytes_copied": copied, "bytes_written": written})
        begin = now

    features = encoder.run(None, {i.name: arrays[i.name] for i in encoder.get_inputs()})[0]
    stage("vision_encoder", 0, features.nbytes)
    ids = arrays["input_ids"]
    embeddings = lookup.run(None, {"input_ids": ids})[0]
    embeddings[ids == token] = features.reshape(-1, embeddings.shape[-1])
    stage("embed", features.nbytes, embeddings.nbytes + features.nbytes)
    fed = {"inputs_embeds": embeddings, "attention_mask": np.ones_like(ids), "position_ids": arrays["position_ids"]}
    for i in decoder.get_inputs():
        if i.name.startswith("past"):
            fed[i.name] = np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32)
    outputs = decoder.run(None, fed)
    logits = outputs[0][0, -1].astype(np.float64)
    best = int(logits.argmax())
    stage("prefill", 0, sum(o.nbytes for o in outputs))  # copies inside of a session are not known
    logits -= logits.max()
    second = float(np.partition(logits, -2)[-2])
    return {"stages": stages, "id": best, "logprob": float(-np.log(np.exp(logits).sum())), "margin": -second}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("arrays", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=2)
    a = parser.parse_args()
    begin, options = time.perf_counter(), ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = a.threads, 3
    files = ("embed_tokens", "vision_encoder", "decoder_model_merged")
    sessions = [ort.InferenceSession(str(a.model / "onnx" / f"{file}.onnx"), options, providers=["CPUExecutionProvider"]) for file in files]
    load_ms = 1000 * (time.perf_counter() - begin)
    token = json.loads((a.model / "config.json").read_text())["image_token_id"]
    arrays = dict(np.load(a.arrays))
    runs = [first_token(sessions, arrays, token) for _ in range(a.runs)]
    print(json.dumps({"version": ort.__version__, "load_ms": load_ms, "runs": runs, "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
