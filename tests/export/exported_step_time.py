#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""exported_step_time.py PROGRAM FOLDER: time and memory of a training step of five models of transformers, in PyTorch's eager
mode and by the program finetune_exported, in one thread. Needs torch 2.11, transformers 5.24, safetensors.

The models are of width 256 with 4 layers. Time is CPU time of the process a step, behind its first five: in Python read there, of
the program that of 5 steps subtracted from that of 45. Both keep freed memory, since it varies how much glibc returns. Memory is
the process's peak, libraries and Python included. Each is the least of three runs, which alternate.
"""
import os
import pathlib
import subprocess
import sys
import time

import torch
import transformers as tr
from safetensors.torch import load_file, save_file

W = dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
OPEN = torch.export.Dim.AUTO
N = 8
FIRST, STEPS = 5, 45


def ids(*shape):
    return torch.randint(1, 1000, shape)


def made(name):
    torch.manual_seed(0)
    mask = torch.ones(N, 64, dtype=torch.long)
    if name == "vit":
        return (tr.ViTForImageClassification(tr.ViTConfig(**W, image_size=64, patch_size=8, num_labels=10)),
                {"pixel_values": torch.randn(N, 3, 64, 64), "labels": torch.randint(10, (N,))})
    if name == "bert":
        return (tr.BertForSequenceClassification(tr.BertConfig(**W, vocab_size=1000, num_labels=3)),
                {"input_ids": ids(N, 64), "attention_mask": mask, "labels": torch.randint(3, (N,))})
    if name == "gpt2":
        config = tr.GPT2Config(vocab_size=1000, n_embd=256, n_layer=4, n_head=4, n_positions=128, use_cache=False, bos_token_id=1,
                               eos_token_id=2)
        return tr.GPT2LMHeadModel(config), {"input_ids": ids(N, 64), "attention_mask": mask, "labels": ids(N, 64)}
    if name == "whisper":
        config = tr.WhisperConfig(vocab_size=1000, d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                                  decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, max_source_positions=100,
                                  max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
                                  use_cache=False)
        return tr.WhisperForConditionalGeneration(config), {"input_features": torch.randn(N, 80, 200), "labels": ids(N, 32)}
    config = tr.Wav2Vec2Config(**W, vocab_size=32, conv_dim=(64,) * 7, layerdrop=0.0, apply_spec_augment=False,
                               num_conv_pos_embeddings=16, ctc_loss_reduction="mean")
    return tr.Wav2Vec2ForCTC(config), {"input_values": torch.randn(N, 16000), "labels": torch.randint(1, 32, (N, 12))}


def python_run(name, folder, steps):
    torch.set_num_threads(1)
    model, _ = made(name)
    model.train()
    batch = load_file(folder / f"{name}.safetensors")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    schedule = tr.get_cosine_schedule_with_warmup(optimizer, 0, steps)
    for step in range(steps):
        if step == FIRST:
            begin = time.process_time()
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        loss.item()
    print((time.process_time() - begin) / (steps - FIRST))


def cost(command):
    """Returns what a process prints, its CPU seconds and its peak in bytes."""
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                             env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)})
    says = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, command
    return says, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


if __name__ == "__main__":
    if sys.argv[1] == "--python":
        python_run(sys.argv[2], pathlib.Path(sys.argv[3]), int(sys.argv[4]))
        sys.exit()
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    print("| model | parameters | PyTorch, ms a step | looptorch | ratio | PyTorch, peak MB | looptorch |\n" + "| --- " + "| ---: " * 6 + "|")
    for name in ("vit", "bert", "gpt2", "whisper", "wav2vec2"):
        model, batch = made(name)
        keys = [key for key in batch if name != "wav2vec2" or key != "labels"]
        program_of = torch.export.export(model.train(), (), {key: batch[key] for key in keys},
                                         dynamic_shapes={key: {0: OPEN} for key in keys})
        torch.export.save(program_of, folder / f"{name}.pt2")
        save_file(batch, folder / f"{name}.safetensors")

        def ours(steps):
            return cost([program, "--model", folder / f"{name}.pt2", "--train", folder / f"{name}.safetensors", "--output",
                         folder / f"{name}.{steps}.{os.urandom(3).hex()}", "--epochs", steps, "--batch-size", N, "--device", "cpu",
                         "--workers", 0, "--no-report", "--loss", "ctc" if name == "wav2vec2" else "own"])

        theirs_of, ours_of = [], []
        for _ in range(3):
            says, _, peak = cost([sys.executable, __file__, "--python", name, folder, STEPS])
            theirs_of.append((float(says), peak))
            (_, short, _), (_, long, peak) = ours(FIRST), ours(STEPS)
            ours_of.append(((long - short) / (STEPS - FIRST), peak))
        (a, b), (c, d) = map(min, zip(*theirs_of)), map(min, zip(*ours_of))
        count = sum(p.numel() for p in model.parameters())
        print(f"| {name} | {count:,} | {a * 1e3:.0f} | {c * 1e3:.0f} | {c / a:.2f} | {b / 1e6:.0f} | {d / 1e6:.0f} |", flush=True)
