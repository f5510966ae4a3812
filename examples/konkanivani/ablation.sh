#!/usr/bin/env bash
# ablation.sh PROGRAMS OUTPUT: measures what each part of the recipe contributes, on a small model and short
# clean sentences.
#
# Trains the model with one change at a time, each from three seeds, since results of such short runs vary by
# chance. Prints a Markdown table of error rates on held-out sentences. PROGRAMS is the folder of the
# example's built programs. Run it again to continue after an interruption.
set -euo pipefail

if [ $# != 2 ] || [ ! -x "$1/konkanivani_train" ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
programs=$1 output=$2
export OMP_WAIT_POLICY=passive # threads that wait leave the core to those that read clips

mkdir -p "$output"
"$programs/konkanivani_corpus" --output "$output/corpus" --seed 1 --train 1000 --validation 50 --test 200 \
  --min-words 2 --max-words 3 --clean >&2

value() { # value FILE KEY: a number of a JSON file with a line a key
  sed -n "s/^ *\"$2\": *\([-0-9.e+]*\),\{0,1\}\$/\1/p" "$1"
}

train() { # train SEED FOLDER [FLAG...]
  [ -e "$2/summary.json" ] ||
    "$programs/konkanivani_train" --data "$output/corpus" --output "$2" --device cpu --workers 1 --seed "$1" \
      --cache "$output/cache" --resume auto --d-model 96 --encoder-layers 2 --decoder-layers 1 --batch-frames 1600 \
      --epochs 8 --learning-rate 3e-3 --warmup-steps 50 --shortest-first-epochs 0 "${@:3}" >"$2.log" 2>&1
}

row() { # row NAME DECODING [FLAG...]
  local name=$1 decoding=$2 cer=() wer=() seed folder
  for seed in 1 2 3; do
    folder=$output/$(tr -cs 'a-zA-Z0-9.\n' _ <<<"$name")-$seed
    train "$seed" "$folder" "${@:3}"
    "$programs/konkanivani_evaluate" --model "$folder" --manifest "$output/corpus/test.jsonl" --device cpu \
      --decoding "$decoding" --examples 0 --summary "$folder/evaluation.json" >&2
    cer+=("$(value "$folder/evaluation.json" cer)")
    wer+=("$(value "$folder/evaluation.json" wer)")
  done
  mapfile -t cer < <(printf '%s\n' "${cer[@]}" | sort -g)
  mapfile -t wer < <(printf '%s\n' "${wer[@]}" | sort -g)
  printf '| %s | %s | %.3f | %.3f | %.3f | %.3f |\n' "$name" "$decoding" "${cer[@]}" "${wer[1]}"
}

echo '| change | decoding | CER, best of 3 | median | worst | WER, median |'
echo '| --- | --- | ---: | ---: | ---: | ---: |'
row 'none: CTC weight 0.7, every clip as it is' joint
row 'SpecAugment' joint --spec-augment
row 'other speeds' joint --speed-perturbation
row 'CTC weight 0.3' joint --ctc-weight 0.3
row 'CTC weight 1' ctc --ctc-weight 1
row 'frames of 20 ms' joint --subsampling 2
