#!/usr/bin/env bash
# konkanivani_cli_test.sh PROGRAMS: tests what a user sees of the KonkaniVani example's programs.
#
# Bad input gives one line and exit code 2; a corpus is made, made again, and made whole again; two steps of training,
# an evaluation and a transcription run from end to end; a training run is stopped, killed, and ends as if it had been
# left alone. PROGRAMS is the folder of the built programs.
set -euo pipefail

programs=$(cd -- "$1" && pwd)
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"

texts() { cat "$@" | grep -o '"text":"[^"]*"' | sort; }

load_once
has_help konkanivani_evaluate
has_help konkanivani_transcribe
has_help konkanivani_export
has_help konkanivani_train data output weights rename d-model encoder-layers decoder-layers batch-size \
  gradient-accumulation device resume resume-changed epochs max-steps quick seed workers cache snapshot-every \
  gradient-checkpointing subsampling positions ctc-weight preset batch-frames spec-augment mask-frames mask-bins \
  on-bad-audio fp32 bf16 fp16 mixed-precision tf32 cudnn-benchmark flush-every prefetch memory retry-on-oom \
  memory-snapshot preflight memory-cap report autopsy replay profile report-sound histograms
has_help konkanivani_corpus output seed train validation test min-words max-words clean jobs
refused "--output is missing" konkanivani_corpus
refused "--min-words 5 is more than --max-words 4" konkanivani_corpus --output x --min-words 5 --max-words 4
refused "ask for fewer clips" konkanivani_corpus --output x --min-words 2 --max-words 2 --train 1000
[ ! -e x ] || fail "a refused run left a folder"

# Made; made again without speaking; made whole again after a clip was lost and another cut off.
corpus=(--output corpus --train 6 --validation 2 --test 3 --min-words 2 --max-words 3)
runs konkanivani_corpus "${corpus[@]}"
holds said.txt "11 clips, "
[ "$(wc -l <corpus/train.jsonl) $(wc -l <corpus/validation.jsonl) $(wc -l <corpus/test.jsonl)" = "6 2 3" ] ||
  fail "the manifests do not hold 6, 2 and 3 lines"
[ "$(texts corpus/*.jsonl | uniq | wc -l)" = 11 ] || fail "a sentence occurs twice"
for key in audio_filepath text duration speaker; do
  [ "$(grep -c "\"$key\":" corpus/train.jsonl)" = 6 ] || fail "a line of the manifest has no $key"
