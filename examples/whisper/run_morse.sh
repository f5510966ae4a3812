#!/usr/bin/env bash
# run_morse.sh [--quick] [--device NAME] [--ranks N] [--programs DIR] [OUTPUT]:
# teaches Whisper tiny.en Morse code, in one command.
#
# Whisper learns nothing from long clips at once. So it begins with one to three characters a clip, goes on with up to
# seven, and ends with what operators key: calls, reports, words and code groups in up to 8 s, at 15 to 25 words a minute.
# Takes some 26 minutes of processor time (RESULTS.md has the curve). The result lies in OUTPUT (default: whisper-morse):
#
#   summary.json       cer, wer (of texts as they are, blanks counted), clips, steps, seconds (since the last start)
#   characters/, groups/, phrases/   the model after each stage, each with its curve.csv; the last is the result
#   corpus/            the clips of each stage, and manifests that pair them with their text
#   whisper-tiny.en/   the model as OpenAI published it
#
# A run that was cut off anywhere is simply started again. --quick: a few minutes, which shows that characters are learnt.
# --device: where to train: cpu, cuda, cuda:1, or auto (default), an accelerator if there is one. --ranks: trains on so many
# processes; a step then has so many batches. --programs: the folder of
# the example's programs, which are then neither set up nor built; LOOPTORCH_WHISPER_CT2 names the published model, as
# packaging/setup.sh prints it.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../../packaging/whisper_run.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../packaging/whisper_run.sh"

read_arguments whisper-morse "$@"
start=$SECONDS
provide_programs whisper_import morse_corpus whisper_finetune whisper_evaluate whisper_transcribe
export OMP_WAIT_POLICY=passive # threads that wait leave the core to those that read clips

precision=()
if grep -qw avx512_bf16 /proc/cpuinfo 2>/dev/null; then precision=(--bf16); fi # where it is not emulated
jobs=${LOOPTORCH_JOBS:-$(nproc)}
model=$output/whisper-tiny.en

# stage NAME SECONDS BATCH STEPS QUICK_STEPS FLAG...: trains `model` further on clips of up to so many SECONDS that morse_corpus
# makes by these FLAGs, as many as the STEPS need, each seen once. `model` is then the result. One that is finished is left
# alone, except for a rehearsal's when this is none.
stage() {
  local name=$1 seconds=$2 batch=$3 steps=$4 corpus=$output/corpus/$1
  [ -z "$quick" ] || steps=$5
  shift 5
  [ -n "$quick" ] || grep -qsx "max-steps=$steps" "$output/$name/run.conf" || rm -f "$output/$name/summary.json"
  if [ ! -s "$output/$name/summary.json" ]; then
    say "Stage $name: $steps steps of $batch clips of up to $seconds s"
    "$programs/morse_corpus" --output "$corpus" --seed 1 --clips $((steps * batch * 5 / 4 + 40)) --conditions clean \
      --slowest 15 --fastest 25 --longest "$seconds" --noise-share 0.03 --jobs "$jobs" "$@"
    head -n 65 "$corpus/validation.csv" >"$corpus/some.csv"
    "${launch[@]}" "$programs/whisper_finetune" --model "$model" --output "$output/$name" --device "$device" "${precision[@]}" \
      --train "$corpus/train.csv" --validation "$corpus/some.csv" --max-audio-seconds "$seconds" \
      --batch-size "$batch" --max-steps "$steps" --learning-rate 2e-4 --warmup-steps 10 --spell --all-signs --empty-texts \
      --normalizer characters --validate-every "$((steps < 50 ? steps : 50))" --snapshot-every 50 --resume auto --workers 1 --seed 1
    rm -rf "$output/$name/snapshots"
  fi
  model=$output/$name
}

value() { # value FILE KEY: a number of a JSON file with a line a key
  sed -n "s/^ *\"$2\": *\([-0-9.e+]*\),\{0,1\}\$/\1/p" "$1"
}

import_tiny_en
stage characters 1.2 32 100 100 --characters 3 --shortest 0.5
stage groups 3 16 100 4 --characters 7 --shortest 1
stage phrases 8 8 400 4 --shortest 1.5

say "Measuring clips whose texts were not learnt"
measured=$output/corpus/phrases/measured.csv
head -n 201 "$output/corpus/phrases/test.csv" >"$measured"
"$programs/whisper_evaluate" --model "$model" --manifest "$measured" --summary "$output/evaluation.json" --device "$device" \
  --max-audio-seconds 8 --normalizer none --empty-texts --workers 1

steps=0
for name in characters groups phrases; do
  steps=$((steps + $(value "$output/$name/summary.json" steps)))
done
cat >"$output/summary.json.partial" <<END
{
  "cer": $(value "$output/evaluation.json" cer),
  "wer": $(value "$output/evaluation.json" wer),
  "clips": $(value "$output/evaluation.json" clips),
  "steps": $steps,
  "seconds": $((SECONDS - start))
}
END
rm "$output/evaluation.json"
mv "$output/summary.json.partial" "$output/summary.json"
cat "$output/summary.json"
say "Done: try the model on recordings of your own:"
printf '    %q --model %q --max-audio-seconds 8 FILE...\n' "$programs/whisper_transcribe" "$model"
