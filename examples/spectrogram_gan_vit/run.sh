#!/usr/bin/env bash
# run.sh [--quick] [--seed N] [--gan-steps N] [--gpu-memory GB [--pretrained DIR]] [--programs DIR] OUTPUT:
# trains a GAN that generates music for an emotion, and a ViT that predicts the emotion of music, in one command.
#
# Makes a corpus of synthetic music. Trains a small conditional GAN on its spectrograms, samples clips from
# it, and compares them with held-out ones. Trains a small Vision Transformer to predict valence and arousal,
# once on the corpus alone and once with the samples too. OUTPUT then holds
#
#   summary.json     of the GAN: frechet_first, frechet_last, kid_last, frechet_noise, condition_ccc_arousal, ...;
#                    "last" are the best averaged weights. Of the ViT on test clips: ccc_arousal, ccc_valence;
#                    ccc_*_probe of a linear regression on the same clips, ccc_*_synthetic with samples. seconds:
#                    of the whole, since the last start
#   model/           the trained GAN; model/best: the averaged weights that were best on validation clips
#   model_first/     the GAN after a few steps, for comparison
#   samples/         spectrograms with labels, pictures and sound
#   measures/        pictures of test clips, and of samples for the same emotions
#   vit/             the trained ViT; vit_synthetic/: trained with samples too
#   predictions/     predictions of both for all test clips, and the first one's attention in eight of them
#   curves/          learning curves as pictures
#   corpus/          the clips and their labels; cache/: their spectrograms
#
# If a run is cut off, start it again. --quick: takes a minute, with worse results. --seed: of weights, noise,
# order and the networks that measure; the corpus stays the same. --gan-steps: instead of 800. --gpu-memory:
# uses the published sizes, with settings for a card of so many GB; the ViT is then that of --pretrained, a
# Hugging Face folder, or a ViT-B/16 from scratch. --programs: the folder of the example's programs; without
# it they are set up and built first, in ${LOOPTORCH_BUILD:-build}.
set -euo pipefail

folder=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
usage="usage: run.sh [--quick] [--seed N] [--gan-steps N] [--gpu-memory GB [--pretrained DIR]] [--programs DIR] OUTPUT"
quick='' seed=1 gan_steps='' gpu_memory='' pretrained='' programs='' output=''
refuse() {
  printf 'error: %s; %s\n' "$1" "$usage" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit ;;
    --quick) quick=1 ;;
    --seed)
      [[ ${2-} =~ ^[0-9]+$ ]] || refuse "--seed needs a number"
      seed=$2
      shift
      ;;
    --gan-steps)
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || refuse "--gan-steps needs a number"
      gan_steps=$2
      shift
      ;;
    --gpu-memory)
      [[ ${2-} =~ ^[1-9][0-9]{0,5}$ ]] || refuse "--gpu-memory needs a number of GB"
      gpu_memory=$2
      shift
      ;;
    --pretrained)
      [ -n "${2-}" ] || refuse "--pretrained needs a folder"
      pretrained=$2
      shift
      ;;
    --programs)
      [ -n "${2-}" ] || refuse "--programs needs a folder"
      programs=$2
      shift
      ;;
    -*) refuse "there is no option $1" ;;
    *)
      [ -z "$output" ] || refuse "one output folder at most"
      output=$1
      ;;
  esac
  shift
done
[ -n "$output" ] || refuse "no output folder"
if [ -n "$gpu_memory" ]; then
  [ -z "$quick" ] || refuse "--quick and --gpu-memory each say the sizes: choose one"
  [ "$gpu_memory" -ge 8 ] || refuse "--gpu-memory: the smallest card with settings has 8 GB, not $gpu_memory"
fi
if [ -n "$pretrained" ]; then
  [ -n "$gpu_memory" ] || refuse "--pretrained needs --gpu-memory: without it the ViT is a small one, from scratch"
  [ -e "$pretrained/config.json" ] || refuse "--pretrained: $pretrained holds no config.json"
fi
{ mkdir -p "$output" && [ -w "$output" ]; } 2>/dev/null || refuse "cannot write to $output"

if [ -z "$programs" ]; then
  [ -e "$folder/../../packaging/build.sh" ] || refuse "this folder was copied out: build it, and name its programs"
  # shellcheck source-path=SCRIPTDIR source=../../packaging/build.sh
  source "$folder/../../packaging/build.sh"
  looptorch_build emotion_corpus gan_train gan_sample gan_measure vit_train vit_predict draw_curves
  programs=${build:?}/examples/spectrogram_gan_vit
fi
for program in gan_train vit_train; do
  [ -x "$programs/$program" ] || refuse "$programs holds no $program"
done

