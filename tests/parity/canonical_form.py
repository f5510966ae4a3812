# SPDX-License-Identifier: MIT
"""Generates include/looptorch/base/unicode/canonical_tables.hpp, Unicode's canonical decompositions and combining classes,
and records data/canonical_form.json, strings with their normal forms D and C.

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


IDEOGRAPHS = [range(0xF900, 0xFADA), range(0x2F800, 0x2FA1E)]  # compatibility ideographs: each stands for one other


def written(c):
    """A character within U"...": C++ takes no \\u for ASCII."""
    if c < 0xA0:
        return chr(c) if chr(c).isalpha() or chr(c) in "`<=>;" else r"\0" if c == 0 else rf"\x{c:x}"
    return rf"\u{c:04x}" if c < 0x10000 else rf"\U{c:08x}"


def literal(rows):
    """A string literal of the characters of all rows; no row is cut."""
    lines, line = [], ""
    for row in rows:
        cell = "".join(map(written, row))
        if len(line) + len(cell) > 103:
            lines.append(line)
            line = ""
        line += cell
    return "\n".join(f'    U"{line}"' for line in lines + [line])


def header():
    table = {c: (first, second) for c, first, second in decompositions()}
    ideographs = [[[table.get(c, [c])[0]] for c in block] for block in IDEOGRAPHS]
    others = [[c, *parts] for c, parts in table.items() if not any(c in block for block in IDEOGRAPHS)]
    return f"""// SPDX-License-Identifier: MIT
// Holds Unicode's canonical decompositions and combining classes, for canonical_form.hpp. Generated
// by tests/parity/canonical_form.py from the package unicodedata2 {unicodedata2.unidata_version}; do not edit.
// Rows are string literals, since compilers parse these faster than arrays.
#pragma once

#include <string_view>

namespace looptorch::detail {{

// clang-format off
/// Rows of three: a character and one step of its decomposition, which ends in 0 where that is one character.
/// Sorted; without Hangul syllables and the ideographs below.
inline constexpr std::u32string_view kDecompositions{{
{literal(others)}, {3 * len(others)}}};

/// The decompositions of U+F900 and the characters after it.
inline constexpr std::u32string_view kIdeographsFromF900{{
{literal(ideographs[0])}}};

/// The decompositions of U+2F800 and the characters after it.
inline constexpr std::u32string_view kIdeographsFrom2F800{{
{literal(ideographs[1])}}};

/// Rows of three: the first and the last of neighbours with one canonical combining class, and the class.
inline constexpr std::u32string_view kCombiningClasses{{
{literal(combining_classes())}}};
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
    forms = [[text, *(unicodedata2.normalize(form, text) for form in ("NFD", "NFC"))] for text in strings()]
    return json.dumps(forms, ensure_ascii=True, separators=(",", ":")) + "\n"


def main():
    stale = False
    for path, text in ((HEADER, header()), (RECORD, record())):
        if "--check" in sys.argv:
            stale = stale or not path.exists() or path.read_text() != text
        else:
            path.write_text(text)
    sys.exit(stale)


main()
