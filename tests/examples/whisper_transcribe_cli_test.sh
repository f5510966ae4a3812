#!/usr/bin/env bash
# whisper_transcribe_cli_test.sh PROGRAMS MODEL TINY: tests long files, batches, formats and pipes of
# whisper_transcribe.
#
# PROGRAMS is the folder of the built programs, MODEL a Hugging Face folder of tiny.en, TINY of a model so small that a
# run takes as long as its program's start. whisper_cli_test.sh covers the rest.
set -euo pipefail

programs=$(cd -- "$1" && pwd)
model=$(cd -- "$2" && pwd)
tiny=$(cd -- "$3" && pwd)
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"
load_once

# Three sentences that tiny.en understands, with pauses; and all of them twice, longer than a window.
number=0
for text in "Good morning, and welcome to the harbour." "We had no telephone, no radio, and hardly any food." \
  "I will show you the lamp, the old books, and the best view in the whole country."; do
  espeak-ng -v en-us -s 150 -w raw.wav "$text" || fail "espeak-ng"
  sox raw.wav -r 16000 -b 16 "clip$number.wav" pad 0.2 0.4
  number=$((number + 1))
done
clips=(clip0.wav clip1.wav clip2.wav)
sox -n -r 16000 -b 16 pause.wav trim 0 6
sox "${clips[@]}" pause.wav "${clips[@]}" pause.wav clip1.wav -b 16 talk.wav
seconds=$(soxi -D talk.wav)
[ "${seconds%.*}" -ge 31 ] || fail "talk.wav lasts $seconds s, no more than a window"
cp clip2.wav whole.wav
sox -n -r 16000 -b 16 silent.wav trim 0 1

transcribe=(whisper_transcribe --model "$model" --no-fallback)
# Where any sound will do: by the tiny model, which has no token for previous text, what it decodes and how sure it is,
# as JSON. The numbers change with the samples.
sharpened "$tiny" sharp
quick=(whisper_transcribe --model sharp --no-fallback --no-condition-on-previous-text)
decoded() { runs "${quick[@]}" --output-format json --output-dir "$@"; } # decoded FOLDER ARGUMENT...
sox clip2.wav part.wav trim 0.5 0.9 # shorter than the tiny model's window

has_help whisper_transcribe output-format output-dir condition-on-previous-text word-timestamps max-line-width \
  max-line-count max-words-per-line highlight-words vad batch-size sample-rate sample-format fp32 fp16 bf16 \
  clip-timestamps hallucination-silence-threshold carry-initial-prompt channels stream

# Wrong flags are told before a model is loaded.
refused "--highlight-words need --word-timestamps" "${transcribe[@]}" --highlight-words whole.wav
refused "--max-line-count needs --max-line-width" "${transcribe[@]}" --output-format srt --word-timestamps \
  --max-line-count 2 whole.wav
refused "--max-words-per-line and --max-line-width exclude each other" "${transcribe[@]}" --output-format srt \
  --word-timestamps --max-line-width 20 --max-words-per-line 3 whole.wav
refused "--word-timestamps needs --output-format json, srt, vtt or all" "${transcribe[@]}" --word-timestamps whole.wav
refused "--output-format: \"doc\" is not txt|srt|vtt|tsv|json|all" "${transcribe[@]}" --output-format doc whole.wav
refused "would be written to the same files: whole.*" "${transcribe[@]}" --output-format txt whole.wav x/whole.flac
refused "--fp16 needs an accelerator" "${transcribe[@]}" --device cpu --fp16 whole.wav
refused "--batch-size: 0 is less than 1" "${transcribe[@]}" --batch-size 0 whole.wav
refused "--clip-timestamps: 2 comes before the time in front of it" "${transcribe[@]}" --clip-timestamps 3,2 whole.wav
refused "--vad finds the speech itself" "${transcribe[@]}" --vad --clip-timestamps 0,3 whole.wav
refused "--hallucination-silence-threshold needs --word-timestamps" "${transcribe[@]}" \
  --hallucination-silence-threshold 2 whole.wav
refused "--carry-initial-prompt needs --initial-prompt" "${transcribe[@]}" --carry-initial-prompt whole.wav

