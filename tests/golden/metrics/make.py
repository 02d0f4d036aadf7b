#!/usr/bin/env python3
"""Writes metrics.npz: predictions and labels, and what scikit-learn (1.9.1) says of them.

Needs scikit-learn and numpy.
"""
import numpy as np
from sklearn.metrics import f1_score, roc_auc_score

rng = np.random.default_rng(5)
out = {}


def save(name, **arrays):
    out.update({f"{name}_{key}": np.asarray(value) for key, value in arrays.items()})


def auc(labels, scores):
    """ogb.nodeproppred.Evaluator: the mean over tasks that have both kinds."""
    results = []
    for t in range(labels.shape[1]):
        if np.sum(labels[:, t] == 1) > 0 and np.sum(labels[:, t] == 0) > 0:
            known = labels[:, t] == labels[:, t]
            results.append(roc_auc_score(labels[known, t], scores[known, t]))
    return sum(results) / len(results)


# Ties, tasks of one kind only, unknown labels; infinite scores stand for huge ones.
scores = np.round(rng.normal(size=(400, 7)) * 4) / 4
scores[:, 2] = rng.normal(size=400)
labels = (scores + 2 * rng.normal(size=scores.shape) > 0.5).astype(np.float32)
labels[:, 3] = 1
labels[:, 4] = 0
labels[rng.random(labels.shape) < 0.2] = np.nan
labels[3:, 5] = np.nan
labels[:3, 5] = [0, 1, 1]
save("tasks", scores=scores, labels=labels, auc=auc(labels, scores))

# Enough rows for the sort of many; equal scores of both kinds, -0 and 0.
long = np.round(rng.normal(size=9000) * 50) / 50
long[:20] = np.repeat([0.0, -0.0], 10)
yes = (long + 3 * rng.normal(size=9000) > 0).astype(np.int64)
save("long", scores=long, labels=yes, auc=roc_auc_score(yes, long))

logits = np.round(rng.normal(size=(300, 6)) * 8) / 8
classes = rng.integers(0, 4, size=300)
logits[:, 4] -= 99  # class 4 neither occurs nor is predicted, class 5 is only predicted
logits[np.arange(300), classes] += 0.75
save("classes", logits=logits, labels=classes,
     micro=f1_score(classes, logits.argmax(1), average="micro"),
     macro=f1_score(classes, logits.argmax(1), average="macro"))

whole = (logits + rng.normal(size=logits.shape) > 0.3).astype(np.float32)
whole[:, 4] = 0
save("several", logits=logits, labels=whole,
     micro=f1_score(whole, logits > 0, average="micro"),
     macro=f1_score(whole, logits > 0, average="macro", zero_division=0))
np.savez_compressed("metrics.npz", **out)
