# SPDX-License-Identifier: Apache-2.0
"""How far two sets of logits are apart, and how well one predicts a text."""
import numpy as np


def log_probabilities(logits):
    """[..., n_vocab] in any float type -> log softmax in double."""
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def divergence(reference, other):
    """KL(reference || other) per position, in nats; both are logits [n, n_vocab]."""
    out = np.empty(len(reference))
    for i, (a, b) in enumerate(zip(reference, other)):  # row by row: a vocabulary can be large
        p, q = log_probabilities(a), log_probabilities(b)
        out[i] = (np.exp(p) * (p - q)).sum()
    return out


def top_agreement(a, b):
    return float((a.argmax(axis=-1) == b.argmax(axis=-1)).mean())


def perplexity(logits, ids):
    """Of ids[1:] given the logits [n, n_vocab] after each of ids[:-1]."""
    total = 0.0
    for row, token in zip(logits[:-1], ids[1:]):
        total -= log_probabilities(row)[token]
    return float(np.exp(total / (len(ids) - 1)))
