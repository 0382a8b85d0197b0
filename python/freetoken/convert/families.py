# SPDX-License-Identifier: Apache-2.0
"""From the names other projects use to ours: BERT (Hugging Face), ViT and DeiT (timm; DINOv2's LayerScale and
registers), the encoder of Whisper (CTranslate2).

What is constant is folded here: positions of class and register tokens into the tokens, LayerScale into the
projection before it.
"""
import re

import numpy as np

from .write import Model, Refused, Source, pad_columns


def _cat(*parts):
    return np.concatenate(parts, axis=0)


# --------------------------------------------------------------------- BERT

def bert(tensors, config, vocab, name, pooling="mean", labels=None, lowercase=True):
    """Hugging Face names; `config` is config.json, `vocab` the WordPiece vocabulary in order."""
    if config.get("model_type", "bert") != "bert":
        raise Refused(f"model_type is {config.get('model_type')}, only bert is known")
    if config.get("hidden_act", "gelu") not in ("gelu", "gelu_new", "gelu_pytorch_tanh"):
        raise Refused(f"hidden_act {config['hidden_act']} is not supported")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise Refused("relative positions are not supported")
    src = Source({k.removeprefix("bert."): v for k, v in tensors.items()})
    d, ffn, ctx = config["hidden_size"], config["intermediate_size"], config["max_position_embeddings"]
    m = Model("bert", name)
    m.key("block_count", config["num_hidden_layers"])
    m.key("embedding_length", d)
    m.key("feed_forward_length", ffn)
    m.key("attention.head_count", config["num_attention_heads"])
    m.key("attention.layer_norm_epsilon", float(config["layer_norm_eps"]))
    m.key("context_length", ctx)
    m.key("pooling", pooling)
    m.key("activation", "gelu" if config.get("hidden_act", "gelu") == "gelu" else "gelu_tanh")
    m.add("token_embd.weight", src.take("embeddings.word_embeddings.weight", config["vocab_size"], d))
    m.add("position_embd.weight", src.take("embeddings.position_embeddings.weight", ctx, d))
    m.add("token_types.weight", src.take("embeddings.token_type_embeddings.weight")[0])
    m.add("token_embd_norm.weight", src.take("embeddings.LayerNorm.weight", d))
    m.add("token_embd_norm.bias", src.take("embeddings.LayerNorm.bias", d))
    src.ignore("embeddings.position_ids") if "embeddings.position_ids" in src else None
    for i in range(config["num_hidden_layers"]):
        p = f"encoder.layer.{i}."
        qkv = [src.take(p + f"attention.self.{n}.weight", d, d) for n in ("query", "key", "value")]
        bias = [src.take(p + f"attention.self.{n}.bias", d) for n in ("query", "key", "value")]
        m.layer(i, attn_qkv_weight=_cat(*qkv), attn_qkv_bias=_cat(*bias),
                attn_output_weight=src.take(p + "attention.output.dense.weight", d, d),
                attn_output_bias=src.take(p + "attention.output.dense.bias", d),
                attn_norm_weight=src.take(p + "attention.output.LayerNorm.weight", d),
                attn_norm_bias=src.take(p + "attention.output.LayerNorm.bias", d),
                ffn_up_weight=src.take(p + "intermediate.dense.weight", ffn, d),
                ffn_up_bias=src.take(p + "intermediate.dense.bias", ffn),
                ffn_down_weight=src.take(p + "output.dense.weight", d, ffn),
                ffn_down_bias=src.take(p + "output.dense.bias", d),
                ffn_norm_weight=src.take(p + "output.LayerNorm.weight", d),
                ffn_norm_bias=src.take(p + "output.LayerNorm.bias", d))
    classifier = "classifier.weight" in src
    for n in ("pooler.dense.weight", "pooler.dense.bias"):
        if n in src and not classifier:
            src.ignore(n)  # trained for another task than pooling by mean or class token
    if classifier:
        if "pooler.dense.weight" in src:
            m.add("pooler.weight", src.take("pooler.dense.weight", d, d))
            m.add("pooler.bias", src.take("pooler.dense.bias", d))
        m.add("head.weight", src.take("classifier.weight"))
        m.add("head.bias", src.take("classifier.bias"))
        names = labels or [config["id2label"][k] for k in sorted(config.get("id2label", {}), key=int)]
        if names:
            m.key("classifier.output_labels", names)
    src.finish()
    markers = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    if len(vocab) != config["vocab_size"]:
        raise Refused(f"the vocabulary has {len(vocab)} tokens, the model {config['vocab_size']}")
    m.key("tokenizer.ggml.model", "bert")
    m.key("tokenizer.ggml.tokens", list(vocab))
    m.key("tokenizer.ggml.token_type", [3 if t in markers else 1 for t in vocab])
    m.key("tokenizer.ggml.unknown_token_id", vocab.index("[UNK]"))
    m.key("tokenizer.ggml.cls_token_id", vocab.index("[CLS]"))
    m.key("tokenizer.ggml.seperator_token_id", vocab.index("[SEP]"))
    if not lowercase:
        m.key("freetoken.tokenizer.lowercase", False)
    return m


