# shellcheck shell=bash disable=SC2154
# Prints what is being done, to stderr. `log` is the file for what commands print.
#
#   say, detail TEXT         a step, and a line below it
#   fail TEXT                ends the set-up with one sentence
#   watched TITLE COMMAND    runs COMMAND with its output in the log, and prints its progress every ten seconds
#   failed REMEDY            ends the set-up with the end of the log and one sentence
#   need_space FOLDER N      fails unless FOLDER has N gigabytes free

say() { printf '==> %s\n' "$*" >&2; }
detail() { printf '    %s\n' "$*" >&2; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

watched() {
  local title=$1 status=0
  shift
  tick "$title" 9>&- >&2 &
  ticker=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  stop_ticker
  return $status
}

tick() {
  local seconds=0
  trap 'kill $!; exit' TERM
  while sleep 10 & wait $! && kill -0 $$ 2>/dev/null; do
    seconds=$((seconds + 10))
    detail "$1, ${seconds} s: $(tail -n1 "$log" | tr -d '\r' | cut -c1-90)"
  done
}

ticker=
stop_ticker() {
  [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || true
  ticker=
}

failed() {
  tail -n5 "$log" >&2
  fail "$* (all output: $log)"
}

need_space() {
  local free
  free=$(df --output=avail -BM "$1" | tail -n1 | tr -dc 0-9)
  [ "$free" -ge $(($2 * 1000)) ] ||
    fail "$1 has $((free / 1000)) GB free of the $2 GB needed; free some, or name another folder in LOOPTORCH_CACHE"
}
