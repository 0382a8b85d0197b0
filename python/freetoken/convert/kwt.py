# SPDX-License-Identifier: Apache-2.0
"""The Keyword Transformer's tflite (ARM-software/keyword-transformer) to our keys and tensors.

The graph's operations are read in order; a constant matrix's place in that order says what it is, and every shape
is checked. The MFCC front end of the graph is not converted: its parameters become keys.
"""
import numpy as np

from .write import Model, Refused, pad_columns


def _interpreter(path):
    try:
        from ai_edge_litert import interpreter
    except ImportError as error:
        raise Refused("reading tflite needs the package ai-edge-litert: pip install ai-edge-litert") from error
    kind = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    i = interpreter.Interpreter(str(path), experimental_op_resolver_type=kind)
    i.allocate_tensors()
    return i


def _constants(interpreter):
    """Operations in order as (name, [constant array or None per input])."""
    ops = interpreter._get_ops_details()
    made = {int(k) for op in ops for k in op["outputs"]} | {d["index"] for d in interpreter.get_input_details()}
    return [(op["op_name"], [None if int(k) < 0 or int(k) in made else interpreter.get_tensor(int(k)) for k in op["inputs"]])
            for op in ops]


def _layer_norms(ops, d):
    """(gamma, beta) pairs: a product of the reciprocal root with gamma, then beta less the product."""
    gammas = [c for i, (name, ins) in enumerate(ops) if name == "MUL" and i and ops[i - 1][0] == "RSQRT"
              for c in ins if c is not None and c.shape == (d,)]
    betas = [ins[0] for name, ins in ops if name == "SUB" and ins[0] is not None and ins[0].shape == (d,)]
    return list(zip(gammas, betas, strict=True))


def kwt(path, labels, name):
    ops = _constants(_interpreter(path))
    dense = [(ins[1], ins[2] if len(ins) > 2 else None) for op, ins in ops
             if op == "FULLY_CONNECTED" and ins[1] is not None]
    if len(dense) < 5 or dense[0][0].shape[1] != 480:
        raise Refused("the graph does not begin with frames of 480 samples: not a Keyword Transformer as published")
    mels, mfcc = dense[3][0].shape[1], dense[3][0].shape[0]
    embed, rest, head = dense[4], dense[5:-1], dense[-1]
    d = embed[0].shape[0]
    if embed[0].shape != (d, mfcc) or head[0].shape[1] != d or len(rest) % 6:
        raise Refused(f"{len(rest)} matrices between the embedding and the head are not six a layer")
    n_layers, ffn = len(rest) // 6, rest[4][0].shape[0]
    norms = _layer_norms(ops, d)
    if len(norms) != 2 * n_layers:
        raise Refused(f"{len(norms)} layer norms for {n_layers} layers, must be two a layer")
    first = next(ins for op, ins in ops if op == "CONCATENATION" and ins[0] is not None and ins[0].shape == (1, 1, d))
    positions = next(c for op, ins in ops if op == "ADD" for c in ins if c is not None and c.ndim == 3 and c.shape[2] == d)[0]
    scale = next(c for op, ins in ops if op == "MUL" for c in ins if c is not None and c.shape == () and 0 < c < 1)
    heads = round(float(scale) ** 2 * d)
    if heads != 1:
        raise Refused(f"{heads} heads: only KWT-1, with one, has been checked against its graph")
    if labels and len(labels) != head[0].shape[0]:
        raise Refused(f"{len(labels)} labels for {head[0].shape[0]} outputs")

    m = Model("kwt", name)
    m.key("block_count", n_layers)
    m.key("embedding_length", d)
    m.key("feed_forward_length", ffn)
    m.key("attention.head_count", 1)
    m.key("attention.layer_norm_epsilon", float(next(ins[1] for i, (op, ins) in enumerate(ops)
                                                     if op == "ADD" and ops[i + 1][0] == "RSQRT")))
    m.key("activation", "gelu_tanh" if any(op == "TANH" for op, _ in ops) else "gelu")
    m.key("pooling", "cls")
    m.key("context_length", len(positions))
    for key, value in (("frames", len(positions) - 1), ("features", mfcc), ("sample_rate", 16000), ("window", 480),
                       ("hop", 160), ("fft", 512), ("mels", mels)):
        m.key("audio." + key, value)
    m.key("audio.low_hz", 20.0)
    m.key("audio.high_hz", 7600.0)
    if labels:
        m.key("classifier.output_labels", list(labels))
    m.add("input_embd.weight", pad_columns(embed[0]))
    m.add("input_embd.bias", embed[1])
    m.add("prefix_embd.weight", first[0].reshape(1, d) + positions[:1])
    m.add("position_embd.weight", positions[1:])
    for i in range(n_layers):
        q, k, v, o, up, down = rest[6 * i:6 * i + 6]
        shapes = [x[0].shape for x in (q, k, v, o, up, down)]
        if shapes != [(d, d)] * 4 + [(ffn, d), (d, ffn)]:
            raise Refused(f"the matrices of layer {i} have shapes {shapes}")
        biases = [x[1] for x in (q, k, v)]
        qkv_bias = None if all(b is None for b in biases) else np.concatenate([np.zeros(d) if b is None else b for b in biases])
        m.layer(i, attn_qkv_weight=np.concatenate([q[0], k[0], v[0]]), attn_qkv_bias=qkv_bias,
                attn_output_weight=o[0], attn_output_bias=o[1], attn_norm_weight=norms[2 * i][0],
                attn_norm_bias=norms[2 * i][1], ffn_up_weight=up[0], ffn_up_bias=up[1], ffn_down_weight=down[0],
                ffn_down_bias=down[1], ffn_norm_weight=norms[2 * i + 1][0], ffn_norm_bias=norms[2 * i + 1][1])
    m.add("head.weight", head[0])
    m.add("head.bias", head[1])
    return m
