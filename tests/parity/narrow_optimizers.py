# SPDX-License-Identifier: MIT
"""Records AdamW with 8-bit moments and in bf16 in data/narrow_optimizers.safetensors.

usage: python tests/parity/narrow_optimizers.py      (needs numpy, safetensors)

The rules of AdamW8bit and AdamWBf16 as their documentation states them, in numpy: the codes by comparison with all that
there are, and not by bits. Weights and gradients follow a closed formula. The gradient factor is 0.5, so that a factor is
tested. Rounding takes the random bits that the C++ loops take (mix64 of the update, the block and the lane).
"""
import pathlib

import numpy as np
from safetensors.numpy import save_file

STEPS, LANES, MASK64 = 20, 256, (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
RATE, BETA1, BETA2, EPS, DECAY, FACTOR = 1e-2, 0.9, 0.999, 1e-8, 0.1, 0.5


def mix64(value):
    value &= MASK64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
    return value ^ value >> 31


def element_word(kind, bits, lane):
    return mix64((kind * LANES + lane + 1) * GOLDEN) >> 64 - bits


def block_word(update, block):
    return mix64(mix64(update * GOLDEN) + (block + 1) * GOLDEN)


def noise(kind, bits, shift, update, size):
    """Random numbers in [0, 1), one an element."""
    words = [element_word(kind, bits, i % LANES) ^ (block_word(update, i // LANES) >> shift & (1 << bits) - 1)
             for i in range(size)]
    return np.array(words, dtype=np.float64) / (1 << bits)


def table(bits, fraction):
    """What each code stands for: 2 ** fraction equal steps in each octave above 2, less 2."""
    codes = np.arange(1 << bits)
    return 2.0 * 2.0 ** (codes >> fraction) * (1 + (codes & (1 << fraction) - 1) / (1 << fraction)) - 2


class Coded:
    """Numbers as codes of a table and one scale a block."""

    def __init__(self, size, bits, fraction, least, kind):
        self.table, self.least, self.kind, self.bits = table(bits, fraction), least, kind, 23 - fraction
        self.largest = self.table[-1] * (1 - 2.0 ** -20)
        self.codes, self.signs = np.zeros(size, dtype=np.int64), np.ones(size)
        self.scales = np.zeros(-(-size // LANES), dtype=np.float32)

    def spread(self):
        return np.repeat(self.scales.astype(np.float64), LANES)[:len(self.codes)]

    def numbers(self):
        return self.signs * self.table[self.codes] * self.spread() / self.largest

    def store(self, numbers, update):
        sizes = np.abs(numbers)
        self.scales = np.array([sizes[i:i + LANES].max() for i in range(0, len(sizes), LANES)], dtype=np.float32)
        if np.any(self.scales == 0):
            raise SystemExit("a block of zeros is not recorded")
        scaled = np.maximum(sizes * self.largest / self.spread(), self.least)
        below = np.searchsorted(self.table, scaled, side="right") - 1
        above = np.minimum(below + 1, len(self.table) - 1)
        gap = np.where(above > below, self.table[above] - self.table[below], 1)
        share = (scaled - self.table[below]) / gap
        self.codes = np.where(share + noise(self.kind, self.bits, 32 * self.kind, update, len(sizes)) >= 1, above, below)
        self.signs = np.where(np.signbit(numbers), -1.0, 1.0)

    def bytes(self):
        return (self.codes + np.where(self.signs < 0, 128, 0)).astype(np.uint8)


class Bf16:
    """Numbers rounded stochastically to bf16."""

    def __init__(self, numbers, kind):
        self.held, self.kind = numbers.astype(np.float64), kind

    def numbers(self):
        return self.held

    def store(self, numbers, update):
        words = np.floor(noise(self.kind, 16, 16 * self.kind, update, len(numbers)) * 65536).astype(np.uint32)
        bits = numbers.astype(np.float32).view(np.uint32) + words
        self.held = (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


class Exact:
    """fp32 numbers."""

    def __init__(self, numbers):
        self.held = numbers.astype(np.float64)

    def numbers(self):
        return self.held

    def store(self, numbers, update):
        self.held = numbers.astype(np.float32).astype(np.float64)


def wave(size, phase):
    return np.sin(np.arange(size) * 0.7 + phase)


def bf16(numbers):
    """The nearest numbers of bf16; ties to even."""
    bits = numbers.astype(np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def gradient(size, step):
    """Sizes from 1 to 1e-4 within a block, so that all octaves of the codes are met."""
    return (wave(size, 0.3 * step) * 10.0 ** (-4 * (np.arange(size) % 97) / 96)).astype(np.float32).astype(np.float64)


def record(size, weights, first, second, root_is_kept, of_gradient=lambda numbers: numbers):
    history = []
    for step in range(1, STEPS + 1):
        slope = of_gradient(gradient(size, step)) * FACTOR
        mean = first.numbers() + (slope - first.numbers()) * (1 - BETA1)
        before = second.numbers() ** 2 if root_is_kept else second.numbers()
        square = before * BETA2 + slope ** 2 * (1 - BETA2)
        root = np.sqrt(square)
        change = mean / (1 - BETA1 ** step) / (root / np.sqrt(1 - BETA2 ** step) + EPS)
        weights.store(weights.numbers() * (1 - RATE * DECAY) - RATE * change, step)
        first.store(mean, step)
        second.store(root if root_is_kept else square, step)
        history.append(weights.numbers().astype(np.float32))
    return np.stack(history[4::5])


def main():
    data, size = {}, 600
    start = wave(size, 0.0).astype(np.float32)
    first, second = Coded(size, 7, 3, 0.0, 0), Coded(size, 8, 4, 1 / 8, 1)
    data["eight_bit.history"] = record(size, Exact(start), first, second, True)
    data["eight_bit.first_codes"], data["eight_bit.root_codes"] = first.bytes(), second.bytes()
    data["eight_bit.first_scales"], data["eight_bit.root_scales"] = first.scales, second.scales
    data["eight_bit.first_table"] = table(7, 3).astype(np.float32)
    data["eight_bit.root_table"] = table(8, 4).astype(np.float32)
    for name, weights, of_gradient in (("bf16.narrow", Bf16(bf16(start), 2), bf16), ("bf16.exact", Exact(bf16(start)), bf16),
                                       ("bf16.single", Exact(start), lambda numbers: numbers)):
        first, second = Bf16(np.zeros(size), 0), Bf16(np.zeros(size), 1)
        data[f"{name}.history"] = record(size, weights, first, second, False, of_gradient)
        data[f"{name}.first"], data[f"{name}.second"] = first.numbers().astype(np.float32), second.numbers().astype(np.float32)
    save_file(data, pathlib.Path(__file__).parent / "data" / "narrow_optimizers.safetensors")


if __name__ == "__main__":
    main()
