#!/usr/bin/env bash
# line_length.sh REPOSITORY [--write [PAGE...]]: no line of prose in a Markdown page exceeds 120 characters. Code blocks,
# tables and HTML comments are not prose. Fails where a line does, or wraps the paragraphs that have such lines. No answer
# in a table of `question | answer`, as docs/architecture.md has, exceeds 300 characters.
set -euo pipefail
cd "$1"
shift
exec python3 - "$@" <<'END'
import re, subprocess, sys

LIMIT, ANSWER = 120, 300
write = sys.argv[1:2] == ["--write"]
pages = sys.argv[2:] or sorted(
    subprocess.run(["find", "README.md", "docs", "examples", "-name", "*.md"],
                   capture_output=True, text=True, check=True).stdout.split())


def paragraphs(lines):
    """Yields (is_prose, lines): a paragraph, or an item of a list with its text, is prose as a whole."""
    fence, held = False, []
    for line in lines:
        begins_fence = line.lstrip().startswith("```")
        if fence or begins_fence:
            if held:
                yield True, held
                held = []
            fence = not fence if begins_fence else fence
            yield False, [line]
        elif not line.strip() or re.match(r"(#|\||<!--|<a |    +[^ -])", line) and not held:
            if held:
                yield True, held
                held = []
            yield False, [line]
        elif re.match(r"(\||#|<!--)", line):
            yield True, held
            held = []
            yield False, [line]
        elif re.match(r" *([-*]|\d+\.) ", line) and held:
            yield True, held
            held = [line]
        else:
            held.append(line)
    if held:
        yield True, held


def long_answers(lines):
    """Yields (line number, length) of the long answers in tables of `question | answer | open`."""
    answers = False
    for number, line in enumerate(lines, 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        answers = cells[:2] == ["question", "answer"] or answers and len(cells) > 1
        if answers and len(cells[1]) > ANSWER:
            yield number, len(cells[1])


def words(text):
    """Splits at blanks, but not within a span of code of up to 60 characters."""
    text = re.sub(r"`[^`]+`", lambda m: m[0].replace(" ", "\0") if len(m[0]) <= 62 else m[0], text)
    return [word.replace("\0", " ") for word in text.split()]


def wrapped(lines):
    first = re.match(r" *(?:(?:[-*]|\d+\.) |> )?", lines[0])[0]
    rest = first if first.endswith("> ") else " " * len(first)
    marker = len(first)
    text = " ".join([lines[0][marker:]] + [line.lstrip(" >") if rest.endswith("> ") else line.strip() for line in lines[1:]])
    made, line = [], first
    for word in words(text):
        if line in (first, rest):
            line += word
        elif len(line) + 1 + len(word) <= LIMIT:
            line += " " + word
        elif not re.match(r"([-+*>#|]|\d+[.)])", word):
            made.append(line)
            line = rest + word
        else:  # would begin an item of a list there: takes the word before with it
            made.append(line[: line.rindex(" ")])
            line = rest + line[line.rindex(" ") + 1 :] + " " + word
    return made + [line]


too_long = too_long_answers = 0
for page in pages:
    with open(page, encoding="utf-8") as file:
        lines = file.read().split("\n")
    made, number = [], 0
    for prose, part in paragraphs(lines):
        long = [i for i, line in enumerate(part) if len(line) > LIMIT and " " in line.strip()] if prose else []
        if long and write:
            part = wrapped(part)
        elif long:
            too_long += len(long)
            for i in long:
                print(f"{page}:{number + i + 1}: {len(part[i])} characters", file=sys.stderr)
        made += part
        number += len(part)
    for number, length in long_answers(lines):
        too_long_answers += 1
        print(f"{page}:{number}: an answer of {length} characters", file=sys.stderr)
    if write and made != lines:
        with open(page, "w", encoding="utf-8") as file:
            file.write("\n".join(made))
if too_long_answers:
    sys.exit(f"{too_long_answers} answers exceed {ANSWER} characters: move the rest to the page that the row links")
if too_long:
    sys.exit(f"{too_long} lines of prose exceed {LIMIT} characters: tests/docs/line_length.sh . --write wraps them")
END
