#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""fit_choices.py PROGRAMS [SIZE...]: what `whisper_finetune --fit` chooses for Whisper's sizes in 4, 6 and 8 GB of a CPU's memory,
and how long it takes to choose, as a table.

PROGRAMS is the folder with whisper_finetune, whisper_import and whisper_corpus; LOOPTORCH_WHISPER_CT2 names tiny.en's folder, whose
tokenizer all sizes take. Weights are zeros of the real shapes, in files without blocks on the disk. Batches of 8 clips of 30 s are
asked for. Time is processor time in one thread until the choice is printed, the program's start and the reading of clips included;
then it is ended.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

SIZES = {"tiny": (384, 4, 6, 80), "base": (512, 6, 8, 80), "small": (768, 12, 12, 80), "medium": (1024, 24, 16, 80),
         "large-v3": (1280, 32, 20, 128)}


def shapes(config):
    """Yields the name and shape of each tensor."""
    width, hidden = config["d_model"], config["encoder_ffn_dim"]

    def linear(name, out, inner, bias=True):
        yield f"{name}.weight", [out, inner]
        if bias:
            yield f"{name}.bias", [out]

    def norm(name):
        yield f"{name}.weight", [width]
        yield f"{name}.bias", [width]

    def attention(name):
        for part in "qkv":
            yield from linear(f"{name}.{part}_proj", width, width, part != "k")
        yield from linear(f"{name}.out_proj", width, width)

    yield "model.encoder.conv1.weight", [width, config["num_mel_bins"], 3]
    yield "model.encoder.conv1.bias", [width]
    yield "model.encoder.conv2.weight", [width, width, 3]
    yield "model.encoder.conv2.bias", [width]
    yield "model.encoder.embed_positions.weight", [config["max_source_positions"], width]
    yield "model.decoder.embed_tokens.weight", [config["vocab_size"], width]
    yield "model.decoder.embed_positions.weight", [config["max_target_positions"], width]
    for side in ("encoder", "decoder"):
        for layer in range(config[f"{side}_layers"]):
            name = f"model.{side}.layers.{layer}"
            kinds = ("self_attn",) if side == "encoder" else ("self_attn", "encoder_attn")
            for kind in kinds:
                yield from attention(f"{name}.{kind}")
                yield from norm(f"{name}.{kind}_layer_norm")
            yield from linear(f"{name}.fc1", hidden, width)
            yield from linear(f"{name}.fc2", width, hidden)
            yield from norm(f"{name}.final_layer_norm")
        yield from norm(f"model.{side}.layer_norm")


def make_model(tiny, folder, size):
    width, layers, heads, mels = SIZES[size]
    config = json.loads((tiny / "config.json").read_text())
    config |= {"d_model": width, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width, "num_mel_bins": mels}
    config |= {f"{side}_{what}": count for side in ("encoder", "decoder") for what, count in
               (("layers", layers), ("attention_heads", heads))}
    folder.mkdir()
    for file in tiny.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, folder)
    extractor = folder / "preprocessor_config.json"
    extractor.write_text(json.dumps(json.loads(extractor.read_text()) | {"feature_size": mels}))
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in shapes(config):
        begin, count = end, 1
        for dim in shape:
            count *= dim
        end = begin + 4 * count
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


def processor_seconds(child):
    fields = pathlib.Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def choose(program, model, corpus, output, size):
    """Returns what the program says until it has chosen, the line of its choice, if there is one, and the seconds until then."""
    with open(f"{output}.log", "w+") as log:
        command = [program, "--model", model, "--train", corpus / "train.jsonl", "--validation", corpus / "validation.jsonl",
                   "--output", output, "--device", "cpu", "--fit", size, "--max-audio-seconds", "30", "--no-report",
                   "--max-steps", "1", "--workers", "1"]
        child = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log,
                                 env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            found, seconds = None, 0.0
            while found is None and child.poll() is None:
                found = re.search(r"--fit .*: chooses .*\n", pathlib.Path(log.name).read_text())
                seconds = processor_seconds(child)
                time.sleep(0.02)
        finally:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
            child.wait()
        text = pathlib.Path(log.name).read_text()
    return text, found and found.group(), seconds


def main():
    programs, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(SIZES)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tiny, corpus = folder / "tiny.en", folder / "corpus"
        subprocess.run([programs / "whisper_import", "--ctranslate2", os.environ["LOOPTORCH_WHISPER_CT2"], "--output", tiny],
                       check=True, capture_output=True)
        subprocess.run([programs / "whisper_corpus", "--output", corpus, "--train", "8", "--validation", "2", "--test", "2", "--seed",
                        "1"], check=True, capture_output=True)
        print("| model | `--fit` | it takes | needs | seconds |\n|---|---:|---|---:|---:|", flush=True)
        for size in wanted:
            make_model(tiny, folder / size, size)
            for gigabytes in ("4GB", "6GB", "8GB"):
                text, line, seconds = choose(programs / "whisper_finetune", folder / size, corpus, folder / f"{size}.{gigabytes}",
                                             gigabytes)
                if line is None:
                    print(f"| {size} | {gigabytes} | no choice: {text.strip().splitlines()[-1][:200]} | | {seconds:.1f} |", flush=True)
                    continue
                what = re.search(r"chooses (.*?), (\d+ x \d+ clips): needs ([\d.]+ [MG]B)", line)
                print(f"| {size} | {gigabytes} | {what[1]}, {what[2]} | {what[3]} | {seconds:.1f} |", flush=True)


main()
