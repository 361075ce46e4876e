"""One measurement of one engine on one model, printed as JSON (bench/engines/__init__.py says what is in it).

usage: peer.py ENGINE MODEL [--case PROMPT:TOKENS ...] [--streams N ...] [--stream-case PROMPT:TOKENS] [--threads T]
ENGINE: situ         MODEL is a folder; needs build/situ
        ort-naive    ONNX Runtime, present handed back as past
        ort-shared   ONNX Runtime, one buffer that is past and present (GroupQueryAttention exports)
        ort-genai    onnxruntime-genai
        openvino     openvino-genai on a GGUF file
        openvino-cb  the same with continuous batching
        llama.cpp    llama-bench and llama-batched-bench on a GGUF file
"""
import argparse
import importlib
import json
import subprocess
import sys

ENGINES = {"situ": ("situ", "measure"), "ort-naive": ("ort", "measure"), "ort-shared": ("ort", "measure_shared"), "ort-genai": ("ort_genai", "measure"),
           "openvino": ("openvino", "measure"), "openvino-cb": ("openvino", "measure_batching"), "llama.cpp": ("llama_cpp", "measure")}


def pair(text):
    prompt, tokens = map(int, text.split(":"))
    return prompt, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("model")
    parser.add_argument("--case", type=pair, nargs="*", default=[], dest="cases")
    parser.add_argument("--streams", type=int, nargs="*", default=[])
    parser.add_argument("--stream-case", type=pair, default=(128, 64))
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    a.stream_prompt, a.stream_tokens = a.stream_case
    module, function = ENGINES[a.engine]
    try:
        result = getattr(importlib.import_module(f"engines.{module}"), function)(a)
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.strip() or str(error))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
