# SPDX-License-Identifier: MIT
"""Records torch.nn.utils.clip_grad_norm_ in data/clipping.safetensors.

usage: python tests/parity/clipping.py      (needs torch, safetensors)

Gradients follow a closed formula, so that the C++ tests make the same ones without a random generator.
"""
import pathlib

import torch
from safetensors.torch import save_file

SHAPES = [(3, 5), (7,), (2, 2, 2), ()]
LIMITS = [0.1, 1.0, 2.5, 1e6, float("inf")]


def wave(shape, phase, dtype=torch.float64):
    n = max(1, int(torch.tensor(shape).prod())) if shape else 1
    return torch.sin(torch.arange(n, dtype=torch.float64) * 0.7 + phase).reshape(shape).to(dtype)


def clipping(norm_type):
    """Norms and clipped gradients for several limits."""
    rows, norms = [], []
    for limit in LIMITS:
        parameters = [torch.nn.Parameter(wave(s, i)) for i, s in enumerate(SHAPES)]
        for i, parameter in enumerate(parameters):
            parameter.grad = wave(SHAPES[i], i) * 2
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, limit, norm_type))
        rows.append(torch.cat([p.grad.flatten() for p in parameters]))
    return torch.stack(rows), torch.stack(norms)


def main():
    data = {}
    for name, norm_type in (("2", 2.0), ("inf", float("inf")), ("1.5", 1.5)):
        data[f"gradients.{name}"], data[f"norms.{name}"] = clipping(norm_type)
    save_file(data, pathlib.Path(__file__).parent / "data" / "clipping.safetensors")


if __name__ == "__main__":
    main()
