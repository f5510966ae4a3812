# SPDX-License-Identifier: MIT
"""vit_step.py DEVICE [quick] [compiled]: the peer of vit_step.cpp, timm's ViT-B/16 by the same step; `compiled` measures it
under torch.compile alone."""
import json
import sys
import time

import timm
import torch

device, quick, compiled = torch.device(sys.argv[1]), "quick" in sys.argv[2:], "compiled" in sys.argv[2:]
on_gpu = device.type == "cuda"
IMAGES, STEPS, WARM_UP = (1, 1, 1) if quick else (64, 20, 5)
PEER = f"timm {timm.__version__}" + (", compiled" if compiled else "")

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def synchronize():
    if on_gpu:
        torch.cuda.synchronize()


def measure(mode, recomputed):
    model = timm.create_model("vit_base_patch16_224").to(device).train()
    model.set_grad_checkpointing(recomputed)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    pixels, labels = torch.randn(IMAGES, 3, 224, 224).to(device), torch.randint(0, 1000, (IMAGES,)).to(device)
    call = torch.compile(model) if compiled else model

    def step():
        with torch.autocast(device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(call(pixels), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(WARM_UP):
        step()
    synchronize()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    synchronize()
    print_row(mode, IMAGES * STEPS / (time.perf_counter() - begin))
    if on_gpu:
        print_row(mode + ": peak", torch.cuda.max_memory_allocated() / 1e6)


def print_row(mode, value):
    of = f"ViT-B/16, B {IMAGES}, bf16, {mode}"
    print(json.dumps({"name": of + (" vs compiled" if compiled else ""), "of": of, "peer": PEER, "peer_value": value}),
          flush=True)


measure("keeps all", False)
if not compiled:
    measure("recomputed", True)
