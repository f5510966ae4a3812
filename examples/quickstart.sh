#!/usr/bin/env bash
# quickstart.sh [--quick] [--device NAME] [--ranks N] [--programs DIR] [OUTPUT]:
# sets up, builds and fine-tunes Whisper, in one command.
#
# Fine-tunes OpenAI's Whisper tiny.en on air-traffic phraseology, which it gets mostly wrong: installs what is missing
# (see packaging/setup.sh), builds the example programs, makes a corpus with a speech synthesiser, trains, and measures
# the word error rate before and after. The result lies in OUTPUT (default: whisper-atc):
#
#   summary.json       wer_before, wer_after, normalizer, steps, seconds, peak_bytes
#   model/             the fine-tuned model, a Hugging Face folder
#   corpus/            the clips, and manifests that pair them with their text
#   whisper-tiny.en/   the model as OpenAI published it
#
# A run that was cut off anywhere is simply started again. Builds in ${LOOPTORCH_BUILD:-build}. LOOPTORCH_LIBTORCH=2.7.1
# takes another version of LibTorch, for older GPUs and drivers, and builds in build-libtorch-2.7.1.
#
# --device: where to train: cpu, cuda, cuda:1, or auto (default), an accelerator if there is one. --quick: two steps on
# four clips, which shows that everything works and teaches next to nothing. --ranks: trains on so many processes, each with
# its share of the clips: a step then has so many batches. --programs: the folder of the example's programs, which are then
# neither set up nor built; LOOPTORCH_WHISPER_CT2 names the published model, as packaging/setup.sh prints it.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../packaging/whisper_run.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../packaging/whisper_run.sh"

read_arguments whisper-atc "$@"
provide_programs whisper_import whisper_corpus whisper_finetune whisper_transcribe

corpus=(--seed 1) training=(--fallback) extent='one epoch of 256 clips'
if [ -n "$quick" ]; then
  corpus+=(--train 4 --validation 2 --test 2)
  training=(--batch-size 2 --max-steps 2) extent='two steps of two clips'
fi

import_tiny_en

say "Making the corpus: air-traffic phraseology in four accents"
"$programs/whisper_corpus" --output "$output/corpus" --jobs "${LOOPTORCH_JOBS:-$(nproc)}" "${corpus[@]}"

say "Fine-tuning: $extent"
"${launch[@]}" "$programs/whisper_finetune" --model "$output/whisper-tiny.en" --output "$output/model" --device "$device" \
  --train "$output/corpus/train.jsonl" --validation "$output/corpus/validation.jsonl" \
  --test "$output/corpus/test.jsonl" --whole-windows "${training[@]}"
cp "$output/model/summary.json" "$output/summary.json.partial"
mv "$output/summary.json.partial" "$output/summary.json"

say "Done: the figures are in $output/summary.json; try the model on recordings of your own:"
printf '    %q --model %q FILE...\n' "$programs/whisper_transcribe" "$output/model"
