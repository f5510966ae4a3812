#!/usr/bin/env bash
# konkanivani_run_test.sh RUN PROGRAMS: tests in a minute the script that makes a recogniser from nothing.
#
# examples/konkanivani/run.sh (RUN) makes a small corpus, trains on it, and measures: the model must get clearly fewer
# characters wrong than an untrained one, on at least 100 sentences that are not in the training set; what it leaves must
# be what its opening comment says; and started again it trains no further. PROGRAMS is the folder of the programs.
set -euo pipefail

run=$1 programs=$2 program=konkanivani_train
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=run_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/run_support.sh"

out=$work/out
check_refusals "$out"
make=("$run" --quick --programs "$programs" "$out" -- --epochs 4) # half of --quick's
"${make[@]}" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
summary=$out/summary.json
cat "$summary"
for key in cer wer cer_untrained clips steps seconds; do
  [ -n "$(value "$summary" $key)" ] || fail "summary.json has no $key"
done
cer=$(value "$summary" cer) untrained=$(value "$summary" cer_untrained)
is_true "$cer < 0.7 && $cer < 0.75 * $untrained" || fail "CER $cer after training, $untrained before"
is_true "$(value "$summary" clips) >= 100" || fail "measured on few clips"
[ "$(sed -n '/"text"/p' "$out"/corpus/{train,validation,test}.jsonl | grep -o '"text":"[^"]*"' | sort | uniq -d | wc -l)" = 0 ] ||
  fail "a sentence is in two splits"
[ "$(grep -o '"speaker":"[^"]*"' "$out/corpus/train.jsonl" | sort -u | wc -l)" -ge 10 ] || fail "few voices speak"
[ "$(head -1 "$out/curve.csv")" = step,seconds,cer,wer ] || fail "curve.csv begins otherwise"
[ "$(wc -l <"$out/curve.csv")" -gt 3 ] || fail "curve.csv has few lines"
for file in config.json vocabulary.json model.safetensors; do
  [ -s "$out/model/$file" ] || fail "model/$file is missing"
done
clips=("$out"/corpus/audio/*.flac)
"$programs/konkanivani_transcribe" --model "$out/model" "${clips[@]::20}" >/dev/null || fail "transcribe"

steps=$(value "$summary" steps)
"${make[@]}" >"$work/log" 2>&1 || { cat "$work/log" && fail "a second time"; }
[ "$(value "$summary" steps)" = "$steps" ] || fail "it trained again"
is_true "$(value "$summary" cer) == $cer" || fail "the same model was measured otherwise"

[ $failures = 0 ] || exit 1
echo "all well"
