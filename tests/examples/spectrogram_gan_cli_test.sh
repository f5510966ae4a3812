#!/usr/bin/env bash
# spectrogram_gan_cli_test.sh PROGRAMS: tests what a user sees of the spectrogram GAN's programs, from a corpus to
# measures.
#
# Bad input gives one line and exit code 2; a few steps of training are killed and gone on with to the same bits;
# samples are labelled, looked at and listened to. PROGRAMS is the folder of the built programs.
set -euo pipefail

programs=$(cd -- "$1" && pwd)
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"

load_once
has_help gan_sample
has_help gan_measure
has_help gan_export
has_help gan_train data output weights rename gpu-memory small n-mels channels batch-size gradient-accumulation epochs \
  max-steps quick generator-rate discriminator-rate loss r1 instance-noise mismatched auxiliary winning average device \
  workers seed cache on-bad-audio validate-every snapshot-every resume resume-changed fp32 bf16 fp16 mixed-precision \
  tf32 cudnn-benchmark flush-every prefetch memory retry-on-oom memory-snapshot preflight memory-cap report autopsy \
  replay profile

runs emotion_corpus --output few --train 2 --validation 1 --test 1 --seconds 2
runs emotion_corpus --output corpus --train 6 --validation 2 --test 3

# with_arousal LINE VALUE: prints the corpus's table with another arousal in a line.
with_arousal() {
  awk -F, -v OFS=, -v line="$1" -v value="$2" '
    NR == 1 { for (i = 1; i <= NF; i++) if ($i ~ /arousal_mean/) column = i }
    NR == line { $column = value }
    { print }' corpus/annotations.csv
}

# Bad input.
train=(gan_train --data corpus --cache cache --small --channels 8 --batch-size 2 --workers 1 --validate-every 0)
refused "--output is missing" gan_train --data corpus
refused "--gpu-memory: the smallest card with settings has 8 GB, not 6" gan_train --data corpus --output x \
  --gpu-memory 6