# A file longer than a window, transcribed in sequence: every format, each file whole, with times that grow.
runs "${transcribe[@]}" --output-format all --output-dir out/new --word-timestamps talk.wav
[ "$(cat said.txt)" = "$(printf 'out/new/talk.%s\n' txt vtt srt tsv json)" ] || fail "written: $(cat said.txt)"
[ "$(find out -type f | wc -l)" = 5 ] || fail "files are left behind: $(find out -type f)"
holds out/new/talk.json '"language": "en"}'
word='\{"word": " ?[^"]+", "start": [0-9.]+, "end": [0-9.]+, "probability": 0\.[0-9]+\}'
grep -qE '"words": \['"$word" out/new/talk.json || fail "no words in $(cat out/new/talk.json)"
grep -qE '^00:00:[0-9]{2},[0-9]{3} --> 00:00:[0-9]{2},[0-9]{3}$' out/new/talk.srt ||
  fail "talk.srt: $(cat out/new/talk.srt)"
awk -F'\t' 'NR > 1 && ($1 > $2 || $1 < last) { exit 1 } NR > 1 { last = $1 } END { exit last < 26000 }' \
  out/new/talk.tsv || fail "times do not grow up to the end: $(cat out/new/talk.tsv)"
if python3 -c '' 2>/dev/null; then python3 -m json.tool out/new/talk.json >/dev/null || fail "talk.json is no JSON"; fi

# Several files at once give the texts of one after the other, in their order; so do a bad one among them, and long
# ones.
runs "${transcribe[@]}" "${clips[@]}"
mv said.txt alone.txt
refused_late "1 of 4 files could not be transcribed" "${transcribe[@]}" --batch-size 2 "${clips[0]}" silent.wav \
  "${clips[@]:1:2}"
holds errors.txt "silent.wav: is silent"
cmp alone.txt said.txt || fail "in a batch the text differs"
mkdir -p folder/below empty && cp part.wav folder/below && echo x >folder/notes.txt
refused "empty: holds no audio" "${quick[@]}" empty

# From a pipe it is the same, to the letter; the language of an English-only model is known.
decoded filed part.wav
sox part.wav -t raw -r 16000 -e signed -b 16 part.s16
runs "${quick[@]}" folder - <part.s16
[ "$(cut -f1 said.txt | tr '\n' ' ')" = "folder/below/part.wav - " ] || fail "they are called: $(cat said.txt)"
[ "$(cut -f2 said.txt | uniq | wc -l)" = 1 ] || fail "a pipe has another text: $(cat said.txt)"
piped() { # piped WHAT ARGUMENT...: a pipe with part.wav is that file
  decoded piped "${@:2}" -
  cmp filed/part.json piped/stdin.json || fail "$1: $(cat piped/stdin.json)"
}
piped "by itself" --language auto <part.s16
holds errors.txt "-: detected language: en"
refused "-: holds no samples" "${quick[@]}" - </dev/null
head -c 16001 part.s16 >odd.s16
refused "-: ends with 1 of the 2 bytes of a sample of s16le" "${quick[@]}" - <odd.s16
sox part.wav -t raw -r 16000 -c 2 -e signed -b 16 stereo.s16
piped "in stereo" --channels 2 <stereo.s16
piped "stored" --no-stream <part.s16

# A file in a pipe is that file: WAV as it arrives, with the rate, width and channels of its header, others once they
# are there.
for type in wav flac aiff aifc au caf w64; do piped "$type in a pipe" < <(sox part.wav -t "$type" -); done
for width in "-b 24" "-e float -b 32"; do
  # shellcheck disable=SC2086 # several arguments
  piped "sox $width -t wav" < <(sox part.wav $width -t wav -)
done
sox part.wav part.ogg
decoded ogg part.ogg
decoded piped - < <(cat part.ogg)
cmp ogg/part.json piped/stdin.json || fail "Ogg in a pipe: $(cat piped/stdin.json)"
piped "a WAV file of unknown length" --sample-rate 8000 < \
  <(sox part.wav -t raw - | sox -t raw -r 16000 -e signed -b 16 -c 1 - -c 2 -t wav -)
piped "a WAV file, stored" --no-stream < <(sox part.wav -t wav -)
runs "${transcribe[@]}" - < <(sox clip2.wav -r 44100 -c 2 -t wav -)
[ "$(cut -f2 said.txt | tr -d ,)" = "$(sed -n 3p alone.txt | cut -f2 | tr -d ,)" ] ||
  fail "at 44.1 kHz, in stereo: $(cat said.txt)"
