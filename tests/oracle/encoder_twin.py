# SPDX-License-Identifier: Apache-2.0
"""Encoders in NumPy, from the weights under their original names, not through the converter: what
tests/oracle/test_encoder.py compares the engine with. Returns the states after the embedding and each layer."""
import math

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])


def layer_norm(x, weight, bias, eps):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + eps) * weight + bias


def gelu(x):
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v, heads, size=None):
    n, d = q.shape
    q, k, v = (t.reshape(n, heads, d // heads).transpose(1, 0, 2) for t in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(d // heads)
    if size is not None:
        scores = scores + np.log(size)
    return (softmax(scores) @ v).transpose(1, 0, 2).reshape(n, d)


def wide(tensors):
    return {k: np.asarray(v, np.float64) for k, v in tensors.items()}


def bert(t, config, ids):
    """Hugging Face names."""
    eps, heads = config["layer_norm_eps"], config["num_attention_heads"]
    e = "embeddings."
    x = t[e + "word_embeddings.weight"][ids] + t[e + "position_embeddings.weight"][:len(ids)] + t[e + "token_type_embeddings.weight"][0]
    x = layer_norm(x, t[e + "LayerNorm.weight"], t[e + "LayerNorm.bias"], eps)
    states = [x]
    for i in range(config["num_hidden_layers"]):
        def dense(name, y, p=f"encoder.layer.{i}."):
            return y @ t[p + name + ".weight"].T + t[p + name + ".bias"]

        def norm(name, y, p=f"encoder.layer.{i}."):
            return layer_norm(y, t[p + name + ".weight"], t[p + name + ".bias"], eps)
        a = attention(*(dense("attention.self." + n, x) for n in ("query", "key", "value")), heads)
        x = norm("attention.output.LayerNorm", x + dense("attention.output.dense", a))
        x = norm("output.LayerNorm", x + dense("output.dense", gelu(dense("intermediate.dense", x))))
        states.append(x)
    return states


def match(metric, r, protected):
    """Bipartite soft matching of Token Merging (Bolya et al. 2022): (source, target) rows. `protected` rows take no part."""
    metric = metric / np.linalg.norm(metric, axis=-1, keepdims=True)
    n = len(metric)
    even, odd = np.arange(0, n, 2), np.arange(1, n, 2)
    scores = metric[even] @ metric[odd].T
    scores[np.isin(even, protected)] = -np.inf
    scores[:, np.isin(odd, protected)] = -np.inf
    r = min(r, (n - len(protected)) // 2)
    best, to = scores.max(1), scores.argmax(1)
    order = np.argsort(-best, kind="stable")[:r]
    order = order[np.isfinite(best[order])]
    return [(even[i], odd[to[i]]) for i in order]


def merge(x, size, pairs):
    """Size-weighted averages; rows keep their order. Returns x, size and where each row went."""
    total, sizes, gone = x * size[:, None], size.copy(), set()
    for a, b in pairs:
        total[b] += total[a]
        sizes[b] += sizes[a]
        gone.add(a)
    keep = np.array([i for i in range(len(x)) if i not in gone])
    place = {int(i): k for k, i in enumerate(keep)}
    where = np.array([place[int(dict(pairs).get(i, i))] for i in range(len(x))])
    return (total / sizes[:, None])[keep], sizes[keep], where


def vit_embed(t, pixels):
    """timm names; pixels [channels, rows, cols]."""
    w = t["patch_embed.proj.weight"]
    d, ch, p, _ = w.shape
    rows, cols = pixels.shape[1] // p, pixels.shape[2] // p
    patches = pixels.reshape(ch, rows, p, cols, p).transpose(1, 3, 0, 2, 4).reshape(rows * cols, -1)
    x = patches @ w.reshape(d, -1).T + t["patch_embed.proj.bias"]
    front = [t[n].reshape(-1, d) for n in ("cls_token", "dist_token") if n in t]
    x = np.concatenate(front + [x]) + t["pos_embed"][0]
    if "reg_token" in t:
        x = np.concatenate([x[:len(front)], t["reg_token"].reshape(-1, d), x[len(front):]])
    return x


def vit(t, pixels, heads, r=0, eps=1e-6):
    """States, then logits, then where each token of the input is after each layer; r pairs merge in each (ToMe)."""
    x = vit_embed(t, pixels)
    n_front = 1 + ("dist_token" in t)
    n_prefix = n_front + (t["reg_token"].reshape(-1, x.shape[1]).shape[0] if "reg_token" in t else 0)
    states, size, where, owners = [x], np.ones(len(x)), np.arange(len(x)), []
    i = 0
    while f"blocks.{i}.norm1.weight" in t:
        def norm(name, y, p=f"blocks.{i}."):
            return layer_norm(y, t[p + name + ".weight"], t[p + name + ".bias"], eps)

        def dense(name, y, p=f"blocks.{i}."):
            return y @ t[p + name + ".weight"].T + t[p + name + ".bias"]
        gamma = [t.get(f"blocks.{i}.ls{k}.gamma", 1.0) for k in (1, 2)]
        q, k, v = np.split(dense("attn.qkv", norm("norm1", x)), 3, axis=1)
        x = x + gamma[0] * dense("attn.proj", attention(q, k, v, heads, size if r else None))
        if r:
            metric = k.reshape(len(k), heads, -1).mean(1)
            x, size, moved = merge(x, size, match(metric, r, list(range(n_prefix))))
            where = moved[where]
        owners.append(where)
        x = x + gamma[1] * dense("mlp.fc2", gelu(dense("mlp.fc1", norm("norm2", x))))
        states.append(x)
        i += 1
    y = layer_norm(x, t["norm.weight"], t["norm.bias"], eps)
    logits = None
    if "head.weight" in t:
        logits = y[0] @ t["head.weight"].T + t["head.bias"]
        if "head_dist.weight" in t:
            logits = (logits + y[1] @ t["head_dist.weight"].T + t["head_dist.bias"]) / 2
    return states, logits, owners


def random_vit(seed, d=192, heads=3, layers=12, patch=16, image=224, labels=1000, distilled=True, scale=False, registers=0):
    """A state dict in timm's names with weights of trained size."""
    g = np.random.default_rng(seed)

    def normal(*shape, s=0.02):
        return (g.standard_normal(shape) * s).astype(np.float32)
    n = (image // patch) ** 2 + 1 + distilled
    t = {"patch_embed.proj.weight": normal(d, 3, patch, patch, s=0.05), "patch_embed.proj.bias": normal(d, s=0.1),
         "cls_token": normal(1, 1, d, s=0.5), "pos_embed": normal(1, n, d, s=0.5),
         "norm.weight": 1 + normal(d, s=0.1), "norm.bias": normal(d, s=0.1),
         "head.weight": normal(labels, d, s=0.1), "head.bias": normal(labels, s=0.1)}
    if distilled:
        t |= {"dist_token": normal(1, 1, d, s=0.5), "head_dist.weight": normal(labels, d, s=0.1), "head_dist.bias": normal(labels, s=0.1)}
    if registers:
        t["reg_token"] = normal(1, registers, d, s=0.5)
    for i in range(layers):
        p = f"blocks.{i}."
        for name, rows, cols in (("attn.qkv", 3 * d, d), ("attn.proj", d, d), ("mlp.fc1", 4 * d, d), ("mlp.fc2", d, 4 * d)):
            t[p + name + ".weight"] = normal(rows, cols, s=1.5 / math.sqrt(cols))
            t[p + name + ".bias"] = normal(rows, s=0.1)
        for name in ("norm1", "norm2"):
            t[p + name + ".weight"], t[p + name + ".bias"] = 1 + normal(d, s=0.1), normal(d, s=0.1)
        if scale:
            t[p + "ls1.gamma"], t[p + "ls2.gamma"] = 0.5 + normal(d, s=0.1), 0.5 + normal(d, s=0.1)
    return t
