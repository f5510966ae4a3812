#!/usr/bin/env bash
# out_of_memory_test.sh PRELOADED PROGRAM ARGUMENT...: a training program whose device has too little memory ends with exit code 2 and
# a line that names its own flags that help. `{}` stands for the output folder.
set -euo pipefail

preloaded=$(realpath "$1") program=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf '%s\n' "$*" >&2; exit 1; }

arguments=()
for argument; do arguments+=("${argument//\{\}/$work/run}"); done
code=0
LD_PRELOAD=$preloaded LOOPTORCH_TEST_MEMORY=4096 "$program" "${arguments[@]}" --device sim >"$work/out" 2>"$work/err" || code=$?
last=$(tail -n1 "$work/err")
[ "$code" = 2 ] || fail "exit code $code: $last"
[[ $last == "${program##*/}: "*" Memory ran out: give "*"; --preflight tries before a run what fits; --resume auto resumes from the last snapshot. See docs/errors.md#out-of-memory" ]] ||
  fail "it ended with: $last"
"$program" --help >"$work/help"
given=$(sed 's/.* Memory ran out: //' <<<"$last")
for flag in $(grep -oE -- '--[a-z0-9-]+' <<<"$given"); do
  grep -qE -- "^  (--(\[no-\])?${flag#--}) " "$work/help" || fail "the program has no $flag: $last"
done
