"""The models that make.py exports: name -> how it is built. All are tiny and have random weights."""
from dataclasses import dataclass, field

import transformers as hf

VOCABULARY = 320
SPECIAL = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}


@dataclass
class Model:
    config: hf.PretrainedConfig
    task: str = "text2text-generation-with-past"
    generation: dict = field(default_factory=dict)  # of generation_config.json
    merged: bool = True   # decoder_model_merged.onnx; False: the pair decoder_model.onnx and decoder_with_past_model.onnx
    spread: float = 0.4   # standard deviation of the matrices
    table: float = 0.3    # of the embeddings and of the product with them
    features: dict = field(default_factory=dict)  # of an encoder that takes no ids: input name -> shapes, one for each case
    traced: dict = field(default_factory=dict)    # extents of what the exporter feeds
    beams: bool = True    # whether beam search is recorded
    prompt: tuple = ()    # of the decoder, instead of the start token


def bart_like(cls, **changes):
    """Post-norm or pre-norm blocks with a table of positions: BART and what came of it."""
    return cls(**{"vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
                  "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 128, "dropout": 0.0,
                  "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "forced_eos_token_id": None, "decoder_start_token_id": 2, **SPECIAL, **changes})


def t5_like(cls, **changes):
    """Relative position bias by buckets, RMS norm."""
    return cls(**{"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64, "num_layers": 2, "dropout_rate": 0.0,
                  "decoder_start_token_id": 0, "pad_token_id": 0, "bos_token_id": 3, "eos_token_id": 1, **changes})


def whisper(**changes):
    return bart_like(hf.WhisperConfig, **{"num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 64, "decoder_start_token_id": 50,
                                          "max_position_embeddings": 64, "suppress_tokens": None, "begin_suppress_tokens": None, **changes})


def image_to_text(decoder):
    encoder = hf.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=28, patch_size=7)
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder, decoder_start_token_id=2, **SPECIAL)
    config.tie_word_embeddings = False
    return config


def decoder_only(cls, **changes):
    return cls(**{"vocab_size": VOCABULARY, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, **changes})


IMAGES = {"pixel_values": [(1, 3, 28, 28)] * 2}
SPEECH = {"input_features": [(1, 16, 60)] * 2}
CAPTION, LISTEN, WRITE = "image-to-text-with-past", "automatic-speech-recognition-with-past", "text-generation-with-past"
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
LLAMA = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}

MODELS = {
    # The families that are named in the documentation, as their published models set them.
    "t5": Model(t5_like(hf.T5Config)),
    "mt5": Model(t5_like(hf.MT5Config, d_kv=12, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "bart": Model(bart_like(hf.BartConfig)),
    "mbart": Model(bart_like(hf.MBartConfig, scale_embedding=True), generation={"forced_bos_token_id": 17}),
    "pegasus": Model(bart_like(hf.PegasusConfig, scale_embedding=True, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)),
    "marian": Model(bart_like(hf.MarianConfig, scale_embedding=True, pad_token_id=7, decoder_start_token_id=7, eos_token_id=0), spread=0.12, table=0.15),
    "m2m100": Model(bart_like(hf.M2M100Config, scale_embedding=True), generation={"forced_bos_token_id": 21, "decoder_start_token_id": 2}),
    "blenderbot": Model(bart_like(hf.BlenderbotConfig, scale_embedding=True, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1)),
    "whisper": Model(whisper(), LISTEN, features=SPEECH, prompt=(50, 51, 53), traced={"feature_size": 16, "nb_max_frames": 60}),
    "trocr": Model(image_to_text(bart_like(hf.TrOCRConfig, cross_attention_hidden_size=32, is_decoder=True)), CAPTION, features=IMAGES),
    # Other settings of the same families.
    "t5-buckets": Model(t5_like(hf.T5Config, relative_attention_num_buckets=10, relative_attention_max_distance=20)),
    "t5-gated": Model(t5_like(hf.T5Config, feed_forward_proj="gated-gelu", num_layers=3, num_decoder_layers=1)),
    "t5-silu-untied": Model(t5_like(hf.T5Config, feed_forward_proj="gated-silu", tie_word_embeddings=False, num_heads=3, d_kv=20)),
    "t5-pair": Model(t5_like(hf.T5Config), merged=False),
    "bart-pair": Model(bart_like(hf.BartConfig), merged=False),
    "bart-scaled": Model(bart_like(hf.BartConfig, scale_embedding=True, encoder_layers=3, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, activation_function="relu")),
    "bart-start": Model(bart_like(hf.BartConfig), generation={"decoder_start_token_id": 33}),  # generation_config.json before config.json
    "bart-bans": Model(bart_like(hf.BartConfig), generation={"no_repeat_ngram_size": 2, "encoder_no_repeat_ngram_size": 2, "bad_words_ids": [[11], [12, 13]],
                                                             "suppress_tokens": [14, 15, 16], "begin_suppress_tokens": [40, 41, 42], "forced_bos_token_id": 18}),
    "t5-penalties": Model(t5_like(hf.T5Config), generation={"repetition_penalty": 1.6}),
    # Without beams: transformers raises the encoder's tokens in the first beam alone.
    "t5-encoder-penalty": Model(t5_like(hf.T5Config), generation={"repetition_penalty": 1.2, "encoder_repetition_penalty": 1.5}, beams=False),
    "bart-beams": Model(bart_like(hf.BartConfig), generation={"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "max_length": 18, "min_length": 6,
                                                              "forced_bos_token_id": 0, "forced_eos_token_id": 2, "no_repeat_ngram_size": 3}),
    "marian-two-vocabularies": Model(bart_like(hf.MarianConfig, share_encoder_decoder_embeddings=False, tie_word_embeddings=False, decoder_vocab_size=VOCABULARY,
                                               pad_token_id=7, decoder_start_token_id=7, eos_token_id=0), spread=0.12, table=0.15),
    "mbart-pair": Model(bart_like(hf.MBartConfig, scale_embedding=True), generation={"forced_bos_token_id": 17}, merged=False),
    "whisper-pair": Model(whisper(encoder_layers=1, decoder_layers=3), LISTEN, features=SPEECH, prompt=(50, 51, 53), traced={"feature_size": 16, "nb_max_frames": 60}, merged=False),
    # Other families.
    "blenderbot-small": Model(bart_like(hf.BlenderbotSmallConfig, decoder_start_token_id=1, pad_token_id=0, bos_token_id=1)),
    "vit-gpt2": Model(image_to_text(hf.GPT2Config(vocab_size=VOCABULARY, add_cross_attention=True, is_decoder=True, **GPT2)), CAPTION, features=IMAGES),
    # Decoders alone.
    "gptj": Model(decoder_only(hf.GPTJConfig, rotary_dim=4, **GPT2), WRITE),
    "gpt-neo": Model(decoder_only(hf.GPTNeoConfig, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=16,
                                  max_position_embeddings=128), WRITE),
    "codegen": Model(decoder_only(hf.CodeGenConfig, rotary_dim=4, **GPT2), WRITE),
    "stablelm": Model(decoder_only(hf.StableLmConfig, partial_rotary_factor=0.5, use_qkv_bias=True, **LLAMA), WRITE),
    "nemotron": Model(decoder_only(hf.NemotronConfig, **LLAMA), WRITE),
    "cohere": Model(decoder_only(hf.CohereConfig, logit_scale=0.5, **LLAMA), WRITE),
    "falcon-alibi": Model(decoder_only(hf.FalconConfig, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True, multi_query=True,
                                       new_decoder_architecture=False, parallel_attn=False), WRITE),
}
