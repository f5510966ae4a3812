# SPDX-License-Identifier: MIT
"""Records librosa's mel spectrograms of synthetic signals, in power, decibels and as z-scores.

usage: python tests/parity/audio_mel_spectrogram.py        (needs librosa and safetensors; writes
                                                            data/audio_mel_spectrogram.safetensors)
       python tests/parity/audio_mel_spectrogram.py time   (prints librosa's milliseconds of one thread for 30 s)

tests/unit/audio/mel_spectrogram_test.cpp builds the same signals from the same formulas. `music` has the settings of the
music emotion recipe: 22.05 kHz, 30 s, 128 bins, 20 to 8000 Hz. Of each spectrogram every 50th frame is kept, the first
and last 3, and the sums over all frames.
"""
import pathlib
import sys
import time

import librosa
import numpy as np
from safetensors.numpy import save_file

REFERENCE = pathlib.Path(__file__).parent / "data" / "audio_mel_spectrogram.safetensors"


def noise(count, shift):
    state, samples = 1, []
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        samples.append(((state >> 16) - 32768) >> shift)
    return np.array(samples, dtype=np.float64)


def music(count, rate):
    t = np.arange(count) / rate
    tones = 0
    for period, hz in enumerate([220, 331, 1760, 5001], start=2):
        tones = tones + np.sin(2 * np.pi * hz * t) * (1 + np.sin(2 * np.pi * t / period))
    return np.round(3000 * tones) + noise(count, 6)


def as_float(samples):
    return (samples / 32768).astype(np.float32)


MUSIC = as_float(music(30 * 22050, 22050))
SETTINGS = dict(sr=22050, n_fft=2048, hop_length=512, n_mels=128, fmin=20, fmax=8000)
CASES = {
    "music": (MUSIC, SETTINGS),
    "speech": (as_float(noise(20001, 2)), dict(sr=16000, n_fft=400, hop_length=160, n_mels=40, fmin=0, fmax=8000)),
    "odd": (as_float(noise(7000, 0)), dict(sr=8000, n_fft=255, hop_length=100, n_mels=96, fmin=50, fmax=3800)),
}


def zscore(decibels):
    return (decibels - decibels.mean()) / decibels.std()


def keep(tensors, name, mel):
    tensors[f"{name}.frames"] = np.ascontiguousarray(np.concatenate([mel[:, ::50], mel[:, :3], mel[:, -3:]], 1))
    tensors[f"{name}.sums"] = mel.astype(np.float64).sum(1)


def record():
    tensors = {}
    for name, (samples, settings) in CASES.items():
        power = librosa.feature.melspectrogram(y=samples, **settings)
        keep(tensors, f"{name}.power", power)
        keep(tensors, f"{name}.decibels", librosa.power_to_db(power, ref=np.max))
        keep(tensors, f"{name}.absolute_30", librosa.power_to_db(power, top_db=30))
        keep(tensors, f"{name}.zscore", zscore(librosa.power_to_db(power, ref=np.max)))
    save_file(tensors, REFERENCE)


def measure():
    times = []
    for _ in range(15):
        start = time.thread_time()
        zscore(librosa.power_to_db(librosa.feature.melspectrogram(y=MUSIC, **SETTINGS), ref=np.max))
        times.append(1e3 * (time.thread_time() - start))
    print(f"librosa: {sorted(times)[7]:.1f} ms (median), {min(times):.1f} ms (best)")


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["time"] else record()
