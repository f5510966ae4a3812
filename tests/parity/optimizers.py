# SPDX-License-Identifier: MIT
"""Records PyTorch's SGD, Adam and AdamW in data/optimizers.safetensors.

usage: python tests/parity/optimizers.py      (needs torch, safetensors)

Parameters and gradients follow a closed formula, so that the C++ tests make the same ones without a random generator.
Parameter 1 has no gradient in steps 3 to 5, parameter 2 has its first in step 2, and from step 6 on the learning rate is
half of what it was.
"""
import pathlib

import torch
from safetensors.torch import save_file

SHAPES = [(3, 7), (7,), (2, 2, 2), ()]
STEPS = 12


def wave(shape, phase, dtype):
    count = torch.Size(shape).numel()
    return torch.sin(torch.arange(count, dtype=torch.float64) * 0.7 + phase).reshape(shape).to(dtype)


def has_gradient(index, step):
    return not (index == 1 and 3 <= step <= 5) and not (index == 2 and step < 2)


def record(make, dtype, *groups):
    """All parameters after each step, and what the optimizer keeps at the end; two groups take two parameters each."""
    parameters = [torch.nn.Parameter(wave(shape, i, dtype)) for i, shape in enumerate(SHAPES)]
    share = len(parameters) // len(groups)
    optimizer = make([dict(params=parameters[i * share:(i + 1) * share], **options) for i, options in enumerate(groups)],
                     foreach=False)
    history = []
    for step in range(STEPS):
        if step == 6:
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
        for i, parameter in enumerate(parameters):
            gradient = wave(SHAPES[i], 0.3 * step + i, dtype) * (1 + step)
            parameter.grad = gradient if has_gradient(i, step) else None
        optimizer.step()
        history.append(torch.cat([p.detach().flatten() for p in parameters]))
    kept = [value.flatten() for p in parameters for _, value in sorted(optimizer.state[p].items()) if value is not None]
    return torch.stack(history), torch.cat(kept) if kept else torch.zeros(0)


def main():
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    double, single = torch.float64, torch.float32
    decay = dict(lr=3e-2, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3)
    cases = {
        "sgd.plain64": (sgd, double, dict(lr=1e-2)),
        "sgd.plain32": (sgd, single, dict(lr=1e-2)),
        "sgd.decay64": (sgd, double, dict(lr=1e-2, weight_decay=0.3)),
        "sgd.momentum64": (sgd, double, dict(lr=1e-2, momentum=0.9)),
        "sgd.momentum32": (sgd, single, dict(lr=1e-2, momentum=0.9)),
        "sgd.nesterov64": (sgd, double, dict(lr=1e-2, momentum=0.8, weight_decay=0.1, nesterov=True)),
        "sgd.dampening64": (sgd, double, dict(lr=1e-2, momentum=0.9, dampening=0.4, weight_decay=0.1)),
        "sgd.dampening32": (sgd, single, dict(lr=1e-2, momentum=0.9, dampening=0.4)),
        "sgd.groups64": (sgd, double, dict(lr=1e-2, momentum=0.9, nesterov=True), dict(lr=3e-2, weight_decay=0.1)),
        "adam.default64": (adam, double, dict()),
        "adam.default32": (adam, single, dict()),
        "adam.decay64": (adam, double, decay),
        "adam.amsgrad64": (adam, double, dict(lr=1e-2, amsgrad=True)),
        "adam.groups64": (adam, double, dict(lr=1e-2, weight_decay=0.1), dict(lr=3e-2, amsgrad=True)),
        "adamw.default64": (adamw, double, dict()),
        "adamw.default32": (adamw, single, dict()),
        "adamw.decay64": (adamw, double, decay),
        "adamw.amsgrad64": (adamw, double, dict(lr=1e-2, amsgrad=True)),
        "adamw.groups64": (adamw, double, dict(lr=1e-2, weight_decay=0.1), dict(lr=3e-2, amsgrad=True)),
    }
    data = {}
    for name, arguments in cases.items():
        data[f"{name}.history"], data[f"{name}.state"] = record(*arguments)
    save_file(data, pathlib.Path(__file__).parent / "data" / "optimizers.safetensors")


if __name__ == "__main__":
    main()
