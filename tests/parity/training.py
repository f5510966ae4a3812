# SPDX-License-Identifier: MIT
"""Records PyTorch's AdamW and gradient clipping, and transformers' learning-rate schedules, in data/training.safetensors.

usage: python tests/parity/training.py      (needs torch, transformers, safetensors)

Gradients follow a closed formula, so that the C++ tests make the same ones without a random generator.
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers import get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

SHAPES = [(3, 5), (7,), (2, 2, 2), ()]
STEPS = 12


def wave(shape, phase, dtype=torch.float64):
    n = max(1, int(torch.tensor(shape).prod())) if shape else 1
    return torch.sin(torch.arange(n, dtype=torch.float64) * 0.7 + phase).reshape(shape).to(dtype)


def adamw(dtype, **options):
    """Parameters and moments after each step; parameter 1 has no gradient in steps 3 to 5."""
    parameters = [torch.nn.Parameter(wave(s, i, dtype)) for i, s in enumerate(SHAPES)]
    optimizer = torch.optim.AdamW(parameters, **options)
    history = []
    for step in range(STEPS):
        for i, parameter in enumerate(parameters):
            parameter.grad = None if i == 1 and 3 <= step <= 5 else wave(SHAPES[i], 0.3 * step + i, dtype) * (1 + step)
        optimizer.step()
        history.append(torch.cat([p.detach().flatten() for p in parameters]))
    moments = torch.cat([optimizer.state[p][k].flatten() for p in parameters for k in ("exp_avg", "exp_avg_sq")])
    return torch.stack(history), moments


def clipping():
    """Norm and clipped gradients for several limits."""
    rows, norms = [], []
    for limit in (0.1, 1.0, 2.5, 1e6):
        parameters = [torch.nn.Parameter(wave(s, i)) for i, s in enumerate(SHAPES)]
        for i, parameter in enumerate(parameters):
            parameter.grad = wave(SHAPES[i], i) * 2
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, limit))
        rows.append(torch.cat([p.grad.flatten() for p in parameters]))
    return torch.stack(rows), torch.stack(norms)


def schedule(make):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    scheduler = make(optimizer)
    rates = []
    for _ in range(25):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return torch.tensor(rates, dtype=torch.float64)


def main():
    data = {}
    cases = {
        "default64": (torch.float64, {}),
        "default32": (torch.float32, {}),
        "other64": (torch.float64, dict(lr=3e-2, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3)),
        "amsgrad64": (torch.float64, dict(lr=1e-2, amsgrad=True)),
        "nodecay32": (torch.float32, dict(lr=1e-2, weight_decay=0.0)),
    }
    for name, (dtype, options) in cases.items():
        data[f"adamw.{name}.history"], data[f"adamw.{name}.moments"] = adamw(dtype, **options)
    data["clip.gradients"], data["clip.norms"] = clipping()
    data["schedule.linear"] = schedule(lambda o: get_linear_schedule_with_warmup(o, 5, 20))
    data["schedule.cosine"] = schedule(lambda o: get_cosine_schedule_with_warmup(o, 5, 20))
    data["schedule.linear_no_warmup"] = schedule(lambda o: get_linear_schedule_with_warmup(o, 0, 20))
    data["schedule.constant"] = schedule(lambda o: get_constant_schedule_with_warmup(o, 5))
    target = pathlib.Path(__file__).parent / "data" / "training.safetensors"
    save_file({k: v.contiguous() for k, v in data.items()}, target)


if __name__ == "__main__":
    main()
