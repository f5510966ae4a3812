# SPDX-License-Identifier: MIT
"""transcribe.py PROGRAM: asks transcribe.cpp's PROGRAM, CTranslate2 (the engine of faster-whisper) and transformers by
turns for the tokens of the same windows of 30 s, for several rounds, and prints one JSON object a row: seconds for a
second of audio, by the clock and of both processors together, the best of all rounds. The second depends less on what else
the machine does. All have the same weights and features, fp32 and two threads;
espeak-ng and sox make the speech."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # the sides take turns: none may spin while another computes
os.environ.setdefault("KMP_BLOCKTIME", "0")

import ctranslate2
import torch
import transformers
from safetensors.torch import load_file
from transformers import WhisperForConditionalGeneration

from support.by_turns import Program

CLIPS, SECONDS, ROUNDS = 4, 30, 3
MODES = [(1, 1), (1, CLIPS), (5, 1), (5, CLIPS)]
TEXT = """The quick brown fox jumps over the lazy dog, and nobody in the village was surprised. In the morning the farmer
walked to the market with two baskets of apples, and in the evening he came home with a letter from his brother. It was
raining when the train left the station, so the children stayed inside and played cards until dinner was ready. Please
send the report to the office before noon, because the manager wants to read it on her way to the airport. They built
the bridge of stone and timber more than three hundred years ago, and it still carries the road across the river."""


def read_aloud(folder):
    sentences = TEXT.replace("\n", " ").split(". ")
    for i in range(CLIPS):
        text = ". ".join(sentences[i:] + sentences[:i])
        raw, clip = f"{folder}/raw", f"{folder}/clip{i}.wav"
        subprocess.run(["espeak-ng", "-v", ("en-us", "en-gb")[i % 2], "-s", "150", "-w", raw, text], check=True)
        subprocess.run(["sox", "-G", raw, "-r", "16000", "-c", "1", "-b", "16", clip, "trim", "0", str(SECONDS - 1)],
                       check=True)


class Stopwatch:
    def __init__(self):
        self.begin, self.used = time.perf_counter(), time.process_time()

    def read(self, tokens):
        return {"ms": (time.perf_counter() - self.begin) * 1000, "cpu_ms": (time.process_time() - self.used) * 1000,
                "tokens": tokens}


class CTranslate2:
    name = f"CTranslate2 {ctranslate2.__version__}"

    def __init__(self, mel, prompt, kind):
        self.mel, self.prompt = mel, prompt
        self.model = ctranslate2.models.Whisper(os.environ["LOOPTORCH_WHISPER_CT2"], device="cpu", compute_type=kind,
                                                intra_threads=2)

    def run(self, beam, batch):
        stopwatch, tokens = Stopwatch(), 0
        for mel in self.mel.split(batch):
            features = ctranslate2.StorageView.from_array(mel.numpy())
            found = self.model.generate(features, [self.prompt] * len(mel), beam_size=beam, max_length=448)
            tokens += sum(len(result.sequences_ids[0]) for result in found)
        return stopwatch.read(tokens)


class Transformers:
    name = f"transformers {transformers.__version__}"

    def __init__(self, mel, folder):
        torch.set_num_threads(2)
        self.mel = mel
        self.model = WhisperForConditionalGeneration.from_pretrained(folder).eval()

    @torch.inference_mode()
    def run(self, beam, batch):
        stopwatch, tokens = Stopwatch(), 0
        for mel in self.mel.split(batch):
            ids = self.model.generate(mel, num_beams=beam, do_sample=False)
            tokens += int((ids < self.model.config.eos_token_id).sum())
        return stopwatch.read(tokens)


class Ours:
    def __init__(self, program):
        self.program = program

    def run(self, beam, batch):
        return self.program.step(f"{beam} {batch}")


def measure(sides):
    runs = {mode: [[] for _ in sides] for mode in MODES}
    for round in range(ROUNDS + 1):
        for mode in MODES:
            for side, made in zip(sides, runs[mode]):
                made.append(side.run(*mode))
        print(f"    round {round}", file=sys.stderr, flush=True)
    return {mode: [made[1:] for made in sides] for mode, sides in runs.items()}


def check(mode, made):
    tokens = [side[0]["tokens"] for side in made]
    if max(tokens) > 1.2 * min(tokens):
        sys.exit(f"beam {mode[0]}, batch {mode[1]}: texts of {tokens} tokens: not the same work")


def best(runs, clock):
    return min(run[clock] for run in runs) / 1000 / (CLIPS * SECONDS)


with tempfile.TemporaryDirectory() as folder:
    read_aloud(folder)
    program = Program(pathlib.Path(sys.argv[1]), folder)
    program.answer()  # the model and the features are written
    mel = load_file(f"{folder}/features.safetensors")["mel"]
    settings = json.loads(pathlib.Path(folder, "generation_config.json").read_text())
    prompt = [settings["decoder_start_token_id"], settings["no_timestamps_token_id"]]
    sides = [Ours(program), CTranslate2(mel, prompt, "float32"), Transformers(mel, folder), CTranslate2(mel, prompt, "int8")]
    for mode, (ours, ct2, hf, int8) in measure(sides).items():
        check(mode, (ours, ct2, hf, int8))
        name = f"beam {mode[0]}, batch of {mode[1]}"
        for peer, runs in ((sides[1].name, ct2), (sides[2].name, hf), (sides[3].name + " in int8", int8)):
            for clock, unit in (("ms", "s/s of audio"), ("cpu_ms", "processor s/s of audio")):
                print(json.dumps({"name": name, "value": best(ours, clock), "unit": unit, "peer": peer,
                                  "peer_value": best(runs, clock)}))
    program.finish()
