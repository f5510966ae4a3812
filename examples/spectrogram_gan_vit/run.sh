#!/usr/bin/env bash
# run.sh [--quick] [--seed N] [--programs DIR] OUTPUT: a generator of music's spectrograms from nothing in one command.
#
# Makes a corpus of synthetic music, trains a small conditional GAN on it, draws samples, and measures them against clips
# that were held out. Takes 14 minutes on two quiet cores; OUTPUT then holds
#
#   summary.json   frechet_first, frechet_last, kid_last, frechet_noise, condition_ccc_arousal, condition_ccc_valence,
#                  seconds (of all of it, since the last start), ...; "last" are the best averaged weights
#   model/         the trained model; in model/best the averaged weights that were best on validation clips, with the
#                  course of that in model/curve.csv; model_first/: after a few steps
#   samples/       spectrograms with labels, pictures, sound; measures/: pictures of real clips and of their likes
#   corpus/        the clips and their labels; cache/: their spectrograms
#
# A run that was cut off anywhere is simply started again. --quick: a minute of the same, worse. --seed: of weights,
# noise, order and the networks that measure; the corpus stays the same. --programs: the folder of the example's
# programs; without it they are set up and built first, in ${LOOPTORCH_BUILD:-build}.
set -euo pipefail

folder=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
usage="usage: run.sh [--quick] [--seed N] [--programs DIR] OUTPUT"
quick='' seed=1 programs='' output=''
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
{ mkdir -p "$output" && [ -w "$output" ]; } 2>/dev/null || refuse "cannot write to $output"

if [ -z "$programs" ]; then
  [ -e "$folder/../../packaging/build.sh" ] || refuse "this folder was copied out: build it, and name its programs"
  # shellcheck source-path=SCRIPTDIR source=../../packaging/build.sh
  source "$folder/../../packaging/build.sh"
  looptorch_build emotion_corpus gan_train gan_sample gan_measure
  programs=${build:?}/examples/spectrogram_gan_vit
fi
[ -x "$programs/gan_train" ] || refuse "$programs holds no gan_train"

corpus=(--seed 1 --train 480 --validation 80 --test 80)
training=(--seed "$seed" --small --batch-size 8 --gradient-accumulation 1 --epochs 1000
  --generator-rate 1e-3 --discriminator-rate 2e-3 --auxiliary 3 --average 0.99)
first_steps=10 steps=1200 validate_every=100 judge_epochs=8
if [ -n "$quick" ]; then
  corpus=(--seed 1 --train 96 --validation 24 --test 24)
  training+=(--average 0.9)
  first_steps=2 steps=80 validate_every=20
fi
if grep -qw avx512_bf16 /proc/cpuinfo 2>/dev/null; then # where it is not emulated
  training+=(--mixed-precision)
fi

rm -f "$output/summary.json" # what lies there in the end is this run's
start=$SECONDS
export OMP_WAIT_POLICY=passive # threads that wait leave the core to those that read clips
data=(--data "$output/corpus" --cache "$output/cache")
train() { # train FOLDER STEPS VALIDATE_EVERY
  "$programs/gan_train" "${data[@]}" "${training[@]}" --device cpu --output "$output/$1" --max-steps "$2" \
    --validate-every "$3" --snapshot-every 100 --resume auto
}
echo "==> Making the corpus"
"$programs/emotion_corpus" --output "$output/corpus" "${corpus[@]}"
echo "==> Training for $first_steps steps, to compare with"
train model_first $first_steps 0
echo "==> Training for $steps steps"
train model $steps $validate_every
echo "==> Drawing samples"
"$programs/gan_sample" --model "$output/model/best" --output "$output/samples" --seed "$seed" \
  --count 16 --pictures 16 --sounds 4
echo "==> Measuring"
"$programs/gan_measure" "${data[@]}" --output "$output/measures" --seed "$seed" --epochs $judge_epochs \
  "$output/model_first" "$output/model" "$output/model/best"
sed "s/\"seconds\": [0-9.e+-]*/\"seconds\": $((SECONDS - start))/" "$output/measures/summary.json" >"$output/summary.json.partial"
mv "$output/summary.json.partial" "$output/summary.json"
echo "==> Done: the figures are in $output/summary.json, pictures and sound in $output/samples"
