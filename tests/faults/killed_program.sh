#!/usr/bin/env bash
# killed_program.sh SHIM PROGRAM [ARGUMENT...]: a training program is killed and goes on, until it has ended.
#
# By SIGKILL at random moments, twice in a row, and at the write-related system calls of its snapshots; by SIGTERM at
# random moments. Whatever was done to it, its last snapshot (model, moments, state), the weights that it leaves and the
# epochs that it tells of have the bits of a run that was left alone.
#
# SHIM is the library of preloaded_shim.cpp: the program is loaded once, and each of its runs is a fork of it just before
# main. {} among the arguments stands for the output folder: the program writes snapshots into {}/snapshots, goes on from
# there if it can, leaves *.safetensors in {}, and exits with 0, or with 143 after SIGTERM. LOOPTORCH_KILLS says how many random moments; with LOOPTORCH_EVERY_CALL all calls are tried, else
# LOOPTORCH_CALLS of them. LOOPTORCH_PART=2/4 does the second of four parts of all that. LOOPTORCH_PRELOAD names a further library for the program.
set -euo pipefail

shim=$(realpath "$1")
shift
kills=${LOOPTORCH_KILLS:-4}
part=${LOOPTORCH_PART:-1/1}
parts=${part#*/} part=$((${part%/*} - 1))
preload=$shim${LOOPTORCH_PRELOAD:+:$LOOPTORCH_PRELOAD}
[ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && export TMPDIR=/dev/shm # thousands of small files
work=$(realpath "$(mktemp -d)") # as /proc names the files that the shim sees written
trap 'rm -rf "$work"' EXIT
RANDOM=$((20261121 + part))
export OMP_NUM_THREADS=1 # so small a model that threads only wait for each other

fail() {
  echo "FAILED: $*"
  [ ! -f "${output:-}.log" ] || tail -n 20 "$output.log"
  exit 1
}

# begin [VARIABLE=VALUE...]: the program begins in the background, with what it says at the end of $output.log.
begin() {
  {
    printf '%s' "$output"
    printf '\t%s' LOOPTORCH_FAULT_OF="$output/snapshots" "$@"
    printf '\n'
  } >&"${program[1]}"
  read -r process <&"${program[0]}" || fail "the program cannot be started"
}

# ended CODE...: waits for the program, which must exit with one of the codes.
ended() {
  read -r last_code <&"${program[0]}" || fail "the program cannot be waited for"
  case " $* " in *" $last_code "*) ;; *) fail "exit code $last_code" ;; esac
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

coproc program { exec env LD_PRELOAD="$preload${LD_PRELOAD:+:$LD_PRELOAD}" LOOPTORCH_FORKS=1 "$@"; }
server=$program_PID # bash forgets it once the process has ended
trap '' PIPE # begin says so where the program has ended

# A run that is left alone: its end, and how many calls it makes.
output=$work/alone alone=$output
begin LOOPTORCH_FAULT_CALLS="$work/calls"
ended 0
calls=$(cat "$work/calls")
[ -d "$(newest "$alone")" ] || fail "there is no snapshot in {}/snapshots"
compgen -G "$alone/*.safetensors" >/dev/null || fail "there are no weights in {}"
[ -n "$(epochs "$alone")" ] || fail "it tells of no epochs"
[ "$calls" -gt 100 ] || fail "$calls system calls were seen"

# Another, for how long it takes: the first fork of a program takes longer than all others.
output=$work/again
began=$(milliseconds)
go_on_to_the_end "left alone"
lifetime=$(($(milliseconds) - began))

# kill_twice NAME: at random moments.
kill_twice() {
  output=$work/random$1
  for again in 1 2; do
    begin
    tried=$((tried + 1))
    await_moment
    kill -KILL "$process" 2>/dev/null || true
    ended 0 137
    [ "$last_code" = 0 ] || killed=$((killed + 1))
  done
  go_on_to_the_end "killed at random moments, $1"
}
tried=0 killed=0
for ((i = 2 * part; i < kills; i += 2 * parts)); do kill_twice "$i"; done
for ((i = 0; i < 8 && tried > 0 && killed == 0; ++i)); do kill_twice "more$i"; done # on a busy machine all may come late
[ "$tried" = 0 ] || [ "$killed" -gt 0 ] || fail "no process was killed before its end"

every=1
[ -n "${LOOPTORCH_EVERY_CALL:-}" ] || every=$((calls / ${LOOPTORCH_CALLS:-5} + 1))
moments=$killed tried=0 killed=0
for ((call = part * every; call < calls; call += parts * every)); do
  output=$work/call$call
  begin LOOPTORCH_FAULT_AT="$call"
  tried=$((tried + 1))
  ended 0 137 # which calls there are is not the same in each run
  [ "$last_code" = 0 ] || killed=$((killed + 1))
  go_on_to_the_end "killed at call $call of $calls"
done
[ "$killed" -gt $((tried / 2)) ] || fail "only $killed of $tried processes were killed at a call"

for ((i = part; i < (kills + 3) / 4; i += parts)); do
  output=$work/signal$i
  begin
  await_moment
  kill -TERM "$process" 2>/dev/null || true
  ended 0 143
  go_on_to_the_end "SIGTERM, $i"
done
exec {program[1]}>&-
wait "$server"
echo "all well: killed at $killed of $calls calls and $moments moments; $lifetime ms a run"
