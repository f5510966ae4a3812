# SPDX-License-Identifier: MIT
"""The peers of audio: the same 30 s of sound on one thread, by openai-whisper, torchaudio, scipy, soundfile and
librosa. Prints one JSON object a peer; tests/bench/run.sh has the environment."""
import os

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[threads] = "1"

import json
import statistics
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")

import librosa
import numpy as np
import scipy
import scipy.signal
import soundfile
import torch
import torchaudio
import whisper

rows, sys.stdout = sys.stdout, sys.stderr
torch.set_num_threads(1)


def music(rate):
    """30 s of tones that swell and fade, and some noise: music() of audio.cpp."""
    state, noise = 1, np.empty(30 * rate)
    for i in range(len(noise)):
        state = (1664525 * state + 1013904223) % 2**32
        noise[i] = ((state >> 16) - 32768) >> 6
    t = np.arange(len(noise)) / rate
    for period, hz in enumerate([220, 331, 1760, 5001], start=2):
        noise += 3000 * np.sin(2 * np.pi * hz * t) * (1 + np.sin(2 * np.pi * t / period))
    return (np.round(noise) / 32768).astype(np.float32)


def row(name, of, peer, call, rounds=30):
    """The median of the times that this thread ran for, after a call that does not count."""
    call()
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        call()
        times.append(1e3 * (time.thread_time() - begin))
    print(f"    {name}: {peer}", flush=True)
    row = {"name": name, "of": of, "peer": peer, "peer_value": statistics.median(times)}
    print(json.dumps(row), file=rows, flush=True)


def version(module):
    return f"{module.__name__} {module.__version__.split('+')[0]}"


def speech():
    samples, cd = music(16000), music(44100)
    cd_tensor = torch.from_numpy(cd)
    openai_whisper = f"openai-whisper {whisper.__version__}"
    row("log-mel", "log-mel", openai_whisper, lambda: whisper.log_mel_spectrogram(samples))
    row("log-mel 128", "log-mel 128", openai_whisper, lambda: whisper.log_mel_spectrogram(samples, n_mels=128))

    quick = torchaudio.transforms.Resample(44100, 16000)
    sharp = torchaudio.transforms.Resample(44100, 16000, "sinc_interp_kaiser", lowpass_filter_width=64,
                                           rolloff=0.9475937167399596, beta=14.769656459379492)
    row("resample", "resample", version(torchaudio), lambda: quick(cd_tensor))
    row("resample vs kaiser_best", "resample", version(torchaudio), lambda: sharp(cd_tensor))
    row("resample vs scipy", "resample", version(scipy), lambda: scipy.signal.resample_poly(cd, 160, 441))

    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/speech.flac"
        soundfile.write(path, samples, 16000)
        row("decode FLAC", "decode FLAC", version(soundfile), lambda: soundfile.read(path, dtype="float32"))


def z_scored_mel(samples, settings):
    decibels = librosa.power_to_db(librosa.feature.melspectrogram(y=samples, **settings), ref=np.max)
    return (decibels - decibels.mean()) / decibels.std()


def recipe():
    samples = music(22050)
    settings = dict(sr=22050, n_fft=2048, hop_length=512, n_mels=128, fmin=20, fmax=8000)
    row("mel spectrogram", "mel spectrogram", version(librosa), lambda: z_scored_mel(samples, settings))

    magnitude = np.abs(librosa.stft(samples, n_fft=2048, hop_length=512))
    tensor, window = torch.from_numpy(magnitude), torch.hann_window(2048)
    row("griffin_lim", "griffin_lim", version(librosa), lambda: librosa.griffinlim(magnitude, n_iter=32), rounds=5)
    row("griffin_lim vs torchaudio", "griffin_lim", version(torchaudio), lambda: torchaudio.functional.griffinlim(
        tensor, window, n_fft=2048, hop_length=512, win_length=2048, power=1, n_iter=32, momentum=0.99, length=None,
        rand_init=True), rounds=5)

    mel = librosa.feature.melspectrogram(y=samples, **settings)
    row("mel inverse", "mel inverse", version(librosa), lambda: librosa.feature.inverse.mel_to_stft(
        mel, sr=22050, n_fft=2048, fmin=20, fmax=8000), rounds=1)


speech()
recipe()
