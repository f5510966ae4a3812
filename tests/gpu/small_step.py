# SPDX-License-Identifier: MIT
"""small_step.py DEVICE [quick]: the peers of small_step.cpp, the same MLP and fused AdamW by PyTorch and Accelerate."""
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy

device, quick = torch.device(sys.argv[1]), sys.argv[2:] == ["quick"]
STEPS, ROUNDS = (20, 1) if quick else (500, 3)

torch.manual_seed(1)
features = torch.randn(STEPS, 32, 64).to(device)
labels = torch.randint(0, 10, (STEPS, 32)).to(device)
batches = list(zip(features, labels))


def made():
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    return model, torch.optim.AdamW(model.parameters(), fused=True)


def pytorch():
    model, optimizer = made()

    def epoch():
        for x, y in batches:
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()

    return torch.__version__, epoch


def accelerate():
    import accelerate

    accelerator = accelerate.Accelerator(cpu=device.type == "cpu")
    model, optimizer = accelerator.prepare(*made())

    def epoch():
        for x, y in batches:
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                accelerator.backward(cross_entropy(model(x), y))
                optimizer.step()

    return accelerate.__version__, epoch


def timed(epoch):
    begin = time.perf_counter()
    epoch()
    if device.type != "cpu":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS * 1e6


for name, make in [("PyTorch", pytorch), ("Accelerate", accelerate)]:
    try:
        version, epoch = make()
    except ImportError as missing:
        print(f"{name}: {missing}", file=sys.stderr)
        continue
    timed(epoch)
    value = statistics.median(timed(epoch) for _ in range(ROUNDS))
    print(json.dumps({"name": f"small MLP: no policy vs {name}", "of": "small MLP: no policy",
                      "peer": f"{name} {version.split('+')[0]}", "peer_value": value}), flush=True)
