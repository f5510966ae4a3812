# SPDX-License-Identifier: MIT
"""Records what openai-whisper's log_mel_spectrogram gives for synthetic signals, and its mel filters.

usage: python tests/parity/log_mel.py        (needs openai-whisper and safetensors; writes data/log_mel.safetensors)
       python tests/parity/log_mel.py time   (prints its milliseconds of one thread for a 30 s clip)

tests/unit/audio/log_mel_test.cpp builds the same signals, in whole 16-bit steps, from the same formulas. Of each
spectrogram the reference keeps every 75th frame, the first and last 4, and the sums over all frames.
"""
import pathlib
import sys
import time

import numpy as np
import torch
import whisper
from safetensors.torch import save_file

REFERENCE = pathlib.Path(__file__).parent / "data" / "log_mel.safetensors"
RATE = 16000


def noise(count, shift):
    state, samples = 12345, []
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        samples.append(((state >> 16) - 32768) >> shift)
    return np.array(samples, dtype=np.float64)


def chirp(count):
    t = np.arange(count) / RATE
    return 20000 * np.sin(np.pi * 130 * t * t)


def voice(count):
    t = np.arange(count) / RATE
    pitch = 2 * np.pi * (120 * t + 3 * np.sin(2 * np.pi * 0.5 * t))
    tone = sum(np.exp(-(((120 * h - 700) / 500) ** 2)) * np.sin(h * pitch) for h in range(1, 31))
    return 6000 * tone * np.maximum(0, np.sin(2 * np.pi * 2 * t))


def click(count):
    samples = np.zeros(count)
    samples[count // 2] = 30000
    return samples


# name: signal, samples to keep, mel bins
CASES = {
    "noise": (noise(480000, 1), 480000, 80),
    "quiet_noise": (noise(480000, 13), 480000, 80),
    "chirp_30s": (chirp(480000), 480000, 80),
    "chirp_128": (chirp(480000), 480000, 128),
    "voice_short": (voice(60000), 480000, 80),
    "voice_4s": (voice(60000), 64000, 80),
    "noise_cut": (noise(70001, 2), 48080, 80),
    "click": (click(16000), 480000, 80),
    "silence": (np.zeros(1000), 480000, 80),
}


def spectrogram(samples, length, bins):
    samples = torch.from_numpy((np.round(samples) / 32768).astype(np.float32))
    return whisper.log_mel_spectrogram(whisper.pad_or_trim(samples, length), bins)


def record():
    tensors = {}
    for bins in (80, 128):
        filters = whisper.audio.mel_filters("cpu", bins).flatten()
        tensors[f"filters_{bins}.index"] = filters.nonzero().squeeze(1).to(torch.int32)
        tensors[f"filters_{bins}.value"] = filters[filters != 0]
    for name, case in CASES.items():
        mel = spectrogram(*case)
        frames = torch.cat([mel[:, ::75], mel[:, :4], mel[:, -4:]], 1)
        tensors[f"{name}.frames"] = frames.contiguous()
        tensors[f"{name}.sums"] = mel.double().sum(1)
    save_file(tensors, REFERENCE)


def measure():
    torch.set_num_threads(1)
    case = CASES["voice_short"]
    samples = whisper.pad_or_trim(torch.from_numpy((case[0] / 32768).astype(np.float32)))
    times = []
    for _ in range(50):
        start = time.thread_time()
        whisper.log_mel_spectrogram(samples)
        times.append(1e3 * (time.thread_time() - start))
    print(f"openai-whisper: {sorted(times)[25]:.2f} ms (median), {min(times):.2f} ms (best)")


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["time"] else record()
