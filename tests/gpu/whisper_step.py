# SPDX-License-Identifier: MIT
"""whisper_step.py DEVICE [quick] FOLDER [compiled]: the peer of whisper_step.cpp, transformers' Whisper with the weights
that it left below FOLDER, the same windows and fused AdamW. `compiled` measures the model under torch.compile alone."""
import contextlib
import gc
import json
import pathlib
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch
import transformers
from transformers import WhisperForConditionalGeneration

words = sys.argv[1:]
compiled = words[-1] == "compiled" and bool(words.pop())
device, folder, quick = torch.device(words[0]), pathlib.Path(words[-1]), "quick" in words[1:-1]
on_gpu = device.type == "cuda"
ACCUMULATE, TOKENS = 2, 64
PEER = f"transformers {transformers.__version__}" + (", compiled" if compiled else "")

# size, clips, mode, windows; the row of ours is named by the first three
if quick:
    ROWS = [("quick", 2, "bf16", 2)]
elif compiled:
    ROWS = [("small", 8, "bf16", 8)]
else:
    ROWS = [("small", 8, "tf32", 6), ("small", 8, "bf16", 8), ("small", 8, "bf16, recomputed", 6), ("small", 32, "bf16", 4),
            ("tiny", 8, "bf16", 20)]

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def synchronize():
    if on_gpu:
        torch.cuda.synchronize()


def draw_batches(config, clips):
    torch.manual_seed(1)
    batches = []
    for _ in range(ACCUMULATE):
        mel = torch.randn(clips, config.num_mel_bins, 2 * config.max_source_positions)
        batches.append((mel.to(device), torch.randint(0, config.vocab_size - 1000, (clips, TOKENS)).to(device)))
    return batches


def measure(size, clips, mode, windows):
    model = WhisperForConditionalGeneration.from_pretrained(folder / size, attn_implementation="sdpa").to(device).train()
    model.config.use_cache = False
    if "recomputed" in mode:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), 0.0, weight_decay=0, fused=True)
    batches = draw_batches(model.config, clips)
    call = torch.compile(model) if compiled else model

    def window():
        for mel, labels in batches:
            with torch.autocast(device.type, torch.bfloat16) if "bf16" in mode else contextlib.nullcontext():
                loss = call(input_features=mel, labels=labels).loss / ACCUMULATE
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        window()
    synchronize()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    for _ in range(windows):
        window()
    synchronize()
    print_row(f"whisper {size}, B {clips} x 2, {mode}", (time.perf_counter() - begin) * 1000 / windows)
    if on_gpu:
        print_row(f"whisper {size}, B {clips} x 2, {mode}: peak", torch.cuda.max_memory_allocated() / 1e6)


def print_row(of, value):
    print(json.dumps({"name": of + (" vs compiled" if compiled else ""), "of": of, "peer": PEER, "peer_value": value}),
          flush=True)


failed = False
for row in ROWS:
    try:
        measure(*row)
    except Exception as error:  # one row's lack of memory is no end of the others
        print(f"{row}: {str(error)[:400]}", file=sys.stderr)
        failed = True
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
sys.exit(failed)
