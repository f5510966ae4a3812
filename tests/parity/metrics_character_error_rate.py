# SPDX-License-Identifier: MIT
"""Records jiwer's character counts and alignments for some 400 pairs, by code point and by grapheme cluster.

usage: python tests/parity/metrics_character_error_rate.py
(needs jiwer and regex; writes data/metrics_character_error_rate.json)
"""
import importlib.metadata
import json
import pathlib
import random

import jiwer

from metrics_unicode import clusters

OUTPUT = pathlib.Path(__file__).parent / "data" / "metrics_character_error_rate.json"
DEVANAGARI = ["\u0915\u094b\u0902\u0915\u0923\u0940", "\u092d\u093e\u0938", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0917\u094b\u0902\u092f",
              "\u0938\u094d\u0924\u094d\u0930\u0940", "\u0915\u094d\u0937\u092e\u093e", "\u0930\u093e\u091c\u094d\u092f", "\u092e\u094d\u0939\u091c\u0947\u0902",
              "\u0905\u0938\u093e", "\u0939\u093e\u0902\u0935", "\u0938\u0902\u0938\u094d\u0915\u0943\u0924\u0940", "\u091c\u093c\u0930\u0942\u0930"]
LATIN = ["turn", "left", "heading", "na\u00efve", "cafe\u0301", "se\u00f1or", "a", "delta", "zero", "\u00e9t\u00e9"]
OTHERS = ["\u4f60\u597d", "\u4e16\u754c", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\ud55c\uad6d", "\U0001f1ee\U0001f1f3", "\u0645\u0631\u062d\u0628\u0627"]
FIXED = [("", ""), ("", "a b"), ("", "\u0938\u094d\u0924\u0947"), ("a b", ""), (" ", "\u3000x"), ("a", "a"), ("ab", "ba"), (" abc\u00a0", "bcd\n"),
         ("\u0915\u093f", "\u0915\u0940"), ("\u0915\u094d\u0937", "\u0915\u0937"), ("\u0928\u092e\u0938\u094d\u0924\u0947", "\u0928\u092e\u0938\u0924\u0947"), ("kitten", "sitting")]


class Clusters(jiwer.AbstractTransform):
    """What jiwer's characters are made by, with grapheme clusters instead."""

    def process_string(self, text):
        return [clusters(text)]

    def process_list(self, texts):
        return [clusters(text) for text in texts]


BY_CLUSTER = jiwer.Compose([jiwer.Strip(), Clusters()])


def changed(text, letters):
    """The text after some random edits of single code points, as a recogniser would make."""
    out = []
    for c in text:
        kind = random.random()
        out += [] if kind < 0.08 else [random.choice(letters)] if kind < 0.18 else [c, random.choice(letters)] if kind < 0.25 else [c]
    return "".join(out)


def pairs():
    random.seed(11)
    result = list(FIXED)
    for i in range(390):
        words = [DEVANAGARI, LATIN, DEVANAGARI + LATIN + OTHERS, list("ab")][i % 4]
        reference = " ".join(random.choices(words, k=random.randint(1, 5)))
        other = " ".join(random.choices(words, k=random.randint(0, 5)))
        result.append((reference, other if i % 5 == 0 else changed(reference, "".join(words))))
    return result


def counts(output):
    return [output.hits, output.substitutions, output.deletions, output.insertions]


def edits(output):
    """One letter an edit: = hit, S, D, I."""
    letter = {"equal": "=", "substitute": "S", "delete": "D", "insert": "I"}
    chunks = output.alignments[0]
    return "".join(letter[c.type] * max(c.ref_end_idx - c.ref_start_idx, c.hyp_end_idx - c.hyp_start_idx) for c in chunks)


def row(reference, hypothesis):
    points = jiwer.process_characters(reference, hypothesis)
    clusters = jiwer.process_characters(reference, hypothesis, BY_CLUSTER, BY_CLUSTER)
    return {"reference": reference, "hypothesis": hypothesis, "counts": counts(points), "cer": points.cer, "edits": edits(points),
            "cluster_counts": counts(clusters), "cluster_edits": edits(clusters)}


if __name__ == "__main__":
    rows = [row(*pair) for pair in pairs()]
    total = jiwer.process_characters(*([r[name] for r in rows] for name in ("reference", "hypothesis")))
    OUTPUT.write_text(json.dumps({"jiwer": importlib.metadata.version("jiwer"), "pairs": rows, "total": counts(total), "cer": total.cer},
                                 ensure_ascii=False, separators=(",", ":")))
