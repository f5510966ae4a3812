# SPDX-License-Identifier: MIT
"""Builds PNG files by Python's zlib, which png_of() has to equal byte for byte, and checks that they decode.

    python tests/parity/png.py        # writes tests/parity/data/png.safetensors

One picture fits one stored block of a zlib stream, the other needs three.
"""
import pathlib
import struct
import zlib

import torch
from safetensors.torch import save_file


def stored(data):
    """zlib.compress(data, 0) chooses blocks of its own size; these are the longest that there can be."""
    blocks = [data[i:i + 65535] for i in range(0, len(data), 65535)]
    out = b"\x78\x01"
    for i, block in enumerate(blocks):
        out += struct.pack("<BHH", i == len(blocks) - 1, len(block), len(block) ^ 0xFFFF) + block
    out += struct.pack(">I", zlib.adler32(data))
    assert zlib.decompress(out) == data
    return out


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixels):
    rows, columns, _ = pixels.shape
    data = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", stored(data)) + chunk(b"IEND", b""))


def main():
    out = {}
    for name, (rows, columns) in {"small": (3, 5), "large": (150, 299)}.items():
        count = rows * columns * 3
        pixels = ((torch.arange(count) * 37 + 11) % 256).to(torch.uint8).reshape(rows, columns, 3)
        content = png(pixels)
        # The large file is long: its checksums say as much.
        out[name] = torch.tensor(list(content if name == "small" else content[:50] + content[-50:]), dtype=torch.uint8)
        out[name + ".size"] = torch.tensor(len(content))
        out[name + ".crc32"] = torch.tensor(zlib.crc32(content))
    save_file(out, pathlib.Path(__file__).parent / "data" / "png.safetensors")


main()
