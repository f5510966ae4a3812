#!/usr/bin/env bash
# finetune_exported_cli_test.sh PROGRAM MODELS PROGRAMS: tests what a user sees of finetune_exported. MODELS has the
# .pt2 files of tests/parity/exported_models.py, PROGRAMS those of exported_programs.py.
#
# Bad input gives one line and exit code 2. A text classifier, an image classifier and a speech model are trained, from
# lines of JSON, from safetensors and from sounds; a run says what the model takes, and leaves weights and a summary.
set -euo pipefail

programs=$(dirname -- "$(realpath "$1")") models=$(realpath "$2") others=$(realpath "$3")
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"
export OMP_NUM_THREADS=1
load_once
has_help finetune_exported model train validation output loss labels scores blank count-labels weight-decay clip \
  freeze lora lora-rank sample-rate normalize-sound gradient-checkpointing on-bad-audio batch-size \
  gradient-accumulation epochs learning-rate warmup-steps device seed snapshot-every resume bf16 config

# Data: tokens as lines of JSON, images as safetensors of Python's standard library, sounds as 16-bit WAV.
python3 - <<'PYTHON'
import json, math, random, struct, wave

random.seed(1)


def safetensors(name, tensors):
    header, data = {}, b""
    for key, (kind, code, shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}{code}", *values)
        header[key] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    with open(name, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


with open("text.jsonl", "w") as file:
    for i in range(12):
        label, length = i % 3, 4 + i % 5
        ids = [1 + 12 * label + random.randrange(12) for _ in range(length)]
        file.write(json.dumps({"input_ids": ids, "attention_mask": [1] * length, "labels": label}) + "\n")
classes = [i % 3 for i in range(6)]
pixels = ("F32", "f", [6, 3, 16, 16], [c - 1 + random.random() for c in classes for _ in range(3 * 16 * 16)])
safetensors("images.safetensors", {"pixel_values": pixels, "labels": ("I64", "q", [6], classes)})
safetensors("floats.safetensors", {"pixel_values": pixels, "labels": ("F32", "f", [6], classes)})
safetensors("unlabelled.safetensors", {"pixel_values": pixels})
safetensors("uneven.safetensors", {"pixel_values": pixels, "labels": ("I64", "q", [5], classes[:5])})
wide = ("F32", "f", [2, 3, 16, 20], [0.0] * 1920)
safetensors("wide.safetensors", {"pixel_values": wide, "labels": ("I64", "q", [2], [0, 1])})
small = ("F32", "f", [6, 3, 6, 6], [random.random() for _ in range(6 * 3 * 36)])
safetensors("small.safetensors", {"image": small, "labels": ("I64", "q", [6], [0, 1] * 3)})
with open("speech.jsonl", "w") as file:
    for i in range(4):
        with wave.open(f"tone{i}.wav", "wb") as sound:
            sound.setnchannels(1), sound.setsampwidth(2), sound.setframerate(16000)
            samples = [int(9000 * math.sin(n * (i + 1) / 9)) for n in range(420 + 40 * i)]
            sound.writeframes(struct.pack(f"<{len(samples)}h", *samples))
        file.write(json.dumps({"input_values": f"tone{i}.wav", "labels": [1 + i, 2 + i, 3][: 2 + i % 2]}) + "\n")
PYTHON

common=(--device cpu --workers 1 --no-report)
vit=(finetune_exported --model "$models/vit.pt2" "${common[@]}")
speech=(finetune_exported --model "$models/wav2vec2.pt2" "${common[@]}")
refused "--model is missing" finetune_exported --train text.jsonl --output x
refused "nowhere.pt2" finetune_exported --model nowhere.pt2 --train text.jsonl --output x "${common[@]}"
refused "--model images.safetensors is no .pt2: write one by torch.export.save" finetune_exported \
  --model images.safetensors --train text.jsonl --output x "${common[@]}"
cp images.safetensors fake.pt2
refused "fake.pt2" finetune_exported --model fake.pt2 --train text.jsonl --output x "${common[@]}"
refused "nowhere.jsonl: is missing" "${vit[@]}" --train nowhere.jsonl --output x
refused "finetune_exported.txt: is neither .safetensors, nor a folder of such files, nor .jsonl" "${vit[@]}" \
  --train finetune_exported.txt --output x
refused 'unlabelled.safetensors: has no tensor "labels"; it has pixel_values' "${vit[@]}" \
  --train unlabelled.safetensors --output x
refused 'floats.safetensors: "labels" is Float, and the model takes Long' "${vit[@]}" --train floats.safetensors \
  --output x
refused 'uneven.safetensors: "labels" has 5 samples, and "pixel_values" 6' "${vit[@]}" --train uneven.safetensors \
  --output x
refused 'wide.safetensors: "pixel_values" has sizes [3, 16, 20] in each sample, and the model takes [3, 16, 16]' \
  "${vit[@]}" --train wide.safetensors --output x
refused 'text.jsonl:1: has no field "pixel_values"' "${vit[@]}" --train text.jsonl --output x
refused 'the model has no output "loss": say by --loss how it is computed' "${speech[@]}" --train speech.jsonl \
  --output x
refused 'the model has no output "scores", but' "${vit[@]}" --train images.safetensors --output x --loss cross-entropy \
  --scores scores
refused 'the first dimension of the input "factor" is missing: export the model with an open batch' finetune_exported \
  --model "$others/encoder.pt2" "${common[@]}" --train text.jsonl --output x
bert=(finetune_exported --model "$models/bert.pt2" "${common[@]}")
line='{"input_ids": [1, 2], "attention_mask": [1, 1], "labels": 0}'
broken() { # broken TEXT LINE: a second line that is refused
  printf '%s\n%s\n' "$line" "$2" >broken.jsonl
  refused "broken.jsonl:2: $1" "${bert[@]}" --train broken.jsonl --output x
}
broken 'has no field "labels"' '{"input_ids": [1], "attention_mask": [1]}'
broken '"input_ids" is Float, and the model takes Long' '{"input_ids": [1.5], "attention_mask": [1], "labels": 0}'
broken '"input_ids" has lists of different lengths' '{"input_ids": [[1], [1, 2]], "attention_mask": [1], "labels": 0}'
broken '"input_ids" holds null, where a number should be' '{"input_ids": [null], "attention_mask": [1], "labels": 0}'
broken 'is an array, and no object of inputs' '[1]'
broken '"input_ids" has sizes [17] in each sample, and the model takes' \
  "{\"input_ids\": [$(seq -s, 17)], \"attention_mask\": [1], \"labels\": 0}"
broken '"input_ids" names a file, which has no whole numbers' \
  '{"input_ids": "gone.npy", "attention_mask": [1], "labels": 0}'
broken '"attention_mask" has a size of 1 and "input_ids" of 2, and the model takes one size, ' \
  '{"input_ids": [1, 2], "attention_mask": [1], "labels": 0}'
echo '{"input_ids": [1, 99999], "attention_mask": [1, 1], "labels": 0}' >token.jsonl
refused_late 'the numbers are 1 to 99999 of "input_ids", 1 to 1 of "attention_mask", 0 to 0 of "labels" (in step 0, batch 0 ' \
  "${bert[@]}" --train token.jsonl --output x
refused "--lora-rank needs --lora" "${bert[@]}" --train text.jsonl --output x --lora-rank 4
refused "--blank is of --loss ctc, and the loss is own" "${bert[@]}" --train text.jsonl --output x --blank 3
refused '--labels "classes": the model computes its own loss, and has no input of that name' "${bert[@]}" \
  --train text.jsonl --output x --labels classes
echo '{"pixel_values": "gone.npy", "labels": 0}' >broken.jsonl
refused "gone.npy is missing" "${vit[@]}" --train broken.jsonl --output x
refused "no parameter" "${bert[@]}" --train text.jsonl --output x --freeze 'nothing.*'
[ ! -e x/model.safetensors ] || fail "a run that was refused left a model"

# A run overwrites neither its data nor its model, nor does it leave files among the former.
mkdir data
cp images.safetensors data/model.safetensors
cp "$models/vit.pt2" data/model.pt2
holds_it=", which the run reads and could overwrite: choose another folder for the output"
refused "--output data: holds data/model.safetensors$holds_it" "${vit[@]}" --train data/model.safetensors --output data
refused "--output data: holds data/model.safetensors$holds_it" "${vit[@]}" --train images.safetensors \
  --validation data/model.safetensors --output data
refused "--output data: holds data/model.pt2$holds_it" finetune_exported --model data/model.pt2 "${common[@]}" \
  --train images.safetensors --output data
refused "data: is the folder of the data" "${vit[@]}" --train data --output data
cmp images.safetensors data/model.safetensors || fail "a refused run wrote into its data"

# Text, from lines: the classes are told apart.
runs "${bert[@]}" --train text.jsonl --validation text.jsonl --output text --epochs 30 --batch-size 4 \
  --learning-rate 0.02 --warmup-steps 5 --clip 1
grep -qE '^input_ids +Long +\[s[0-9]+, s[0-9]+ <= 16\]$' said.txt || fail "no table of inputs: $(cat said.txt)"
holds said.txt "outputs: loss logits"
holds text/summary.json '"steps": 90'
grep -qE '"validation_accuracy": (1|0\.9)' text/summary.json ||
  fail "the classes are not told apart: $(cat text/summary.json)"
[ -s text/model.safetensors ] || fail "no weights"
runs finetune_exported --model text/model.pt2 "${common[@]}" --train text.jsonl --validation text.jsonl --output again \
  --epochs 1 --learning-rate 1e-9
[ "$(grep validation_accuracy text/summary.json)" = "$(grep validation_accuracy again/summary.json)" ] ||
  fail "text/model.pt2 is not the model that was trained"

# A run resumes with the same training and validation data and settings only.
part=("${bert[@]}" --train text.jsonl --output part --batch-size 4)
runs "${part[@]}" --validation text.jsonl --epochs 1 --snapshot-every 1
head -4 text.jsonl >few.jsonl
refused "--validation is 4 samples" "${part[@]}" --validation few.jsonl --epochs 2 --resume auto
refused "--count-labels is on here and off in the snapshot" "${part[@]}" --validation text.jsonl --epochs 2 \
  --resume auto --count-labels
refused "12 samples" "${bert[@]}" --train few.jsonl --validation text.jsonl --output part --batch-size 4 --epochs 2 \
  --resume auto
runs "${part[@]}" --validation text.jsonl --epochs 2 --resume auto
holds part/summary.json '"steps": 6'

# Blocks that are recomputed leave the weights the same.
for flag in --no-gradient-checkpointing --gradient-checkpointing; do
  runs "${bert[@]}" --train text.jsonl --output "run$flag" --epochs 2 --batch-size 4 --learning-rate 0.01 $flag
done
cmp run--no-gradient-checkpointing/model.safetensors run--gradient-checkpointing/model.safetensors ||
  fail "recomputed blocks train otherwise"

# A model that was exported for inference says what it lacks.
runs finetune_exported --model "$others/cnn_eval.pt2" "${common[@]}" --train small.safetensors --output inference \
  --epochs 1 --loss cross-entropy --scores output
holds errors.txt "cnn_eval.pt2 was exported in eval mode: "

# Images, from safetensors, in bf16, frozen but for the head.
runs "${vit[@]}" --train images.safetensors --output images --epochs 2 --batch-size 2 --gradient-accumulation 2 --bf16 \
  --freeze 'vit.*'
holds images/summary.json '"steps": 4'
[ "$(bytes_of images/model.safetensors vit.layernorm.weight | cut -c-8)" = 0000803f ] ||
  fail "a frozen weight has moved"

# Speech, from sounds, by CTC.
runs "${speech[@]}" --train speech.jsonl --output speech --loss ctc --epochs 3 --batch-size 2
holds speech/summary.json '"steps": 6'

# Samples that cannot be read are left out, of validation too, and listed with their lines; or the first one ends the
# run.
head -c 60 tone1.wav >cut.wav
sed 's/tone1/cut/' speech.jsonl >half.jsonl
sed 's/tone3/cut/' speech.jsonl >held_out.jsonl
cut=("${speech[@]}" --train half.jsonl --validation held_out.jsonl --loss ctc --epochs 1 --batch-size 2)
runs "${cut[@]}" --output cut
holds errors.txt "2 samples are skipped (--on-bad-audio stop ends the run instead):"
holds errors.txt "  half.jsonl:2: "
holds errors.txt "  held_out.jsonl:4: "
grep "half.jsonl:2: " errors.txt | grep -q "cut.wav" || fail "the sound is not named: $(cat errors.txt)"
holds cut/summary.json '"samples_skipped": 2'
holds speech/summary.json '"samples_skipped": 0'
refused "cut.wav" "${cut[@]}" --output x --on-bad-audio stop

# What LibTorch's kernels would read beyond, or take for something else, is refused.
for label in 0 99 -1; do
  echo "{\"input_values\": \"tone0.wav\", \"labels\": [1, $label]}" >beyond.jsonl
  refused "--loss ctc: the label $label of \"labels\" is none of the " "${speech[@]}" --train beyond.jsonl --output x \
    --loss ctc
done
refused '--loss mse: "logits" has sizes [6, 3] and "labels" [6]; they must have the same sizes' "${vit[@]}" \
  --train images.safetensors --output x --loss mse --batch-size 6

# Adapters.
runs "${bert[@]}" --train text.jsonl --output adapted --epochs 1 --sample-rate 8000 --lora '*query' --lora '*value' --lora-rank 2
holds errors.txt "--sample-rate is not used: the data names no sound"
[ -s adapted/adapter/adapter_model.safetensors ] || fail "no adapters were saved"
[ -s adapted/model.pt2 ] || fail "a model with adapters was not exported"
