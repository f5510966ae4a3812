# SPDX-License-Identifier: MIT
"""Records the sizes that zlib compresses texts to, for tests/unit/whisper/decoding/repetition/deflate_size_test.cpp.

usage: python tests/parity/deflate_size.py

Writes data/deflate_size.json: texts with the size of zlib.compress(text), and sizes for the texts of `drawn`, which
the test makes itself.
"""
import json
import pathlib
import zlib

DATA = pathlib.Path(__file__).parent / "data"
MASK = (1 << 64) - 1
TEXTS = [
    "", "a", "ab", "abc", "aaaa", "aaaaaaaaaaaaaaaaaaaaaaaa", "abcabcabcabcabc", "Thank you.", " Thank you. Thank you. Thank you.",
    "The old lighthouse keeper walked down to the harbour, where three fishing boats were waiting.",
    "I'm going to go to the next one. " * 12, "I'm going to go to the next one. " * 40, "zero " * 7 + "niner", "0" * 300, "ha" * 130,
    "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30",
    "नमस्ते, आप कैसे हैं? " * 3, "今日はいい天気ですね。" * 5, "สวัสดีครับ", "Ünïcödé wörds äre lönger in bytes thän in chäracters",
    "Golf hotel squawk six three two one, ident. Wind calm, cleared for the option. Golf hotel, squawk six three two one.",
    "x" * 258 + "y" + "x" * 258 + "z" + "x" * 259,
]


def numbers(seed):
    """SplitMix64, as looptorch::SplitMix64."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & MASK
        value = seed
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        yield value ^ (value >> 31)


def drawn(seed):
    """Words of 1 to 6 of `letters` letters; every second text repeats what it said some words ago."""
    draw = numbers(seed)
    letters, count = 2 + next(draw) % 60, 1 + next(draw) % 400
    words = []
    for _ in range(count):
        if seed % 2 and words and next(draw) % 3:
            words.append(words[-(1 + next(draw) % min(len(words), 9))])
        else:
            size = 1 + next(draw) % 6
            words.append("".join(chr(65 + next(draw) % letters) for _ in range(size)))
    return " ".join(words)


def size(text):
    return len(zlib.compress(text.encode()))


recorded = {"texts": [{"text": text, "size": size(text)} for text in TEXTS], "drawn": [size(drawn(seed)) for seed in range(400)]}
(DATA / "deflate_size.json").write_text(json.dumps(recorded, ensure_ascii=False) + "\n")
