#!/usr/bin/env bash
# emotion_corpus_cli_test.sh PROGRAMS: tests what a user sees of emotion_corpus, which makes the corpus of the
# spectrogram GAN example.
#
# Bad input gives one line and exit code 2; a corpus is made, made again, made whole again, made larger, and made the
# same elsewhere by another number of jobs; other people's data is left alone. PROGRAMS is the folder of the built
# program.
set -euo pipefail

programs=$(cd -- "$1" && pwd)
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"
load_once

# make FOLDER [ARGUMENT...]
make() { runs emotion_corpus --output "$1" --seconds 2 "${@:2}"; }

# same A B: two folders hold the same files with the same contents.
same() { diff -r "$1" "$2" >diff.txt || fail "$1 and $2 differ: $(cat diff.txt)"; }

has_help emotion_corpus output seed train validation test seconds wav jobs
refused "--output is missing" emotion_corpus
refused "--train: 0 is less than 1" emotion_corpus --output x --train 0
refused "--seconds: 0.5 is less than 1" emotion_corpus --output x --seconds 0.5
refused "--seed: -1 is less than 0" emotion_corpus --output x --seed -1
[ ! -e x ] || fail "a refused run left a folder"

# Made; made again, which touches nothing; made whole again after a clip was lost and another cut off.
small=(--train 6 --validation 2 --test 3)
make corpus "${small[@]}"
holds said.txt "11 clips in corpus/audio, labels in corpus/annotations.csv"
[ "$(head -1 corpus/annotations.csv)" = "song_id, valence_mean, arousal_mean, split, tempo, mode" ] || fail "the header"
[ "$(wc -l <corpus/annotations.csv)" = 12 ] || fail "the table does not hold 11 songs"
for split in train:6 validation:2 test:3; do
  [ "$(grep -c ",${split%:*}," corpus/annotations.csv)" = "${split#*:}" ] ||
    fail "not ${split#*:} songs for ${split%:*}"
done
[ "$(cut -d, -f1 corpus/annotations.csv | tail -n +2 | sort -u | wc -l)" = 11 ] || fail "an id occurs twice"
[ "$(ls corpus/audio | wc -l)" = 11 ] || fail "other files than the clips: $(ls corpus/audio)"
cp -rp corpus first
make corpus "${small[@]}"
same corpus first
[ -z "$(find corpus/audio -newer first/annotations.csv)" ] || fail "clips that were there were made again"
clips=(corpus/audio/*.flac)
rm "${clips[0]}"
truncate -s 2000 "${clips[1]}"
echo "no audio" >"${clips[2]}"
rm corpus/annotations.csv
make corpus "${small[@]}"
same corpus first

# Another number of jobs gives the same bytes; another seed none of them.
make alone "${small[@]}" --jobs 1
same alone first
make other "${small[@]}" --seed 2
for clip in first/audio/*.flac; do
  ! cmp -s "$clip" "other/audio/${clip##*/}" || fail "$clip is the same with another seed"
done

# Larger: what was there stays, in its split.
make corpus --train 9 --validation 4 --test 5
[ "$(wc -l <corpus/annotations.csv)" = 19 ] || fail "the larger table does not hold 18 songs"
while read -r line; do
  holds corpus/annotations.csv "$line"
done <first/annotations.csv
for clip in first/audio/*.flac; do
  cmp -s "$clip" "corpus/audio/${clip##*/}" || fail "$clip changed as the corpus grew"
done

# Killed in the middle: there is no table, no clip is half there, and the next run makes the rest.
many=(--train 150 --validation 1 --test 1)
"$built/emotion_corpus" --output killed --seconds 2 "${many[@]}" >/dev/null &
pid=$!
until [ "$(find killed/audio -name '*.flac' 2>/dev/null | wc -l)" -ge 10 ] || ! kill -0 $pid 2>/dev/null; do
  sleep 0.02
done
kill -9 $pid || fail "the run ended before it was killed"
wait $pid 2>/dev/null || true
[ ! -e killed/annotations.csv ] || fail "the corpus was made before it could be killed"
make killed "${many[@]}"
find killed/audio -name '*.partial-*' -delete
make whole "${many[@]}"
same killed whole

# One folder, one kind of corpus; and none among other people's data.
refused "the folder holds a corpus of another seed, length or format" emotion_corpus --output corpus --seed 2 \
  --seconds 2
refused "the folder holds a corpus of another seed, length or format" emotion_corpus --output corpus --seconds 3
refused "the folder holds a corpus of another seed, length or format" emotion_corpus --output corpus --seconds 2 --wav
mkdir -p deam/audio
echo precious >deam/audio/1.flac
refused "deam: holds a dataset that this program has not made" emotion_corpus --output deam
[ "$(cat deam/audio/1.flac)" = precious ] && [ ! -e deam/corpus.json ] || fail "a dataset was touched"
touch file
refused "file: Not a directory" emotion_corpus --output file

make wav "${small[@]}" --wav
[ "$(ls wav/audio/*.wav | wc -l)" = 11 ] || fail "no 11 WAV files"
[ "$(stat -c %s wav/audio/1.wav)" = $((44 + 2 * 2 * 22050)) ] || fail "1.wav is not 2 s of 16 bits at 22.05 kHz"