# ---------------------------------------------------------------- ViT, DeiT

def vit(tensors, name, n_heads=None, image_size=None, pooling="cls", mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225), crop=0.9, interpolation="bicubic", eps=1e-6, labels=None):
    """timm names (VisionTransformer, VisionTransformerDistilled) and DINOv2's."""
    src = Source(tensors)
    patch = src.take("patch_embed.proj.weight")
    d, channels, size = patch.shape[0], patch.shape[1], patch.shape[2]
    if patch.ndim != 4 or patch.shape[3] != size:
        raise Refused(f"patch_embed.proj.weight has shape {list(patch.shape)}: patches must be square")
    prefix = [src.take("cls_token").reshape(1, d)] if "cls_token" in src else []
    if "dist_token" in src:
        prefix.append(src.take("dist_token").reshape(1, d))
    positions = src.take("pos_embed")[0]
    n_prefix = sum(len(p) for p in prefix)
    grid = int(round((len(positions) - n_prefix) ** 0.5))
    if grid * grid + n_prefix == len(positions):
        prefix = [p + positions[i:i + 1] for i, p in enumerate(prefix)]
        positions = positions[n_prefix:]
    elif int(round(len(positions) ** 0.5)) ** 2 == len(positions):
        grid = int(round(len(positions) ** 0.5))  # no_embed_class
    else:
        raise Refused(f"pos_embed has {len(positions)} positions, which is no square of patches")
    for reg in ("reg_token", "register_tokens"):
        if reg in src:
            prefix.append(src.take(reg).reshape(-1, d))
    src.ignore("mask_token") if "mask_token" in src else None
    layers = sorted({int(k.split(".")[1]) for k in tensors if re.match(r"blocks\.\d+\.", k)})
    if layers != list(range(len(layers))) or not layers:
        raise Refused("the blocks are not numbered 0, 1, 2, ...")
    n_heads = n_heads or d // 64
    if d % n_heads:
        raise Refused(f"{n_heads} heads do not divide a width of {d}; say how many with --heads")
    ffn = src.tensors["blocks.0.mlp.fc1.weight"].shape[0] if "blocks.0.mlp.fc1.weight" in src else 0
    if not ffn:
        raise Refused("tensor blocks.0.mlp.fc1.weight is missing: gated feed-forwards are not supported")
    m = Model("vit", name)
    m.key("block_count", len(layers))
    m.key("embedding_length", d)
    m.key("feed_forward_length", ffn)
    m.key("attention.head_count", n_heads)
    m.key("attention.layer_norm_epsilon", eps)
    m.key("image_size", image_size or grid * size)
    m.key("patch_size", size)
    m.key("channels", channels)
    m.key("image_mean", [float(x) for x in mean][:channels])
    m.key("image_std", [float(x) for x in std][:channels])
    m.key("crop_pct", crop)
    m.key("interpolation", interpolation)
    m.key("pooling", pooling)
    n_prefix = sum(len(p) for p in prefix)
    m.key("context_length", grid * grid + n_prefix)
    m.add("input_embd.weight", pad_columns(patch.reshape(d, -1)))
    bias = src.maybe("patch_embed.proj.bias", d)
    if bias is not None:
        m.add("input_embd.bias", bias)
    if prefix:
        m.add("prefix_embd.weight", _cat(*prefix))
    m.add("position_embd.weight", positions)
    for i in layers:
        p = f"blocks.{i}."
        scale1, scale2 = src.maybe(p + "ls1.gamma", d), src.maybe(p + "ls2.gamma", d)
        one = np.ones(d, np.float32)
        s1, s2 = one if scale1 is None else scale1, one if scale2 is None else scale2
        m.layer(i, attn_norm_weight=src.take(p + "norm1.weight", d), attn_norm_bias=src.take(p + "norm1.bias", d),
                attn_qkv_weight=src.take(p + "attn.qkv.weight", 3 * d, d), attn_qkv_bias=src.maybe(p + "attn.qkv.bias", 3 * d),
                attn_output_weight=src.take(p + "attn.proj.weight", d, d) * s1[:, None],
                attn_output_bias=src.take(p + "attn.proj.bias", d) * s1,
                ffn_norm_weight=src.take(p + "norm2.weight", d), ffn_norm_bias=src.take(p + "norm2.bias", d),
                ffn_up_weight=src.take(p + "mlp.fc1.weight", ffn, d), ffn_up_bias=src.take(p + "mlp.fc1.bias", ffn),
                ffn_down_weight=src.take(p + "mlp.fc2.weight", d, ffn) * s2[:, None],
                ffn_down_bias=src.take(p + "mlp.fc2.bias", d) * s2)
    norm = "fc_norm" if "fc_norm.weight" in src else "norm"
    m.add("output_norm.weight", src.take(norm + ".weight", d))
    m.add("output_norm.bias", src.take(norm + ".bias", d))
    if norm == "fc_norm" and pooling != "cls":
        raise Refused("fc_norm norms the mean, which is not supported; only pooling by class token is with it")
    if "head.weight" in src:
        m.add("head.weight", src.take("head.weight"))
        m.add("head.bias", src.take("head.bias"))
        if labels:
            m.key("classifier.output_labels", list(labels))
    if "head_dist.weight" in src:
        m.add("head_dist.weight", src.take("head_dist.weight"))
        m.add("head_dist.bias", src.take("head_dist.bias"))
    src.finish()
    return m


