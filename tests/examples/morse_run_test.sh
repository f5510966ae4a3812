#!/usr/bin/env bash
# morse_run_test.sh RUN PROGRAMS: tests in some minutes the script that teaches Whisper Morse code.
#
# examples/whisper/run_morse.sh (RUN) --quick must teach single characters, take each stage's model over to the next, and leave
# what its opening comment says; started again it trains no further. PROGRAMS is the folder of the programs;
# LOOPTORCH_WHISPER_CT2 names the published model.
set -euo pipefail

run=$1 programs=$(cd -- "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=run_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/run_support.sh"

refused_run() { # refused_run TEXT ARGUMENT...
  local text=$1 said
  shift
  ! said=$("$run" "$@" 2>&1) || fail "run_morse.sh $* was not refused"
  [[ $said == *"$text"* ]] || fail "run_morse.sh $* said \"$said\""
}
refused_run "there is no option --wrong" --wrong
refused_run "one output folder at most" "$work/a" "$work/b"
refused_run "holds no whisper_finetune" --programs "$work" "$work/a"

out=$work/out
"$run" --quick --device cpu --programs "$programs" "$out" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
cat "$out/summary.json"
for key in cer wer clips steps seconds; do
  [ -n "$(value "$out/summary.json" $key)" ] || fail "summary.json has no $key"
done
for stage in characters groups phrases; do
  [ -s "$out/$stage/model.safetensors" ] && [ -s "$out/$stage/curve.csv" ] || fail "$stage is missing"
done
is_true "$(value "$out/characters/summary.json" wer_after) < 0.5" || fail "characters were not learnt: $(cat "$out/characters/summary.json")"
is_true "$(value "$out/groups/summary.json" wer_before) < 2" || fail "groups began with another model: $(cat "$out/groups/summary.json")"
[ "$(value "$out/summary.json" steps)" = 108 ] || fail "other steps: $(cat "$out/summary.json")"
tr -d ' \n' <"$out/phrases/generation_config.json" | grep -q '"suppress_tokens":\[502' || fail "signs stay suppressed"

cer=$(value "$out/summary.json" cer)
"$run" --quick --device cpu --programs "$programs" "$out" >"$work/log" 2>&1 || { cat "$work/log" && fail "a second time"; }
! grep -q "==> Stage" "$work/log" || fail "it trained again"
is_true "$(value "$out/summary.json" cer) == $cer" || fail "the same model was measured otherwise"

[ "$failures" = 0 ] || exit 1
echo "all well"
