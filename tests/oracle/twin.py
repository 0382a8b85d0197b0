# SPDX-License-Identifier: Apache-2.0
"""The forward pass of every supported decoder family in plain NumPy: the readable reference.

Owns: reading a GGUF file's hyper-parameters and weights (dequantised to F32 through the `gguf`
package) and computing logits and the hidden state after each layer, exactly: no rounding of
activations, keys or values below the chosen float type.
Leaves to others: tokenizing, sampling, caching, speed.

Families: llama (and what llama.cpp stores as such), qwen2, qwen3, gemma3.

    twin = Twin("model.gguf")
    logits, hidden = twin.forward(ids)      # [n, n_vocab], [n_layers + 2][n, hidden]

hidden[0] is the embedding (scaled, for Gemma), hidden[1 + i] the residual stream after layer i,
hidden[n_layers + 1] the result of the final norm: the order of ftk_session_tap's layers -1 .. n.
"""
import argparse
import math

import gguf
import numpy as np

FLOAT_TYPES = (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16,
               gguf.GGMLQuantizationType.BF16)


def rms_norm(x, weight, epsilon):
    """x / sqrt(mean(x^2) + epsilon) * weight over the last axis. (Zhang and Sennrich, RMSNorm)"""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def round_int8(x, block):
    """x as INT8 with one scale for each `block` values of the last axis (the tail may be short)."""
    width = x.shape[-1]
    block = min(block, width)
    padded = np.zeros((*x.shape[:-1], -(-width // block) * block), x.dtype)
    padded[..., :width] = x
    groups = padded.reshape(*x.shape[:-1], -1, block)
    scale = np.abs(groups).max(axis=-1, keepdims=True) / 127
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    groups = np.rint(groups * inverse) * scale
    return groups.reshape(padded.shape)[..., :width]


def softmax(x):
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


class Rope:
    """cos and sin tables for rotary positions (Su et al., RoFormer), with the scalings in use.

    Pair j of a head turns by position * frequency[j], frequency[j] = base^(-2 j / n_rot).
      linear  frequency / factor
      yarn    between frequency (fast pairs) and frequency / factor (slow pairs) by a ramp over
              the number of turns within the original context; the rotated vectors are also
              stretched by 0.1 ln(factor) + 1   (Peng et al., YaRN)
      llama3  a divisor for each pair, precomputed in the tensor rope_freqs.weight
    """

    def __init__(self, n_rot, base, factor=1.0, kind="linear", original_context=0, divisors=None,
                 attn_factor=1.0, beta_fast=32.0, beta_slow=1.0):
        pair = np.arange(n_rot // 2, dtype=np.float64)
        frequency = base ** (-2 * pair / n_rot)
        if divisors is not None:
            frequency = frequency / divisors
        self.stretch = attn_factor
        if kind == "yarn":
            def pair_with_turns(turns):
                return n_rot * math.log(original_context / (turns * 2 * math.pi)) / (2 * math.log(base))
            low = max(0, math.floor(pair_with_turns(beta_fast)))
            high = min(n_rot - 1, math.ceil(pair_with_turns(beta_slow)))
            ramp = np.clip((pair - low) / max(0.001, high - low), 0, 1)
            frequency = frequency * (1 - ramp) + frequency / factor * ramp
            if factor > 1:
                self.stretch *= 0.1 * math.log(factor) + 1
        elif kind == "linear":
            frequency = frequency / factor
        elif kind != "none":
            raise ValueError(f"rope scaling type {kind} is not supported")
        self.frequency = frequency

    def rotate(self, x, positions, interleaved):
        """x [n, heads, head_dim]; pairs are (2j, 2j + 1) when interleaved, else (j, j + n_rot/2)."""
        angle = positions[:, None, None] * self.frequency
        cos = (np.cos(angle) * self.stretch).astype(x.dtype)
        sin = (np.sin(angle) * self.stretch).astype(x.dtype)
        half = len(self.frequency)
        out = x.copy()
        first, second = ((slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else
                         (slice(0, half), slice(half, 2 * half)))
        out[..., first] = x[..., first] * cos - x[..., second] * sin
        out[..., second] = x[..., first] * sin + x[..., second] * cos
        return out


class Twin:
    """activation_block: when not 0, what enters a matrix product with quantised weights is first
    rounded to INT8 with a scale per block of so many values, as engines do; kv_dtype: what keys
    (rotated) and values are rounded to. Both off by default: the exact result."""

    def __init__(self, path, dtype=np.float32, activation_block=0, kv_dtype=None):
        self.reader = gguf.GGUFReader(path)
        self.dtype = dtype
        self.activation_block = activation_block
        self.kv_dtype = kv_dtype
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.architecture = self.key("general.architecture")
        if self.architecture not in ("llama", "qwen2", "qwen3", "gemma3"):
            raise ValueError(f"architecture {self.architecture} is not supported")
        self.n_layers = self.hyper("block_count")
        self.hidden = self.hyper("embedding_length")
        self.n_heads = self.hyper("attention.head_count")
        self.n_kv_heads = self.hyper("attention.head_count_kv", self.n_heads)
        self.head_dim = self.hyper("attention.key_length", self.hidden // self.n_heads)
        self.epsilon = self.hyper("attention.layer_norm_rms_epsilon")
        self.interleaved = self.architecture == "llama"
        self.is_gemma = self.architecture == "gemma3"
        self.activation = gelu_tanh if self.is_gemma else silu
        self.window = self.hyper("attention.sliding_window", 0) if self.is_gemma else 0
        self.window_period = self.hyper("attention.sliding_window_pattern", 6)
        self.attention_scale = 1 / math.sqrt(self.head_dim)
        if self.is_gemma and self.n_layers == 62:  # Gemma 3 27B divides by the model's own width
            self.attention_scale = 1 / math.sqrt(self.hidden // self.n_heads)

        n_rot = self.hyper("rope.dimension_count", self.head_dim)
        base = self.hyper("rope.freq_base", 10000.0)
        divisors = self.weight("rope_freqs.weight") if "rope_freqs.weight" in self.tensors else None
        self.rope = Rope(
            n_rot, base, self.hyper("rope.scaling.factor", self.hyper("rope.scale_linear", 1.0)),
            self.hyper("rope.scaling.type", "linear"),
            self.hyper("rope.scaling.original_context_length", self.hyper("context_length", 0)),
            divisors, self.hyper("rope.scaling.attn_factor", 1.0),
            self.hyper("rope.scaling.yarn_beta_fast", 32.0),
            self.hyper("rope.scaling.yarn_beta_slow", 1.0))
        self.local_rope = Rope(n_rot, self.hyper("rope.freq_base_swa", 10000.0))

    def key(self, name, default=None):
        field = self.reader.get_field(name)
        if field is None:
            if default is None:
                raise KeyError(f"metadata key {name} is missing")
            return default
        return field.contents()

    def hyper(self, name, default=None):
        return self.key(f"{self.architecture}.{name}", default)

    def weight(self, name):
        """A tensor in its mathematical shape: a matrix is [rows out, columns in]."""
        tensor = self.tensors[name]
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return data.astype(self.dtype, copy=False)

    def product(self, x, name):
        if self.activation_block and self.tensors[name].tensor_type not in FLOAT_TYPES:
            x = round_int8(x, self.activation_block)
        return x @ self.weight(name).T

    def linear(self, x, name):
        y = self.product(x, name + ".weight")
        return y + self.weight(name + ".bias") if name + ".bias" in self.tensors else y

    def norm(self, x, name):
        return rms_norm(x, self.weight(name + ".weight"), self.epsilon)

    def is_local(self, layer):
        """Gemma 3: five layers with a sliding window, then one that sees everything."""
        return self.window > 0 and (layer + 1) % self.window_period != 0

    def project(self, x, layer, positions):
        """Queries [n, n_heads, head_dim], keys and values [n, n_kv_heads, head_dim] of one layer,
        queries and keys rotated."""
        n = len(x)
        block = f"blk.{layer}."
        q = self.linear(x, block + "attn_q").reshape(n, self.n_heads, self.head_dim)
        k = self.linear(x, block + "attn_k").reshape(n, self.n_kv_heads, self.head_dim)
        v = self.linear(x, block + "attn_v").reshape(n, self.n_kv_heads, self.head_dim)
        if block + "attn_q_norm.weight" in self.tensors:  # Qwen 3, Gemma 3
            q = self.norm(q, block + "attn_q_norm")
            k = self.norm(k, block + "attn_k_norm")
        rope = self.local_rope if self.is_local(layer) else self.rope
        q = rope.rotate(q, positions, self.interleaved)
        k = rope.rotate(k, positions, self.interleaved)
        if self.kv_dtype is not None:
            k, v = (a.astype(self.kv_dtype).astype(self.dtype) for a in (k, v))
        return q, k, v

    def attend(self, q, k, distance, local):
        """Softmax weights [n, m] of one head's queries [n, head_dim] over keys [m, head_dim];
        distance [n, m]: query position - key position."""
        logits = q @ k.T * self.dtype(self.attention_scale)
        logits[(distance < 0) | ((distance >= self.window) if local else False)] = -np.inf
        return softmax(logits)

    def attention(self, x, layer, positions):
        q, k, v = self.project(x, layer, positions)
        local = self.is_local(layer)
        distance = positions[:, None] - positions[None, :]
        out = np.empty_like(q)
        group = self.n_heads // self.n_kv_heads  # query heads that share one K/V head
        for head in range(self.n_heads):
            weights = self.attend(q[:, head], k[:, head // group], distance, local)
            out[:, head] = weights @ v[:, head // group]
        return self.linear(out.reshape(len(x), -1), f"blk.{layer}.attn_output")

    def feed_forward(self, x, layer):
        block = f"blk.{layer}."
        gate = self.activation(self.linear(x, block + "ffn_gate"))
        return self.linear(gate * self.linear(x, block + "ffn_up"), block + "ffn_down")

    def forward(self, ids, positions=None, last=None):
        """ids [n] -> logits [n, n_vocab], hidden [n_layers + 2][n, hidden]. `last`: logits of so
        many positions at the end only."""
        ids = np.asarray(ids)
        positions = np.arange(len(ids)) if positions is None else np.asarray(positions)
        tensor = self.tensors["token_embd.weight"]
        x = gguf.quants.dequantize(tensor.data[ids], tensor.tensor_type).astype(self.dtype)
        if self.is_gemma:
            x = x * self.dtype(math.sqrt(self.hidden))
        hidden = [x]
        for layer in range(self.n_layers):
            block = f"blk.{layer}."
            y = self.attention(self.norm(x, block + "attn_norm"), layer, positions)
            if self.is_gemma:
                y = self.norm(y, block + "post_attention_norm")
            x = x + y
            y = self.feed_forward(self.norm(x, block + "ffn_norm"), layer)
            if self.is_gemma:
                y = self.norm(y, block + "post_ffw_norm")
            x = x + y
            hidden.append(x)
        x = self.norm(x, "output_norm")
        hidden.append(x)
        output = "output" if "output.weight" in self.tensors else "token_embd"
        return self.product(x if last is None else x[len(x) - last:], output + ".weight"), hidden


def main():
    parser = argparse.ArgumentParser(description="logits of a GGUF model by the NumPy twin",
                                     epilog="example: twin.py model.gguf --ids 1,15043,3186")
    parser.add_argument("model")
    parser.add_argument("--ids", required=True, help="token ids, separated by commas")
    parser.add_argument("--out", help="write logits [n, n_vocab] as .npy")
    args = parser.parse_args()
    logits, hidden = Twin(args.model).forward([int(i) for i in args.ids.split(",")])
    for layer, x in enumerate(hidden):
        print(f"layer {layer - 1:3d}  rms {np.sqrt((x * x).mean()):.5f}")
    best = np.argsort(-logits[-1])[:5]
    print("next:", ", ".join(f"{i} ({logits[-1, i]:.4f})" for i in best))
    if args.out:
        np.save(args.out, logits)


if __name__ == "__main__":
    main()
