"""The decoder, node for node as onnxruntime-genai's model builder lays out a llama.

Shapes: B batch, S new tokens, P past, T = P + S, D head size.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper

from .graph import DATA_FILE, MICROSOFT, Graph
from .weights import embedding, projections


def write_model(folder, config, tensors, zero_points):
    with open(folder / DATA_FILE, "wb") as data:
        graph = Llama(data, config, tensors, zero_points)
        graph.build()
    model = helper.make_model(
        helper.make_graph(graph.nodes, "main_graph", *signature(config), graph.initializers),
        producer_name="situ gguf_to_genai",
        opset_imports=[helper.make_opsetid("", 22), helper.make_opsetid(MICROSOFT, 1)],
        ir_version=10,
    )
    onnx.save(model, folder / "model.onnx")


def signature(config):
    """The inputs and outputs of the model."""
    value = helper.make_tensor_value_info
    batch, new, past, total = (
        "batch_size",
        "sequence_length",
        "past_sequence_length",
        "total_sequence_length",
    )

    def cache(name, length):
        shape = (batch, config.kv_heads, length, config.head_size)
        names = [f"{name}.{i}.{part}" for i in range(config.layers) for part in ("key", "value")]
        return [value(name, TensorProto.FLOAT, shape) for name in names]

    inputs = [
        value("input_ids", TensorProto.INT64, (batch, new)),
        value("attention_mask", TensorProto.INT64, (batch, total)),
        *cache("past_key_values", past),
    ]
    logits = value("logits", TensorProto.FLOAT, (batch, new, config.vocabulary))
    return inputs, [logits, *cache("present", total)]


def rotary_tables(config):
    """cos and sin [context, D / 2] of position * theta^(-2 i / D), float32."""
    frequencies = config.rope_theta ** -(np.arange(0, config.head_size, 2) / config.head_size)
    angles = np.outer(np.arange(config.context), frequencies)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class Llama(Graph):
    """Embedding; per layer attention and gated MLP around the residual stream; final norm; head."""

    def __init__(self, data, config, tensors, zero_points):
        super().__init__(data)
        self.config = config
        self.tensors = tensors
        self.projections = projections(config, tensors, zero_points)

    def build(self):
        table = self.linear_weights("lm_head.MatMul", embedding(self.tensors))
        cos, sin = rotary_tables(self.config)
        rotary = [self.initializer("cos_cache", cos), self.initializer("sin_cache", sin)]
        lengths = self.attention_lengths()
        residual = self.embedding("/model/embed_tokens", "input_ids", table)
        x = self.first_norm(residual)
        for layer in range(self.config.layers):
            x = self.attention(layer, x, lengths, rotary)
            norm = f"layers.{layer}.post_attention_layernorm"
            x, residual = self.norm(norm, f"blk.{layer}.ffn_norm", residual, x)
            x = self.mlp(layer, x)
            if layer + 1 < self.config.layers:
                norm = f"layers.{layer + 1}.input_layernorm"
                x, residual = self.norm(norm, f"blk.{layer + 1}.attn_norm", residual, x)
            else:
                norm = f"layers.{layer + 1}.final_norm_layernorm"
                x, _ = self.norm(norm, "output_norm", residual, x, with_sum=False)
        self.linear("/lm_head", x, table, output="logits")

    def norm_weight(self, name, gguf_name):
        return self.initializer(f"model.{name}.weight", self.tensors[f"{gguf_name}.weight"].data)

    def first_norm(self, x):
        weight = self.norm_weight("layers.0.input_layernorm", "blk.0.attn_norm")
        return self.node(
            "SimplifiedLayerNormalization",
            "/model/layers.0/input_layernorm/LayerNorm",
            [x, weight],
            axis=-1,
            epsilon=self.config.epsilon,
        )

    def norm(self, name, gguf_name, residual, x, with_sum=True):
        """(RMSNorm(residual + x) * weight, residual + x)"""
        path = f"/model/{name.replace('.', '/').replace('layers/', 'layers.')}"
        outputs = [f"{path}/output_0"] + (["", "", f"{path}/output_3"] if with_sum else [])
        self.node(
            "SkipSimplifiedLayerNormalization",
            f"{path}/SkipLayerNorm",
            [residual, x, self.norm_weight(name, gguf_name)],
            outputs,
            MICROSOFT,
            epsilon=self.config.epsilon,
        )
        return outputs[0], outputs[-1]

    def project(self, layer, part, x):
        """The next of the projections; `part` is its place in the layer, as in attn.o_proj."""
        name = f"layers.{layer}.{part}"
        weights = self.linear_weights(f"model.{name}.MatMul", next(self.projections))
        return self.linear(f"/model/layers.{layer}/{part.replace('.', '/')}", x, weights)

    def attention_lengths(self):
        """From attention_mask [B, T], int32: each row's last position, T - 1 [B], and T []."""
        path = "/model/attn_mask_reformat"
        one = self.constant(f"{path}/one", [1])
        valid = self.node("ReduceSum", f"{path}/ReduceSum", ["attention_mask", one], keepdims=0)
        last = self.node("Sub", f"{path}/Sub", [valid, one])
        shape = self.node("Shape", f"{path}/Shape", ["attention_mask"])
        index = self.constant(f"{path}/index", 1)
        total = self.node("Gather", f"{path}/Gather", [shape, index], axis=0)
        return [
            self.node("Cast", f"{path}/Sub/Cast", [last], to=TensorProto.INT32),
            self.node("Cast", f"{path}/Gather/Cast", [total], to=TensorProto.INT32),
        ]

    def attention(self, layer, x, lengths, rotary):
        """Queries, keys and values [B, S, (heads + 2 * kv heads) * D] come from one product."""
        qkv = self.project(layer, "attn.qkv_proj", x)
        path = f"/model/layers.{layer}/attn/GroupQueryAttention"
        past = [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
        present = [f"present.{layer}.key", f"present.{layer}.value"]
        heads = self.node(
            "GroupQueryAttention",
            path,
            [qkv, "", "", *past, *lengths, *rotary],
            [f"{path}/output_0", *present],
            MICROSOFT,
            num_heads=self.config.heads,
            kv_num_heads=self.config.kv_heads,
            scale=self.config.head_size**-0.5,
            do_rotary=1,
            rotary_interleaved=0,
        )
        return self.project(layer, "attn.o_proj", heads)

    def mlp(self, layer, x):
        """(SiLU(x * Wgate^T) * (x * Wup^T)) * Wdown^T"""
        path = f"/model/layers.{layer}/mlp"
        gate = self.project(layer, "mlp.gate_proj", x)
        up = self.project(layer, "mlp.up_proj", x)
        sigmoid = self.node("Sigmoid", f"{path}/act_fn/Sigmoid", [gate])
        silu = self.node("Mul", f"{path}/act_fn/Mul", [gate, sigmoid])
        return self.project(layer, "mlp.down_proj", self.node("Mul", f"{path}/Mul", [silu, up]))
