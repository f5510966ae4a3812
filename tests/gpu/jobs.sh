# shellcheck shell=bash
# Sourced by run.sh: what runs on a GPU after the tests, the most telling first, since the time may end before the list does.
# `job`, `peer` and `figure` are run.sh's, as are $bin, $pack, $work, $device and $quick.
# shellcheck disable=SC2154

size=() few=() short=(--max-steps 4) precise=(--bf16) gan=(--max-steps 40 --epochs 1000) konkani=()
if [ -n "$quick" ]; then
  size=(quick) few=(--max-steps 2 --batch-size 2) short=(--max-steps 1) gan=(--small --max-steps 2 --epochs 1)
  konkani=(--max-steps 2)
fi
[ "$device" != cpu ] || precise=()

# ---- Steps beside their peers ----

job 60 "small MLP" "$bin/small_step" "$device" "${size[@]}"
peer 60 "small MLP, peers" torch python3 "$pack/small_step.py" "$device" "${size[@]}"
[ "$device" = cpu ] || job 90 "optimizers" "$bin/optimizers" "$device"
job 120 "Whisper steps" "$bin/whisper_step" "$device" "${size[@]}" "$work/whisper"
peer 100 "Whisper steps, transformers" transformers python3 "$pack/whisper_step.py" "$device" "${size[@]}" "$work/whisper"
job 60 "ViT steps" "$bin/vit_step" "$device" "${size[@]}"
[ "$device" = cpu ] || job 120 "memory of 60 runs" "$bin/memory_prediction" "$device"
peer 120 "exported steps" transformers python3 "$pack/exported_step.py" "$device" "${size[@]}" "$bin/finetune_exported" "$work/exported"
peer 60 "ViT steps, timm" timm python3 "$pack/vit_step.py" "$device" "${size[@]}"

# ---- Programs ----

function_job() { # function_job SECONDS NAME FUNCTION ARGUMENT...: a job that is an exported function
  job "$1" "$2" bash -c '"$@"' "$3" "${@:3}"
}

# Trains into OUTPUT/killed, ended by SIGKILL at changing moments until it has come to its end, and once into OUTPUT/alone. Fails if
# the weights differ in a bit. A row has the number of kills.
killed_run() { # killed_run OUTPUT COMMAND...
  local output=$1 kills=0 time
  shift
  "$@" --output "$output/alone" || return
  for time in 3 3.6 3.3 4 3.7 4.4 5 5 6; do
    timeout -s KILL "$time" "$@" --output "$output/killed" --resume auto && break
    kills=$((kills + 1))
  done
  "$@" --output "$output/killed" --resume auto || return
  cmp "$output/alone/model.safetensors" "$output/killed/model.safetensors" || return
  printf '\n{"name": "killed and resumed, the same bits", "value": %d, "unit": "kills"}\n' $kills
}

# Runs COMMAND; a row has the most memory of the whole device that nvidia-smi showed meanwhile.
with_memory() { # with_memory NAME COMMAND...
  local name=$1 samples rc=0 sampler=
  shift
  samples=$(mktemp)
  if type -P nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -lms 100 >"$samples" &
    sampler=$!
  fi
  "$@" || rc=$?
  if [ -n "$sampler" ]; then
    kill "$sampler"
    printf '\n{"name": "%s: nvidia-smi", "value": %d, "unit": "MiB"}\n' "$name" "$(sort -n "$samples" | tail -1)"
  fi
  rm "$samples"
  return $rc
}
export -f killed_run with_memory

corpus=$pack/corpus
data=(--train "$corpus/train.jsonl" --validation "$corpus/validation.jsonl" --workers 8 --device "$device")

