#!/usr/bin/env bash
# torchrun.sh UNIT_DISTRIBUTED: tests of ranks once more, started by torchrun and not by themselves: 2 ranks train as one
# process does, and resume; a rank that throws ends the other with its sentence. Skipped (77) without torchrun.
set -euo pipefail

torchrun=${LOOPTORCH_TORCHRUN:-$(command -v torchrun)} || {
  echo "skipped: there is no torchrun; packaging/setup.sh --distributed gets one"
  exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export RANKS_FOLDER=$folder OMP_NUM_THREADS=1

unit=$1
by_torchrun() { # by_torchrun CASES SENTENCE: both ranks must pass; SENTENCE must be in their output
  local output status=0
  output=$("$torchrun" --standalone --nproc-per-node 2 --no-python "$unit" "$1" 2>&1) || status=$?
  if [ $status != 0 ] || [ "$(grep -cE 'All tests passed|^test cases: 1 \| 1 passed' <<<"$output")" != 2 ] || ! grep -qF -- "$2" <<<"$output"; then
    printf '%s\ntorchrun ended with %s; not both ranks passed and said: %s\n' "$output" "$status" "$2" >&2
    exit 1
  fi
}

by_torchrun 'rank: equal to one process,rank: snapshots' 'assertions'
FAULT=exception by_torchrun 'faults in one process' 'said rank 1 ended in step 3: no more disk'