refused "-: cut off: its header announces " "${quick[@]}" - < <(head -c 10000 part.wav)
sox part.wav part.flac
refused "-: cut off" "${quick[@]}" - < <(head -c 6000 part.flac)
refused "-: begins as MP4, which libsndfile does not read; put \`ffmpeg" "${quick[@]}" - < \
  <(printf '\0\0\0\040ftypM4A more')

# What is longer than a window is transcribed as it arrives: the first window is written while the pipe is open, and the
# files are those of the file, to the byte.
await() { # await TEXT FILE
  local try
  for try in $(seq 1200); do
    if [ -f "$2" ] && grep -qF -- "$1" "$2"; then return; fi
    sleep 0.1
  done
  fail "after $try tries $2 does not hold \"$1\""
}
sox talk.wav -t raw -r 16000 -e signed -b 16 talk.s16
mkfifo pipe
runs "${transcribe[@]}" --output-format all --output-dir streamed --word-timestamps - <pipe &
exec 3>pipe
head -c 1000000 talk.s16 >&3 # 31.25 s
for format in txt srt vtt tsv; do await "telephone" "streamed/stdin.$format"; done
[ ! -e streamed/stdin.json ] || fail "JSON is there before its end"
tail -c +1000001 talk.s16 >&3
exec 3>&-
wait "$!"
[ ! -s errors.txt ] || fail "a stream: $(cat errors.txt)"
[ "$(cat said.txt)" = "$(printf 'streamed/stdin.%s\n' txt vtt srt tsv json)" ] || fail "streamed: $(cat said.txt)"
for format in txt vtt srt tsv json; do
  cmp "out/new/talk.$format" "streamed/stdin.$format" || fail "a stream's $format is not the file's"
done

# A signal ends the stream: the line shows what was transcribed, and stderr how far.
"$programs/whisper_transcribe" "${transcribe[@]:1}" - <pipe >signalled.txt 2>errors.txt &
exec 3>pipe
head -c 1000000 talk.s16 >&3
await "telephone" signalled.txt
kill -TERM "$!"
code=0
wait "$!" || code=$?
exec 3>&-
[ "$code" = 143 ] || fail "a stream that SIGTERM ends: exit code $code"
[ "$(cat errors.txt)" = "whisper_transcribe: SIGTERM was received: -: was read up to 31.25 s" ] ||
  fail "errors: $(cat errors.txt)"
grep -qE $'^-\tGood morning.*[a-z.]$' signalled.txt && [ "$(grep -c '' signalled.txt)" = 1 ] ||
  fail "signalled: $(cat signalled.txt)"

# Parts of a file: the first sentence and what follows the last pause, and no word between. Silences are watched
# meanwhile.
from=$(awk -v s="$seconds" -v l="$(soxi -D clip1.wav)" 'BEGIN { print s - l }')
runs "${transcribe[@]}" --clip-timestamps "0,$(soxi -D clip0.wav),$from" --word-timestamps \
  --hallucination-silence-threshold 2 --output-format all --output-dir parts talk.wav
for word in morning telephone; do
  grep -qi "$word" parts/talk.txt || fail "parts without \"$word\": $(cat parts/talk.txt)"
done
[ "$(wc -w <parts/talk.txt)" -le 24 ] || fail "more than two parts were transcribed: $(cat parts/talk.txt)"
holds parts/talk.json " Good morning"

# By voice activity, in 16 bits, and by windows of 20 s: about as many words as are said.
sentences=$(cut -f2 alone.txt | tr '\n' ' ')
spoken=$(($(wc -w <<<"$sentences") * 2 + $(sed -n 2p alone.txt | cut -f2 | wc -w)))
for how in "--vad --batch-size 2 --bf16" "--max-audio-seconds 20 --fallback"; do
  # shellcheck disable=SC2086
  runs "${transcribe[@]}" $how talk.wav
  transcribed=$(cut -f2 said.txt | wc -w)
  [ "$transcribed" -ge $((spoken * 7 / 10)) ] && [ "$transcribed" -le $((spoken * 14 / 10)) ] ||
    fail "$how gives $transcribed words of $spoken: $(cat said.txt)"
done
