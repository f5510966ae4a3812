# SPDX-License-Identifier: MIT
"""Records Python's normal form C of random strings of Devanagari and Latin letters and marks.

    python tests/parity/konkanivani_text.py        # writes tests/parity/data/konkanivani_text.json
"""
import json
import pathlib
import random
import unicodedata

LETTERS = [chr(c) for c in [*range(0x41, 0x5B), *range(0x61, 0x7B), *range(0xC0, 0x180), 0x1EBC, 0x1EBD, 0x1EF8, 0x1EF9]]
MARKS = [chr(c) for c in [0x300, 0x301, 0x302, 0x303, 0x304, 0x306, 0x307, 0x308, 0x30A, 0x30B, 0x30C, 0x327, 0x328]]
# What beyond Latin Extended-A composes (such as two marks on one vowel) is not the example's to know.
KNOWN = set(LETTERS) | set(MARKS)
DEVANAGARI = [chr(c) for c in range(0x900, 0x980)]
JOINING = ["\u093C", "\u094D", "\u0928", "\u0930", "\u0933", "\u0915", "\u0951", "\u0952", "\u093C"]


def main():
    random.seed(9)
    cases = []
    while len(cases) < 400:
        latin = "".join(random.choice(random.choice([LETTERS, MARKS])) for _ in range(random.randint(1, 4)))
        text = random.choice([latin, "".join(random.choice(random.choice([DEVANAGARI, JOINING])) for _ in range(6))])
        composed = unicodedata.normalize("NFC", text)
        if all(c in KNOWN or c in DEVANAGARI for c in composed):
            cases.append([text, composed])
    path = pathlib.Path(__file__).parent / "data" / "konkanivani_text.json"
    path.write_text(json.dumps(cases, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
