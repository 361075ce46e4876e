"""Writes a quantised model as a float32 export: the same graph, its weights dequantised.

usage: dequantise.py FOLDER OUT                  an onnxruntime-genai folder with 4 or 8 bits, blocks and no zero points
       dequantise.py MODEL.gguf OUT.gguf         a GGUF file

  MatMulNBits(x, q, scales)            ->  MatMul(x, W)     W [K, N] = ((q - 2^(bits - 1)) * scale) transposed
  GatherBlockQuantized(q, ids, scales) ->  Gather(W, ids)   W [rows, K], along axis 0

A node that says anything else (zero points, other axes) is an error that names the node.
"""
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import onnx
from onnx import helper, numpy_helper

DATA_FILE = "model.onnx.data"


def digits(q, bits):
    """uint8 [..., bytes] -> the integers [..., bytes * 8 / bits], of two 4-bit ones the low half first."""
    return q if bits == 8 else np.stack([q & 15, q >> 4], axis=-1).reshape(*q.shape[:-1], -1)


def weight(q, scales, bits, block):
    """float32 [N, K] of q uint8 [N, ...] and scales float32 [N, K / block]."""
    values = digits(q.reshape(len(scales), -1), bits).reshape(*scales.shape, block).astype(np.float32)
    values -= 2 ** (bits - 1)
    values *= scales[..., None]
    return values.reshape(len(scales), -1)


def attribute(node, name):
    return next(a.i for a in node.attribute if a.name == name)


def dequantised_node(node, stored, sources):
    """(the node that takes the place of `node`, the name and value of its weight)."""
    quantised, scales = (0, 2) if node.op_type == "GatherBlockQuantized" else (1, 2)
    if len(node.input) > 3:
        raise ValueError(f"node {node.name}: more inputs than data, ids or digits, and scales")
    bits, block = attribute(node, "bits"), attribute(node, "block_size")
    name = sources.get(node.input[quantised], node.input[quantised])  # a table is a Reshape of the head's digits
    w = weight(stored(name), stored(node.input[scales]), bits, block)
    if node.op_type == "MatMulNBits":
        return helper.make_node("MatMul", [node.input[0], name + "_f32_t"], node.output, node.name), (name + "_f32_t", np.ascontiguousarray(w.T))
    if attribute(node, "gather_axis") != 0 or attribute(node, "quantize_axis") != 1:
        raise ValueError(f"node {node.name}: gather_axis is not 0, or quantize_axis is not 1")
    return helper.make_node("Gather", [name + "_f32", node.input[1]], node.output, node.name, axis=0), (name + "_f32", w)


def onnx_folder(source, target):
    """`target` is an existing, empty folder."""
    for file in Path(source).iterdir():
        if file.is_file() and file.name not in ("model.onnx", DATA_FILE):
            shutil.copy(file, target)
    model = onnx.load(Path(source) / "model.onnx", load_external_data=False)
    tensors = {t.name: t for t in model.graph.initializer}
    sources = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type == "Reshape"}

    def stored(name):
        return numpy_helper.to_array(tensors[name], str(source))

    nodes, weights = [], {}
    for node in model.graph.node:
        if node.op_type in ("MatMulNBits", "GatherBlockQuantized"):
            node, (name, value) = dequantised_node(node, stored, sources)
            weights[name] = value
        nodes.append(node)
    used = {name for node in nodes for name in node.input} | {o.name for o in model.graph.output}
    nodes = [n for n in nodes if n.op_type != "Reshape" or used & set(n.output)]
    used = {name for node in nodes for name in node.input}
    weights |= {name: stored(name) for name in tensors if name in used}
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    with open(Path(target) / DATA_FILE, "wb") as data:
        for name, value in weights.items():
            data.write(bytes(-data.tell() % 64))
            tensor = onnx.TensorProto(name=name, dims=value.shape, data_location=onnx.TensorProto.EXTERNAL,
                                      data_type=helper.np_dtype_to_tensor_dtype(value.dtype))
            for key, text in (("location", DATA_FILE), ("offset", data.tell()), ("length", value.nbytes)):
                tensor.external_data.add(key=key, value=str(text))
            data.write(value.data)
            model.graph.initializer.append(tensor)
    onnx.save(model, Path(target) / "model.onnx")


def copy_fields(reader, writer, but=lambda name: False):
    """The metadata of a GGUF file, but for those whose name `but` says."""
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture" and not but(field.name):
            kind = field.types[0]
            writer.add_key_value(field.name, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_file(source, target):
    reader, writer = gguf.GGUFReader(source), gguf.GGUFWriter(target, "llama")
    copy_fields(reader, writer, lambda name: name == "general.file_type")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.ascontiguousarray(gguf.dequantize(tensor.data, tensor.tensor_type), np.float32))
    finish(writer)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = map(Path, sys.argv[1:])
    if source.is_file():
        gguf_file(source, target)
        return
    target.mkdir(parents=True)
    try:
        onnx_folder(source, target)
    except ValueError as error:
        sys.exit(f"dequantise: {source}: {error}")


if __name__ == "__main__":
    main()
