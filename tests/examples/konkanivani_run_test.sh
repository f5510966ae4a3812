#!/usr/bin/env bash
# konkanivani_run_test.sh RUN PROGRAMS: tests in a minute the script that makes a recogniser from nothing.
#
# examples/konkanivani/run.sh (RUN) makes a small corpus, trains on it, and measures: the model must get clearly fewer
# characters wrong than an untrained one, on at least 100 sentences that are not in the training set; what it leaves
# must be what its opening comment says; and started again it trains no further. PROGRAMS is the folder of the programs.
set -euo pipefail

run=$(realpath -- "$1") programs=$(realpath -- "$2") program=konkanivani_train
# shellcheck source-path=SCRIPTDIR source=run_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/run_support.sh"

out=$work/out
script_refuses_all "$out"
make=(--quick --programs "$programs" "$out" -- --epochs 4) # half of --quick's
script_runs "${make[@]}"
summary=$out/summary.json
cat "$summary"
has_numbers "$summary" cer wer cer_untrained clips steps seconds
cer=$(value "$summary" cer) untrained=$(value "$summary" cer_untrained)
is_true "$cer < 0.7 && $cer < 0.75 * $untrained" || fail "CER $cer after training, $untrained before"
is_true "$(value "$summary" clips) >= 100" || fail "measured on few clips"
[ "$(cat "$out"/corpus/{train,validation,test}.jsonl | grep -o '"text":"[^"]*"' | sort | uniq -d | wc -l)" = 0 ] ||
  fail "a sentence is in two splits"
[ "$(grep -o '"speaker":"[^"]*"' "$out/corpus/train.jsonl" | sort -u | wc -l)" -ge 10 ] || fail "few voices speak"
[ "$(head -1 "$out/curve.csv")" = step,seconds,cer,wer ] || fail "curve.csv begins otherwise"
[ "$(wc -l <"$out/curve.csv")" -gt 3 ] || fail "curve.csv has few lines"
has_files "$out/model" config.json vocabulary.json model.safetensors
clips=("$out"/corpus/audio/*.flac)
runs konkanivani_transcribe --model "$out/model" "${clips[@]::20}"

steps=$(value "$summary" steps)
script_runs "${make[@]}"
[ "$(value "$summary" steps)" = "$steps" ] || fail "it trained again"
is_true "$(value "$summary" cer) == $cer" || fail "the same model was measured otherwise"
