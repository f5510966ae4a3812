#!/usr/bin/env bash
# run.sh [--device NAME] [--quick] [--seconds N] [--only TEXT] [--output FOLDER] [PACK]: on a machine with a GPU, runs what
# tests/gpu/pack.sh packed: the device tests, eight files at a time, then each benchmark beside its peer.
#
# PACK (default: this script's folder) holds parts of the pack. They are collected in ${LOOPTORCH_GPU_KEEP:-/var/tmp/looptorch-gpu},
# so that parts which cannot travel together may come one by one: as long as some are missing, that is all that happens.
#
# Needs bash, tar, xz and the LibTorch of `python3 -c "import torch"`; peers whose Python package is missing are left out. Each job
# has a limit of its own, and a job that fails is no end of the others. After N seconds (default: 480) no job begins. FOLDER
# (default: gpu-results) then holds results.json, which a table at the end shows, and logs.tgz.
#
# --device: cuda (default), or cpu for a trial of this script. --quick: benchmarks as small as a CPU can make them. --only: jobs
# whose name contains TEXT; the name of the tests is "tests". The exit code is 0 if no test and no job failed.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
keep=${LOOPTORCH_GPU_KEEP:-/var/tmp/looptorch-gpu}
device=cuda quick='' seconds=480 only='' out=gpu-results folder=$here

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit ;;
    --quick) quick=quick ;;
    --device | --seconds | --only | --output)
      [ -n "${2-}" ] || fail "$1 needs a value"
      case $1 in
        --device) device=$2 ;;
        --seconds) seconds=$2 ;;
        --only) only=$2 ;;
        --output) out=$2 ;;
      esac
      shift
      ;;
    -*) fail "there is no option $1; --help lists them" ;;
    *) folder=$1 ;;
  esac
  shift
done
[[ $seconds =~ ^[1-9][0-9]*$ ]] || fail "--seconds needs a number, not \"$seconds\""
mkdir -p "$keep" "$out" || fail "cannot write to $keep and $out"
out=$(cd "$out" && pwd)

