#!/usr/bin/env bash
# retry_on_oom_test.sh PRELOADED PROGRAM ARGUMENT...: a training program whose device runs out of memory in the first backward
# goes on with --retry-on-oom in pieces, and ends as a run of smaller batches does; without the flag it ends. `{}` stands for
# the output folder. What is drawn for whole batches is switched off: mixup, and emotions of other clips. A step
# has all clips, so that it does not matter which of them share a batch.
set -euo pipefail

preloaded=$(realpath "$1") program=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf '%s\n' "$*" >&2; exit 1; }

"$program" --help >"$work/help"
for flag in mixup mismatched; do
  ! grep -q -- "^  --$flag " "$work/help" || set -- "$@" --$flag 0
done
run() { # run NAME ARGUMENT...: the program's exit code
  local name=$1
  shift
  LD_PRELOAD=$preloaded OMP_NUM_THREADS=1 "$program" "${@//\{\}/$work/$name}" --device sim >"$work/$name.out" 2>"$work/$name.err"
}
numbers() { # numbers RUN: step and loss of each of its steps, of each update
  grep -oE '"(step|loss|loss/[a-z]+|[a-z]+/loss)":[^,}]*' "$work/$1/metrics.jsonl" | tr ':' ' '
}

run small "$@" --batch-size 1 --gradient-accumulation 10 || fail "single samples: $(cat "$work/small.err")"
set -- "$@" --batch-size 2 --gradient-accumulation 5
export LOOPTORCH_TEST_FAIL_BACKWARD=1
run retried "$@" --retry-on-oom || fail "--retry-on-oom: $(cat "$work/retried.err")"
grep -q '^memory ran out in step 0; retrying in pieces of 1 of 2 samples$' "$work/retried.err" || fail "it said: $(cat "$work/retried.err")"
grep -q '"out_of_memory_steps": 1' "$work/retried/summary.json" || fail "the summary has: $(cat "$work/retried/summary.json")"
count=$(numbers small | wc -l)
[ "$count" -ge 4 ] || fail "few numbers: $(head -n3 "$work/small/metrics.jsonl")"
[ "$(numbers retried | wc -l)" = "$count" ] || fail "other steps: $(cat "$work/retried/metrics.jsonl")"
# Of several updates the first alone ran out of memory, and the second draws its noise for whole batches in that step.
! numbers small | grep -q /loss || count=2
paste <(numbers small) <(numbers retried) | head -n "$count" | awk '
  function off(a, b) { return (a > b ? a - b : b - a) > 2e-4 * (1 + (b < 0 ? -b : b)) }
  $1 != $3 || off($2, $4) { print; bad = 1 }
  END { exit bad }' || fail "other numbers than those of single samples"

code=0
run ended "$@" || code=$?
[ "$code" = 2 ] || fail "without the flag it ended with exit code $code: $(tail -n1 "$work/ended.err")"
grep -q ' --retry-on-oom' "$work/ended.err" ||
  fail "without the flag it said: $(tail -n1 "$work/ended.err")"
