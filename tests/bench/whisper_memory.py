# SPDX-License-Identifier: MIT
"""whisper_memory.py PROGRAM: the peak of all tensors, in bytes, while transformers fine-tunes Whisper tiny, base and small,
plain and recomputed, and the time of a step, for the rows of whisper_memory.cpp's PROGRAM. Random weights, one clip of 30 s
and 64 tokens at a time, fused AdamW; one thread. A step's 16 batches take 8 times what is measured for 2, and the peak is
reached by the second. LOOPTORCH_BENCH_SIZES names other sizes, as "tiny base"."""
import json
import os
import pathlib
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch
import transformers
from transformers import WhisperConfig, WhisperForConditionalGeneration

from support.by_turns import load_allocator

SIZES = {"tiny": (384, 4), "base": (512, 6), "small": (768, 12)}
MEASURED, ACCUMULATE, TOKENS = 2, 16, 64


def model_of(width, layers):
    heads = width // 64
    return WhisperForConditionalGeneration(WhisperConfig(
        d_model=width, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width, use_cache=False)).train()


def step(model, optimizer, mel, labels):
    for _ in range(MEASURED):
        (model(input_features=mel, labels=labels).loss / MEASURED).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def measure(size, recomputed):
    before = allocator.bench_live_bytes()
    model = model_of(*SIZES[size])
    if recomputed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0, fused=True)
    mel, labels = torch.randn(1, 80, 3000), torch.randint(0, 50_000, (1, TOKENS))
    allocator.bench_forget_peak()
    step(model, optimizer, mel, labels)  # moments are there from then on
    begin = time.thread_time()
    step(model, optimizer, mel, labels)
    seconds = (time.thread_time() - begin) * ACCUMULATE / MEASURED
    return allocator.bench_peak_bytes() - before, seconds


def print_row(name, peer_value, measured):
    if name in measured:
        print(json.dumps({"name": name, "of": name, "peer": f"transformers {transformers.__version__}",
                          "peer_value": peer_value}), flush=True)


torch.set_num_threads(1)
path = pathlib.Path(sys.argv[1])
allocator = load_allocator(path.parent)  # before the first tensor
with open(path.with_suffix(".jsonl")) as rows:
    ours = {json.loads(row)["name"] for row in rows}
for size in os.environ.get("LOOPTORCH_BENCH_SIZES", "tiny base small").split():
    for name, recomputed in ((f"{size}: plain", False), (f"{size}: all recomputed", True)):
        if name not in ours:
            continue
        peak, seconds = measure(size, recomputed)
        print_row(name, peak, ours)
        print_row(name + ", a step", seconds, ours)
