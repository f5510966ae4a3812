# SPDX-License-Identifier: MIT
"""Records what librosa makes of magnitudes and of mel spectrograms: sound.

usage: python tests/parity/audio_griffin_lim.py   (needs librosa and safetensors; writes
                                                   data/audio_griffin_lim.safetensors)

Per case, in float64: `NAME.magnitude`, some frames of librosa.stft, and `NAME.sound`, what librosa.griffinlim makes of
all of them, from zero phases or, in `random`, from phases by a formula. `mel.*`: how far, as a share, the mel power of
librosa's inverse of a mel spectrogram is from it (`spectrum_distance`), the mean distance in decibels
(`spectrum_decibels`), and the share once that inverse is sound (`sound_distance`).

The tests in tests/unit/spectrogram_gan_vit/sound build the same signals from the same formulas.
"""
import pathlib

import librosa
import numpy as np
from audio_mel_spectrogram import SETTINGS, as_float, music
from safetensors.numpy import save_file

REFERENCE = pathlib.Path(__file__).parent / "data" / "audio_griffin_lim.safetensors"

# name: samples, window, hop, iterations, momentum, length or None, phases by formula
CASES = {
    "zero": (12000, 2048, 512, 32, 0.99, None, False),
    "classic": (4000, 400, 160, 16, 0.0, 4000, False),
    "odd": (3001, 255, 60, 8, 0.5, 3001, False),
    "random": (3000, 512, 128, 32, 0.99, 3000, True),
}


class Phases(np.random.RandomState):
    """In place of random numbers: fractions of a turn that C++ can make too."""

    def random(self, size):
        count = np.arange(size[0] * size[1]).reshape(size)
        return count * 0.6180339887498949 % 1


def griffin_lim(tensors):
    for name, (count, window, hop, iterations, momentum, length, by_formula) in CASES.items():
        magnitude = np.abs(librosa.stft(music(count, 22050) / 32768, n_fft=window, hop_length=hop))
        tensors[f"{name}.magnitude"] = np.ascontiguousarray(magnitude[:, ::7])
        tensors[f"{name}.sound"] = librosa.griffinlim(
            magnitude, n_iter=iterations, hop_length=hop, n_fft=window, length=length, momentum=momentum,
            init="random" if by_formula else None, random_state=Phases(0))


def distance(actual, wanted):
    return np.linalg.norm(actual - wanted) / np.linalg.norm(wanted)


def mel_inverse(tensors):
    samples = as_float(music(2 * 22050, 22050))
    mel = librosa.feature.melspectrogram(y=samples, **SETTINGS)
    filters = librosa.filters.mel(sr=22050, n_fft=2048, n_mels=128, fmin=20, fmax=8000)
    magnitude = librosa.feature.inverse.mel_to_stft(mel, sr=22050, n_fft=2048, fmin=20, fmax=8000)
    inverse = filters @ magnitude**2
    sound = librosa.griffinlim(magnitude, n_iter=32, hop_length=512, random_state=0, length=len(samples))
    again = librosa.feature.melspectrogram(y=sound, **SETTINGS)
    decibels = np.abs(10 * np.log10((inverse + 1e-10) / (mel + 1e-10)))
    tensors["mel.spectrum_distance"] = np.array(distance(inverse, mel), np.float64)
    tensors["mel.spectrum_decibels"] = np.array(decibels.mean(), np.float64)
    tensors["mel.sound_distance"] = np.array(distance(again, mel), np.float64)


if __name__ == "__main__":
    tensors = {}
    griffin_lim(tensors)
    mel_inverse(tensors)
    save_file(tensors, REFERENCE)
    print({name: float(tensors[name]) for name in tensors if name.startswith("mel.")})
