# SPDX-License-Identifier: MIT
"""Records top-k accuracy, F1 and the area under the ROC curve, with ties and classes that never occur.

usage: python tests/parity/metrics_classification.py   (needs scikit-learn, torchmetrics and safetensors;
       writes data/metrics_classification.safetensors)

F1 and accuracy are scikit-learn's, the areas torchmetrics', where all classes occur scikit-learn's, too: they must agree.
Where classes never occur, the areas are scikit-learn's of each class that does.
"""
import pathlib
import warnings

import numpy as np
import torch
from safetensors.numpy import save_file
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score, top_k_accuracy_score
from torchmetrics.functional.classification import binary_auroc, multiclass_auroc, multiclass_f1_score

OUTPUT = pathlib.Path(__file__).parent / "data" / "metrics_classification.safetensors"


def f1(scores, labels):
    """accuracy, macro, micro, then each class"""
    classes = scores.shape[1]
    best = scores.argmax(1)
    macro = multiclass_f1_score(torch.tensor(best), torch.tensor(labels), classes, average="macro").item()
    assert abs(macro - f1_score(labels, best, average="macro")) < 1e-6
    return np.array([
        accuracy_score(labels, best), f1_score(labels, best, average="macro"), f1_score(labels, best, average="micro"),
        *f1_score(labels, best, average=None, labels=range(classes), zero_division=0)
    ])


def areas(scores, labels):
    """each class against the rest, NaN where it never occurs, then the mean of the others"""
    classes = scores.shape[1]
    each = np.full(classes, np.nan)
    for c in set(labels):
        each[c] = roc_auc_score(labels == c, scores[:, c])
    macro = np.nanmean(each)
    if len(set(labels)) == classes:
        theirs = multiclass_auroc(torch.softmax(torch.tensor(scores), 1), torch.tensor(labels), classes, average="none")
        ours = [roc_auc_score(labels == c, torch.softmax(torch.tensor(scores), 1)[:, c]) for c in range(classes)]
        assert np.abs(theirs.numpy() - ours).max() < 1e-6
    return np.append(each, macro)


def sets():
    random = np.random.default_rng(5)
    labels = random.integers(0, 6, 300)
    yield "plain", random.standard_normal((300, 6)) + 1.2 * np.eye(6)[labels], labels
    labels = random.integers(0, 4, 300)
    yield "absent", random.standard_normal((300, 6)) + np.eye(6)[labels] - 9 * np.eye(6)[[5] * 300], labels


def binary_sets():
    random = np.random.default_rng(6)
    labels = (random.random(400) < 0.2).astype(np.int64)
    yield "plain", random.standard_normal(400) + labels, labels
    yield "ties", np.round(random.standard_normal(400) + labels), labels
    yield "constant", np.zeros(400), labels


if __name__ == "__main__":
    warnings.simplefilter("error")
    tensors = {}
    for name, scores, labels in sets():
        tensors |= {f"{name}.scores": scores, f"{name}.labels": labels, f"{name}.f1": f1(scores, labels), f"{name}.areas": areas(scores, labels)}
        top = [top_k_accuracy_score(labels, scores, k=k, labels=range(scores.shape[1])) for k in range(1, scores.shape[1])]
        tensors[f"{name}.top"] = np.array(top)
    for name, scores, labels in binary_sets():
        area = roc_auc_score(labels, scores)
        probabilities = torch.sigmoid(torch.tensor(scores))
        assert abs(area - binary_auroc(probabilities, torch.tensor(labels)).item()) < 1e-6
        tensors |= {f"binary.{name}.scores": scores, f"binary.{name}.labels": labels, f"binary.{name}.area": np.array([area])}
    save_file(tensors, OUTPUT)
