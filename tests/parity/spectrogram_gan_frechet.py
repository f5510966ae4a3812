# SPDX-License-Identifier: MIT
"""Records Frechet distances by scipy's matrix square root, as the usual implementations of the FID compute them.

    python tests/parity/spectrogram_gan_frechet.py        # writes tests/parity/data/spectrogram_gan_frechet.safetensors

`wide` has fewer clips than features, so that its covariance is singular: there the two roots are taken by numpy's
eigenvalues.
"""
import pathlib

import numpy as np
import scipy.linalg
import torch
from safetensors.torch import save_file


def distance(a, b, root):
    mean = a.mean(0) - b.mean(0)
    c1, c2 = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    return mean @ mean + np.trace(c1) + np.trace(c2) - 2 * root(c1, c2)


def by_scipy(c1, c2):
    return np.trace(scipy.linalg.sqrtm(c1 @ c2)).real


def by_eigenvalues(c1, c2):
    return np.sqrt(np.clip(np.linalg.eigvals(c1 @ c2).real, 0, None)).sum()


def main():
    random = np.random.default_rng(3)
    out = {}
    for name, clips, features, root in (("tall", 40, 6, by_scipy), ("one", 30, 1, None), ("wide", 5, 8, by_eigenvalues)):
        mixing = random.normal(size=(features, features))
        a = random.normal(size=(clips, features)) @ mixing + 0.5
        b = random.normal(size=(clips + 3, features))
        if features == 1:
            value = (a.mean() - b.mean()) ** 2 + (a.std(ddof=1) - b.std(ddof=1)) ** 2
        else:
            value = distance(a, b, root)
        out.update({f"{name}.a": torch.tensor(a), f"{name}.b": torch.tensor(b),
                    f"{name}.distance": torch.tensor(float(value), dtype=torch.float64)})
    save_file(out, pathlib.Path(__file__).parent / "data" / "spectrogram_gan_frechet.safetensors")


main()