refused "--batch-size is 1: give --mismatched 0" "${train[@]}" --output x --batch-size 1
refused "--small and --gpu-memory each say the sizes: choose one" "${train[@]}" --output x --gpu-memory 8
refused '--loss: "wgan" is not hinge|bce' "${train[@]}" --output x --loss wgan
refused "nowhere" gan_train --data nowhere --output x
mkdir bad
cp -r corpus/audio bad
with_arousal 3 nan >bad/annotations.csv
refused "annotations.csv:3" gan_train --data bad --output x --on-bad-audio stop
mkdir cut
cp -r corpus/audio corpus/annotations.csv cut
for clip in cut/audio/*; do truncate -s 20000 "$clip"; done
refused "cut/audio/" gan_train --data cut --output x --small --channels 8 --workers 1 --validate-every 0 \
  --on-bad-audio stop
refused_late "cut/audio/" gan_train --data cut --output x --small --channels 8 --workers 1 --validate-every 0
rm -r x

# Weights to begin with: a dictionary for each player, in PyTorch's names; a folder of this program; a generator alone.
still=("${train[@]}" --max-steps 1 --gradient-accumulation 1 --generator-rate 1e-30 --discriminator-rate 1e-30
  --average 0 --device cpu --no-report)
refused "checkpoint_epoch_15.pt: none of its names is one of the model's" "${train[@]}" --output x \
  --weights "$first_weights/checkpoint_epoch_15.pt"
reason="does not fit the model, and nothing was loaded; 4 of another shape: "
refused "${reason}discriminator.convolutions.1.bias [2] instead of [4], " "${train[@]}" --output x \
  --weights "$first_weights/gan_players.pt" --channels 16 --rename '*.0.*='
[ ! -e x ] || [ -z "$(ls x)" ] || fail "weights that were refused left $(ls x)"
runs "${still[@]}" --output python --weights "$first_weights/gan_players.pt"
holds said.txt ' loaded from "generator", "discriminator"; renamed: 1 with "generator.module." for "generator."'
holds said.txt 'only weights carry over, not "epoch": '
[ "$(bytes_of python/generator.safetensors output.bias)" = 0000803e ] ||
  fail "the generator does not begin with the file's weights"
runs "${still[@]}" --output folder --seed 5 --weights python
holds said.txt "3 missing: accepted, fooled, instance_noise"
for player in generator discriminator; do
  same_tensor output.weight python/$player.safetensors folder/$player.safetensors
done
runs "${still[@]}" --output one --seed 5 --weights python/generator.safetensors --rename =generator.
same_tensor seed.weight python/generator.safetensors one/generator.safetensors
other_tensor output.weight python/discriminator.safetensors one/discriminator.safetensors

# What would not fit ends before it begins, and no batch of one clip is named, which --mismatched refuses.
remedied all "${train[@]}" --max-steps 1 --device cpu --batch-size 4 --memory-cap 0.03
refused_late "does not fit into 10 MB" "${train[@]}" --device cpu --batch-size 4 --output large --preflight \
  --memory-cap 0.01
holds errors.txt "tried, and does not fit: --batch-size 2 --gradient-accumulation 4 ("
lacks errors.txt "--batch-size 1 " --gradient-checkpointing # which gan_train would refuse
[ ! -e large/config.json ] || fail "a run that does not fit claimed its folder"
# 1 is a batch where nothing is mismatched.
refused_late "does not fit into 10 MB" "${train[@]}" --device cpu --mismatched 0 --output large --preflight \
  --memory-cap 0.01
holds errors.txt "--batch-size 1 --gradient-accumulation 4 ("

# A run, with a trace and without validation.
train+=(--n-mels 16)
long=("${train[@]}" --epochs 3 --gradient-accumulation 2 --r1 1 --instance-noise 0.2)
runs "${long[@]}" --output alone --profile 2-3
has_trace alone 2 3 {forward,backward,update}\ \({discriminator,generator}\) 'data wait'
says_memory errors.txt
holds said.txt "6 training clips"
holds said.txt "6 steps, in "
has_keys alone/summary.json steps discriminator_steps loss_discriminator loss_generator seconds peak_bytes \
  parameters_generator parameters_discriminator
has_files alone config.json generator.safetensors discriminator.safetensors loudness.json labels.safetensors
[ ! -e alone/snapshots ] || fail "snapshots were written without being asked for"
# What is saved of the generator is its average: without averaging it is another, beside the same discriminator.
runs "${long[@]}" --output latest --average 0 --no-report
cmp alone/discriminator.safetensors latest/discriminator.safetensors || fail "averages reach the discriminator"
has_no_report latest
! cmp -s alone/generator.safetensors latest/generator.safetensors || fail "the averages were not saved"

# Validation songs: a curve, and the best averaged weights as a model of their own. It moves nothing of the run, and one
# that is killed goes on to the same weights, curve and best, bit for bit. Instance noise, R1 and averages have states
# of their own.
valid=("${long[@]}" --validate-every 2)
runs "${valid[@]}" --output valid
for player in generator discriminator; do
  cmp "alone/$player.safetensors" "valid/$player.safetensors" || fail "validation changed the $player"
done
[ "$(cut -d, -f1 valid/curve.csv | tr '\n' ' ')" = "step 2 4 6 " ] || fail "curve.csv: $(cat valid/curve.csv)"
best=$(step_of_lowest valid/curve.csv 2)
holds valid/summary.json "\"best_step\": $best"
holds said.txt "the best on validation songs (step $best, "
has_files valid/best config.json generator.safetensors discriminator.safetensors loudness.json labels.safetensors
torn=("${valid[@]}" --output torn --snapshot-every 2 --resume auto)
interrupted KILL 'torn/snapshots/step-*2' "${torn[@]}"
holds errors.txt "no snapshot to resume from: starts a new run"
[ ! -e torn/summary.json ] || fail "the run ended before it was killed"
runs "${torn[@]}"
holds errors.txt "resumes from torn/snapshots/step-"
for file in curve.csv best/generator.safetensors best/labels.safetensors {generator,discriminator}.safetensors; do
  cmp "valid/$file" "torn/$file" || fail "a killed run ends with another $file"
done
for folder in alone torn; do has_report $folder 6 generator/loss; done
holds torn/report.html '["batch-size","2"]' '["n-mels","16"]' '["parameters","' '["r1","1"]'
refused "torn: holds another model than the one asked for: n_mels 16 instead of 32" "${long[@]}" --n-mels 32 \
  --output torn --resume auto
refused "alone: holds another model than the one asked for: n_mels 16 instead of 32" "${long[@]}" --n-mels 32 \
  --output alone
refused "holds another model than the one asked for: n_mels 16 instead of 70" "${long[@]}" --n-mels 70 \
  --output x/other --resume torn/snapshots
refused_late "--average is 0.5 here and 0.999 in the snapshot" "${torn[@]}" --average 0.5
[ -e alone/summary.json ] && [ ! -e x/other ] || fail "a refused run touched a folder"
# The emotions of its validation songs stay.
cp -r corpus others
awk -F, -v OFS=, '$4 == "validation" && !done++ { $2 = $2 == 5 ? 6 : 5 } { print }' corpus/annotations.csv \
  >others/annotations.csv
refused_late "RunSettings: the validation list of --data is " "${torn[@]}" --data others

# A wrong line, a missing file and damaged audio among others are left out and listed, unless they are to end the run.
mkdir damaged
cp -r corpus/audio damaged
with_arousal 2 loud >damaged/annotations.csv
mapfile -t songs < <(awk -F, '$4 ~ /train/ { print $1 }' corpus/annotations.csv)
rm "damaged/audio/${songs[1]}".*
truncate -s 20000 "damaged/audio/${songs[2]}".*
skipping=(gan_train --data damaged --small --n-mels 16 --channels 8 --batch-size 2 --workers 1 --epochs 2
  --validate-every 2)
refused "annotations.csv:2: arousal_mean is \"loud\"" "${skipping[@]}" --output x --on-bad-audio stop
runs "${skipping[@]}" --output skipped
holds errors.txt \
  "3 songs are skipped (--on-bad-audio stop ends the run instead): 1 by a wrong line, 1 without audio, 1 whose"
holds errors.txt "  damaged/annotations.csv:2: arousal_mean is \"loud\""
holds errors.txt "there is no audio file ${songs[1]}.mp3"
holds errors.txt "  damaged/audio/${songs[2]}.flac: "
holds skipped/summary.json '"skipped": 3'
refused "--validate-every 0 does without" gan_train --data few --output x --small --channels 8 --batch-size 2

# Both losses, mixed precision, and settings by the card's memory, which flags overrule; clips that are too short are
# listed.
runs emotion_corpus --output short --train 2 --validation 2 --test 2 --seconds 12
runs gan_train --data short --output preset --gpu-memory 8 --channels 8 --batch-size 2 --max-steps 1 --loss bce \
  --mixed-precision --gradient-accumulation 1 --validate-every 0
holds said.txt "for 8 GB: batches of 12, 96 mel bins; then gan_sample --count 1500"
holds preset/config.json '"n_mels": 96'
holds preset/summary.json '"steps": 1'
holds errors.txt "2 clips are shorter than 30 s, padded with silence: song "

# A folder of spectrograms that NumPy saved, with a table: float32 by its own bytes.
python3 - <<'PYTHON' || fail "no arrays"
import os, random, struct
os.makedirs("arrays")
draw = random.Random(1)
with open("arrays/labels.csv", "w") as table:
    table.write("song_id,valence_mean,arousal_mean,split\n")
    for song in range(1, 9):
        split = "train" if song < 5 else "validation" if song < 7 else "test"
        table.write(f"{song},{1 + song % 9},{9 - song % 9},{split}\n")
        shape = (64, 700 if song == 1 else 1292)
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        values = [draw.gauss(-30, 12) for _ in range(shape[0] * shape[1])]
        with open(f"arrays/{song}.npy", "wb") as file:
            file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", 118) + header.encode())
            file.write(struct.pack(f"<{len(values)}f", *values))
PYTHON
saved=(gan_train --data arrays --small --channels 8 --batch-size 2 --workers 1 --epochs 1 --validate-every 0)
runs "${saved[@]}" --output of_arrays
holds said.txt \
  "8 songs are arrays of NumPy, taken as log-mel spectrograms of 20 to 8000 Hz, a frame each 512 samples at 22050 Hz"
holds errors.txt "1 clip is shorter than 30 s, padded with silence: song 1 (16.25 s)"
holds of_arrays/summary.json '"skipped": 0'
refused "which has 64 mel bins; 96 are asked for, by --n-mels" "${saved[@]}" --output x --n-mels 96 --on-bad-audio stop

# A loss that is not finite names the player.
diverge=("${train[@]}" --output diverged --winning 1 --epochs 1)
refused_late "the loss of generator is NaN or infinite in step 0" "${diverge[@]}" --discriminator-rate 1e30
refused_late "the loss of discriminator is NaN or infinite in step 1" "${diverge[@]}" --gradient-accumulation 1 \
  --generator-rate 1e30
[ ! -e diverged/summary.json ] || fail "a run that diverged left a summary"

# Samples. Files of 256 clips: thousands are never in memory together.
sample=(gan_sample --model alone --count 5 --batch-size 2)
refused "nowhere/config.json" gan_sample --model nowhere --output y
cp -r alone wrong
sed -i 's/"n_mels": 16/"n_mels": 65536/' wrong/config.json
refused "wrong/config.json: n_mels is 65536, outside" gan_sample --model wrong --output y
sed -i 's/"n_mels": 65536/"n_mels": 16/; s/"channels": 8/"channels": 16/' wrong/config.json
refused "wrong/generator.safetensors" gan_sample --model wrong --output y
cp -r alone old && rm old/labels.safetensors
refused "old/labels.safetensors: is missing, and samples draw their emotions from it" gan_sample --model old --output y
[ ! -e y ] || fail "a refused run left a folder"
cp -r corpus recordings
refused "--output recordings: is a folder of recordings and their labels" "${sample[@]}" --output recordings
rm -r recordings/audio && echo "song_id,valence_mean,arousal_mean" >recordings/labels.csv
refused "--output recordings: is a folder of recordings and their labels" "${sample[@]}" --output recordings
[ "$(cat recordings/labels.csv)" = "song_id,valence_mean,arousal_mean" ] || fail "labels were written over"
# Recordings that are named as samples are not removed.
mkdir named && echo mine >named/sample-00001.wav
refused "--output named: has sounds named as samples" "${sample[@]}" --output named
[ "$(ls named)" = sample-00001.wav ] || fail "a refused run left: $(ls named)"
runs gan_export --model alone --output generator.ts
[ -s generator.ts ] || fail "gan_export wrote nothing"
runs "${sample[@]}" --output samples --valence -0.5 --pictures 3 --sounds 1
holds said.txt "5 spectrograms, 3 pictures and 1 sounds in samples"
[ "$(wc -l <samples/labels.csv)" = 6 ] || fail "labels.csv: $(cat samples/labels.csv)"
[ "$(grep -c ',-0.5,' samples/labels.csv)" = 5 ] ||
  fail "the valence is not the one asked for: $(cat samples/labels.csv)"
pictures=(samples/*.png)
[ "${#pictures[@]}" = 3 ] || fail "pictures: ${pictures[*]}"
is_png samples/sample-00000.png
[ "$(head -c 4 samples/sample-00000.wav)" = RIFF ] || fail "not a WAV file"
[ "$(stat -c %s samples/sample-00000.wav)" -gt 1300000 ] || fail "the sound is shorter than 30 s"
head -c 400 samples/spectrograms-00000.safetensors >header.txt
holds header.txt '"spectrograms"' '"conditions"' '[5,1,16,1292]' '"origin":"generated"'
runs "${sample[@]}" --output again --valence -0.5 --pictures 0 --sounds 0
cmp samples/spectrograms-00000.safetensors again/spectrograms-00000.safetensors ||
  fail "the same seed drew other samples"
[ "$(find again -type f | wc -l)" = 2 ] || fail "there are files that were not asked for: $(ls again)"
mkdir many && touch many/sample-drums.wav many/sample-1.png many/sample-00007.png
runs gan_sample --model alone --output many --count 300 --pictures 0 --sounds 0
[ "$(find many -name 'spectrograms-*' | wc -l)" = 2 ] || fail "300 samples are not in 2 files: $(ls many)"
{ [ -e many/sample-drums.wav ] && [ -e many/sample-1.png ] && [ ! -e many/sample-00007.png ]; } ||
  fail "a call removes other files than an earlier one's: $(ls many)"
[ "$(wc -l <many/labels.csv)" = 301 ] || fail "labels of 300 samples: $(wc -l <many/labels.csv)"
rm -r many
cp samples/sample-00000.png again && cp samples/spectrograms-00000.safetensors again/spectrograms-00001.safetensors
runs "${sample[@]}" --output again --valence -0.5 --pictures 0 --sounds 0
[ "$(find again -type f | wc -l)" = 2 ] || fail "files of an earlier call were left: $(ls again)"

# Measures.
refused "corpus: is the folder of the data" gan_measure --data corpus --output corpus alone
refused "--output alone would overwrite MODEL alone" gan_measure --data corpus --output alone alone
refused "no MODEL given" gan_measure --data corpus --output z
refused "distances need at least 2 clips each: there are 1 for validation and 1 for testing" gan_measure --data few \
  --output z alone
runs gan_measure --data short --output short_measures --epochs 1 preset
holds errors.txt "6 clips are shorter than 30 s, padded with silence: song "
refused "and --count is 1" gan_measure --data corpus --cache cache --output z --count 1 alone
runs gan_measure --data corpus --cache cache --output measures --epochs 1 alone torn
mv said.txt measures.txt
runs gan_measure --data damaged --output damaged_measures --epochs 1 valid/best
holds errors.txt \
  "3 songs are skipped (--on-bad-audio stop ends the run instead): 1 by a wrong line, 1 without audio, 1 whose"
holds damaged_measures/summary.json '"skipped": 3'
refused "annotations.csv:2" gan_measure --data damaged --output z --on-bad-audio stop alone
has_keys measures/summary.json frechet_first frechet_last frechet_noise frechet_shuffled frechet_real kid_first \
  kid_last kid_noise kid_shuffled kid_real condition_ccc_valence condition_ccc_arousal real_ccc_valence \
  real_ccc_arousal copies spread seconds
[ "$(grep -c ': Frechet .*, kernel distance ' measures.txt)" = 2 ] || fail "not a line a model: $(cat measures.txt)"
refused "draws 96 mel bins, and alone 16" gan_measure --data corpus --output z alone preset