# ------------------------------------------------------------------ Whisper

def whisper_encoder(tensors, n_heads, name):
    """CTranslate2 names, 80 mel bands or 128; the decoder's tensors are not looked at."""
    src = Source({k: v for k, v in tensors.items() if k.startswith("encoder/") and not k.endswith("num_heads")})
    conv1 = src.take("encoder/conv1/weight")  # [d, mels, 3]
    d, mels = conv1.shape[0], conv1.shape[1]
    positions = src.take("encoder/position_encodings/encodings")
    layers = sorted({int(k.split("/")[1].removeprefix("layer_")) for k in src.tensors if k.startswith("encoder/layer_")
                     and k.split("/")[1].removeprefix("layer_").isdigit()})
    if layers != list(range(len(layers))) or not layers:
        raise Refused("the layers are not numbered 0, 1, 2, ...")
    ffn = src.tensors["encoder/layer_0/ffn/linear_0/weight"].shape[0]
    m = Model("whisper-encoder", name)
    m.key("block_count", len(layers))
    m.key("embedding_length", d)
    m.key("feed_forward_length", ffn)
    m.key("attention.head_count", n_heads)
    m.key("attention.layer_norm_epsilon", 1e-5)
    m.key("context_length", len(positions))
    m.key("pooling", "none")
    for key, value in (("frames", 2 * len(positions)), ("features", mels), ("sample_rate", 16000), ("window", 400),
                       ("hop", 160), ("fft", 400), ("mels", mels)):
        m.key("audio." + key, value)
    m.key("audio.low_hz", 0.0)
    m.key("audio.high_hz", 8000.0)
    m.add("input_embd.weight", pad_columns(conv1.transpose(0, 2, 1).reshape(d, -1)))  # taps outside, channels inside
    m.add("input_embd.bias", src.take("encoder/conv1/bias", d))
    m.add("conv2.weight", src.take("encoder/conv2/weight", d, d, 3).transpose(0, 2, 1).reshape(d, -1))
    m.add("conv2.bias", src.take("encoder/conv2/bias", d))
    m.add("position_embd.weight", positions)
    for i in layers:
        p = f"encoder/layer_{i}/"
        a, f = p + "self_attention/", p + "ffn/"
        m.layer(i, attn_norm_weight=src.take(a + "layer_norm/gamma", d), attn_norm_bias=src.take(a + "layer_norm/beta", d),
                attn_qkv_weight=src.take(a + "linear_0/weight", 3 * d, d), attn_qkv_bias=src.take(a + "linear_0/bias", 3 * d),
                attn_output_weight=src.take(a + "linear_1/weight", d, d), attn_output_bias=src.take(a + "linear_1/bias", d),
                ffn_norm_weight=src.take(f + "layer_norm/gamma", d), ffn_norm_bias=src.take(f + "layer_norm/beta", d),
                ffn_up_weight=src.take(f + "linear_0/weight", ffn, d), ffn_up_bias=src.take(f + "linear_0/bias", ffn),
                ffn_down_weight=src.take(f + "linear_1/weight", d, ffn), ffn_down_bias=src.take(f + "linear_1/bias", d))
    m.add("output_norm.weight", src.take("encoder/layer_norm/gamma", d))
    m.add("output_norm.bias", src.take("encoder/layer_norm/beta", d))
    src.finish()
    return m
