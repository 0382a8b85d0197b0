# SPDX-License-Identifier: Apache-2.0
"""The same encoders for the peers: ONNX written from the same weights, then INT8 as each peer makes it.

Owns: the ONNX graphs (attention and gelu in the form both runtimes fuse), ONNX Runtime's dynamic quantisation, and
OpenVINO's post-training quantisation by NNCF, calibrated on random inputs of the model's statistics."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Graph:
    def __init__(self):
        self.nodes, self.weights, self.n = [], [], 0

    def const(self, array):
        self.n += 1
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), f"c{self.n}"))
        return f"c{self.n}"

    def op(self, kind, *inputs, **attributes):
        self.n += 1
        self.nodes.append(helper.make_node(kind, list(inputs), [f"t{self.n}"], **attributes))
        return f"t{self.n}"

    def f32(self, x):
        return self.const(np.asarray(x, np.float32))

    def ints(self, *x):
        return self.const(np.asarray(x, np.int64))

    def dense(self, x, weight, bias):
        return self.op("Add", self.op("MatMul", x, self.f32(weight.T)), self.f32(bias))

    def norm(self, x, weight, bias, eps):
        return self.op("LayerNormalization", x, self.f32(weight), self.f32(bias), axis=-1, epsilon=eps)

    def gelu(self, x):
        e = self.op("Erf", self.op("Div", x, self.f32(np.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", e, self.f32(1))), self.f32(0.5))

    def attention(self, q, k, v, heads, n, d):
        def split(t, order):
            return self.op("Transpose", self.op("Reshape", t, self.ints(1, n, heads, d // heads)), perm=order)
        scores = self.op("MatMul", split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]))
        p = self.op("Softmax", self.op("Mul", scores, self.f32((d // heads) ** -0.5)), axis=-1)
        y = self.op("Transpose", self.op("MatMul", p, split(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        return self.op("Reshape", y, self.ints(1, n, d))

    def save(self, path, name, kind, shape, out):
        g = helper.make_graph(self.nodes, "encoder", [helper.make_tensor_value_info(name, kind, shape)],
                              [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)], self.weights)
        model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 9
        onnx.save(model, str(path))


def vit(path, t, heads, eps=1e-6):
    """timm names, distilled or not; input pixels [1, 3, 224, 224], output the class token's normed state [1, d]."""
    g, w = Graph(), t["patch_embed.proj.weight"]
    d, _, p, _ = w.shape
    x = g.op("Conv", "pixels", g.f32(w), g.f32(t["patch_embed.proj.bias"]), strides=[p, p], kernel_shape=[p, p])
    n_patches = (224 // p) ** 2
    x = g.op("Transpose", g.op("Reshape", x, g.ints(1, d, n_patches)), perm=[0, 2, 1])
    front = [t[k].reshape(1, 1, d) for k in ("cls_token", "dist_token") if k in t]
    n = n_patches + len(front)
    x = g.op("Add", g.op("Concat", g.f32(np.concatenate(front, 1)), x, axis=1), g.f32(t["pos_embed"]))
    i = 0
    while f"blocks.{i}.norm1.weight" in t:
        b = {k.removeprefix(f"blocks.{i}."): v for k, v in t.items() if k.startswith(f"blocks.{i}.")}
        y = g.norm(x, b["norm1.weight"], b["norm1.bias"], eps)
        qkv = [g.dense(y, b["attn.qkv.weight"][k * d:(k + 1) * d], b["attn.qkv.bias"][k * d:(k + 1) * d]) for k in range(3)]
        x = g.op("Add", x, g.dense(g.attention(*qkv, heads, n, d), b["attn.proj.weight"], b["attn.proj.bias"]))
        y = g.gelu(g.dense(g.norm(x, b["norm2.weight"], b["norm2.bias"], eps), b["mlp.fc1.weight"], b["mlp.fc1.bias"]))
        x = g.op("Add", x, g.dense(y, b["mlp.fc2.weight"], b["mlp.fc2.bias"]))
        i += 1
    x = g.norm(x, t["norm.weight"], t["norm.bias"], eps)
    out = g.op("Gather", x, g.const(np.int64(0)), axis=1)
    g.save(path, "pixels", TensorProto.FLOAT, [1, 3, 224, 224], out)


def bert(path, t, config, n):
    """Hugging Face names; input ids [1, n], output the mean state [1, d]."""
    g, d, heads, eps = Graph(), config["hidden_size"], config["num_attention_heads"], config["layer_norm_eps"]
    fixed = t["embeddings.position_embeddings.weight"][:n] + t["embeddings.token_type_embeddings.weight"][0]
    x = g.op("Add", g.op("Gather", g.f32(t["embeddings.word_embeddings.weight"]), "ids", axis=0), g.f32(fixed[None]))
    x = g.norm(x, t["embeddings.LayerNorm.weight"], t["embeddings.LayerNorm.bias"], eps)
    for i in range(config["num_hidden_layers"]):
        b = {k.removeprefix(f"encoder.layer.{i}."): v for k, v in t.items() if k.startswith(f"encoder.layer.{i}.")}

        def dense(name, y, b=b):
            return g.dense(y, b[name + ".weight"], b[name + ".bias"])
        a = g.attention(*(dense("attention.self." + k, x) for k in ("query", "key", "value")), heads, n, d)
        x = g.norm(g.op("Add", x, dense("attention.output.dense", a)), b["attention.output.LayerNorm.weight"],
                   b["attention.output.LayerNorm.bias"], eps)
        y = dense("output.dense", g.gelu(dense("intermediate.dense", x)))
        x = g.norm(g.op("Add", x, y), b["output.LayerNorm.weight"], b["output.LayerNorm.bias"], eps)
    g.save(path, "ids", TensorProto.INT64, [1, n], g.op("ReduceMean", x, axes=[1], keepdims=0))


def onnxruntime_int8(path, out):
    """Weights per channel, activations at run time."""
    from onnxruntime.quantization import QuantType, quantize_dynamic
    quantize_dynamic(str(path), str(out), weight_type=QuantType.QInt8, per_channel=True, op_types_to_quantize=["MatMul"])


def openvino_int8(path, out, inputs):
    """NNCF's post-training quantisation for Transformers over `inputs`."""
    import nncf
    import openvino
    model = openvino.Core().read_model(str(path))
    quantised = nncf.quantize(model, nncf.Dataset(inputs), model_type=nncf.ModelType.TRANSFORMER, subset_size=len(inputs))
    openvino.save_model(quantised, str(out), compress_to_fp16=False)
