# SPDX-License-Identifier: MIT
"""Records what scipy.signal.resample_poly gives, in float64, for noise between several rates.

usage: python tests/parity/audio_resample.py        (needs scipy and safetensors; writes data/audio_resample.safetensors)
       python tests/parity/audio_resample.py time   (prints scipy's milliseconds of one thread for 30 s, 44.1 to 16 kHz)

The filter is the one that include/looptorch/audio/resample.hpp documents (Kaiser's window, 86 dB, flat to 90 % of the
lower Nyquist frequency), designed here by scipy. tests/unit/audio/resample_test.cpp makes the same noise.
"""
import math
import pathlib
import sys
import time

import numpy as np
from safetensors.numpy import save_file
from scipy import signal

REFERENCE = pathlib.Path(__file__).parent / "data" / "audio_resample.safetensors"
RATES = [(44100, 16000), (16000, 44100), (48000, 16000), (8000, 16000), (22050, 16000), (16000, 14545)]


def noise(count):
    state, samples = 1, []
    for _ in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        samples.append(((state >> 16) - 32768) / 32768)
    return np.array(samples)


def taps(up, down):
    """The filter at the common multiple of both rates."""
    lower = min(1.0, up / down)
    reach = math.ceil((86 - 7.95) / (2.285 * math.pi * 0.1) / 2 / lower)
    return signal.firwin(2 * reach * up + 1, lower * 0.95 / up, window=("kaiser", 0.1102 * (86 - 8.7)))


def record():
    tensors = {}
    for source, target in RATES:
        divisor = math.gcd(source, target)
        up, down = target // divisor, source // divisor
        tensors[f"{source}_{target}"] = signal.resample_poly(noise(1000), up, down, window=taps(up, down))
    save_file(tensors, REFERENCE)


def measure():
    samples = noise(30 * 44100).astype(np.float32)
    own = taps(160, 441).astype(np.float32)
    for name, options in {"default filter (55 taps, -6 dB at Nyquist)": {}, "this filter": {"window": own}}.items():
        times = []
        for _ in range(15):
            start = time.thread_time()
            signal.resample_poly(samples, 160, 441, **options)
            times.append(1e3 * (time.thread_time() - start))
        print(f"scipy, {name}: {sorted(times)[7]:.1f} ms (median), {min(times):.1f} ms (best)")


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["time"] else record()
