#!/usr/bin/env bash
# quickstart.sh [OUTPUT]: set-up, build and the main job in one command.
#
# Fine-tunes OpenAI's Whisper tiny.en on air-traffic phraseology, which it gets mostly wrong, on the CPU: installs what
# is missing (see packaging/setup.sh), builds the example programs, makes a corpus with a speech synthesiser, trains,
# and measures the word error rate before and after. The result lies in OUTPUT (default: whisper-atc):
#
#   summary.json       wer_before, wer_after, normalizer, steps, seconds, peak_bytes
#   model/             the fine-tuned model, a Hugging Face folder
#   corpus/            the clips, and manifests that pair them with their text
#   whisper-tiny.en/   the model as OpenAI published it
#
# A run that was cut off anywhere is simply started again. Builds in ${LOOPTORCH_BUILD:-build}.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../packaging/build.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../packaging/build.sh"

case ${1-} in
  --help) show_help "${BASH_SOURCE[0]}" ;;
  -*) fail "there is no option $1; usage: quickstart.sh [OUTPUT]" ;;
esac
[ $# -le 1 ] || fail "one output folder at most; usage: quickstart.sh [OUTPUT]"
output=${1:-whisper-atc}
{ mkdir -p "$output" && [ -w "$output" ]; } 2>/dev/null || fail "cannot write to $output; name another folder"
rm -f "$output/summary.json" # what lies there in the end is this run's

looptorch_build whisper_import whisper_corpus whisper_finetune whisper_transcribe
programs=$build/examples/whisper

say "Importing Whisper tiny.en"
"$programs/whisper_import" --ctranslate2 "$LOOPTORCH_WHISPER_CT2" --output "$output/whisper-tiny.en"

say "Making the corpus: air-traffic phraseology in four accents"
"$programs/whisper_corpus" --output "$output/corpus" --seed 1 --jobs "$LOOPTORCH_JOBS"

say "Fine-tuning: one epoch of 256 clips"
"$programs/whisper_finetune" --model "$output/whisper-tiny.en" --output "$output/model" \
  --train "$output/corpus/train.jsonl" --validation "$output/corpus/validation.jsonl" \
  --test "$output/corpus/test.jsonl"
cp "$output/model/summary.json" "$output/summary.json.partial"
mv "$output/summary.json.partial" "$output/summary.json"

say "Done: the figures are in $output/summary.json; try the model on recordings of your own:"
echo "    $programs/whisper_transcribe --model $output/model FILE..."
