#!/usr/bin/env bash
# killed_program.sh SHIM PROGRAM [ARGUMENT...]: a training program is killed and goes on, until it has ended.
#
# By SIGKILL at random moments, twice in a row, and at the write-related system calls of its snapshots; by SIGTERM at
# random moments. Whatever was done to it, its last snapshot (model, moments, state), the weights that it leaves and the
# epochs that it tells of have the bits of a run that was left alone.
#
# SHIM is the library of preloaded_shim.cpp. {} among the arguments stands for the output folder: the program writes
# snapshots into {}/snapshots, goes on from there if it can, leaves *.safetensors in {}, and exits with 0, or with 143
# after SIGTERM. LOOPTORCH_KILLS says how many random moments; with LOOPTORCH_EVERY_CALL all calls are tried, else
# LOOPTORCH_CALLS of them. LOOPTORCH_PRELOAD names a further library for the program.
set -euo pipefail

shim=$(realpath "$1")
shift
kills=${LOOPTORCH_KILLS:-4}
preload=$shim${LOOPTORCH_PRELOAD:+:$LOOPTORCH_PRELOAD}
[ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && export TMPDIR=/dev/shm # thousands of small files
work=$(realpath "$(mktemp -d)") # as /proc names the files that the shim sees written
trap 'rm -rf "$work"' EXIT
RANDOM=20261121
export OMP_NUM_THREADS=1 # so small a model that threads only wait for each other

fail() {
  echo "FAILED: $*"
  [ ! -f "${output:-}.log" ] || tail -n 20 "$output.log"
  exit 1
}

# begin [VARIABLE=VALUE...]: the program begins in the background, with what it says at the end of $output.log.
begin() {
  env "$@" LD_PRELOAD="$preload" LOOPTORCH_FAULT_OF="$output/snapshots" "${command[@]//\{\}/$output}" \
    >/dev/null 2>>"$output.log" &
  process=$!
}

# ended CODE...: waits for the program, which must exit with one of the codes.
ended() {
  local code=0
  wait "$process" 2>/dev/null || code=$?
  case " $* " in *" $code "*) ;; *) fail "exit code $code" ;; esac
  last_code=$code
}

milliseconds() { date +%s%3N; }

# A moment in the life of a process, or just after it.
await_moment() {
  local moment=$((lifetime * 105 / 100 * RANDOM / 32767))
  sleep "$((moment / 1000)).$(printf '%03d' $((moment % 1000)))"
}

# What each epoch was said to have come to; the share of time spent waiting is not the same twice.
epochs() { grep -a '^epoch [0-9]* done' "$1.log" | sed 's/  data wait.*//' | sort -u; }

newest() { printf '%s\n' "$1"/snapshots/step-???????? | tail -1; }

go_on_to_the_end() {
  begin
  ended 0
  diff -r "$(newest "$alone")" "$(newest "$output")" || fail "$1: the last snapshot is another"
  for weights in "$alone"/*.safetensors; do
    cmp "$weights" "$output/${weights##*/}" || fail "$1: other weights"
  done
  diff <(epochs "$alone") <(epochs "$output") || fail "$1: the epochs are others"
  [ -z "$(find "$output/snapshots" -mindepth 1 -maxdepth 1 -name 'step-*' ! -name 'step-????????')" ] || fail "$1: something is left over"
  rm -rf "$output" "$output.log"
}

# A run that is left alone: its end, how long it takes, and how many calls it makes.
command=("$@")
output=$work/alone alone=$output
began=$(milliseconds)
begin LOOPTORCH_FAULT_CALLS="$work/calls"
ended 0
lifetime=$(($(milliseconds) - began))
calls=$(cat "$work/calls")
[ -d "$(newest "$alone")" ] || fail "there is no snapshot in {}/snapshots"
compgen -G "$alone/*.safetensors" >/dev/null || fail "there are no weights in {}"
[ -n "$(epochs "$alone")" ] || fail "it tells of no epochs"
[ "$calls" -gt 100 ] || fail "$calls system calls were seen"

killed=0
for ((i = 0; i < kills; i += 2)); do
  output=$work/random$i
  for again in 1 2; do
    begin
    await_moment
    kill -KILL "$process" 2>/dev/null || true
    ended 0 137
    [ "$last_code" = 0 ] || killed=$((killed + 1))
  done
  go_on_to_the_end "killed at random moments, $i"
done
[ "$kills" = 0 ] || [ "$killed" -gt 0 ] || fail "no process was killed before its end"

every=1
[ -n "${LOOPTORCH_EVERY_CALL:-}" ] || every=$((calls / ${LOOPTORCH_CALLS:-5} + 1))
killed=0
for ((call = 0; call < calls; call += every)); do
  output=$work/call$call
  begin LOOPTORCH_FAULT_AT="$call"
  ended 0 137 # which calls there are is not the same in each run
  [ "$last_code" = 0 ] || killed=$((killed + 1))
  go_on_to_the_end "killed at call $call of $calls"
done
[ "$killed" -gt $((calls / every / 2)) ] || fail "only $killed processes were killed at a call"

for ((i = 0; i < (kills + 3) / 4; ++i)); do
  output=$work/signal$i
  begin
  await_moment
  kill -TERM "$process" 2>/dev/null || true
  ended 0 143
  go_on_to_the_end "SIGTERM, $i"
done
echo "all well: $calls calls, $lifetime ms a run"
