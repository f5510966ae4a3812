# SPDX-License-Identifier: MIT
"""Records what torch.amp.GradScaler does on a sequence of overflows, for one optimizer and for two that share it.

    python tests/parity/grad_scaler.py        # writes tests/parity/data/grad_scaler.safetensors

Parameters and inputs are sin(0.7 i + phase), as reference.hpp's wave() makes them.
"""
import pathlib

import torch
from safetensors.torch import save_file

STEPS = 40
OVERFLOWS = {"one": [0, 1, 7, 8, 9, 20, 33], "a": [2, 3, 15], "b": [3, 21, 22]}
OPTIONS = dict(init_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=3)


def wave(shape, phase):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) * 0.7 + phase).sin().reshape(shape).float()


def player(phase, optimizer):
    weight = torch.nn.Parameter(wave((3, 5), phase))
    return weight, optimizer([weight])


def loss(weight, step, overflows):
    factor = float("inf") if step in overflows else 1.0
    return (weight * weight * wave((3, 5), float(step)) * factor).sum()


def run(players):
    scaler = torch.amp.GradScaler("cpu", **OPTIONS)
    scales, trackers = [], []
    for step in range(STEPS):
        for weight, optimizer, overflows in players:
            optimizer.zero_grad()
            scaler.scale(loss(weight, step, overflows)).backward()
            scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        trackers.append(scaler._growth_tracker.item())
    return torch.tensor(scales), torch.tensor(trackers)


def main():
    out = {}
    sgd = lambda p: torch.optim.SGD(p, lr=0.125, momentum=0.9)
    adamw = lambda p: torch.optim.AdamW(p, lr=0.01, fused=True)
    for name, make in (("sgd", sgd), ("adamw", adamw)):
        weight, optimizer = player(0.5, make)
        out[f"{name}.scale"], out[f"{name}.tracker"] = run([(weight, optimizer, OVERFLOWS["one"])])
        out[f"{name}.weight"] = weight.detach()
    first, second = player(0.5, sgd), player(1.5, adamw)
    out["two.scale"], out["two.tracker"] = run([(*first, OVERFLOWS["a"]), (*second, OVERFLOWS["b"])])
    out["two.first"], out["two.second"] = first[0].detach(), second[0].detach()
    save_file(out, pathlib.Path(__file__).parent / "data" / "grad_scaler.safetensors")


main()
