# SPDX-License-Identifier: MIT
"""loader.py PROGRAM: asks loader.cpp's PROGRAM and PyTorch's DataLoader by turns for an epoch of clips, FLAC to Whisper's
log-mel features in batches of 8, and prints one JSON object a row. The peer computes the features as openai-whisper and as
transformers do; a row stands beside the faster of the two. BENCH_CLIPS and BENCH_ROUNDS make it smaller."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")

import numpy as np
import soundfile
import torch
import transformers
import whisper

CLIPS, ROUNDS = int(os.environ.get("BENCH_CLIPS", 96)), int(os.environ.get("BENCH_ROUNDS", 5))
BATCH, RATE, WORKERS = 8, 16000, (0, 1, 2, 4)

rows, sys.stdout = sys.stdout, sys.stderr
torch.set_num_threads(1)


def write_clips(folder, seconds):
    """Tones that swell and fade, and some noise: as hard to decode as speech that is recorded well."""
    folder.mkdir()
    random, t = np.random.default_rng(0), np.arange(RATE * seconds) / RATE
    for clip in range(CLIPS):
        tones = sum(level * np.sin(2 * np.pi * hz * t) for hz, level in ((200 + clip, .2), (800 + 3 * clip, .1), (2500, .05)))
        sound = tones * (0.5 + 0.5 * np.sin(4 * np.pi * t)) + random.normal(0, 0.01, len(t))
        soundfile.write(folder / f"{clip:04d}.flac", sound.astype(np.float32), RATE, subtype="PCM_16")


def openai_whisper(samples):
    return whisper.log_mel_spectrogram(whisper.pad_or_trim(torch.from_numpy(samples)))


EXTRACTOR = transformers.WhisperFeatureExtractor()


def hugging_face(samples):
    return torch.from_numpy(EXTRACTOR(samples, sampling_rate=RATE, return_tensors="np").input_features[0])


class Clips(torch.utils.data.Dataset):
    def __init__(self, files, features):
        self.files, self.features = files, features

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.features(soundfile.read(self.files[index], dtype="float32")[0])


class DataLoader:
    """The peer, with its workers kept between epochs."""

    def __init__(self, files, features, workers):
        self.batches = torch.utils.data.DataLoader(
            Clips(files, features), batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0,
            prefetch_factor=2 if workers else None)

    def __call__(self):
        clips, first, begin = 0, None, time.perf_counter()
        for batch in self.batches:
            clips += len(batch)
            first = batch if first is None else first
        seconds = time.perf_counter() - begin
        return clips / seconds, first.double().sum().item()


class Looptorch:
    def __init__(self, program, folder):
        self.process = subprocess.Popen([program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question, workers=0):
        print(question, workers, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def epoch(self, question, workers):
        answer = self.ask(question, workers)
        assert answer["clips"] == CLIPS
        return answer["clips"] / answer["seconds"], answer["sum"]


def take_turns(sides):
    """The median speed of each side; all must have made the same features."""
    speeds = {side: [] for side in sides}
    for round in range(1 + ROUNDS):
        for side, epoch in sides.items():
            speed, first = epoch()
            if round:
                speeds[side].append(speed)
            else:
                sums = first if side == "looptorch" else sums
                assert abs(first - sums) < 1e-3 * abs(sums), f"{side} makes other features: {first}, not {sums}"
    return {side: statistics.median(values) for side, values in speeds.items()}


def row(name, value, unit, peer, peer_value):
    print(f"    {name}: {value:.1f} {unit}, {peer} {peer_value:.1f}", flush=True)
    print(json.dumps(dict(name=name, value=value, unit=unit, peer=peer, peer_value=peer_value)), file=rows, flush=True)


def measure(program, folder):
    write_clips(folder / "long", 30)
    write_clips(folder / "short", 1)
    looptorch = Looptorch(program, folder)
    files = sorted((folder / "long").iterdir())
    peers = {f"DataLoader, openai-whisper {whisper.__version__}": openai_whisper,
             f"DataLoader, transformers {transformers.__version__}": hugging_face}
    for workers in WORKERS:
        sides = {"looptorch": lambda: looptorch.epoch("epoch", workers)}
        if workers == 2:
            sides["cached"] = lambda: looptorch.epoch("cached", workers)
        sides |= {peer: DataLoader(files, features, workers) for peer, features in peers.items()}
        speeds = take_turns(sides)
        best = max(peers, key=speeds.get)
        row(f"workers={workers}", speeds["looptorch"], "clips/s", best, speeds[best])
        if workers == 2:
            row("cached, workers=2", speeds["cached"], "clips/s", best, speeds[best])
    memory = Looptorch(program, folder).ask("memory")  # a process that has seen no longer clips
    row("memory over 100,000 samples", memory["most"], "bytes", "after 10,000", memory["early"])
    if torch.cuda.is_available():
        waits = [100 * looptorch.ask("train", workers)["share"] for workers in (4, 0)]
        row("data wait of Whisper tiny, workers=4", waits[0], "%", "workers=0", waits[1])
        copies = [looptorch.ask("copies", pinned)["bytes_per_second"] / 2**30 for pinned in (1, 0)]
        row("batches to the GPU, pinned", copies[0], "GiB/s", "pageable", copies[1])
        beside = looptorch.ask("beside")
        row("a batch of 1 GiB beside products", 1e3 * beside["both"], "ms", "one after the other",
            1e3 * (beside["copy"] + beside["products"]))
    else:
        print("    there is no GPU here, which the rows of data wait, pinned copies and a copy beside products need", flush=True)


with tempfile.TemporaryDirectory() as folder:
    measure(sys.argv[1], pathlib.Path(folder))
