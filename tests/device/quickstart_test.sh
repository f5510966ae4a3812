#!/usr/bin/env bash
# quickstart_test.sh QUICKSTART PROGRAMS PRELOAD: the quickstart of Whisper on the simulated accelerator and on the CPU.
#
# QUICKSTART --quick --device sim runs with the programs of the folder PROGRAMS, which find the accelerator in the library
# PRELOAD. It must begin with the CPU's word error rate and end near the CPU's loss; LibTorch computes attention in another
# way on a CPU, so the bits differ.
set -euo pipefail

run=$1 programs=$(realpath "$2") preload=$(realpath "$3")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1

fail() {
  printf 'FAILED: %s\n' "$*"
  cat "$work"/*.log
  exit 1
}
refused() { # refused TEXT ARGUMENT...
  local text=$1 said
  shift
  ! said=$("$run" "$@" 2>&1) || fail "quickstart.sh $* was not refused"
  [[ $said == *"$text"* ]] || fail "quickstart.sh $* said \"$said\""
}

refused "there is no option --wrong" --wrong
refused "one output folder at most" "$work/a" "$work/b"
refused "--device needs a value" --device
refused '--ranks needs a number of processes, not "two"' --ranks two
refused "holds no whisper_finetune" --programs "$work" "$work/a"

# --ranks: torchrun starts the fine-tuning, and nothing else. With stand-ins for the programs and for torchrun.
mkdir "$work/stand-ins"
for program in whisper_import whisper_corpus whisper_transcribe; do ln -s "$(type -P true)" "$work/stand-ins/$program"; done
cat >"$work/stand-ins/whisper_finetune" <<'END'
#!/bin/sh
while [ "$1" != --output ]; do shift; done
mkdir -p "$2" && echo "{}" >"$2/summary.json"
END
cat >"$work/torchrun" <<'END'
#!/bin/sh
echo "$@" >>"${0%/*}/launched"
while [ "$1" != --no-python ]; do shift; done
shift
exec "$@"
END
chmod +x "$work/stand-ins/whisper_finetune" "$work/torchrun"
for ranks in 1 3; do
  LOOPTORCH_WHISPER_CT2=x LOOPTORCH_TORCHRUN=$work/torchrun "$run" --quick --ranks $ranks --programs "$work/stand-ins" "$work/of $ranks" \
    >"$work/ranks.log" 2>&1 || fail "--ranks $ranks with stand-ins"
done
grep -q "^--standalone --nproc-per-node 3 --no-python $work/stand-ins/whisper_finetune --model " "$work/launched" || fail "torchrun got $(cat "$work/launched")"
[ "$(wc -l <"$work/launched")" = 1 ] || fail "torchrun was started for one rank"

# The programs, in whose processes alone the library is loaded.
mkdir "$work/programs"
for program in "$programs"/whisper_*; do
  [[ -x $program && -f $program ]] || continue
  printf '#!/bin/sh\nLD_PRELOAD=%s exec %s "$@"\n' "$preload" "$program" >"$work/programs/${program##*/}"
done
chmod +x "$work/programs"/*

LOOPTORCH_TEST_WAITS=$work/waits "$run" --quick --device sim --programs "$work/programs" "$work/sim" >"$work/sim.log" 2>&1 ||
  fail "on the simulated device"
[ "$(head -1 "$work/waits")" -gt 0 ] || fail "the simulated device was not used"
mkdir "$work/cpu"
cp -r "$work/sim/corpus" "$work/sim/whisper-tiny.en" "$work/cpu"
"$run" --quick --device cpu --programs "$programs" "$work/cpu" >"$work/cpu.log" 2>&1 || fail "on the CPU"
figures() { grep -E '"(wer_before|steps)"' "$1/summary.json"; }
[ "$(figures "$work/sim" | grep -c .)" = 2 ] || fail "summary.json: $(cat "$work/sim/summary.json")"
diff <(figures "$work/sim") <(figures "$work/cpu") || fail "other figures than on the CPU"
losses() { sed -n 's/^epoch 1 done .* loss \([0-9.]*\)  validation.loss \([0-9.]*\) .*/\1 \2/p' "$1.log"; }
paste -d ' ' <(losses "$work/sim") <(losses "$work/cpu") |
  awk '{ found = NF == 4 && ($1 - $3)^2 < 1e-4 * $3^2 && ($2 - $4)^2 < 1e-4 * $4^2 } END { exit !found }' ||
  fail "losses: $(losses "$work/sim") on the simulated device, $(losses "$work/cpu") on the CPU"
echo "all well"