if [ -e "$pack/whisper-tiny.en-ct2" ]; then
  job 30 "Whisper import" "$bin/whisper_import" --ctranslate2 "$pack/whisper-tiny.en-ct2" --output "$work/tiny.en"
  tiny=("$bin/whisper_finetune" --model "$work/tiny.en" "${data[@]}")
  job 90 "quickstart" "${tiny[@]}" --test "$corpus/test.jsonl" --output "$work/quickstart" --fp32 --fallback --whole-windows "${few[@]}"
  figure "quickstart: word error rate before" "" "$work/quickstart/summary.json" wer_before
  figure "quickstart: word error rate after" "" "$work/quickstart/summary.json" wer_after
  figure "quickstart: share of the card's peak" "" "$work/quickstart/summary.json" mfu
  function_job 120 "killed run" killed_run "$work/bits" "${tiny[@]}" --best last --no-report --epochs 4 --snapshot-every 4 \
    --seed 3 "${precise[@]}" "${few[@]}"

  # Whisper small with random weights: the seeds' settings, and what is found for a card of 4 GB.
  job 60 "a random Whisper small" python3 "$pack/random_small.py" "$work/tiny.en" "$work/small"
  small=("$bin/whisper_finetune" --model "$work/small" "${data[@]}" --best loss --no-report --memory --max-audio-seconds 30)
  if [ -z "$quick" ]; then
    function_job 90 "small, --fit 4GB" with_memory "small, --fit 4GB" "${small[@]}" --output "$work/fit" --fit 4GB \
      --gradient-accumulation 16 "${short[@]}"
    figure "small, --fit 4GB: tensors" bytes "$work/fit/summary.json" peak_bytes
    function_job 60 "small, 1 x 16, fp16, recomputed" with_memory "small, 1 x 16, fp16, recomputed" "${small[@]}" \
      --output "$work/seed" --batch-size 1 --gradient-accumulation 16 --fp16 --gradient-checkpointing "${short[@]}"
    figure "small, 1 x 16, fp16, recomputed: tensors" bytes "$work/seed/summary.json" peak_bytes
  fi
  if [ "$device" != cpu ]; then
    job 60 "more than the card has, --retry-on-oom" "${small[@]}" --output "$work/oom" --batch-size 256 --whole-windows --retry-on-oom \
      --memory-snapshot "$work/oom.pickle" --max-steps 2
    job 60 "quickstart, captured" "${tiny[@]}" --test "$corpus/test.jsonl" --output "$work/captured" --bf16 --capture --no-report
    figure "quickstart, captured: word error rate after" "" "$work/captured/summary.json" wer_after
    job 60 "quickstart, fp16" "${tiny[@]}" --test "$corpus/test.jsonl" --output "$work/fp16" --fp16 --no-report
    figure "quickstart, fp16: word error rate after" "" "$work/fp16/summary.json" wer_after
    job 60 "quickstart, as a card has it by default" "${tiny[@]}" --test "$corpus/test.jsonl" --output "$work/by_default" --no-report
    figure "quickstart, by default: word error rate after" "" "$work/by_default/summary.json" wer_after
  fi
fi

job 60 "emotion corpus" "$bin/emotion_corpus" --output "$work/emotion" --train 96 --validation 24 --test 24 --seed 1
job 60 "GAN" "$bin/gan_train" --data "$work/emotion" --output "$work/gan" --device "$device" --mixed-precision --validate-every 0 \
  --workers 8 --memory "${gan[@]}"
figure "GAN, 40 steps" s "$work/gan/summary.json" seconds
figure "GAN: tensors" bytes "$work/gan/summary.json" peak_bytes
figure "GAN: share of the card's peak" "" "$work/gan/summary.json" mfu

[ "$device" = cpu ] || job 60 "GAN, captured" "$bin/gan_train" --data "$work/emotion" --output "$work/gan_captured" --device "$device" \
  --mixed-precision --validate-every 0 --workers 8 --memory --capture "${gan[@]}"
figure "GAN, captured, 40 steps" s "$work/gan_captured/summary.json" seconds

konkani_train=("$bin/konkanivani_train" --data "$pack/konkani" --device "$device" --workers 8 --seed 1 --d-model 96 --encoder-layers 2
  --decoder-layers 1 --batch-frames 1600 --epochs 8 --learning-rate 3e-3 --warmup-steps 50 --mixed-precision)
job 90 "KonkaniVani" "${konkani_train[@]}" --output "$work/konkani" "${konkani[@]}"
figure "KonkaniVani, 8 epochs" s "$work/konkani/summary.json" seconds
figure "KonkaniVani: steps" "" "$work/konkani/summary.json" steps
figure "KonkaniVani: share of the card's peak" "" "$work/konkani/summary.json" mfu
[ "$device" = cpu ] || job 90 "KonkaniVani, captured" "${konkani_train[@]}" --output "$work/konkani_captured" --capture "${konkani[@]}"
figure "KonkaniVani, captured, 8 epochs" s "$work/konkani_captured/summary.json" seconds
figure "KonkaniVani, captured: character error rate" "" "$work/konkani_captured/summary.json" cer
job 60 "KonkaniVani, joint decoding" "$bin/konkanivani_evaluate" --model "$work/konkani" --manifest "$pack/konkani/test.jsonl" \
  --device "$device" --decoding joint --summary "$work/konkani.json"
figure "KonkaniVani: character error rate" "" "$work/konkani.json" cer

# ---- Peers that compile first ----

if [ "$device" != cpu ]; then
  peer 80 "ViT steps, timm, compiled" timm python3 "$pack/vit_step.py" "$device" compiled
  peer 110 "Whisper steps, transformers, compiled" transformers python3 "$pack/whisper_step.py" "$device" "$work/whisper" compiled
fi
