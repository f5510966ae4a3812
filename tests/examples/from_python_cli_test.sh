#!/usr/bin/env bash
# from_python_cli_test.sh WHISPER-PROGRAMS KONKANIVANI-PROGRAMS: tests commands that the READMEs of older Python
# projects print (Whisper on a GTX 980 and an RTX 4080, KonkaniVani on a T4). Each ends in a run, or in one sentence
# that says what to type instead.
set -euo pipefail

whisper=$(realpath -- "$1") konkanivani=$(realpath -- "$2")
parity=$(realpath -- "$(dirname -- "${BASH_SOURCE[0]}")/../parity/data")
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"
export HF_HUB_CACHE=$work/hub

# The GTX 980's: python main.py --only-train --model openai/whisper-small ...
programs=$whisper
load_once
asked=(--model openai/whisper-small --batch-size 1 --gradient-accumulation 16 --epochs 3)
refused "unknown option --only-train: each program is one stage, and this one trains; leave it out" whisper_finetune \
  --only-train "${asked[@]}"
given=(--train clips.jsonl --validation clips.jsonl --output out --device cpu)
refused "hf download openai/whisper-small --local-dir whisper-small" whisper_finetune "${asked[@]}" "${given[@]}"
refused "hf download openai/whisper-medium --local-dir whisper-medium" whisper_finetune --model openai/whisper-medium \
  --train-subset 5 --batch-size 1 --gradient-accumulation 32 --epochs 1 "${given[@]}"

# The RTX 4080's: python training/fine_tune_optimized.py --data_dir ... --batch_size 48 ...
refused "unknown option --data_dir: give its tables to --train, --validation and --test" whisper_finetune \
  --data_dir ./data/morse_dataset --output_dir ./models/whisper-morse-optimized --batch_size 48 \
  --gradient_accumulation_steps 2 --dataloader_num_workers 6 --bf16 --num_epochs 3
refused "--model is missing" whisper_finetune --output_dir ./models/whisper-morse --use_chunking --batch_size 32 --bf16
model=hub/models--openai--whisper-tiny/snapshots/abc
mkdir -p "$model"
cp "$parity"/tiny_whisper/{config.json,generation_config.json,model.safetensors} "$model"
cp "$parity/small_tokenizer.json" "$model/tokenizer.json"
cp "$parity"/tiny_whisper/clips.{jsonl,wav} .
runs whisper_finetune --model openai/whisper-tiny --train_file clips.jsonl --validation_file clips.jsonl \
  --output_dir out --batch_size 2 --gradient_accumulation_steps 2 --dataloader_num_workers 1 --bf16 --num_epochs 1 \
  --normalizer none --use_cpu
[ -e out/model.safetensors ] || fail "the guide's flags left no model"
holds out/run.conf "model=openai/whisper-tiny"

# The T4's: python3 training_scripts/train_konkanivani_asr.py --batch_size 1 ... --resume
# checkpoints/checkpoint_epoch_15.pt
programs=$konkanivani
load_once
flags=(--batch_size 1 --gradient_accumulation_steps 8 --mixed_precision --d_model 192 --encoder_layers 8
  --decoder_layers 4)
resume=(--resume checkpoints/checkpoint_epoch_15.pt)
refused "--data is missing" konkanivani_train "${flags[@]}" --device cuda "${resume[@]}"
mkdir checkpoints && cp "$first_weights/checkpoint_epoch_15.pt" checkpoints
refused "programs with --weights FILE take it so" konkanivani_train --data data --output model "${flags[@]}" \
  --device cpu "${resume[@]}"
# As that sentence says, and without a checkpoint, it trains by the settings of its own project.
mkdir data && cp clips.wav data
for split in train validation test; do cp clips.jsonl "data/$split.jsonl"; done
settings=(--data data --device cpu --max_steps 1 --no-report)
trains() { runs konkanivani_train "${settings[@]}" --output "$@"; } # trains OUTPUT FLAG...
trains original "${flags[@]}"
holds errors.txt \
  "preset original, since --batch_size is a flag of train_konkanivani_asr.py: learning rate 0.0005, 50 epochs, " \
  "learning rate 0.0005, 50 epochs, frames of 10 ms; --preset measured has"
holds original/run.conf preset=original batch-size=1 gradient-accumulation=8 d-model=192 encoder-layers=8 \
  decoder-layers=4
holds original/config.json '"d_model": 192' '"subsampling": 1' '"dropout": 0.1'
small=(--d-model 16 --encoder-layers 1 --decoder-layers 1)
trains chosen "${small[@]}" --batch_size 2 --preset measured
holds errors.txt "preset measured: learning rate 0.002"
trains plain "${small[@]}" --batch-size 2
holds errors.txt "preset measured: learning rate 0.002"
trains repeated --config plain/run.conf --batch_size 1
holds errors.txt "preset measured: learning rate 0.002"
