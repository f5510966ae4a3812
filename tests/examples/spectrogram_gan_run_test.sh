#!/usr/bin/env bash
# spectrogram_gan_run_test.sh RUN PROGRAMS [--quick]: tests the script that trains the GAN and the ViT from nothing.
#
# examples/spectrogram_gan_vit/run.sh (RUN) makes a corpus, trains a GAN, draws and measures, and trains a ViT with and
# without what was drawn: what the GAN draws must be nearer to real clips than what it drew at its beginning, than
# noise, and than real clips whose cells were mixed up, and be no copies; at full size (a quarter of an hour; --quick is
# a minute or two) it must also follow the emotion, and the ViT must predict it. Started again it trains no further, and
# at full size measures the same. With --gpu-memory a card's settings reach every program that has them. PROGRAMS is the
# folder of the programs.
set -euo pipefail

run=$(realpath -- "$1") programs=$(realpath -- "$2") program=gan_train size=("${@:3}")
tested=80
[ ${#size[@]} = 0 ] || tested=24
# shellcheck source-path=SCRIPTDIR source=run_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/run_support.sh"

script_refuses_all "$work/out"
script_refused "--seed needs a number" --seed two "$work/a"
script_refused "--gan-steps needs a number" --gan-steps 0 "$work/a"
script_refused "--gpu-memory needs a number of GB" --gpu-memory large "$work/a"
script_refused "the smallest card with settings has 8 GB, not 6" --gpu-memory 6 "$work/a"
script_refused "--quick and --gpu-memory each say the sizes" --quick --gpu-memory 8 "$work/a"
script_refused "--pretrained needs --gpu-memory" --pretrained "$work" "$work/a"
script_refused "holds no config.json" --gpu-memory 8 --pretrained "$work" "$work/a"

# A card's settings reach all programs that have them: stand-ins say how they were called.
mkdir "$work/programs" "$work/folder"
echo '{}' >"$work/folder/config.json"
cat >"$work/programs/gan_train" <<'END'
#!/usr/bin/env bash
echo "$(basename "$0") $*" >>"${0%/*}/calls"
while [ $# -gt 0 ]; do
  [ "$1" != --output ] || output=$2
  shift
done
[[ $0 != *draw_curves ]] && [[ $0 != *vit_predict ]] || exit 0
mkdir -p "$output"
printf '{\n  "seconds": 1\n}\n' >"$output/summary.json"
printf 'song_id,split\n1,test\n' >"$output/annotations.csv"
END
chmod +x "$work/programs/gan_train"
for name in emotion_corpus gan_sample gan_measure vit_train vit_predict draw_curves; do
  cp "$work/programs/gan_train" "$work/programs/$name"
done
called() { # called PATTERN TIMES
  [ "$(grep -cE -- "$1" "$work/programs/calls")" = "$2" ] || fail "not $2 times \"$1\": $(cat "$work/programs/calls")"
}
"$run" --gpu-memory 40 --pretrained "$work/folder" --programs "$work/programs" "$work/card" >/dev/null ||
  fail "--gpu-memory 40"
called "^gan_train .*--gpu-memory 40 .*--device auto" 2
called "^gan_sample .*--gpu-memory 40" 1
called "^vit_train .*--gpu-memory 40 .*--pretrained $work/folder .*--device auto" 2
called "--small|--preset|--batch-size|--count" 0
rm "$work/programs/calls"
"$run" --gpu-memory 8 --programs "$work/programs" "$work/card" >/dev/null || fail "--gpu-memory 8"
called "^vit_train .*--gpu-memory 8 .*--from-scratch" 2

summary=$work/out/summary.json
figure() { value "$summary" "$1"; }
expect() { is_true "$1" || fail "it is not so that $1"; }

[ ${#size[@]} = 0 ] || size+=(--gan-steps 24) # half of --quick's
make() { script_runs "${size[@]}" --programs "$1" "$work/out"; }
make "$programs"
cat "$summary"
has_numbers "$summary" frechet_first frechet_last frechet_noise kid_first kid_last kid_noise condition_ccc_arousal \
  condition_ccc_valence ccc_arousal ccc_valence ccc_arousal_probe ccc_valence_probe ccc_arousal_synthetic \
  ccc_valence_synthetic seconds
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
has_files "$work/out" model/generator.safetensors model/best/generator.safetensors model/curve.csv samples/labels.csv \
  samples/sample-00000.png samples/sample-00000.wav measures/real-0.png measures/generated-0.png vit/model.safetensors \
  vit_synthetic/curve.csv predictions/vit.csv curves/gan.png curves/vit.png

# The predictions of all test clips give the figures that vit_train measured.
python3 "$(dirname -- "$run")/../../tests/bench/generated_clips.py" "$work/out" >table || fail "generated_clips.py"
# predicted_alike ROW MODEL KEY: the first word of a row of the table, the model that predicted, the field ccc_KEY.
predicted_alike() {
  local printed
  [ "$(wc -l <"out/predictions/$2.csv")" = $((tested + 1)) ] || fail "predictions/$2.csv has not $tested clips"
  printed=$(awk -F'|' -v row="$1" '{ split($2, words, " ") } words[1] == row { print $3 }' table)
  expect "(${printed:-9} - $(figure "ccc_$3")) ^ 2 < 1e-6"
}
predicted_alike valence vit valence
predicted_alike arousal vit arousal
predicted_alike valence, vit_synthetic valence_synthetic
predicted_alike arousal, vit_synthetic arousal_synthetic
[ "$(find "$work/out/predictions" -name '*.png' | wc -l)" = 8 ] ||
  fail "not eight pictures: $(ls "$work/out/predictions")"

# Started again. With --quick nothing is drawn, measured and predicted a second time: it must train no further.
weights() { # prints a checksum of each file of weights
  cd "$work/out"
  sha256sum model{_first,}/{generator,discriminator}.safetensors model/best/*.safetensors \
    {vit,vit_synthetic}/model.safetensors
}
grep -vE 'seconds|peak_bytes' "$summary" >"$work/before"
(weights) >"$work/trained"
again=$programs
if [ ${#size[@]} != 0 ]; then
  again=$work/programs
  ln -sf "$programs"/{emotion_corpus,gan_train,vit_train} "$again"
  for name in gan_sample gan_measure vit_predict draw_curves; do printf '#!/bin/sh\n' >"$again/$name"; done
fi
make "$again"
holds log "resumes from $work/out/model/snapshots/step-"
(weights) | cmp - "$work/trained" || fail "it trained again"
grep -vE 'seconds|peak_bytes' "$summary" | cmp - "$work/before" || fail "the same model was measured otherwise"
