# SPDX-License-Identifier: MIT
"""host_time.py PROGRAM: asks host_time.cpp's PROGRAM and the same nets in PyTorch for steps in each mode by turns, for
several rounds, and prints one JSON object a row. Both sides must have as many parameters."""
import contextlib
import json
import pathlib
import statistics
import sys
import time
import warnings

import torch

from support.by_turns import Program
from support.host_time_peers import Gan, KonkaniVani, ViT, Whisper

WARMUP, STEPS, ROUNDS = 3, 10, 5
# "light" has no equal in PyTorch, and is compared with its plain step; it is Whisper's alone, since no other net keeps products.
# "exported" is the net as an ExportedModel, and "unexported" the net itself with the same loss.
# The GAN has no layers that are recomputed.
MODES = {"whisper": ["plain", "light", "recomputed", "bf16", "exported", "unexported"],
         "vit": ["plain", "recomputed", "bf16", "exported", "unexported"],
         "konkanivani": ["plain", "recomputed", "bf16"], "gan": ["plain", "bf16"]}


class Peer:
    def __init__(self, net):
        self.net, self.updates = net, net.updates()

    def step(self, mode):
        self.net.recompute = mode == "recomputed"
        precision = torch.autocast("cpu", torch.bfloat16) if mode == "bf16" else contextlib.nullcontext()

        def step():
            for loss_of, optimizer in self.updates:
                with precision:
                    loss = loss_of()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()

        for _ in range(WARMUP):
            step()
        begin = time.thread_time()
        for _ in range(STEPS):
            step()
        us = (time.thread_time() - begin) / STEPS * 1e6
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            step()
        # Not profile.events(), which leaves out calls that an operator of the same name makes.
        calls = sum(event.name().startswith("aten::") for event in profile.profiler.kineto_results.events())
        return {"us": us, "calls": calls, "elements": sum(p.numel() for p in self.net.parameters() if p.requires_grad)}


def print_row(name, unit, ours, peers, peer=f"PyTorch {torch.__version__}"):
    print(json.dumps({"name": name, "value": ours, "unit": unit, "peer": peer, "peer_value": peers}), flush=True)


torch.set_num_threads(1)
warnings.filterwarnings("ignore")
program = Program(pathlib.Path(sys.argv[1]))
for name, net in (("whisper", Whisper()), ("vit", ViT()), ("konkanivani", KonkaniVani()), ("gan", Gan())):
    peer, made = Peer(net), {mode: ([], []) for mode in MODES[name]}
    for _ in range(ROUNDS):
        for mode in made:
            ours, theirs = program.step(f"{name} {mode}"), peer.step(mode)
            if ours["elements"] != theirs["elements"]:
                sys.exit(f"{name}: {ours['elements']} parameters here, {theirs['elements']} beside it: not the same net")
            for side, step in zip(made[mode], (ours, theirs)):
                side.append(step)
    medians = {mode: [{of: statistics.median(step[of] for step in side) for of in ("us", "calls")} for side in sides]
               for mode, sides in made.items()}
    for mode, (ours, theirs) in medians.items():
        print_row(f"{name}, {mode}", "us a step", ours["us"], theirs["us"])
        print_row(f"{name}, {mode}: operators", "calls a step", ours["calls"], theirs["calls"])
    if "exported" in medians:
        ours, itself = (medians[mode][0] for mode in ("exported", "unexported"))
        print_row(f"{name}, exported", "us a step", ours["us"], itself["us"], "the net itself")
print("bytes -", file=program.process.stdin, flush=True)
for name in (name for name, modes in MODES.items() if "exported" in modes):
    ours, theirs = (program.step(f"{name} {mode}")["bytes"] for mode in ("exported", "unexported"))
    print_row(f"{name}, exported: memory", "bytes a step", ours, theirs, "the net itself")
program.finish()
