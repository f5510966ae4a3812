#!/usr/bin/env bash
# example_waits.sh PAGE PRELOAD PROGRAM [ARGUMENT...]: how often a step of a training program waits for its device.
#
# Runs PROGRAM on the simulated accelerator, the library PRELOAD, for 2 and for 3 steps of one epoch, and takes the
# difference; with --retry-on-oom, as on a CUDA card. Fails where PAGE has another number in the row `PROGRAM`;
# LOOPTORCH_WRITE_WAITS=1 writes it there. {} among the arguments stands for an output folder.
set -euo pipefail

page=$1 preload=$(realpath "$2")
shift 2
name=$(basename "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1

# waits STEPS PROGRAM [ARGUMENT...]: the waits of a run.
waits() {
  local output=$work/$1 steps=$1
  shift
  LD_PRELOAD=$preload LOOPTORCH_TEST_WAITS=$output.waits "${@//\{\}/$output}" --device sim \
    --gradient-accumulation 1 --max-steps "$steps" --retry-on-oom \
    >"$output.log" 2>&1 || { cat "$output.log" >&2; exit 1; }
  head -1 "$output.waits"
}

two=$(waits 2 "$@")
three=$(waits 3 "$@")
a_step=$((three - two))
row="^\\| \`$name\` \\| [0-9]* \\|"
[ -z "${LOOPTORCH_WRITE_WAITS:-}" ] || sed -E -i "s/$row/| \`$name\` | $a_step |/" "$page"
grep -qE "^\\| \`$name\` \\| $a_step \\|" "$page" || {
  diff "$work/2.waits" "$work/3.waits" | grep '^[<>]' | sort | uniq -c >&2
  echo "a step of $name waits $a_step times; $page has: $(grep -E "$row" "$page" || echo 'no row of it')" >&2
  exit 1
}
echo "$name: $a_step waits a step"
