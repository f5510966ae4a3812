#!/usr/bin/env bash
# run.sh [--short] [OUTPUT]: corpus, training, samples and measures in one command.
#
# Installs what is missing, builds the programs, makes a corpus of synthetic music, trains a small conditional GAN on it,
# draws samples, and measures them against clips that were held out. The result lies in OUTPUT (default: spectrogram-gan):
#
#   summary.json   frechet_first, frechet_last, frechet_noise, condition_ccc_arousal, condition_ccc_valence, seconds, ...
#   model/         the trained model; model_first/: after a few steps
#   samples/       spectrograms with labels, pictures, sound
#   corpus/        the clips and their labels
#
# --short does everything once, on next to nothing: for tests. Builds in ${LOOPTORCH_BUILD:-build}; LOOPTORCH_PROGRAMS
# names a folder of built programs instead.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../packaging/build.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../packaging/build.sh"

corpus=(--train 480 --validation 80 --test 80)
model=(--small --batch_size 8 --gradient_accumulation_steps 1)
rates=(--generator_rate 1e-3 --discriminator_rate 2e-3 --auxiliary 3 --average 0.98)
first_steps=10 steps=400 judge_epochs=8
while [ $# -gt 0 ]; do
  case $1 in
    --help) show_help "${BASH_SOURCE[0]}" ;;
    --short)
      corpus=(--train 6 --validation 2 --test 3)
      model=(--small --channels 8 --batch_size 2 --gradient_accumulation_steps 1)
      first_steps=1 steps=3 judge_epochs=1
      ;;
    -*) fail "there is no option $1; usage: run.sh [--short] [OUTPUT]" ;;
    *) [ -z "${output-}" ] && output=$1 || fail "one output folder at most; usage: run.sh [--short] [OUTPUT]" ;;
  esac
  shift
done
output=${output:-spectrogram-gan}
{ mkdir -p "$output" && [ -w "$output" ]; } 2>/dev/null || fail "cannot write to $output; name another folder"
rm -f "$output/summary.json" # what lies there in the end is this run's

programs=${LOOPTORCH_PROGRAMS-}
if [ -z "$programs" ]; then
  looptorch_build emotion_corpus gan_train gan_sample gan_measure
  programs=$build/examples/spectrogram_gan_vit
fi
began=$SECONDS
data=(--data "$output/corpus" --cache "$output/cache")

say "Making the corpus"
"$programs/emotion_corpus" --output "$output/corpus" --seed 1 "${corpus[@]}"

say "Training for $first_steps steps, to compare with"
"$programs/gan_train" "${data[@]}" "${model[@]}" "${rates[@]}" --output "$output/model_first" --max_steps $first_steps

say "Training for $steps steps"
"$programs/gan_train" "${data[@]}" "${model[@]}" "${rates[@]}" --output "$output/model" --epochs 1000 --max_steps $steps

say "Drawing samples"
"$programs/gan_sample" --model "$output/model" --output "$output/samples" --count 16 --pictures 16 --sounds 4

say "Measuring"
"$programs/gan_measure" "${data[@]}" --output "$output/measures" --epochs $judge_epochs "$output/model_first" "$output/model"
sed "s/\"seconds\": [0-9.e+-]*/\"seconds\": $((SECONDS - began))/" "$output/measures/summary.json" >"$output/summary.json.partial"
mv "$output/summary.json.partial" "$output/summary.json"

say "Done: the figures are in $output/summary.json, pictures and sound in $output/samples"