done
cp -r corpus first
clips=(corpus/audio/*.flac)
files=(corpus/audio/*)
[ "${#files[@]}" = 11 ] || fail "there are other files than 11 clips: ${files[*]}"
rm "${clips[0]}"
truncate -s 1000 "${clips[1]}"
runs konkanivani_corpus "${corpus[@]}" --jobs 1
diff -r first corpus || fail "a second run made another corpus"

# Another seed, another corpus; a larger one keeps the sentences that are held out.
runs konkanivani_corpus "${corpus[@]}" --output other --seed 2
cmp -s <(texts corpus/test.jsonl) <(texts other/test.jsonl) && fail "another seed made the same sentences"
runs konkanivani_corpus "${corpus[@]}" --output larger --train 9
cmp <(texts corpus/test.jsonl) <(texts larger/test.jsonl) || fail "a larger corpus holds out other sentences"

if PATH=$work/nowhere "$programs/konkanivani_corpus" --output other 2>errors.txt >/dev/null; then
  fail "konkanivani_corpus did without espeak-ng"
fi
holds errors.txt "konkanivani_corpus: espeak-ng is not installed (Debian: apt-get install espeak-ng)"

# The preset's defaults stand in --help, and other flags change single ones.
grep -q -- '--d-model N .*\[128\]' konkanivani_train.txt || fail "--d-model's default"
runs konkanivani_train --preset original --help
grep -q -- '--d-model N .*\[256\]' said.txt || fail "--preset original"
# as the project that this example follows spells its flags
runs konkanivani_train --data_dir corpus --pres=original --d_model 32 --encoder_layers 1 --decoder_layers 1 \
  --max_steps 1 --batch_size 2 --gradient_accumulation_steps 4 --device cpu --output_dir original
holds original/config.json '"subsampling": 1'
holds original/config.json '"dropout": 0.1'
holds errors.txt "preset original: learning rate 0.0005, 50 epochs, frames of 10 ms; --preset measured"
# The run left the file that repeats it.
holds original/run.conf preset=original gradient-accumulation=4 "# seed=1"
runs konkanivani_train --config original/run.conf --output again
cmp original/model.safetensors again/model.safetensors || fail "--config original/run.conf trained another model"
printf 'data=corpus\noutput=x\nlearning_rate: 1e-4\n' >yaml.conf
refused 'yaml.conf:3: "learning_rate: 1e-4" is not KEY=VALUE; YAML is not read' konkanivani_train --config yaml.conf
refused '--preset: "large" is not measured|original' konkanivani_train --data corpus --output x --preset large
refused "--batch-frames and --batch-size are both 0" konkanivani_train --data corpus --output x --batch-frames 0 \
  --batch-size 0


# Training: parameters told, a summary with its figures, a model that the other programs take.
size=(--d-model 32 --encoder-layers 1 --decoder-layers 1 --batch-size 3 --learning-rate 0.01 --warmup-steps 3)
once=(konkanivani_train --data corpus "${size[@]}" --epochs 1 --gradient-accumulation 2 --warmup-steps 0 --device cpu)
runs "${once[@]}" --output model --gradient-checkpointing --mixed-precision
grep -qE '^[0-9]+ parameters, [0-9]+ characters, 6 training clips' said.txt || fail "train said $(cat said.txt)"
holds said.txt "    CER " # of the epoch
says_memory errors.txt
runs konkanivani_export --model model --output konkani.pt2
runs konkanivani_export --model model --output again.pt2 --decoder decoder.ts
[ -s konkani.pt2 ] && [ -s decoder.ts ] || fail "konkanivani_export wrote nothing"
refused "--decoder must be another file than --output" konkanivani_export --model model --output again.pt2 \
  --decoder ./again.pt2
cmp konkani.pt2 again.pt2 || fail "two exports of one model differ"

# On a CPU mixed precision is bf16. Flags that save memory or time change no bit; those that do nothing here say so.
runs "${once[@]}" --output same --gradient-checkpointing --no-gradient-checkpointing --bf16 --flush-every 1 \
  --prefetch 5 --tf32 --cudnn-benchmark --no-report
cmp model/model.safetensors same/model.safetensors || fail "flags of speed train other weights"
has_report model 1
has_no_report same
holds model/report.html '["model type","konkanivani::KonkaniVani"]' '["parameters","' '["training clips","6"]' \
  '["d-model","32"]' '"kind":"sound","title":"clip 2","data":"data:audio/wav;base64,' \
  '["gradient-checkpointing","yes"]' '["precision","mixed-precision"]' '"name":"validation.cer"'
holds errors.txt "--tf32 and --cudnn-benchmark have no effect on cpu, only on CUDA devices"

# Memory: what does not fit ends before it begins, with what would; what fits is trained, and its peak noted.
dry=(konkanivani_train --data corpus "${size[@]}" --max-steps 1 --preflight)
remedied all "${dry[@]}" --device cpu --encoder-layers 8 --memory-cap 0.013
holds errors.txt "konkanivani_train: the run does not fit into 13 MB: give --batch-size "
for remedy in "--batch-size 1 --gradient-accumulation 3" --gradient-checkpointing --bf16; do
  has_remedy "$remedy\$"
done
# Where frames are the limit, frames are divided; a run that is resumed can only divide its clips.
framed=("${dry[@]}" --device cpu --encoder-layers 8 --batch-size 12 --batch-frames 700)
remedied 1 "${framed[@]}" --memory-cap 0.013
has_remedy '--batch-frames [0-9]+ --gradient-accumulation '
begun=("${framed[@]/--preflight/--no-report}" --snapshot-every 1 --output begun --shortest-first-epochs 0)
runs "${begun[@]}"
refused_late "the run does not fit" "${begun[@]}" --resume auto --max-steps 2 --preflight --memory-cap 0.013
given=$(grep -oE 'give --batch-size [0-9]+ --gradient-accumulation [0-9]+' errors.txt) ||
  fail "clips are not divided: $(cat errors.txt)"
# shellcheck disable=SC2086
runs "${begun[@]}" --resume auto --max-steps 2 --preflight --memory-cap 0.013 ${given#give }
holds errors.txt "the same samples"
remedied 1 "${dry[@]}" --device cpu --batch-frames 0 --memory-cap 0.004
has_remedy '--batch-size [12] --gradient-accumulation '
refused_late \
  "does not fit into 1 MB: nothing that was tried would, so that it takes a smaller model or shorter inputs" \
  "${dry[@]}" --output large --memory-cap 0.001 --device cpu
[ ! -e large ] || fail "a run that does not fit left a folder: $(find large)"
runs "${dry[@]}" --output small --memory
holds errors.txt "preflight: the run fits: needs "
holds errors.txt "  memory " # in the line of progress
has_keys small/summary.json memory_peak memory_phase weights gradients optimizer activations workspace
has_keys model/summary.json cer wer cer_untrained steps seconds peak_bytes
holds errors.txt "outside the vocabulary, read as unknown" # six sentences do not have all characters
for method in greedy ctc attention joint; do
  runs konkanivani_evaluate --model model --manifest corpus/test.jsonl --decoding $method --summary $method.json
  holds said.txt " over 3 clips"
  holds $method.json "\"decoding\": \"$method\""
done
refused "--summary and --manifest name the same file" konkanivani_evaluate --model model --manifest corpus/test.jsonl \
  --summary corpus/test.jsonl
clip=${clips[0]}
runs konkanivani_transcribe --model model "$clip"
[ "$(wc -l <said.txt)" = 1 ] || fail "transcribe said $(cat said.txt)"
holds said.txt "$clip"$'\t'
runs konkanivani_transcribe --model model --json --n-best 3 corpus/audio
[ "$(wc -l <said.txt)" = 11 ] || fail "transcribe did not say a line for each of 11 clips"
cp "$clip" $'caf\xe9.flac'
runs konkanivani_transcribe --model model --json $'caf\xe9.flac'
holds said.txt '"audio_filepath":"caf�.flac"'
rm $'caf\xe9.flac'
runs konkanivani_transcribe --model model --json --n-best 3 corpus/audio
[ "$(head -n1 said.txt | grep -o '"score":' | wc -l)" = 3 ] || fail "transcribe did not give the 3 best texts"
mkdir -p empty "in capitals"
cp "$clip" "in capitals/A.FLAC"
refused_late "1 of 3 files could not be transcribed" konkanivani_transcribe --model model "in capitals" empty "$clip"
[ "$(cut -f1 said.txt | tr '\n' '|')" = "in capitals/A.FLAC|$clip|" ] ||
  fail "not two transcripts: $(cat said.txt errors.txt)"
holds errors.txt "konkanivani_transcribe: empty: holds no audio"
code=0
"$programs/konkanivani_transcribe" --model model "$clip" >/dev/full 2>errors.txt || code=$?
[ "$code" = 2 ] || fail "transcribe onto a full disk exited with $code"
holds errors.txt "konkanivani_transcribe: what was printed on the standard output could not be written"

# A folder has one model and one run. A new run in a finished one's folder begins its curve anew.
rm -r same/snapshots
refused "holds another model than the one asked for: " konkanivani_train --data corpus --output same --d-model 16
mkdir foreign
echo '{"model_type": "vit"}' >foreign/config.json
refused 'foreign/config.json: model_type is "vit"' konkanivani_train --data corpus --output foreign --d-model 16
runs "${once[@]}" --output same --max-steps 1 --no-report
[ "$(wc -l <same/curve.csv)" = 2 ] || fail "the curve has rows of the run before: $(cat same/curve.csv)"

refused_late "--dropout is 0.1 here and 0 in the snapshot" "${once[@]}" --output model --epochs 2 --dropout 0.1 \
  --resume auto --gradient-checkpointing --mixed-precision

# A recording is transcribed alike however loud it is; what is no sound is refused.
sox "$clip" -b 32 -e floating-point quiet.wav vol 0.01
runs konkanivani_transcribe --model model "$clip" quiet.wav
[ "$(cut -f2 said.txt | sort -u | wc -l)" = 1 ] || fail "a quiet clip is transcribed otherwise: $(cat said.txt)"
python3 - <<'PYTHON' || fail "no clip of integers"
import struct
samples = [30000.0 * (i % 50 - 25) / 25 for i in range(16000)]
data = struct.pack(f"<{len(samples)}f", *samples)
with open("integers.wav", "wb") as file:
    file.write(b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt ")
    file.write(struct.pack("<IHHIIHH", 16, 3, 1, 16000, 64000, 4, 32))
    file.write(b"data" + struct.pack("<I", len(data)) + data)
PYTHON
refused "integers.wav: has samples of 30000, where 1 is full scale" konkanivani_transcribe --model model integers.wav
refused_late "1 of 3 files could not be transcribed" konkanivani_transcribe --model model "$clip" gone.flac "$clip"
[ "$(wc -l <said.txt)" = 2 ] || fail "transcribe did not go on behind a missing file: $(cat said.txt errors.txt)"
holds errors.txt "konkanivani_transcribe: gone.flac"

# Lines, texts and clips that cannot be used are listed and left out, also of a run that goes on; or they end it.
mkdir -p bad/audio
cp corpus/audio/*.flac bad/audio
cp corpus/*.jsonl bad
clip_of() { sed -n "$2s/.*\"audio_filepath\":\"\([^\"]*\)\".*/\1/p" "bad/$1.jsonl"; } # clip_of SPLIT LINE
silence() { sox -D "corpus/$1" "bad/$1" vol 0; } # as long as its line says
silence "$(clip_of train 1)"
truncate -s 3000 "bad/$(clip_of train 2)"
silence "$(clip_of validation 1)"
silence "$(clip_of test 1)"
sed -i '3s/"text":"[^"]*"/"text":"?!"/; 4s/"audio_filepath":"/&gone/; 5s/"text"/"txt"/' bad/train.jsonl
bad=(konkanivani_train --data bad --output bad_model "${size[@]}" --epochs 2 --snapshot-every 1 --resume auto)
runs "${bad[@]}" --max-steps 1
runs "${bad[@]}"
holds errors.txt "7 entries are skipped (--on-bad-audio stop ends the run instead):"
holds errors.txt "$(clip_of train 1): is silent" "$(clip_of train 2): cut off or damaged" "has no characters" gone \
  "train.jsonl:5: " "$(clip_of validation 1): is silent" "$(clip_of test 1): is silent"
holds bad_model/summary.json '"skipped": 7'
runs konkanivani_evaluate --model bad_model --manifest bad/test.jsonl --decoding greedy --summary bad.json
holds said.txt " over 2 clips"
holds bad.json '"skipped": 1'
refused "bad/train.jsonl:4: " konkanivani_train --data bad --output x --on-bad-audio stop
refused_late "is silent" konkanivani_evaluate --model bad_model --manifest bad/test.jsonl --decoding greedy \
  --on-bad-audio stop

# Stopped by a signal, killed, and gone on, with features from a cache: the weights of a run that was left alone and
# computed them anew, bit for bit.
long=(konkanivani_train --data corpus "${size[@]}" --batch-size 1 --epochs 6)
runs "${long[@]}" --output alone --profile 2-3 --no-report-sound --histograms
has_trace alone 2 3 forward backward update 'data wait' ClipGradNorm.before_update
stopped=("${long[@]}" --output stopped --snapshot-every 2 --resume auto --cache cache)
interrupted TERM stopped/snapshots/step-00000002 "${stopped[@]}"
holds errors.txt "no snapshot to resume from: starts a new run"
if [ "$code" = 143 ]; then
  holds errors.txt "konkanivani_train: SIGTERM was received: stopped after"
  [ ! -e stopped/model.safetensors ] || fail "a run that was stopped left a model"
else
  [ "$code" = 0 ] || fail "SIGTERM: exit code $code: $(cat errors.txt)"
fi
interrupted KILL 'stopped/snapshots/step-*[12]4' "${stopped[@]}"
newest=$(printf '%s\n' stopped/snapshots/step-???????? | tail -1)
truncate -s 100 "$newest/state.json"
runs "${stopped[@]}"
holds errors.txt "rejected $newest"
holds errors.txt "resumes from stopped/snapshots/step-"
cmp alone/model.safetensors stopped/model.safetensors ||
  fail "a run that was stopped and killed ends with other weights"
has_report alone 36
lacks alone/report.html '"kind":"sound"'
holds alone/report.html '"kind":"distribution","title":"encoder.'
has_report stopped 36
for metric in loss validation.cer; do
  of() { sed -nE "s/^\{(\"step\":[0-9]+).*(\"$metric\":[^,}]*).*/\1 \2/p" "$1/metrics.jsonl"; }
  cmp <(of alone) <(of stopped) || fail "a run that was stopped and killed has another curve of $metric"
done
compgen -G "cache/*.data" >/dev/null || fail "--cache kept nothing"

# Out of memory in the middle of an epoch: the run goes on with smaller batches of the same clips in each step, so that
# its losses are those of the run that was left alone, but for batch normalisation. Another precision and rate need
# --resume-changed.
recipe=(konkanivani_train --data corpus "${size[@]}" --batch-frames 0 --schedule plateau --warmup-steps 0
  --learning-rate 1e-3 --epochs 2 --workers 1)
runs "${recipe[@]}" --batch-size 4 --output large
mv errors.txt large.txt
runs "${recipe[@]}" --batch-size 4 --output little --max-steps 1
cp -r little faster
little=("${recipe[@]}" --batch-size 1 --gradient-accumulation 4 --gradient-checkpointing)
runs "${little[@]}" --output little --resume auto
mv errors.txt little.txt
holds little.txt "a window of 1 micro-batch of 4 samples is read as 4 micro-batches of 1 sample, the same samples"
losses() { tr '\r' '\n' <"$1" | sed -n 's/^epoch \([12]\) done  step \([0-9]*\)  loss \([0-9.]*\) .*/\1 \2 \3/p'; }
paste <(losses large.txt) \
  <(losses little.txt) |
  awk '{ d = $3 / $6 - 1; if ($1 != $4 || $2 != $5 || d * d > 0.003 ^ 2) exit 1 } END { if (NR != 2) exit 1 }' ||
  fail "smaller batches have other losses: $(losses large.txt; losses little.txt)"
refused_late "--dropout is 0.1 here and 0 in the snapshot" "${little[@]}" --output little --resume auto --dropout 0.1 \
  --text-multiple 8 --epochs 3
holds errors.txt "--text-multiple is 8 here and 1 in the snapshot"
holds little/snapshots/config.json '"dropout": 0.0'
changed=("${little[@]}" --mixed-precision --learning-rate 5e-4 --output faster --max-steps 2 --resume auto)
refused_late " is not of this run: " "${changed[@]}"
holds errors.txt "only in the Trainer: looptorch::Autocast<>" \
  "the learning rate of group 0 is 0.0005 here, 0.001 in the snapshot" \
  "(a program's --resume-changed) goes on with this"
runs "${changed[@]}" --resume-changed
holds errors.txt \
  "policies: none -> looptorch::Autocast<>; the optimizer of update: the learning rate of group 0: 0.001 -> 0.0005"
holds faster/summary.json '"steps": 2'
refused "holds another model than the one asked for: d_model 32 instead of 48" "${changed[@]}" --d-model 48 \
  --resume-changed
# Another validation list is refused: its curve and its best weights would mix two.
cp -r corpus shorter
sed -i 1d shorter/validation.jsonl
refused_late "RunSettings: the validation list of --data is " "${changed[@]}" --resume-changed --data shorter

# The model is that of the epoch with the lowest validation CER; the flags of a run are those of its model.
runs konkanivani_evaluate --model alone --manifest corpus/validation.jsonl --decoding greedy --batch-size 1 \
  --summary best.json
awk -F, -v cer="$(sed -n 's/^ *"cer": *\([-0-9.e+]*\),\{0,1\}$/\1/p' best.json)" \
  'NR == 2 || $3 < best { best = $3 } END { d = best - cer; exit !(NR == 7 && d * d < 1e-8) }' alone/curve.csv ||
  fail "the model is not that of the best epoch: $(cat alone/curve.csv best.json)"
runs konkanivani_train --data corpus --output flags "${size[@]}" --positions relative --subsampling 1 --max-steps 1 \
  --shortest-first-epochs 1 --spec-augment --speed-perturbation
holds flags/config.json '"positions": "relative"'
holds flags/config.json '"subsampling": 1'
holds flags/summary.json '"steps": 1'
holds said.txt "    reference   " # three examples of each epoch, five of the test clips

# What a run cannot go on from, or would overwrite.
resume=(konkanivani_train --data corpus "${size[@]}" --output x --resume)
refused "alone/snapshots holds a run: go on with --resume auto" "${long[@]}" --output alone
refused_late " is not of this run: " "${long[@]}" --output alone --learning-rate 1e-3 --resume auto
[ -s alone/summary.json ] || fail "a refused run removed the summary of the one that it was to go on from"
refused "holds another model than the one asked for: d_model 32 instead of 48, encoder_layers 1 instead of 2" \
  "${resume[@]}" alone/snapshots --d-model 48 --encoder-layers 2
refused "characters are code points in one run and graphemes in the other" "${resume[@]}" alone/snapshots \
  --characters grapheme
refused_late " is not of this run: " "${long[@]}" --output other_rate --learning-rate 1e-3 --resume alone/snapshots
refused "alone/snapshots/step-00000099" "${resume[@]}" alone/snapshots/step-00000099
mkdir more
sed 's#"text":"#&q#; s#audio/#../corpus/audio/#' corpus/train.jsonl >more/train.jsonl
for split in validation test; do sed 's#audio/#../corpus/audio/#' corpus/$split.jsonl >more/$split.jsonl; done
refused 'only there: none; only in these texts: "q"' "${resume[@]}" alone/snapshots --data more
[ ! -e x ] || fail "a refused run left a folder"

# Weights to begin with: a checkpoint of the public project, whose sentence says what carries over; then this program's
# own.
python_sizes=(--d-model 16 --encoder-layers 2 --decoder-layers 1 --subsampling 1)
from_weights=(konkanivani_train --data corpus --batch-size 3 --max-steps 1 --learning-rate 1e-30 --warmup-steps 0
  --device cpu --no-report --output)
anew=(--rename 'ctc_head.*=' --rename 'decoder.embedding.*=' --rename 'decoder.output*=')
checkpoint=(--weights "$first_weights/checkpoint_epoch_15.pt")
refused "--rename translates names of --weights FILE: give that, too" "${from_weights[@]}" x --rename a=b
refused "nowhere.pt: cannot open" "${from_weights[@]}" x --weights nowhere.pt
refused "train.jsonl" "${from_weights[@]}" x --weights corpus/train.jsonl
refused "corpus/model.safetensors: cannot open" "${from_weights[@]}" x --weights corpus
refused "checkpoint_epoch_15.pt: does not fit the model, and nothing was loaded; " "${from_weights[@]}" x \
  "${checkpoint[@]}" --d-model 32
refused "wide with 2 + 1 layers: give --d-model 16 --encoder-layers 2 --decoder-layers 1 --subsampling 1" \
  "${from_weights[@]}" x "${checkpoint[@]}" --preset original
refused "The file has 9 characters and the training texts " "${from_weights[@]}" x "${checkpoint[@]}" \
  "${python_sizes[@]}"
[ ! -e x ] || [ -z "$(ls x)" ] || fail "weights that were refused left $(ls x)"
runs "${from_weights[@]}" begun_with "${python_sizes[@]}" "${checkpoint[@]}" "${anew[@]}"
holds said.txt \
  'checkpoint_epoch_15.pt: 102 loaded from "model_state_dict"; 5 missing: ctc_head.bias, ctc_head.weight, decoder.' \
  '5 missing: ctc_head.bias, ctc_head.weight, decoder.embedding.weight, decoder.output.bias, decoder.output.weight'
holds said.txt "names are those of the public KonkaniVani project"
holds said.txt \
  'only weights carry over, not "epoch", "optimizer_state_dict", "scheduler_state_dict", "scaler_state_dict", "val' \
  '"scheduler_state_dict", "scaler_state_dict", "val_loss", "config": epochs'
cp -r begun_with kept && rm -rf kept/snapshots
refused "--output kept would overwrite --weights kept: choose another place" "${from_weights[@]}" kept \
  "${python_sizes[@]}" --weights kept
runs "${from_weights[@]}" begun_again "${python_sizes[@]}" --seed 3 --weights begun_with
grep -qE '^begun_with: [0-9]+ loaded$' said.txt || fail "--weights FOLDER said $(cat said.txt)"
for name in encoder.blocks.1.attention.k_proj.weight ctc_head.weight; do
  same_tensor $name begun_with/model.safetensors begun_again/model.safetensors
done
runs "${from_weights[@]}" begun_again "${python_sizes[@]}" --seed 3 --weights begun_again --resume auto
holds errors.txt "--weights is not read: the run resumes from a snapshot, with its weights"
cp -r corpus other_letters
sed -i 's/ा/q/g' other_letters/*.jsonl # as many, and others
reason="begun_with/vocabulary.json: the training texts have other characters than the model of begun_with: "
refused "$reason--rename 'ctc_head.*=' " \
  "${from_weights[@]}" x "${python_sizes[@]}" --weights begun_with --data other_letters

# A corpus as OpenSLR publishes it: transcripts beside audio, and no splits.
mkdir -p slr/wavs
cp corpus/audio/*.flac slr/wavs
sed 's#.*audio/\([^."]*\)[^"]*".*"text":"\([^"]*\)".*#\1\t\2#' corpus/*.jsonl >slr/line_index.tsv
runs konkanivani_train --data slr --output slr_model "${size[@]}" --epochs 1
holds said.txt ", 9 training clips"
echo "gone	देव" >>slr/line_index.tsv
refused "line_index.tsv:12: there is no audio file called gone" konkanivani_train --data slr --output x \
  --on-bad-audio stop
mkdir nothing
refused "nothing: holds no corpus; looked for train.jsonl, train.tsv (Common Voice)" konkanivani_train --data nothing \
  --output x

touch file
refused "--output file: this folder cannot be made" konkanivani_train --data corpus --output file
refused "file/" konkanivani_corpus --output file --train 1 --validation 1 --test 1
mkdir broken
head -n1 corpus/train.jsonl | sed 's/audio_filepath":"/&gone/' >broken/train.jsonl
cp more/validation.jsonl more/test.jsonl broken
refused "broken/train.jsonl:1: " konkanivani_train --data broken --output x --on-bad-audio stop
refused_late "none of 1 clips can be used; the first: " konkanivani_train --data broken --output x
sed 's/"text":"[^"]*"/"text":"?!"/; s#audio/#../corpus/audio/#' corpus/train.jsonl >broken/train.jsonl
refused "hold no characters" konkanivani_train --data broken --output x
refused "--schedule: \"cosine\" is not linear|plateau" konkanivani_train --data corpus --output x --schedule cosine
refused "--n-best: greedy decoding gives one text" konkanivani_transcribe --model model --decoding greedy \
  --n-best 2 "$clip"
refused "--beam: greedy decoding keeps one text" konkanivani_transcribe --model model --decoding greedy --beam 4 "$clip"
refused "--ctc-weight: attention decoding has no weights" konkanivani_transcribe --model model --decoding attention \
  --ctc-weight 0.5 "$clip"
refused "--mask-frames has no effect without --spec-augment" konkanivani_train --data corpus --output x --mask-frames 5
refused "--report-sound has no effect without --report" konkanivani_train --data corpus --output x --report-sound \
  --no-report
refused "nowhere" konkanivani_transcribe --model nowhere "$clip"
refused "gone.flac" konkanivani_transcribe --model model gone.flac
cp -r model half
echo '{}' >half/vocabulary.json
refused "half/vocabulary.json: " konkanivani_evaluate --model half --manifest corpus/test.jsonl
[ ! -e x ] || fail "a refused run left a folder"
