# SPDX-License-Identifier: MIT
"""Records jiwer's counts for some 470 pairs of sentences, alone and accumulated.

usage: python tests/parity/word_error_rate.py       (needs jiwer; writes data/word_error_rate.json)
"""
import json
import pathlib
import random

import jiwer

OUTPUT = pathlib.Path(__file__).parent / "data" / "word_error_rate.json"
FIXED = [("", ""), ("", "a b"), ("a b", ""), ("a", "a"), ("a b", "b a"), ("a b c", "b c d"), ("a  b   c", " a b c "),
         ("\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u0928\u092e\u0938\u094d\u0924\u0947")]
# Every character of Python's white space; only a blank parts words alone.
SPACES = [chr(c) for c in range(0x10000) if chr(c).isspace()]
FIXED += [(f"one{s}two", "one two") for s in SPACES]
FIXED += [(f"{s}one two{s}", "one two") for s in SPACES]
FIXED += [("hello\u00a0", "hello"), ("a\u3000\u3000b", "a b"), ("a\u00a0 b", "a b"), ("a \u00a0b", "a b"), ("a\tb\tc", "a\tb c"),
          ("a\r\nb", "a b"), ("\u3000", "a"), ("a", " \t\n"), ("a\u200bb", "a b"), ("a\u2028 \u2029b c\u0085d", "a b c d")]


def sentence(words, length):
    return " ".join(random.choices(words, k=length))


def changed(text, words):
    """The sentence after some random edits, as a recogniser would make."""
    out = []
    for word in text.split():
        kind = random.random()
        out += [] if kind < 0.1 else [random.choice(words)] if kind < 0.25 else [word, random.choice(words)] if kind < 0.35 else [word]
    return " ".join(out)


def pairs():
    random.seed(5)
    few, many = list("abc"), [f"w{i}" for i in range(50)]
    result = list(FIXED)
    for i in range(392):
        words = few if i % 2 else many
        reference = sentence(words, random.randint(1, 20))
        other = sentence(words, random.randint(0, 20)) if i % 3 == 0 else changed(reference, words)
        result.append((reference, other))
    return result


def counts(output):
    return [output.hits, output.substitutions, output.deletions, output.insertions]


if __name__ == "__main__":
    rows = [{"reference": r, "hypothesis": h, "counts": counts(o := jiwer.process_words(r, h)), "wer": o.wer} for r, h in pairs()]
    total = jiwer.process_words([row["reference"] for row in rows], [row["hypothesis"] for row in rows])
    OUTPUT.write_text(json.dumps({"jiwer": jiwer.__version__ if hasattr(jiwer, "__version__") else "4", "pairs": rows,
                                  "total": counts(total), "wer": total.wer}, ensure_ascii=False, separators=(",", ":")))
