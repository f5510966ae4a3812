# SPDX-License-Identifier: MIT
"""Records the pictures that the spectrogram GAN learns from, made with librosa of synthetic signals.

usage: python tests/parity/spectrogram_gan_data.py   (needs librosa and safetensors; writes
                                                      data/spectrogram_gan_data.safetensors)

tests/unit/spectrogram_gan_vit/clips/data_test.cpp writes the same signals, in whole 16-bit steps, as WAV files and reads them.
`long` lasts 31 s and is cut to 30, `short` 20 s and is padded. Of each picture every 50th frame is kept, the first and last
3, the sums over all frames, and mean and deviation in decibels.
"""
import pathlib

import librosa
import numpy as np
from safetensors.numpy import save_file

from audio_mel_spectrogram import as_float, music

REFERENCE = pathlib.Path(__file__).parent / "data" / "spectrogram_gan_data.safetensors"
RATE, SECONDS = 22050, 30


def picture(samples, bins):
    samples = librosa.util.fix_length(samples, size=SECONDS * RATE)
    power = librosa.feature.melspectrogram(y=samples, sr=RATE, n_fft=2048, hop_length=512, n_mels=bins, fmin=20, fmax=8000)
    decibels = librosa.power_to_db(power, ref=1.0).astype(np.float64)
    return (decibels - decibels.mean()) / decibels.std(), np.array([decibels.mean(), decibels.std()])


def record():
    tensors = {}
    for name, seconds, bins in [("long", 31, 128), ("short", 20, 96)]:
        z, scale = picture(as_float(music(seconds * RATE, RATE)), bins)
        tensors[f"{name}.frames"] = np.concatenate([z[:, ::50], z[:, :3], z[:, -3:]], 1).astype(np.float32)
        tensors[f"{name}.sums"] = z.sum(1)
        tensors[f"{name}.scale"] = scale
    save_file(tensors, REFERENCE)


if __name__ == "__main__":
    record()
