# SPDX-License-Identifier: MIT
"""Records PyTorch's averages of weights and its clipping of gradients by value, in data/averages.safetensors.

usage: python tests/parity/averages.py      (needs torch, safetensors)

Gradients follow a closed formula, so that the C++ tests make the same ones without a random generator. Each history
has a row a step: all parameters, or averages, one after the other.
"""
import pathlib

import torch
from safetensors.torch import save_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

SHAPES = [(3, 5), (7,), (2, 2, 2), ()]
STEPS = 12
LR = 0.25


def wave(shape, phase, dtype=torch.float64):
    n = max(1, int(torch.tensor(shape).prod())) if shape else 1
    return torch.sin(torch.arange(n, dtype=torch.float64) * 0.7 + phase).reshape(shape).to(dtype)


class Waves(torch.nn.Module):
    """Parameter i begins as wave(i); the buffer counts in tenths."""

    def __init__(self, dtype):
        super().__init__()
        for i, shape in enumerate(SHAPES):
            self.register_parameter(f"p{i}", torch.nn.Parameter(wave(shape, i, dtype)))
        self.register_buffer("tenths", torch.zeros(2, dtype=dtype))


def flat(tensors):
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def train(dtype, each_step, frozen=lambda step, i: False):
    """Plain gradient descent; `each_step(model, step)` follows each step, counted from 0."""
    model = Waves(dtype)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=LR)
    for step in range(STEPS):
        for i, parameter in enumerate(parameters):
            parameter.grad = None if frozen(step, i) else wave(SHAPES[i], 0.3 * step + i, dtype)
        optimizer.step()
        model.tenths += 0.1
        each_step(model, step)


def averages(dtype, make, first=0, every=1, **how):
    history, averaged = [], None

    def each_step(model, step):
        nonlocal averaged
        if averaged is None:
            averaged = make(model)
        if step >= first and (step + 1 - first) % every == 0:
            averaged.update_parameters(model)
        history.append(flat(list(averaged.module.parameters()) + list(averaged.module.buffers())))

    train(dtype, each_step, **how)
    return torch.stack(history)


def ema(model, **options):
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), **options)


def clipped_values():
    rows = []
    for limit in (0.1, 0.5, 1.5, 1e6):
        parameters = [torch.nn.Parameter(wave(shape, i)) for i, shape in enumerate(SHAPES)]
        for i, parameter in enumerate(parameters):
            parameter.grad = wave(SHAPES[i], i) * 2
        torch.nn.utils.clip_grad_value_(parameters, limit)
        rows.append(flat(parameter.grad for parameter in parameters))
    return torch.stack(rows)


def main():
    data = {"clip_value.gradients": clipped_values()}
    for bits, dtype in ((32, torch.float32), (64, torch.float64)):
        data[f"ema{bits}"] = averages(dtype, ema)
        data[f"swa{bits}"] = averages(dtype, AveragedModel)
    data["ema_buffers64"] = averages(torch.float64, lambda model: ema(model, use_buffers=True))
    data["swa_begin_every64"] = averages(torch.float64, AveragedModel, first=3, every=2)
    # Parameter 1 stands still in the first five steps, parameter 2 after them.
    frozen = lambda step, i: (i == 1 and step < 5) or (i == 2 and step >= 5)
    data["ema_frozen64"] = averages(torch.float64, ema, frozen=frozen)
    data["swa_frozen64"] = averages(torch.float64, AveragedModel, frozen=frozen)
    target = pathlib.Path(__file__).parent / "data" / "averages.safetensors"
    save_file({k: v.contiguous() for k, v in data.items()}, target)


if __name__ == "__main__":
    main()
