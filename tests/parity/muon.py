# SPDX-License-Identifier: MIT
"""Records torch.optim.Muon (2.9 or newer) in data/muon.safetensors.

usage: python tests/parity/muon.py      (needs torch, safetensors)

Newton-Schulz steps are matmuls in bf16, whose last bits differ between processors and versions. So each shape's first
product is recorded too: where it has the same bits, the test compares to 1e-10.
"""
import pathlib

import torch
from safetensors.torch import save_file

from optimizers import wave

SHAPES = [(6, 4), (4, 9), (16, 16), (33, 7)]
STEPS = 5


def record(dtype, **options):
    """All parameters after each step, and the momentum at the end."""
    parameters = [torch.nn.Parameter(wave(shape, i, dtype)) for i, shape in enumerate(SHAPES)]
    optimizer = torch.optim.Muon(parameters, **options)
    history = []
    for step in range(STEPS):
        for i, parameter in enumerate(parameters):
            parameter.grad = wave(SHAPES[i], 0.3 * step + i, dtype) * (1 + step)
        optimizer.step()
        history.append(torch.cat([p.detach().flatten() for p in parameters]))
    kept = [optimizer.state[p]["momentum_buffer"].flatten() for p in parameters]
    return torch.stack(history), torch.cat(kept)


def main():
    cases = {
        "default64": (torch.float64, dict(lr=1e-2)),
        "default32": (torch.float32, dict(lr=1e-2)),
        "plain64": (torch.float64, dict(lr=1e-2, momentum=0.8, nesterov=False, weight_decay=0.0, ns_steps=3)),
        "like_adamw64": (torch.float64, dict(lr=1e-2, adjust_lr_fn="match_rms_adamw")),
    }
    tensors = {}
    for name, (dtype, options) in cases.items():
        tensors[f"{name}.history"], tensors[f"{name}.kept"] = record(dtype, **options)
    for i, shape in enumerate(SHAPES):
        matrix = wave(shape, i, torch.bfloat16)
        tensors[f"product.{i}"] = matrix @ matrix.T
    save_file(tensors, pathlib.Path(__file__).parent / "data" / "muon.safetensors")


if __name__ == "__main__":
    main()
