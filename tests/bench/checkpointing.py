# SPDX-License-Identifier: MIT
"""checkpointing.py PROGRAM: asks checkpointing.cpp's PROGRAM and PyTorch's own recomputation (use_reentrant=False) for a
step in each mode by turns, for several rounds, and prints one JSON object a row. Both are timed by the thread's own
clock, count their tensors' bytes by the same allocator, and must arrive at the same gradients."""
import functools
import json
import math
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from support.by_turns import Program, load_allocator

BATCH, LENGTH, WIDTH, HEADS, BLOCKS = 8, 256, 256, 4, 12
MODES = ["plain", "all", "every second", "selective"]
WARM_UP, ROUNDS = 1, 9


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.f1, self.f2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).view(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v)
        x = x + self.dropout(self.o(attended.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH)))
        return x + self.dropout(self.f2(F.gelu(self.f1(self.n2(x)))))


def keep_attention(context, operation, *args, **kwargs):
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    return CheckpointPolicy.MUST_SAVE if operation == attention else CheckpointPolicy.PREFER_RECOMPUTE


class PyTorch:
    def __init__(self, allocator):
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.allocator = allocator
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.x = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)

    def forward(self, mode):
        x = self.x
        for i, block in enumerate(self.blocks):
            if mode == "plain" or (mode == "every second" and i % 2):
                x = block(x)
            elif mode == "selective":
                contexts = functools.partial(create_selective_checkpoint_contexts, keep_attention)
                x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
            else:
                x = checkpoint(block, x, use_reentrant=False)
        return x

    def step(self, mode):
        torch.manual_seed(1)
        self.allocator.bench_forget_peak()
        before = self.allocator.bench_live_bytes()
        begin = time.thread_time()
        self.forward(mode).pow(2).mean().backward()
        ms = (time.thread_time() - begin) * 1000
        peak = self.allocator.bench_peak_bytes() - before
        return {"ms": ms, "bytes": peak, "norm": self.take_gradients()}

    def take_gradients(self):
        squares = 0
        for parameter in self.blocks.parameters():
            squares += parameter.grad.pow(2).sum().item()
            parameter.grad = None
        self.x.grad = None
        return math.sqrt(squares)


def measure(sides):
    """The steps of each side, by mode."""
    steps = {side: {mode: [] for mode in MODES} for side in sides}
    for round in range(-WARM_UP, ROUNDS):
        for mode in MODES:
            made = {side: side.step(mode) for side in sides}
            for side, step in made.items():
                if round >= 0:
                    steps[side][mode].append(step)
        print(f"    round {round}", file=sys.stderr, flush=True)
    return steps


def check(steps):
    """Each mode has the bits of its side's plain step, and both sides made the same one."""
    for side, modes in steps.items():
        norms = {step["norm"] for made in modes.values() for step in made}
        if len(norms) != 1:
            sys.exit(f"{type(side).__name__}: the gradients' norms differ between modes: {norms}")
    ours, peers = (modes["plain"][0]["norm"] for modes in steps.values())
    if not math.isclose(ours, peers, rel_tol=1e-5):
        sys.exit(f"the gradients' norms are {ours} and {peers}: not the same model")


def overhead(modes, mode):
    """Each step beside the plain one of its round."""
    return statistics.median(step["ms"] / plain["ms"] for step, plain in zip(modes[mode], modes["plain"]))


def peak(modes, mode):
    return max(step["bytes"] for step in modes[mode])


def print_row(name, unit, of, steps):
    ours, peers = (of(modes) for modes in steps.values())
    row = {"name": name, "value": ours, "unit": unit, "peer": f"PyTorch {torch.__version__.split('+')[0]}",
           "peer_value": peers}
    print(json.dumps(row))


path = pathlib.Path(sys.argv[1])
steps = measure([Program(path), PyTorch(load_allocator(path.parent))])
check(steps)
print_row("plain: time", "ms/step", lambda modes: statistics.median(step["ms"] for step in modes["plain"]), steps)
print_row("plain: peak bytes", "bytes", lambda modes: peak(modes, "plain"), steps)
for mode in MODES[1:]:
    print_row(f"{mode}: time overhead", "x plain step", lambda modes: overhead(modes, mode), steps)
    print_row(f"{mode}: peak bytes", "bytes", lambda modes: peak(modes, mode), steps)
