#!/usr/bin/env bash
# whisper_timestamps_test.sh PROGRAMS MODEL: tests that a model tuned on windows with timestamps has not forgotten
# them.
#
# Clips of the corpus, their silent ends cut off, are glued with pauses into talks of up to 29 s, so that the time of
# each sentence is known. MODEL, a Hugging Face folder of tiny.en, is tuned on some with half of the targets timed, and
# once more with none; held-out talks are then transcribed. The error of a time is its distance to the nearest one
# transcribed, in seconds. Takes some 15 minutes of CPU. Prints the figures that the README gives.
set -euo pipefail

programs=$(cd -- "$1" && pwd)
model=$(cd -- "$2" && pwd)
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"

runs whisper_corpus --output corpus --train 144 --validation 1 --test 36
pauses=(0.4 0.9 0.6 1.3 0.5 0.8)

# glue MANIFEST FOLDER: talks of six clips; each has a transcript, and its times in FOLDER.times, a line a time.
glue() {
  local talk=0 number=0 at=0.3 audio text parts=() entries=''
  mkdir "$2"
  sox -n -r 16000 -b 16 -c 1 begin.wav trim 0 "$at"
  while IFS=$'\t' read -r audio text; do
    local pause=${pauses[$((number % 6))]} clip=$2.$number.wav silence=$2.$number.silence.wav seconds
    sox "corpus/$audio" -r 16000 -b 16 "$clip" silence 1 0.02 1% reverse silence 1 0.02 1% reverse
    seconds=$(soxi -D "$clip")
    sox -n -r 16000 -b 16 -c 1 "$silence" trim 0 "$pause"
    entries+="${entries:+,}{\"text\": \"$text\", \"start\": $at, \"duration\": $seconds}"
    awk -v t="$2/$talk" -v a="$at" -v s="$seconds" 'BEGIN { print t, a; print t, a + s }' >>"$2.times"
    at=$(awk -v a="$at" -v s="$seconds" -v p="$pause" 'BEGIN { print a + s + p }')
    parts+=("$clip" "$silence")
    number=$((number + 1))
    [ $((number % 6)) = 0 ] || continue
    sox begin.wav "${parts[@]}" "$2/$talk.wav"
    printf '[%s]\n' "$entries" >"$2/$talk.json"
    talk=$((talk + 1)) at=0.3 parts=() entries=''
  done < <(sed -nE 's/^\{"audio_filepath":"([^"]*)","text":"([^"]*)".*/\1\t\2/p' "$1")
  rm -f "$2".*.wav
}
glue corpus/train.jsonl talks
glue corpus/test.jsonl heldout

# error MODEL: the mean and the median error of the held-out talks' times.
error() {
  rm -rf found && mkdir found
  runs whisper_transcribe --model "$1" --timestamps --no-fallback --output-format tsv --output-dir found heldout/*.wav
  for talk in found/*.tsv; do
    awk -F '\t' -v t="heldout/$(basename "$talk" .tsv)" 'NR > 1 { print t, $1 / 1000; print t, $2 / 1000 }' "$talk"
  done >found.times
  awk 'NR == FNR { found[$1] = found[$1] " " $2; next }
       { n = split(found[$1], times, " "); best = 30
         for (i = 1; i <= n; ++i) { d = times[i] - $2; d = d < 0 ? -d : d; if (d < best) best = d }
         print best }' found.times heldout.times | sort -n |
    awk '{ error[NR] = $1; sum += $1 } END { printf "%.3f %.3f\n", sum / NR, error[int((NR + 1) / 2)] }'
}

tune() { # tune NAME SHARE EPOCHS
  runs whisper_finetune --model "$model" --transcripts talks --chunking --timestamps-share "$2" --output "$1" \
    --batch-size 4 --epochs "$3" --learning-rate 5e-5 --best last
}
before=$(error "$model")
tune timed 0.5 10
timed=$(error timed)
tune untimed 0 3 # which suffices to forget them
untimed=$(error untimed)
echo "error of timestamps in s, mean and median: $before before, $timed tuned with half of the windows timed," \
  "$untimed tuned without"
awk -v t="${timed% *}" 'BEGIN { exit !(t <= 0.1) }' ||
  fail "the error of timestamps was ${before% *} s and is ${timed% *} s"
awk -v t="${timed% *}" -v u="${untimed% *}" 'BEGIN { exit !(u > t + 0.1) }' ||
  fail "timestamps do not matter: without them ${untimed% *} s"
