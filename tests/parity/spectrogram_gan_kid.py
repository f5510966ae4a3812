# SPDX-License-Identifier: MIT
"""Records kernel distances (KID): the unbiased MMD^2 of Binkowski et al. (2018), term by term from its definition.

    python tests/parity/spectrogram_gan_kid.py        # writes tests/parity/data/spectrogram_gan_kid.safetensors

The sums run in plain Python over fractions, so that nothing is rounded before the end: with inputs of few bits the
recorded numbers are exact.
"""
import pathlib
from fractions import Fraction

import numpy as np
from safetensors.numpy import save_file


def kernel(x, y):
    return (sum(a * b for a, b in zip(x, y)) / len(x) + 1) ** 3


def as_fractions(array):
    return [[Fraction(float(value)) for value in row] for row in array]


def unbiased(a, b):
    def within(points):
        pairs = [kernel(x, y) for i, x in enumerate(points) for j, y in enumerate(points) if i != j]
        return sum(pairs) / len(pairs)

    across = [kernel(x, y) for x in a for y in b]
    return within(a) + within(b) - 2 * sum(across) / len(across)


def main():
    random = np.random.default_rng(3)
    out = {}
    for name, clips, others, features in (("few", 7, 10, 5), ("one", 6, 4, 1), ("wide", 3, 4, 16), ("two", 2, 2, 3)):
        a = np.round(random.normal(0.5, 1, (clips, features)) * 64) / 64
        b = np.round(random.normal(0, 1, (others, features)) * 64) / 64
        value = float(unbiased(as_fractions(a), as_fractions(b)))
        out.update({f"{name}.a": a, f"{name}.b": b, f"{name}.distance": np.array(value)})
    save_file(out, pathlib.Path(__file__).parent / "data" / "spectrogram_gan_kid.safetensors")


main()
