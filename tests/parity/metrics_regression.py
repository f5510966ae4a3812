# SPDX-License-Identifier: MIT
"""Records concordance, R2, Pearson's correlation and the mean squared error of data near zero and far from it.

usage: python tests/parity/metrics_regression.py       (needs numpy and safetensors; writes data/metrics_regression.safetensors)

Scores are numpy's: two passes over the whole, in long double; Pearson's must agree with np.corrcoef in fp64.
"""
import pathlib

import numpy as np
from safetensors.numpy import save_file

OUTPUT = pathlib.Path(__file__).parent / "data" / "metrics_regression.safetensors"


def scores(prediction, target):
    x, y = prediction.astype(np.longdouble), target.astype(np.longdouble)
    covariance, shift = np.mean((x - x.mean()) * (y - y.mean())), x.mean() - y.mean()
    error = np.mean((y - x) ** 2)
    result = np.array([2 * covariance / (x.var() + y.var() + shift**2), 1 - error / y.var(), covariance / np.sqrt(x.var() * y.var()), error])
    assert abs(result[2] - np.corrcoef(prediction, target)[0, 1]) < 1e-12
    return result.astype(np.float64)


def sets():
    random = np.random.default_rng(3)
    target = random.standard_normal(400)
    noise = random.standard_normal(400)
    yield "plain", 0.7 * target + 0.4 * noise + 0.2, target
    yield "far", 1e7 + 0.7 * target + 0.4 * noise, 1e7 + target
    yield "far_apart", -3e5 + 0.7 * target + 0.4 * noise, 1e6 + 2 * target
    yield "close", 1e6 + target + 1e-5 * noise, 1e6 + target
    yield "small", 1e-9 * (target - noise), 1e-9 * target
    yield "against", -target + 0.1 * noise, target
    yield "drifting", np.linspace(0, 1e6, 400) + noise, np.linspace(0, 1e6, 400)


if __name__ == "__main__":
    tensors = {}
    for name, prediction, target in sets():
        tensors |= {f"{name}.prediction": prediction, f"{name}.target": target, f"{name}.scores": scores(prediction, target)}
    save_file(tensors, OUTPUT)
