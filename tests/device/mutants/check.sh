#!/usr/bin/env bash
# check.sh PROGRAM MUTANTS [NAME...]: seeded bugs of device code must be noticed by the device tests.
#
# PROGRAM is some device tests, compiled with all mutants of the file MUTANTS, switched off. With none switched on the tests
# must pass; with each mutant (or each of those named) on, one of the tests that its line `catch:` names must fail. Tests that
# PROGRAM does not have are left out.
set -euo pipefail

program=$1 mutants=$2
only=("${@:3}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CUDA_VISIBLE_DEVICES=

passes() { # passes MUTANT TEST...: whether the tests pass; 124 if that takes longer than 120 s
  local name=$1 tests=() test
  shift
  for test; do
    [[ $here != *"[#$test]"* ]] || tests+=("[#$test],")
  done
  [ ${#tests[@]} != 0 ] || {
    printf '%s: %s has none of the tests %s\n' "$name" "$program" "$*" >&2
    exit 1
  }
  LOOPTORCH_MUTANT=$name timeout 120 "$program" --abort -# "$(printf %s "${tests[@]}")" >"$folder/says" 2>&1
}

# Each mutant is a line of `list`: name, what it does wrong, tests.
list=$(sed -n 's/^== \([a-z0-9_]*\): \(.*\)/\1\t\2/p; s/^catch: /\t/p' "$mutants" | sed 'N; s/\n//')
for name in "${only[@]}"; do
  grep -q "^$name	" <<<"$list" || { printf 'there is no mutant %s\n' "$name" >&2 && exit 1; }
done
[ ${#only[@]} = 0 ] || list=$(for name in "${only[@]}"; do grep "^$name	" <<<"$list"; done)
here=$("$program" -# --list-tags) || true # Catch2 2 exits with their number
# shellcheck disable=SC2046 # a word a test
passes '' $(cut -f3 <<<"$list" | tr ' ' '\n' | sort -u) || {
  cat "$folder/says" >&2
  printf 'the tests fail without any mutant\n' >&2
  exit 1
}

tried=0 missed=0
while IFS=$'\t' read -r name what tests; do
  tried=$((tried + 1)) status=0
  # shellcheck disable=SC2086
  passes "$name" $tests || status=$?
  case $status in
    0) verdict=MISSED missed=$((missed + 1)) ;;
    124) verdict=hung ;; # caught, or the machine is busy
    *) verdict=caught ;;
  esac
  printf '%-8s %-32s %s\n' "$verdict" "$name" "$what"
done <<<"$list"
printf '%s of %s caught\n' "$((tried - missed))" "$tried"
[ "$missed" = 0 ]