corpus=(--seed 1 --train 480 --validation 80 --test 80)
training=(--seed "$seed" --epochs 1000 --auxiliary 3 --average 0.99)
vit_training=(--seed "$seed" --spec-augment)
drawing=(--seed "$seed")
first_steps=10 steps=800 validate_every=100 judge_epochs=8 device=cpu
if [ -n "$gpu_memory" ]; then
  training+=(--gpu-memory "$gpu_memory" --mixed-precision)
  vit_training+=(--gpu-memory "$gpu_memory" --mixed-precision)
  if [ -n "$pretrained" ]; then vit_training+=(--pretrained "$pretrained"); else vit_training+=(--from-scratch); fi
  drawing+=(--gpu-memory "$gpu_memory")
  device=auto
else
  training+=(--small --batch-size 8 --gradient-accumulation 1 --generator-rate 1e-3 --discriminator-rate 2e-3)
  vit_training+=(--preset small)
  drawing+=(--count 240)
  if grep -qw avx512_bf16 /proc/cpuinfo 2>/dev/null; then # where it is not emulated
    training+=(--mixed-precision)
  fi
fi
if [ -n "$quick" ]; then
  corpus=(--seed 1 --train 96 --validation 24 --test 24)
  training+=(--average 0.9)
  vit_training+=(--epochs 3)
  drawing+=(--count 24)
  first_steps=2 steps=48 validate_every=12 judge_epochs=4
fi
[ -z "$gan_steps" ] || steps=$gan_steps

rm -f "$output/summary.json" # what lies there in the end is this run's
start=$SECONDS
export OMP_WAIT_POLICY=passive # threads that wait leave the core to those that read clips
data=(--data "$output/corpus" --cache "$output/cache")
train() { # train FOLDER STEPS VALIDATE_EVERY
  "$programs/gan_train" "${data[@]}" "${training[@]}" --device "$device" --output "$output/$1" --max-steps "$2" \
    --validate-every "$3" --snapshot-every 100 --resume auto
}
echo "==> Making the corpus"
"$programs/emotion_corpus" --output "$output/corpus" "${corpus[@]}"
echo "==> Training for $first_steps steps, to compare with"
train model_first $first_steps 0
echo "==> Training for $steps steps"
train model "$steps" $validate_every
echo "==> Drawing samples"
"$programs/gan_sample" --model "$output/model/best" --output "$output/samples" "${drawing[@]}" --pictures 16 --sounds 4
echo "==> Measuring"
"$programs/gan_measure" "${data[@]}" --output "$output/measures" --seed "$seed" --epochs $judge_epochs \
  "$output/model_first" "$output/model" "$output/model/best"
train_vit() { # train_vit FOLDER FLAG...
  "$programs/vit_train" "${data[@]}" "${vit_training[@]}" --device "$device" --output "$output/$1" "${@:2}" \
    --snapshot-every 100 --resume auto
}
echo "==> Training a ViT"
train_vit vit
echo "==> Training a ViT with the samples too"
train_vit vit_synthetic --generated "$output/samples"
echo "==> Predicting test clips"
mapfile -t clips < <(awk -F, -v audio="$output/corpus/audio" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i ~ /split/) column = i }
  $column ~ /test/ { print audio "/" $1 ".flac" }' "$output/corpus/annotations.csv")
mkdir -p "$output/predictions" "$output/curves"
predict() { # predict MODEL FLAG...
  "$programs/vit_predict" --model "$output/$1" --device "$device" --format csv "${@:2}"
}
for model in vit vit_synthetic; do
  predict $model "${clips[@]}" >"$output/predictions/$model.csv"
done
predict vit --attention "$output/predictions" "${clips[@]:0:8}" >/dev/null
"$programs/draw_curves" --output "$output/curves/gan.png" --columns frechet --title "distance to validation clips" \
  "$output/model/curve.csv"
"$programs/draw_curves" --output "$output/curves/vit.png" --columns ccc_valence,ccc_arousal --x epoch \
  --title "concordance on validation clips" "$output/vit/curve.csv" "$output/vit_synthetic/curve.csv"

figure() { sed -n "s/^ *\"$2\": *\([-0-9.e+]*\),\{0,1\}\$/\1/p" "$output/$1/summary.json"; } # figure FOLDER KEY
{
  grep -vE '^\}|"seconds"' "$output/measures/summary.json" | sed '$s/,*$/,/'
  for emotion in arousal valence; do
    printf '  "ccc_%s": %s,\n  "ccc_%s_probe": %s,\n  "ccc_%s_synthetic": %s,\n' $emotion "$(figure vit ccc_$emotion)" \
      $emotion "$(figure vit ccc_${emotion}_probe)" $emotion "$(figure vit_synthetic ccc_$emotion)"
  done
  printf '  "seconds": %s\n}\n' $((SECONDS - start))
} >"$output/summary.json.partial"
mv "$output/summary.json.partial" "$output/summary.json"
echo "==> Done: figures in $output/summary.json, pictures and sound in $output/samples, predictions in $output/predictions"
