# SPDX-License-Identifier: MIT
"""Records PyTorch's training on whole windows, which accumulation over unequal micro-batches has to equal.

    python tests/parity/accumulation.py        # writes tests/parity/data/accumulation.safetensors

Parameters and features are sin(0.7 i + phase), as reference.hpp's wave() makes them; label i of a batch is i mod 3.
"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

SIZES = [3, 1, 4, 2, 5, 1, 2]  # of the micro-batches of an epoch; the last window of 2 or 4 is short
EPOCHS = 3


def wave(shape, phase):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float64) * 0.7 + phase).sin().reshape(shape)


def train(window, make_optimizer):
    weights = [torch.nn.Parameter(wave((8, 4), 0.1)), torch.nn.Parameter(wave((3, 8), 0.2))]
    optimizer = make_optimizer(weights)
    batches = [(wave((size, 4), float(i)), torch.arange(size) % 3) for i, size in enumerate(SIZES)]
    losses = []
    for _ in range(EPOCHS):
        for first in range(0, len(batches), window):
            x, y = (torch.cat(part) for part in zip(*batches[first : first + window]))
            optimizer.zero_grad()
            loss = F.cross_entropy(torch.tanh(x @ weights[0].T) @ weights[1].T, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), [w.detach() for w in weights]


def main():
    out = {}
    optimizers = {
        "sgd": lambda w: torch.optim.SGD(w, lr=0.25, momentum=0.9),
        "adamw": lambda w: torch.optim.AdamW(w, lr=0.01, weight_decay=0.1),
    }
    for name, make in optimizers.items():
        for window in (1, 2, 4, 16):
            key = f"{name}.{window}"
            out[f"{key}.losses"], (out[f"{key}.first"], out[f"{key}.second"]) = train(window, make)
    save_file(out, pathlib.Path(__file__).parent / "data" / "accumulation.safetensors")


main()