# Moves the parts of a pack to $keep; once all are there, unpacks them. Another pack's parts go first.
collect_parts() {
  local part name count have
  for part in "$folder"/looptorch-gpu-*.part-*; do
    [ -e "$part" ] || break
    name=$(basename "$part")
    find "$keep" -maxdepth 1 -name 'looptorch-gpu-*' ! -name "${name%%.part-*}.*" -delete
    cp "$part" "$keep/$name.copy" && mv "$keep/$name.copy" "$keep/$name"
  done
  part=$(find "$keep" -maxdepth 1 -name 'looptorch-gpu-*.part-*' | head -1)
  if [ -z "$part" ]; then
    [ -e "$keep/pack/jobs.sh" ] || fail "$folder has no part of a pack; make one with tests/gpu/pack.sh"
    return
  fi
  name=${part%.part-*} count=${part##*-of-}
  have=$(find "$keep" -maxdepth 1 -name 'looptorch-gpu-*.part-*' | wc -l)
  if [ "$have" -lt "$count" ]; then
    echo "$have of $count parts are in $keep; bring the others"
    exit 0
  fi
  rm -rf "$keep/pack"
  mkdir "$keep/pack"
  for ((part = 1; part <= count; ++part)); do cat "$name.part-$part-of-$count"; done | xz -dc | tar -C "$keep/pack" -x ||
    fail "the parts in $keep cannot be unpacked; bring them once more"
  rm "$name".part-*
}

# Lets programs find LibTorch, and tests the files that they read, at the path that they were compiled with.
prepare_machine() {
  local torch source
  torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__))') ||
    fail "python3 has no torch, whose LibTorch the programs need"
  torch=${LOOPTORCH_GPU_TORCH:-$torch}
  export LD_LIBRARY_PATH=$keep/pack/lib:$torch/lib:${torch%/*}/nvidia/cu13/lib:/usr/local/cuda/lib64
  export OMP_WAIT_POLICY=passive PYTHONUNBUFFERED=1
  source=$(cat "$keep/pack/source_path.txt")
  if [ ! -e "$source/tests/parity" ]; then
    mkdir -p "$source" && cp -r "$keep/pack/source/." "$source" || echo "tests that read files will fail: $source cannot be made"
  fi
  # shellcheck disable=SC2016
  ldd "$keep"/pack/bin/* 2>/dev/null | grep -i 'not found' | sort -u >"$out/missing.txt" || true
  [ ! -s "$out/missing.txt" ] || fail "shared libraries are missing: $(awk "{ print \$1 }" "$out/missing.txt" | sort -u | paste -sd " ")"
  rm "$out/missing.txt"
  python3 "$keep/pack/table.py" machine "$(cat "$keep/pack/commit.txt")" "$device" >"$out/machine.json"
}

elapsed() { echo $((SECONDS - started)); }
is_wanted() { [[ $1 == *"$only"* ]]; }

# job SECONDS NAME COMMAND...: runs COMMAND with a limit. Lines of its standard output that are rows go to the table.
job() {
  local limit=$1 name=$2 log rc=0 began left
  shift 2
  is_wanted "$name" || return 0
  left=$((seconds - $(elapsed)))
  if [ "$left" -le 0 ]; then
    python3 "$keep/pack/table.py" job "$name" left-out 0 >>"$out/jobs.jsonl"
    echo "== [$(elapsed) s] $name: left out, the time is over"
    return 0
  fi
  [ "$left" -gt "$limit" ] || limit=$left
  log=$out/logs/${name//[^A-Za-z0-9._-]/_}.log
  began=$SECONDS
  timeout -k 5 "$limit" "$@" >"$log" 2>"$log.stderr" </dev/null || rc=$?
  grep -h '^{"name": ' "$log" >>"$out/rows.jsonl" || true
  cat "$log.stderr" >>"$log" && rm "$log.stderr"
  python3 "$keep/pack/table.py" job "$name" "$rc" $((SECONDS - began)) >>"$out/jobs.jsonl"
  if [ "$rc" = 0 ]; then
    echo "== [$(elapsed) s] $name: done"
  else
    echo "== [$(elapsed) s] $name: $([ "$rc" = 124 ] && echo "over its limit of $limit s" || echo "exit code $rc"); its last lines:"
    tr '\r' '\n' <"$log" | sed '/^{"name"/d' | tail -n 4 | cut -c1-300
  fi
}

# peer SECONDS NAME PACKAGE COMMAND...: a job that needs a Python package; without it, it is left out.
peer() {
  local limit=$1 name=$2 package=$3
  shift 3
  is_wanted "$name" || return 0
  if python3 -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$package') is None)"; then
    job "$limit" "$name" "$@"
  else
    echo "== [$(elapsed) s] $name: left out, python3 has no $package"
  fi
}

# figure NAME UNIT FILE KEY: a row with a number of a JSON file; none if the file is not there.
figure() {
  is_wanted "$1" || return 0
  [ ! -e "$3" ] || python3 "$keep/pack/table.py" figure "$@" >>"$out/rows.jsonl"
}


run_tests() {
  # shellcheck disable=SC2016 # sh expands them
  LOOPTORCH_TEST_DEVICE=$device xargs -P 8 -I{} sh -c '
    timeout -k 5 100 "$0" "-#" "[#{}]" >"$1/test_{}.log" 2>&1; rc=$?
    grep -q "No test" "$1/test_{}.log" && rc=1
    printf "{\"file\": \"{}\", \"rc\": %d}\n" $rc >>"$2"
    exit 0' "$keep/pack/bin/device_tests" "$out/logs" "$out/tests.jsonl" <"$keep/pack/tests.txt"
}

collect_parts
prepare_machine
rm -rf "$out/logs" "$out"/*.jsonl
mkdir "$out/logs"
started=$SECONDS
bin=$keep/pack/bin pack=$keep/pack work=$keep/work
rm -rf "$work"
mkdir "$work"
: >"$out/tests.jsonl"
: >"$out/jobs.jsonl"
: >"$out/rows.jsonl"
if is_wanted tests; then
  run_tests
  echo "== [$(elapsed) s] tests: $(grep -c '"rc": 0' "$out/tests.jsonl") of $(wc -l <"$out/tests.jsonl") files passed"
fi
# shellcheck source-path=SCRIPTDIR source=jobs.sh
source "$keep/pack/jobs.sh"

tar -C "$out" -czf "$out/logs.tgz" logs
result=0
python3 "$keep/pack/table.py" report "$out" || result=1
rm -rf "$out/logs" "$out"/*.jsonl "$out/machine.json"
exit $result
