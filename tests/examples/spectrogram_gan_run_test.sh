#!/usr/bin/env bash
# spectrogram_gan_run_test.sh RUN PROGRAMS [--quick]: a generator of music's spectrograms from nothing in one command.
#
# examples/spectrogram_gan_vit/run.sh (RUN) makes a corpus, trains, draws and measures: what the model draws must be nearer to
# real clips than what it drew at its beginning, than noise, and than real clips whose cells were mixed up, and be no copies; at
# full size (ten minutes; --quick is one) it must also follow the emotion. Started again it trains no further. PROGRAMS is
# the folder of the programs.
set -euo pipefail

run=$1 programs=$2 size=("${@:3}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
summary=$work/out/summary.json
value() { sed -n "s/^ *\"$1\": *\([-0-9.e+]*\),\{0,1\}\$/\1/p" "$summary"; }
holds() { awk "BEGIN { exit !($1) }" || fail "it is not so that $1"; } # holds CONDITION, of numbers

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
mkdir "$work/out"
echo kept >"$summary"
refused "holds no gan_train" --programs "$work" "$work/out"
[ "$(cat "$summary")" = kept ] || fail "a refused run.sh took the summary away"

make() { "$run" "${size[@]}" --programs "$programs" "$work/out" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }; }
make
cat "$summary"
for key in frechet_first frechet_last frechet_noise condition_ccc_arousal condition_ccc_valence seconds; do
  [ -n "$(value $key)" ] || fail "summary.json has no $key"
done
for worse in first noise shuffled; do holds "$(value frechet_last) < $(value frechet_$worse)"; done
holds "$(value copies) < 0.05"
if [ ${#size[@]} = 0 ]; then
  holds "$(value condition_ccc_arousal) > 0.8 && $(value condition_ccc_valence) > 0.5"
  holds "$(value frechet_last) < 0.3 * $(value frechet_first) && $(value spread) > 0.4"
fi
for file in model/generator.safetensors samples/labels.csv samples/sample-00000.png samples/sample-00000.wav \
  measures/real-0.png measures/generated-0.png; do
  [ -s "$work/out/$file" ] || fail "$file is missing"
done

grep -v seconds "$summary" >"$work/before"
make
grep -q "goes on from $work/out/model/snapshots/step-" "$work/log" || fail "it did not go on from its end"
grep -v seconds "$summary" | cmp - "$work/before" || fail "the same model was measured otherwise"

[ $failures = 0 ] || exit 1
echo "all well"
