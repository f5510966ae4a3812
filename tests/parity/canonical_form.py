# SPDX-License-Identifier: MIT
"""Generates include/looptorch/base/unicode/canonical_tables.hpp, Unicode's canonical decompositions and combining classes,
and records data/canonical_form.json, strings and their normal form D.

usage: python tests/parity/canonical_form.py [--check]       (needs the package unicodedata2 18.0.0)

With --check nothing is written, and the exit code says whether the files are what would be written.
"""
import json
import pathlib
import random
import sys

import unicodedata2

ROOT = pathlib.Path(__file__).parents[2]
HEADER = ROOT / "include" / "looptorch" / "base" / "unicode" / "canonical_tables.hpp"
RECORD = ROOT / "tests" / "parity" / "data" / "canonical_form.json"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def decompositions():
    """(code point, first, second or 0), one step; Hangul syllables are computed."""
    for c in CODE_POINTS:
        parts = unicodedata2.decomposition(chr(c))
        if parts and not parts.startswith("<") and not 0xAC00 <= c < 0xD7A4:
            first, second = ([int(part, 16) for part in parts.split()] + [0])[:2]
            yield c, first, second


def combining_classes():
    """(first, last, class) of neighbours with equal classes above 0."""
    ranges = []
    for c in CODE_POINTS:
        value = unicodedata2.combining(chr(c))
        if not value:
            continue
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == value:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, value])
    return ranges


def rows(items):
    lines, line = [], "   "
    for item in items:
        cell = " {" + ", ".join(hex(value) for value in item) + "},"
        if len(line) + len(cell) > 110:
            lines.append(line)
            line = "   "
        line += cell
    return "\n".join(lines + [line.rstrip(",")])


def header():
    return f"""// SPDX-License-Identifier: MIT
// Canonical decompositions and combining classes of Unicode's characters, for canonical_form.hpp. Generated
// by tests/parity/canonical_form.py from the package unicodedata2 {unicodedata2.unidata_version}; do not edit.
#pragma once

#include <cstdint>

namespace looptorch::detail {{

/// One step of a character's canonical decomposition; `second` is 0 where there is one character.
struct Decomposition {{
  char32_t whole, first, second;
}};

/// Neighbours with one canonical combining class.
struct CombiningClass {{
  char32_t first, last;
  std::uint8_t value;
}};

// clang-format off
/// By `whole`, without Hangul syllables.
inline constexpr Decomposition kDecompositions[] = {{
{rows(decompositions())}}};

inline constexpr CombiningClass kCombiningClasses[] = {{
{rows(combining_classes())}}};
// clang-format on

}}  // namespace looptorch::detail
"""


def strings():
    random.seed(1)
    composed = [c for c, _, _ in decompositions()]
    marks = [c for first, last, _ in combining_classes() for c in range(first, last + 1)]
    syllables = range(0xAC00, 0xD7A4)
    yield from (chr(c) for c in composed)
    for pool in (composed, marks, syllables, range(0x20, 0x7F)):
        for _ in range(100):
            yield "".join(chr(random.choice(random.choice([pool, marks, range(0x61, 0x7B)])))
                          for _ in range(random.randint(1, 9)))


def record():
    pairs = [[text, unicodedata2.normalize("NFD", text)] for text in strings()]
    return json.dumps(pairs, ensure_ascii=True, separators=(",", ":")) + "\n"


def main():
    stale = False
    for path, text in ((HEADER, header()), (RECORD, record())):
        if "--check" in sys.argv:
            stale = stale or not path.exists() or path.read_text() != text
        else:
            path.write_text(text)
    sys.exit(stale)


main()
