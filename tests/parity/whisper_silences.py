# SPDX-License-Identifier: MIT
"""Records where openai-whisper's `transcribe` goes on, and what it keeps, under --hallucination-silence-threshold: with words that
are drawn at random instead of a model's, for tests/unit/whisper/transcription/hallucinations_test.cpp.

    python tests/parity/whisper_silences.py

Needs openai-whisper 20250625. Writes data/whisper_silences.json next to this file: windows, each with its place in frames, the last
speech before it, its segments and words, and the results by openai-whisper.
"""
import importlib
import json
import pathlib
import random
from types import SimpleNamespace

import numpy
import torch
import whisper

module = importlib.import_module("whisper.transcribe")
FIRST_TIMESTAMP = 50363


def drawn_words(draw, begin, end):
    words, at, invented = [], begin, draw.random() < 0.4
    while at < end - 0.1 and len(words) < 12:
        length = draw.choice([0.05, 0.2, 0.3, 0.5, 2.6] if invented else [0.1, 0.2, 0.3, 0.5, 0.6])
        words.append({"word": draw.choice([" so", " it", ".", " was"]), "start": round(at, 2), "end": round(min(at + length, end), 2),
                      "probability": draw.choice([0.01, 0.1, 0.5, 0.9] if invented else [0.1, 0.5, 0.8, 0.9, 0.95])})
        at += length + draw.choice([0.0, 0.02])
    return words


class Model:
    device = torch.device("cpu")
    dims = SimpleNamespace(n_mels=80, n_audio_ctx=1500, n_text_ctx=448)
    is_multilingual, num_languages = False, 0

    def __init__(self, draw):
        self.draw = draw

    def decode(self, mel, options):
        times = sorted(self.draw.sample(range(0, 1500), 2 * self.draw.randint(1, 4)))
        tokens = []
        for begin, end in zip(times[::2], times[1::2]):
            tokens += [FIRST_TIMESTAMP + begin, 314, 481, FIRST_TIMESTAMP + end]
        self.ends_in_silence = self.draw.random() < 0.5  # a single timestamp ends the tokens
        if not self.ends_in_silence:
            tokens += [FIRST_TIMESTAMP + times[-1]]
        return SimpleNamespace(tokens=tokens, temperature=0.0, avg_logprob=-0.3, compression_ratio=1.0, no_speech_prob=0.1)


def record(seed):
    draw = random.Random(seed)
    seconds, threshold = draw.choice([20, 45, 70]), draw.choice([0.5, 1.0, 2.0])
    windows, model = [], Model(draw)

    def add_words(*, segments, num_frames, last_speech_timestamp, **_):
        for segment in segments:
            if draw.random() < 0.85:
                segment["words"] = drawn_words(draw, segment["start"], segment["end"])
            else:
                segment["words"] = []
            if segment["words"]:
                segment["start"], segment["end"] = segment["words"][0]["start"], segment["words"][-1]["end"]
        windows.append({"ends_in_silence": model.ends_in_silence, "seek": segments[0]["seek"], "frames": num_frames, "last_speech": last_speech_timestamp,
                        "segments": [{key: s[key] for key in ("start", "end", "words")} for s in json.loads(json.dumps(segments))]})
        if len(windows) > 12:
            raise StopIteration

    module.add_word_timestamps = add_words
    try:
        result = whisper.transcribe(model, numpy.ones(seconds * 16000, "float32"), fp16=False, language="en", word_timestamps=True,
                                    hallucination_silence_threshold=threshold, temperature=0.0)
    except StopIteration:
        return None
    for i, window in enumerate(windows):
        window["next"] = windows[i + 1]["seek"] if i + 1 < len(windows) else None  # the recording's end or behind it
        window["kept"] = sum(s["seek"] == window["seek"] for s in result["segments"])
        window["recording"], window["threshold"] = seconds * 100, threshold
    return windows


def main():
    windows = [window for seed in range(40) for window in record(seed) or []]
    print(len(windows), "windows;", sum(w["kept"] < len(w["segments"]) for w in windows), "lose segments;",
          sum(w["kept"] == 0 for w in windows), "lose all")
    data = pathlib.Path(__file__).parent / "data" / "whisper_silences.json"
    data.write_text(json.dumps(windows, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
