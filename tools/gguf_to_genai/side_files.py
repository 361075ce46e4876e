"""The files around the model: genai_config.json and the tokenizer's."""

import json

import gguf


def write_json(file, value):
    file.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def write_genai_config(folder, config):
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": config.head_size,
        "hidden_size": config.hidden,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": config.heads,
        "num_hidden_layers": config.layers,
        "num_key_value_heads": config.kv_heads,
    }
    model = {
        "type": "llama",
        "context_length": config.context,
        "vocab_size": config.vocabulary,
        "bos_token_id": config.bos,
        "eos_token_id": config.eos,
        "pad_token_id": config.pad,
        "decoder": decoder,
    }
    search = {
        "do_sample": False,
        "max_length": config.context,
        "min_length": 0,
        "num_beams": 1,
        "num_return_sequences": 1,
        "past_present_share_buffer": True,
        "repetition_penalty": 1.0,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 1.0,
    }
    write_json(folder / "genai_config.json", {"model": model, "search": search})


def write_tokenizer(folder, config, meta):
    """tokenizer.json as the `tokenizers` library reads it.

    GGUF has only the name of the pre-tokenizer: "smollm" cuts out every digit by itself, then
    applies GPT-2's pattern on bytes. Without the first step the ids differ where two or more
    spaces stand before a digit: the pattern alone would tie the last space to the digit.
    """
    tokens, types = meta("tokenizer.ggml.tokens"), meta("tokenizer.ggml.token_type")
    unsplit = (gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": index, "content": tokens[index], **flags, "special": kind == gguf.TokenType.CONTROL}
        for index, kind in enumerate(types)
        if kind in unsplit
    ]
    add_prefix_space = meta("tokenizer.ggml.add_space_prefix")
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": True,
    }
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in meta("tokenizer.ggml.merges")],
        },
    }
    # No indentation here: 49,000 merges on three lines each would double the file.
    (folder / "tokenizer.json").write_text(
        json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8"
    )
    tokenizer_config = {
        "tokenizer_class": "GPT2Tokenizer",
        "model_max_length": config.context,
        "add_prefix_space": add_prefix_space,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "bos_token": tokens[config.bos],
        "eos_token": tokens[config.eos],
        "pad_token": tokens[config.pad],
        "unk_token": tokens[config.unk],
    }
    write_json(folder / "tokenizer_config.json", tokenizer_config)
