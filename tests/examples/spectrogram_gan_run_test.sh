#!/usr/bin/env bash
# spectrogram_gan_run_test.sh RUN PROGRAMS [--quick]: music by its emotion, drawn and heard, from nothing in one command.
#
# examples/spectrogram_gan_vit/run.sh (RUN) makes a corpus, trains a GAN, draws and measures, and trains a ViT with and without
# what was drawn: what the GAN draws must be nearer to real clips than what it drew at its beginning, than noise, and than real
# clips whose cells were mixed up, and be no copies; at full size (a quarter of an hour; --quick is a minute or two) it must also
# follow the emotion, and the ViT must hear it. Started again it trains no further. PROGRAMS is the folder of the programs.
set -euo pipefail

run=$1 programs=$2 program=gan_train size=("${@:3}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source-path=SCRIPTDIR source=run_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/run_support.sh"

check_refusals "$work/out"
refused "--seed needs a number" --seed two "$work/a"
refused "--gan-steps needs a number" --gan-steps 0 "$work/a"
summary=$work/out/summary.json
figure() { value "$summary" "$1"; }
expect() { holds "$1" || fail "it is not so that $1"; }

make() { "$run" "${size[@]}" --programs "$programs" "$work/out" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }; }
make
cat "$summary"
for key in frechet_first frechet_last frechet_noise kid_first kid_last kid_noise condition_ccc_arousal condition_ccc_valence \
  ccc_arousal ccc_valence ccc_arousal_probe ccc_valence_probe ccc_arousal_synthetic ccc_valence_synthetic seconds; do
  [ -n "$(figure $key)" ] || fail "summary.json has no $key"
done
for worse in first noise shuffled; do
  expect "$(figure frechet_last) < $(figure frechet_$worse) && $(figure kid_last) < $(figure kid_$worse)"
done
expect "$(figure copies) < 0.05"
if [ ${#size[@]} = 0 ]; then
  expect "$(figure condition_ccc_arousal) > 0.8 && $(figure condition_ccc_valence) > 0.5"
  expect "$(figure frechet_last) < 0.3 * $(figure frechet_first) && $(figure spread) > 0.4"
  expect "$(figure ccc_arousal) >= 0.85 && $(figure ccc_valence) >= 0.65"
  expect "$(figure ccc_arousal) > $(figure ccc_arousal_probe) && $(figure ccc_valence) > $(figure ccc_valence_probe)"
fi
for file in model/generator.safetensors model/best/generator.safetensors model/curve.csv samples/labels.csv samples/sample-00000.png samples/sample-00000.wav \
  measures/real-0.png measures/generated-0.png vit/model.safetensors vit_synthetic/curve.csv heard/heard.csv curves/gan.png \
  curves/vit.png; do
  [ -s "$work/out/$file" ] || fail "$file is missing"
done

[ "$(wc -l <"$work/out/heard/heard.csv")" = 9 ] || fail "not eight clips were heard: $(cat "$work/out/heard/heard.csv")"
[ "$(find "$work/out/heard" -name '*.png' | wc -l)" = 8 ] || fail "not eight pictures: $(ls "$work/out/heard")"

grep -vE 'seconds|peak_bytes' "$summary" >"$work/before"
make
grep -q "goes on from $work/out/model/snapshots/step-" "$work/log" || fail "it did not go on from its end"
grep -vE 'seconds|peak_bytes' "$summary" | cmp - "$work/before" || fail "the same model was measured otherwise"

[ $failures = 0 ] || exit 1
echo "all well"
