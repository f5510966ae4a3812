# SPDX-License-Identifier: MIT
"""Records what the normaliser should make of strings in many scripts, by an independent rendering of its rules.

usage: python tests/parity/metrics_normalize.py       (needs the package regex; writes data/metrics_normalize.json)

The strings hold characters assigned in Unicode 14 only, Python 3.11's own, so that both sides know the same ones.
"""
import json
import pathlib
import random
import unicodedata

import regex

OUTPUT = pathlib.Path(__file__).parent / "data" / "metrics_normalize.json"
IGNORABLE = r"[\u00AD\u061C\u180B-\u180F\u200E\u200F\u202A-\u202E\u2060-\u206F\uFE00-\uFE0F\uFEFF\U000E0000-\U000E0FFF]"
SEPARATOR = r"(?!\uFFFD|[\u200C\u200D])[\p{P}\p{S}\p{Z}\p{Cc}\p{Cf}]"
MARK = r"[\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]"
FIXED = ["Goa\u0301, Panaji! 100%", "\u0915\u094b\u0902\u0915\u0923\u0940 \u092d\u093e\u0938\u0964 \u0915\u0936\u0940 \u0906\u0938\u093e?",
         "\u0938\u094d\u0924\u094d\u0930\u0940\u2014\u0915\u094d\u200d\u0937; \u0967\u0968\u0969", "\u0130stanbul \u00c5NGSTR\u00d6M \u0179\u00d3\u0141\u0106", "L\u2019\u00c9T\u00c9 d'or",
         "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u300c\u65e5\u672c\u8a9e\u300d\u306f\u2026", "\ud55c\uad6d\uc5b4!", "\u2260 =\u0338 a", "\uff21\uff22\uff23 \u2160\u2161", "\U00010400\U00010428 \u1c90"]


def small(c):
    lower = c.lower()
    return "i" if c == "\u0130" else lower if len(lower) == 1 else c


def normalized(text):
    text = regex.sub(IGNORABLE, "", text)
    text = regex.sub(r"(?<![\u200C\u200D])(?:(?<=^|%s)[\u200C\u200D]+)" % SEPARATOR, "", text)  # joiners outside words
    text = regex.sub(r"((?![ \t-\r])%s)%s+" % (SEPARATOR, MARK), r"\1", text)                   # marks on what goes
    text = "".join(map(small, text))
    inside = r"(?<=(?!%s).)['\u2019](?=(?!%s).)" % (SEPARATOR, SEPARATOR)
    text = regex.sub(inside, "\0", text)
    text = regex.sub(r"(?!\0)%s" % SEPARATOR, " ", text).replace("\0", "'")
    return regex.sub(" +", " ", text).strip(" ")


def texts():
    random.seed(17)
    letters = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c))[0] in "LMN" and not regex.match(IGNORABLE, chr(c))]
    others = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Pd", "Ps", "Pe", "Po", "Pi", "Pf", "Pc", "Sm", "Sc", "Sk", "So", "Zs", "Cf")
              and chr(c) not in "'\u2019\u200c\u200d\ufffd"]
    capitals = [c for c in letters if unicodedata.category(c) == "Lu"]
    result = list(FIXED)
    result += ["".join(random.choices(capitals[i:i + 40], k=20)) for i in range(0, len(capitals), 40)]
    for _ in range(300):
        pieces = [random.choice(random.choice((letters, capitals, others, [" "]))) for _ in range(16)]
        result.append("".join(pieces))
    return result


if __name__ == "__main__":
    rows = [[text, normalized(text)] for text in texts()]
    OUTPUT.write_text(json.dumps(rows, separators=(",", ":")))
