"""Turns the GGUF file of a small llama (Q4_1 or Q4_0 layers, tied Q8_0 or Q4_0 embedding) into a model folder.

The layout is that of onnxruntime-genai: model.onnx and model.onnx.data (GroupQueryAttention,
MatMulNBits, GatherBlockQuantized), genai_config.json with the sizes, names and special ids,
tokenizer.json, tokenizer_config.json, chat_template.jinja.
"""

import gguf

from .config import Config, UnsupportedGguf
from .llama import write_model
from .side_files import write_genai_config, write_tokenizer


def convert(gguf_file, folder, zero_points):
    """Fills the existing, empty `folder`. `zero_points` is "packed" or "float", see q4_1.py."""
    reader = gguf.GGUFReader(gguf_file)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def meta(name):
        if name not in reader.fields:
            raise UnsupportedGguf(f"no metadata field '{name}'")
        return reader.fields[name].contents()

    for name, known in (("general.architecture", "llama"), ("tokenizer.ggml.pre", "smollm")):
        if meta(name) != known:
            raise UnsupportedGguf(f"{name} is '{meta(name)}', expected '{known}'")
    if "output.weight" in tensors:
        raise UnsupportedGguf("the head 'output.weight' is not the embedding")
    config = Config(
        layers=meta("llama.block_count"),
        hidden=meta("llama.embedding_length"),
        heads=meta("llama.attention.head_count"),
        kv_heads=meta("llama.attention.head_count_kv"),
        head_size=meta("llama.rope.dimension_count"),
        context=meta("llama.context_length"),
        vocabulary=meta("llama.vocab_size"),
        rope_theta=meta("llama.rope.freq_base"),
        epsilon=meta("llama.attention.layer_norm_rms_epsilon"),
        bos=meta("tokenizer.ggml.bos_token_id"),
        eos=meta("tokenizer.ggml.eos_token_id"),
        pad=meta("tokenizer.ggml.padding_token_id"),
        unk=meta("tokenizer.ggml.unknown_token_id"),
    )
    write_model(folder, config, tensors, zero_points)
    write_genai_config(folder, config)
    write_tokenizer(folder, config, meta)
    (folder / "chat_template.jinja").write_text(meta("tokenizer.chat_template"), encoding="utf-8")
