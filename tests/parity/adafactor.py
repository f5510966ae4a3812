# SPDX-License-Identifier: MIT
"""Records transformers' Adafactor in data/adafactor.safetensors.

usage: python tests/parity/adafactor.py      (needs torch, transformers 4, safetensors)

Parameters and gradients are those of optimizers.py. Parameter 1 has no gradient in steps 3 to 5, parameter 2 has its first
in step 2.
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers.optimization import Adafactor

from optimizers import SHAPES, STEPS, has_gradient, wave


def record(dtype, **options):
    """All parameters after each step, and what the optimizer keeps of the first at the end."""
    parameters = [torch.nn.Parameter(wave(shape, i, dtype)) for i, shape in enumerate(SHAPES)]
    optimizer = Adafactor(parameters, **options)
    history = []
    for step in range(STEPS):
        for i, parameter in enumerate(parameters):
            gradient = wave(SHAPES[i], 0.3 * step + i, dtype) * (1 + step)
            parameter.grad = gradient if has_gradient(i, step) else None
        optimizer.step()
        history.append(torch.cat([p.detach().flatten() for p in parameters]))
    state = optimizer.state[parameters[0]]
    kept = [state[key].flatten() for key in ("exp_avg_sq_row", "exp_avg_sq_col")]
    return torch.stack(history), torch.cat(kept)


def main():
    fixed = dict(relative_step=False, scale_parameter=False)
    cases = {
        "relative64": (torch.float64, dict()),
        "relative32": (torch.float32, dict()),
        "fixed64": (torch.float64, dict(lr=1e-2, **fixed)),
        "fixed32": (torch.float32, dict(lr=1e-2, **fixed)),
        "decay64": (torch.float64, dict(lr=1e-2, weight_decay=0.3, decay_rate=-0.5, relative_step=False)),
        "momentum64": (torch.float64, dict(lr=1e-2, beta1=0.9, clip_threshold=0.5, eps=(1e-8, 0.5), **fixed)),
    }
    tensors = {}
    for name, (dtype, options) in cases.items():
        tensors[name + ".history"], tensors[name + ".kept"] = record(dtype, **options)
    save_file(tensors, pathlib.Path(__file__).parent / "data" / "adafactor.safetensors")


if __name__ == "__main__":
    main()
