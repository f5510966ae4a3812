#!/usr/bin/env bash
# check.sh CASE.cpp COMPILER...: a mistake must not compile, and must say so well.
#
# The case declares in comment lines what is expected of the compiler's output, as plain substrings:
#   // expect: looptorch: ...   stands in one of the first lines; may be given more than once
#   // expect-g++: ...          the same, asked of g++ only
#   // within: 6                ... of the first so many lines
#   // anywhere: ...            stands somewhere in the output; `anywhere-g++`: asked of g++ only
#   // max-lines: 25            longest output
# where lines that say by way of which headers a file was included do not count. And it holds the correct twin, one line
# different, under `#ifdef LOOPTORCH_TWIN`; the twins of all cases compile as one file.
set -euo pipefail

case_file=$1
compile=("${@:2}")

declared() { sed -n "s|^// $1: ||p" "$case_file"; }

fail() {
  printf '%s: %s\n' "$case_file" "$1" >&2
  [ -z "${output-}" ] || printf '%s\n' '--- the compiler says' "$output" >&2
  exit 1
}

compiler=g++
case ${compile[0]##*/} in *clang*) compiler=clang++ ;; esac
mapfile -t expected < <(declared expect; declared "expect-$compiler")
within=$(declared within)
max_lines=$(declared max-lines)
[ ${#expected[@]} -gt 0 ] || fail "declares no '// expect:' line"
grep -q LOOPTORCH_TWIN "$case_file" || fail "has no twin under #ifdef LOOPTORCH_TWIN"

! output=$("${compile[@]}" "$case_file" 2>&1) || fail "compiles, but must not"
output=$(grep -vE '^(In file included| +) from ' <<<"$output" || true)
lines=$(wc -l <<<"$output")
[ "$lines" -le "${max_lines:-25}" ] || fail "says $lines lines, more than ${max_lines:-25}"
first_lines=$(head -n "${within:-6}" <<<"$output")
for sentence in "${expected[@]}"; do
  [[ $first_lines == *"$sentence"* ]] ||
    fail "does not say in its first ${within:-6} lines: $sentence"
done

mapfile -t expected < <(declared anywhere; declared "anywhere-$compiler")
for sentence in "${expected[@]}"; do
  [[ $output == *"$sentence"* ]] || fail "does not say: $sentence"
done
