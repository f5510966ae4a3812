# SPDX-License-Identifier: MIT
"""whisper_step.py PROGRAM: asks whisper_step.cpp's PROGRAM and transformers' Whisper for a step in each mode by turns,
for several rounds, and prints one JSON object a row. Both have the same weights and batches and fused AdamW, are timed
by the thread's own clock, count their tensors' bytes by the same allocator, and must arrive at the same loss."""
import contextlib
import json
import math
import pathlib
import statistics
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")

import torch
import transformers
from transformers import WhisperForConditionalGeneration

from support.by_turns import Program, load_allocator

ACCUMULATE, CLIPS, TOKENS, HIGHEST_TOKEN = 2, 4, 64, 50_000
MODES = ["plain", "recomputed", "bf16", "bf16, recomputed"]
ROUNDS = 3


def draw_batches(config):
    torch.manual_seed(1)
    batches = []
    for _ in range(ACCUMULATE):
        mel = torch.randn(CLIPS, config.num_mel_bins, 3000)
        batches.append((mel, torch.randint(0, HIGHEST_TOKEN, (CLIPS, TOKENS))))
    return batches


class Transformers:
    def __init__(self, folder, allocator):
        torch.set_num_threads(1)
        self.allocator = allocator
        self.model = WhisperForConditionalGeneration.from_pretrained(folder).train()
        self.model.config.use_cache = False
        for parameter in self.model.parameters():
            parameter.data = parameter.data.clone()  # counted, where the file's pages were not
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 0, weight_decay=0, fused=True)
        self.batches = draw_batches(self.model.config)

    def step(self, mode):
        if "recomputed" in mode:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        else:
            self.model.gradient_checkpointing_disable()
        precision = torch.autocast("cpu", torch.bfloat16) if "bf16" in mode else contextlib.nullcontext()
        self.allocator.bench_forget_peak()
        begin = time.thread_time()
        losses = 0.0
        for mel, labels in self.batches:
            with precision:
                loss = self.model(input_features=mel, labels=labels).loss / ACCUMULATE
            losses += loss.item()
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        ms = (time.thread_time() - begin) * 1000
        return {"ms": ms, "bytes": self.allocator.bench_peak_bytes(), "loss": losses}


def measure(ours, peers):
    """The steps of each side, by mode."""
    steps = {mode: ([], []) for mode in MODES}
    for side in (ours, peers):
        side.step("plain")  # moments are there from then on
    for round in range(ROUNDS):
        for mode in MODES:
            made = ours.step(mode), peers.step(mode)
            check(mode, *made)
            for side, step in zip(steps[mode], made):
                side.append(step)
        print(f"    round {round}", file=sys.stderr, flush=True)
    return steps


def check(mode, ours, peers):
    if not math.isclose(ours["loss"], peers["loss"], rel_tol=2e-3 if "bf16" in mode else 1e-5):
        sys.exit(f"{mode}: the losses are {ours['loss']} and {peers['loss']}: not the same model")


def print_row(name, unit, of, sides):
    ours, peers = (of(steps) for steps in sides)
    print(json.dumps({"name": name, "value": ours, "unit": unit, "peer": f"transformers {transformers.__version__}",
                      "peer_value": peers}))


path = pathlib.Path(sys.argv[1])
allocator = load_allocator(path.parent)  # before the first tensor
with tempfile.TemporaryDirectory() as folder:
    ours = Program(path, folder)
    ours.answer()  # the model is written
    peers = Transformers(folder, allocator)
for mode, sides in measure(ours, peers).items():
    print_row(f"{mode}: time", "ms/step", lambda steps: statistics.median(step["ms"] for step in steps), sides)
    print_row(f"{mode}: peak", "bytes", lambda steps: max(step["bytes"] for step in steps), sides)
