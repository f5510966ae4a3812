#!/usr/bin/env bash
# vit_predict_cli_test.sh PROGRAMS: tests what a user sees of vit_predict and draw_curves.
#
# Files that cannot be used give one line each on stderr and exit code 2, and the others are predicted: as text, CSV and
# JSON, with what was done to them, and a picture of what was looked at. PROGRAMS is the folder of the built programs.
set -euo pipefail

programs=$(cd -- "$1" && pwd)
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"

load_once
has_help vit_predict
has_help vit_export
has_help draw_curves

runs emotion_corpus --output corpus --train 6 --validation 2 --test 3
runs vit_train --data corpus --cache cache --output model --preset small --epochs 2 --batch-size 3 --workers 1 \
  --device cpu

# What can be in a folder of music: a clip, a short one at another rate, silence, half a file, no audio at all.
clips=(corpus/audio/*.flac)
wav() { # wav RATE SECONDS VALUE: a mono WAV file of 8-bit samples, which count up or stay at one value
  local count=$(($1 * $2))
  printf 'RIFF%bWAVEfmt \x10\0\0\0\x01\0\x01\0%b%b\x01\0\x08\0data%b' "$(u32 $((36 + count)))" "$(u32 "$1")" \
    "$(u32 "$1")" "$(u32 $count)"
  if [ "$3" = counting ]; then
    awk -v count="$count" 'BEGIN { for (i = 0; i < count; i++) printf "%c", 65 + i % 26 }'
  else
    head -c "$count" /dev/zero | tr '\0' "$3"
  fi
}
u32() { printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) \
  $(($1 >> 24 & 255)); }
mkdir music
cp "${clips[0]}" music/whole.flac
wav 8000 3 counting >music/short.wav
wav 22050 3 $'\x80' >music/silent.wav
head -c 20000 "${clips[1]}" >music/half.flac
echo "this is no audio" >music/text.wav
cp "${clips[2]}" "music/a, b.FLAC"
predict=(vit_predict --model model --device cpu)
refused_late "3 of 6 files could not be used" "${predict[@]}" --attention seen music
[ "$(wc -l <said.txt)" = 3 ] || fail "not a line for each file that can be used: $(cat said.txt)"
grep -qE $'^music/whole.flac\tvalence [+-][0-9.]+\tarousal [+-][0-9.]+(\t|$)' said.txt ||
  fail "a whole clip: $(cat said.txt)"
holds said.txt "(3.0 s, padded to 30 s; resampled from 8000 Hz, so that it has nothing above 4000 Hz)"
[ "$(wc -l <errors.txt)" = 4 ] || fail "not a line for each file that cannot be used: $(cat errors.txt)"
holds errors.txt "vit_predict: music/silent.wav: is silent"
holds errors.txt "vit_predict: music/half.flac: "
holds errors.txt "vit_predict: music/text.wav: "
for name in whole short "a, b"; do
  is_png "seen/$name.png"
done
[ "$(find seen -type f | wc -l)" = 3 ] || fail "pictures: $(ls seen)"

# A spectrogram that NumPy saved.
python3 - <<'PYTHON' || fail "no array"
import random, struct
draw = random.Random(1)
values = [draw.gauss(-30, 12) for _ in range(64 * 500)]
header = "{'descr': '<f4', 'fortran_order': False, 'shape': (64, 500), }".ljust(117) + "\n"
with open("saved.npy", "wb") as file:
    file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", 118) + header.encode() + struct.pack("<32000f", *values))
PYTHON
runs "${predict[@]}" saved.npy
grep -qE $'^saved.npy\tvalence [+-][0-9.]+\tarousal [+-][0-9.]+.*padded to 30 s' said.txt ||
  fail "a saved spectrogram: $(cat said.txt)"
mkdir arrays
cp saved.npy arrays/a.npy
cp saved.npy arrays/b.NPY
runs "${predict[@]}" arrays
[ "$(grep -cE $'^arrays/(a.npy|b.NPY)\tvalence ' said.txt)" = 2 ] || fail "a folder of spectrograms: $(cat said.txt)"
head -c 5000 saved.npy >cut.npy
refused "cut.npy: is cut off: its shape [64, 500] needs 32000 numbers of 4 bytes, and 4872 bytes are there" \
  "${predict[@]}" cut.npy

code=0
"$programs/vit_predict" "${predict[@]:1}" music/whole.flac >/dev/full 2>errors.txt || code=$?
[ "$code" = 2 ] || fail "onto a full disk: exit code $code: $(cat errors.txt)"
mkdir nothing
refused_late "1 of 2 files could not be used" "${predict[@]}" nothing music/whole.flac
holds errors.txt "vit_predict: nothing: holds no audio"
[ "$(wc -l <said.txt)" = 1 ] || fail "a folder without audio beside a file: $(cat said.txt)"

# The same numbers in every format, and as one file among others or alone.
runs "${predict[@]}" --format csv music/whole.flac "music/a, b.FLAC"
mv said.txt out.csv
[ "$(head -1 out.csv)" = "file,valence,arousal,seconds,sample_rate,remark" ] || fail "out.csv: $(cat out.csv)"
grep -q '^"music/a, b.FLAC",' out.csv || fail "a comma in a name: $(cat out.csv)"
cp music/whole.flac $'caf\xe9.flac'
runs "${predict[@]}" --format json $'caf\xe9.flac'
holds said.txt '"file":"caf�.flac"'
rm $'caf\xe9.flac'
runs "${predict[@]}" --format json music/whole.flac
mv said.txt out.json
valence=$(sed -n 's/.*"valence": *\([-0-9.e]*\).*/\1/p' out.json)
awk -F, -v valence="$valence" '$1 == "music/whole.flac" { found = ($2 - valence) ^ 2 < 1e-8 } END { exit !found }' \
  out.csv || fail "$valence is not the valence of $(cat out.csv)"
cp music/whole.flac whole.flac
runs "${predict[@]}" --attention both whole.flac music/whole.flac
cmp both/whole.png both/whole-2.png || fail "the same file was looked at otherwise"

refused "music/silent.wav: is silent" "${predict[@]}" music/silent.wav
refused "nowhere.flac" "${predict[@]}" nowhere.flac
refused "nowhere/config.json" vit_predict --model nowhere music/whole.flac
refused "no FILE given" "${predict[@]}"
refused "--format: \"xml\" is not text|csv|json" "${predict[@]}" --format xml music/whole.flac
mkdir empty
refused "empty: holds no audio" "${predict[@]}" empty

# Files for programs without our code.
runs vit_export --model model --output vit.pt2
[ -s vit.pt2 ] || fail "vit_export wrote nothing"
runs vit_export --model model --output again.pt2
cmp vit.pt2 again.pt2 || fail "two exports of one model differ"
refused "vit.onnx: the suffix must be .pt2, or .ts or .pt for TorchScript" vit_export --model model --output vit.onnx
refused "nowhere/config.json" vit_export --model nowhere --output x.pt2

# Curves.
draw=(draw_curves --output curve.png --x epoch --columns "ccc_valence,ccc_arousal")
runs "${draw[@]}" model/curve.csv
holds said.txt "2 curves in curve.png"
is_png curve.png
refused "model/curve.csv: has no column \"wer\", only step, " draw_curves --output x.png --columns wer model/curve.csv
refused "nowhere.csv" draw_curves --output x.png --columns wer nowhere.csv
printf 'step,loss\n1,nan\n' >none.csv
refused "no curve has a finite point" draw_curves --output x.png --columns loss none.csv
cp model/curve.csv kept.csv
refused "--output kept.csv would overwrite FILE kept.csv: choose another place" draw_curves --output kept.csv \
  --columns ccc_valence kept.csv
cmp model/curve.csv kept.csv || fail "a curve was overwritten by its picture"
[ ! -e x.png ] || fail "a refused picture was written"
