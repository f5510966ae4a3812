# SPDX-License-Identifier: MIT
"""Records small files whose length stands nowhere, or is that of a part, and what ffmpeg decodes from them.

usage: python tests/parity/sound_files.py        (needs av, numpy, safetensors and the
programs oggenc and oggdec; writes data/sound_files.safetensors)

MP3 and MP2 without a frame that announces their length, MP3s that were joined, and Ogg files of two streams. Entries of
a file: its bytes, "NAME/rate", and "NAME/samples", the mean of the channels in float16. Those of joined files are what
the files give one by one: decoding the whole, ffmpeg takes the second one's announcing frame for sound.
"""
import io
import pathlib
import subprocess

import av
import numpy as np
from safetensors.numpy import save_file

REFERENCE = pathlib.Path(__file__).parent / "data" / "sound_files.safetensors"
NO_TAGS = {"write_xing": "0", "id3v2_version": "0"}


def sound(seconds, rate, pitch=1.0, loud=0.4):
    """A tone that glides, so that no part equals another, with some noise; quiet behind the first fifth."""
    t = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(1).standard_normal(t.size)
    level = np.where(t < seconds / 5, 1, 0.25)
    return (loud * level * (np.sin(2 * np.pi * pitch * (300 + 900 * t) * t) + 0.05 * noise)).astype(np.float32)


def encode(samples, rate, codec, container, channels=1, bit_rate=0, codec_options=None, options=None):
    out = io.BytesIO()
    file = av.open(out, "w", format=container, options=options or {})
    layout = "mono" if channels == 1 else "stereo"
    stream = file.add_stream(codec, rate=rate, layout=layout, options=codec_options or {})
    if bit_rate:
        stream.bit_rate = bit_rate
    resampler = av.AudioResampler(format=stream.format, layout=layout, rate=rate)
    frame = av.AudioFrame.from_ndarray(np.stack([samples] * channels), format="fltp", layout=layout)
    frame.sample_rate = rate
    fifo = av.AudioFifo()
    for part in resampler.resample(frame):
        part.pts = None
        fifo.write(part)
    position = 0
    while (part := fifo.read(stream.codec_context.frame_size or 1024)) or (part := fifo.read(0, partial=True)):
        part.pts = position
        position += part.samples
        file.mux(stream.encode(part))
    file.mux(stream.encode(None))
    file.close()
    return out.getvalue()


def vorbis(samples, rate, channels):
    raw = (np.stack([samples] * channels, axis=1) * 32767).astype("<i2").tobytes()
    command = ["oggenc", "-Q", "-r", "-R", str(rate), "-C", str(channels), "-o", "-", "-"]
    return subprocess.run(command, input=raw, stdout=subprocess.PIPE, check=True).stdout


def decode(data):
    if b"vorbis" in data[:64]:  # of which ffmpeg leaves the last samples out
        raw = subprocess.run(["oggdec", "-Q", "-R", "-o", "-", "-"], input=data, stdout=subprocess.PIPE, check=True).stdout
        channels = data[39]
        return int.from_bytes(data[40:44], "little"), np.frombuffer(raw, "<i2").reshape(-1, channels).mean(axis=1) / 32768
    file = av.open(io.BytesIO(data))
    rate = file.streams.audio[0].rate
    resampler = av.AudioResampler(format="fltp")
    parts = [part.to_ndarray() for frame in file.decode(audio=0) for part in resampler.resample(frame)]
    return rate, np.concatenate(parts, axis=1).mean(axis=0)


def record():
    tensors = {}

    def add(name, *files, before=b"", between=b"", behind=b""):
        decoded = [decode(file) for file in files]
        tensors[name] = np.frombuffer(before + between.join(files) + behind, np.uint8)
        tensors[name + "/rate"] = np.array([decoded[0][0]], np.int64)
        tensors[name + "/samples"] = np.concatenate([samples for _, samples in decoded]).astype(np.float16)

    id3v2 = b"ID3\x03\0\0" + bytes([0, 0, 8, 1]) + b"\xff\xfb\x90\x64" * 256 + b"\0"
    id3v1 = b"TAG" + b"a".ljust(125, b"\0")
    mp3 = lambda *args, **kwargs: encode(*args, "libmp3lame", "mp3", **kwargs)
    add("constant.mp3", mp3(sound(0.3, 44100), 44100, bit_rate=32000, options=NO_TAGS))
    add("low.mp3", mp3(sound(0.5, 11025), 11025, bit_rate=16000, options=NO_TAGS))
    add("variable.mp3", mp3(sound(0.6, 16000), 16000, codec_options={"global_quality": "236"}, options=NO_TAGS))
    add("stereo.mp3", mp3(sound(0.3, 32000), 32000, channels=2, bit_rate=48000, options=NO_TAGS), before=id3v2, behind=id3v1)
    add("layer2.mp2", encode(sound(0.3, 16000), 16000, "mp2", "mp2", channels=2, bit_rate=32000))
    announced = [mp3(sound(0.3, 16000, pitch), 16000, bit_rate=24000, options={"id3v2_version": "0"}) for pitch in (1, 2)]
    add("joined.mp3", *announced, before=id3v2, between=id3v1 + id3v2, behind=id3v1)
    add("chained.ogg", *(vorbis(sound(0.4, 16000, pitch), 16000, channels) for pitch, channels in ((1, 1), (2, 2))))
    add("chained.opus", *(encode(sound(0.3, 48000, pitch), 48000, "libopus", "ogg", bit_rate=24000) for pitch in (1, 2)))
    save_file(tensors, REFERENCE)
    for name in tensors:
        if "/" not in name:
            print(name, tensors[name].size, "bytes,", tensors[name + "/samples"].size, "samples at", tensors[name + "/rate"][0])


if __name__ == "__main__":
    record()
