# SPDX-License-Identifier: MIT
"""exported_step.py DEVICE [quick] PROGRAM FOLDER: a training step of models of transformers that torch.export wrote, by PROGRAM
(finetune_exported), beside the same model in PyTorch's eager mode: mixed precision in bf16, fused AdamW, clipping, random weights.

Of each run the last half of the steps is timed. A program that cannot be exported or trained is a line on stderr, and an end of
its row alone.
"""
import json
import pathlib
import subprocess
import sys
import time
import warnings

warnings.filterwarnings("ignore")

import torch
import transformers as tr
from safetensors.torch import save_file

quick = "quick" in sys.argv[2:-2]
device, program, folder = torch.device(sys.argv[1]), sys.argv[-2], pathlib.Path(sys.argv[-1])
on_gpu = device.type == "cuda"
STEPS = 4 if quick else 40
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64) if quick else {}
PEER = f"transformers {tr.__version__}"


def made(name):
    """Returns a model, its batch, and the flags that the program needs."""
    torch.manual_seed(0)
    if name == "ViT-B/16":
        count = 2 if quick else 64
        return (tr.ViTForImageClassification(tr.ViTConfig(**SMALL, num_labels=10)),
                {"pixel_values": torch.randn(count, 3, 224, 224), "labels": torch.randint(10, (count,))}, [])
    count, length = (2, 16) if quick else (32, 128)
    ids = torch.randint(1, 1000, (count, length))
    if name == "BERT base":
        return (tr.BertForSequenceClassification(tr.BertConfig(**SMALL, num_labels=3)),
                {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.randint(3, (count,))}, [])
    size = dict(n_embd=32, n_layer=2, n_head=2) if quick else {}
    return (tr.GPT2LMHeadModel(tr.GPT2Config(**size, use_cache=False)),
            {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}, [])


def row(name, value, peer_of=None):
    keys = {"name": name, "value": value, "unit": "ms/step"} if peer_of is None else {
        "name": name + " vs transformers", "of": peer_of, "peer": PEER, "peer_value": value}
    print(json.dumps(keys), flush=True)


def in_python(name, model, batch):
    model = model.to(device).train()
    batch = {key: value.to(device) for key, value in batch.items()}
    optimizer = torch.optim.AdamW(model.parameters(), 5e-5, weight_decay=0.01, fused=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for step in range(STEPS):
        if step == STEPS // 2:
            if on_gpu:
                torch.cuda.synchronize()
            begin = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if on_gpu:
        torch.cuda.synchronize()
        row(name + ": peak, MB", torch.cuda.max_memory_allocated() / 1e6, name + ": peak, MB")
    row(name, (time.perf_counter() - begin) * 1e3 / (STEPS - STEPS // 2), name)
    model.to("cpu")


def by_program(name, flags, count, model_file, data, output):
    command = [program, "--model", model_file, "--train", data, "--output", output, "--epochs", STEPS, "--batch-size", count,
               "--device", device.type, "--bf16", "--memory", *flags]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        print(f"{name}: {done.stderr[-600:]}", file=sys.stderr)
        return
    steps = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = {entry["step"]: entry["seconds"] for entry in steps if "step_seconds" in entry}
    row(name, (steps[STEPS] - steps[STEPS // 2]) * 1e3 / (STEPS - STEPS // 2))
    print(json.dumps({"name": name + ": peak, MB", "value": json.loads((output / "summary.json").read_text())["peak_bytes"] / 1e6,
                      "unit": ""}), flush=True)


folder.mkdir(parents=True, exist_ok=True)
for model_name in ("ViT-B/16", "BERT base", "GPT-2"):
    try:
        net, inputs, more = made(model_name)
        stem = model_name.replace("/", "_").replace(" ", "_")
        open_sizes = {key: {0: torch.export.Dim.AUTO} for key in inputs}
        exported = torch.export.export(net.train(), (), inputs, dynamic_shapes=open_sizes)
        torch.export.save(exported, folder / f"{stem}.pt2")
        save_file(inputs, folder / f"{stem}.safetensors")
        title = f"exported {model_name}, B {len(inputs['labels'])}, bf16"
        in_python(title, net, inputs)
        for suffix, extra in (("", []), (", captured", ["--capture"])):
            by_program(title + suffix, more + extra, len(inputs["labels"]), folder / f"{stem}.pt2", folder / f"{stem}.safetensors",
                       folder / (stem + suffix.replace(", ", ".")))
    except Exception as error:  # the other models are measured all the same
        print(f"{model_name}: {type(error).__name__}: {str(error)[:400]}", file=sys.stderr)
