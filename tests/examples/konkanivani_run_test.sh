#!/usr/bin/env bash
# konkanivani_run_test.sh RUN PROGRAMS: a recogniser from nothing in a minute.
#
# examples/konkanivani/run.sh (RUN) makes a small corpus, trains on it, and measures: the model must get clearly fewer
# characters wrong than an untrained one, on at least 100 sentences that are not in the training set; what it leaves must
# be what its opening comment says; and started again it trains no further. PROGRAMS is the folder of the programs.
set -euo pipefail

run=$1 programs=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
value() { sed -n "s/^ *\"$2\": *\([-0-9.e+]*\),\{0,1\}\$/\1/p" "$1"; }
holds() { awk "BEGIN { exit !($1) }"; } # holds CONDITION, of numbers

refused() { # refused TEXT ARGUMENT...
  local text=$1 code=0 said
  shift
  said=$("$run" "$@" 2>&1) || code=$?
  [[ $code == 2 && $said == *"$text"* ]] || fail "run.sh $* exited with $code and said \"$said\""
}
refused "no output folder"
refused "there is no option --wrong" --wrong
refused "one output folder at most" "$work/a" "$work/b"
refused "--programs needs a folder" "$work/a" --programs
out=$work/out
mkdir "$out"
echo kept >"$out/summary.json"
refused "holds no konkanivani_train" --programs "$work" "$out"
[ "$(cat "$out/summary.json")" = kept ] || fail "a refused run.sh took the summary away"

"$run" --quick --programs "$programs" "$out" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
summary=$out/summary.json
cat "$summary"
for key in cer wer cer_untrained clips steps seconds; do
  [ -n "$(value "$summary" $key)" ] || fail "summary.json has no $key"
done
cer=$(value "$summary" cer) untrained=$(value "$summary" cer_untrained)
holds "$cer < 0.7 && $cer < 0.75 * $untrained" || fail "CER $cer after training, $untrained before"
holds "$(value "$summary" clips) >= 100" || fail "measured on few clips"
[ "$(sed -n '/"text"/p' "$out"/corpus/{train,validation,test}.jsonl | grep -o '"text":"[^"]*"' | sort | uniq -d | wc -l)" = 0 ] ||
  fail "a sentence is in two splits"
[ "$(grep -o '"speaker":"[^"]*"' "$out/corpus/train.jsonl" | sort -u | wc -l)" -ge 10 ] || fail "few voices speak"
[ "$(head -1 "$out/curve.csv")" = step,seconds,cer,wer ] || fail "curve.csv begins otherwise"
[ "$(wc -l <"$out/curve.csv")" -gt 3 ] || fail "curve.csv has few lines"
for file in config.json vocabulary.json model.safetensors; do
  [ -s "$out/model/$file" ] || fail "model/$file is missing"
done
"$programs/konkanivani_transcribe" --model "$out/model" "$out"/corpus/audio/*.flac >/dev/null || fail "transcribe"

steps=$(value "$summary" steps)
"$run" --quick --programs "$programs" "$out" >"$work/log" 2>&1 || { cat "$work/log" && fail "a second time"; }
[ "$(value "$summary" steps)" = "$steps" ] || fail "it trained again"
holds "$(value "$summary" cer) == $cer" || fail "the same model was measured otherwise"

[ $failures = 0 ] || exit 1
echo "all well"
