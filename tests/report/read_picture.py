# SPDX-License-Identifier: MIT
"""read_picture.py REPORT.html: checks what curve_picture.py draws of a report that has curves of loss and lr. One sentence and exit
code 1 if anything is not so."""
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

PROGRAM = pathlib.Path(__file__).with_name("curve_picture.py")


def draw(report, *arguments):
    return subprocess.run([sys.executable, PROGRAM, report, *arguments], capture_output=True, text=True)


def pixels_of(png):
    """Returns the rows of an 8-bit PNG file without interlacing, as lists of (red, green, blue)."""
    data, at, compressed = png.read_bytes(), 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and colour in (2, 6), "not a PNG file of 8-bit colours"
        elif kind == b"IDAT":
            compressed += body
        at += 12 + length
    wide = 3 if colour == 2 else 4
    raw, before, rows = zlib.decompress(compressed), bytearray(width * wide), []
    for y in range(height):
        filter_type, row = raw[y * (width * wide + 1)], bytearray(raw[y * (width * wide + 1) + 1:(y + 1) * (width * wide + 1)])
        for i in range(len(row)):
            left, above = row[i - wide] if i >= wide else 0, before[i]
            corner = before[i - wide] if i >= wide else 0
            nearest = min((left, above, corner), key=lambda value: abs(left + above - corner - value))
            row[i] = row[i] + (0, left, above, (left + above) // 2, nearest)[filter_type] & 255
        before = row
        rows.append([tuple(row[x:x + 3]) for x in range(0, len(row), wide)])
    return rows


def curve_pixels(rows, left, right):
    """Counts pixels of the curves' blue between two columns."""
    return sum(abs(r - 0x1F) + abs(g - 0x6F) + abs(b - 0xEB) < 60 for row in rows for r, g, b in row[left:right])


def check(is_so, sentence):
    if not is_so:
        sys.exit("curve_picture.py: " + sentence)


report = sys.argv[1]
with tempfile.TemporaryDirectory() as folder:
    one, two = pathlib.Path(folder) / "one.png", pathlib.Path(folder) / "two.png"
    refused = draw(report, one, "loss", "lost")
    check(refused.returncode != 0 and "the report has no lost; it has " in refused.stderr and not one.exists(),
          f"a metric that is not there: {refused.stderr}")
    check(draw(report, one).returncode != 0, "no metric is accepted")
    for picture, metrics in ((one, ["loss"]), (two, ["loss", "lr"])):
        drawn = draw(report, picture, *metrics)
        check(drawn.returncode == 0, f"{metrics}: {drawn.stderr}")
    rows, both = pixels_of(one), pixels_of(two)
    check((len(rows[0]), len(rows)) == (416, 252) and (len(both[0]), len(both)) == (816, 252), "the pictures have other sizes")
    check(curve_pixels(rows, 0, 416) > 200, "no curve is drawn")
    check(curve_pixels(both, 0, 408) > 200 and curve_pixels(both, 408, 816) > 200, "of two curves not both are drawn")
print("the pictures show the curves")
