#!/usr/bin/env bash
# run.sh [--quick] [--programs DIR] OUTPUT [-- FLAG...]: makes a Konkani speech recogniser from nothing, in one command.
#
# Makes a corpus of synthetic speech, trains the minimal size on the CPU, and measures it on sentences that training
# never saw. Meant to take 20 minutes on two cores; OUTPUT then holds
#
#   summary.json   cer, wer (both of joint decoding), cer_untrained, clips, steps, seconds (of all three, since the last start)
#   curve.csv      step, seconds (since the last start), cer, wer on the validation sentences after each epoch
#   model/         the recogniser: config.json, vocabulary.json, model.safetensors
#   corpus/        the clips and their manifests; cache/: their log-mel frames
#
# A run that was cut off anywhere is simply started again. --quick: a minute, a smaller model, higher error rates.
# FLAG...: further flags of konkanivani_train.
# --programs: the folder of the example's programs; without it they are set up and built first, in
# ${LOOPTORCH_BUILD:-build}.
set -euo pipefail

folder=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
usage="usage: run.sh [--quick] [--programs DIR] OUTPUT [-- FLAG...]"
quick='' programs='' output=''
refuse() {
  printf 'error: %s; %s\n' "$1" "$usage" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit ;;
    --quick) quick=1 ;;
    --programs)
      [ -n "${2-}" ] || refuse "--programs needs a folder"
      programs=$2
      shift
      ;;
    --) shift && break ;;
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
  looptorch_build konkanivani_corpus konkanivani_train konkanivani_evaluate
  programs=${build:?}/examples/konkanivani
fi
[ -x "$programs/konkanivani_train" ] || refuse "$programs holds no konkanivani_train"

corpus=(--seed 1 --train 10000 --validation 100 --test 200)
training=() # konkanivani_train's own recipe
if [ -n "$quick" ]; then
  corpus=(--seed 1 --train 600 --validation 20 --test 100 --min-words 2 --max-words 3 --clean)
  training=(--d-model 96 --encoder-layers 2 --decoder-layers 1 --batch-frames 1600 --epochs 8
    --learning-rate 3e-3 --warmup-steps 50)
fi
if grep -qw avx512_bf16 /proc/cpuinfo 2>/dev/null; then # where it is not emulated
  training+=(--mixed-precision)
fi

value() { # value FILE KEY: a number of a JSON file with a line a key
  sed -n "s/^ *\"$2\": *\([-0-9.e+]*\),\{0,1\}\$/\1/p" "$1"
}

rm -f "$output/summary.json" # what lies there in the end is this run's
start=$SECONDS
export OMP_WAIT_POLICY=passive # threads that wait leave the core to those that read clips
echo "==> Making the corpus"
"$programs/konkanivani_corpus" --output "$output/corpus" "${corpus[@]}"
echo "==> Training"
"$programs/konkanivani_train" --data "$output/corpus" --output "$output/model" --device cpu --workers 1 --seed 1 \
  --cache "$output/cache" --snapshot-every 200 --resume auto "${training[@]}" "$@"
echo "==> Measuring by joint decoding"
"$programs/konkanivani_evaluate" --model "$output/model" --manifest "$output/corpus/test.jsonl" --device cpu \
  --decoding joint --summary "$output/evaluation.json"
cp "$output/model/curve.csv" "$output/curve.csv"

trained=$output/model/summary.json evaluated=$output/evaluation.json
cat >"$output/summary.json.partial" <<EOF
{
  "cer": $(value "$evaluated" cer),
  "wer": $(value "$evaluated" wer),
  "cer_untrained": $(value "$trained" cer_untrained),
  "clips": $(value "$evaluated" clips),
  "steps": $(value "$trained" steps),
  "seconds": $((SECONDS - start))
}
EOF
rm "$evaluated"
mv "$output/summary.json.partial" "$output/summary.json"
cat "$output/summary.json"
echo "==> Done; try the model on recordings of your own:"
echo "    $programs/konkanivani_transcribe --model $output/model FILE..."
