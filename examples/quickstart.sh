#!/usr/bin/env bash
# quickstart.sh [OUTPUT]: set-up, build and the main job in one command.
#
# Fine-tunes OpenAI's Whisper tiny.en on air-traffic phraseology, which it has never heard, on the CPU: gets what is
# missing (see packaging/setup.sh), builds the example programs, makes a corpus with a speech synthesiser, trains,
# and measures the word error rate before and after. Minutes in all; the result lies in OUTPUT (default: whisper-atc):
#
#   summary.json   wer_before, wer_after, steps, seconds, peak_bytes
#   model/         the fine-tuned model, a Hugging Face folder
#   corpus/        the clips and their transcripts
#
# It can be cut off anywhere and started again; a second run begins the training anew.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../packaging/build.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../packaging/build.sh"

case ${1-} in
  --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit ;;
  -*) fail "there is no option $1; usage: quickstart.sh [OUTPUT]" ;;
esac
[ $# -le 1 ] || fail "one output folder at most; usage: quickstart.sh [OUTPUT]"
output=${1:-whisper-atc}
{ mkdir -p "$output" && [ -w "$output" ]; } 2>/dev/null || fail "cannot write to $output; name another folder"
output=$(cd -- "$output" && pwd)
rm -f "$output/summary.json" # so that what lies there in the end is this run's

looptorch_build whisper_import whisper_corpus whisper_finetune whisper_transcribe
