#!/usr/bin/env bash
# whisper_memory_cli_test.sh PROGRAMS TINY [TINY.EN]: tests how whisper_finetune saves memory. PROGRAMS is the folder
# of the built programs. TINY has a model so small that a run takes a second, and ten clips of 0.1 s. TINY.EN, if
# given, is Whisper's own.
set -euo pipefail

programs=$(cd -- "$1" && pwd)
tiny=$(cd -- "$2" && pwd)
real=${3:-none}
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"
load_once

tune=(whisper_finetune --model "$tiny" --train "$tiny/clips.jsonl" --validation "$tiny/clips.jsonl" --batch-size 2
  --gradient-accumulation 2 --epochs 3 --learning-rate 0.01 --workers 2 --normalizer none --best loss --device cpu)

# finetune FOLDER [FLAG...]: trains into it. What the run said is in FOLDER.log.
finetune() {
  runs "${tune[@]}" --output "$@"
  mv errors.txt "$1.log"
}

# losses FOLDER: the validation losses of its curve.
losses() { cut -d, -f3 "$1/curve.csv" | tail -n +2 | tr '\n' ' '; }

# near "A..." "B..." PERCENT: the numbers of two lists differ pairwise by at most PERCENT.
near() {
  paste <(tr ' ' '\n' <<<"$1") <(tr ' ' '\n' <<<"$2") |
    awk -v most="$3" \
    'NF == 2 { n++; d = ($1 - $2) / $1 * 100; if (d > most || d < -most) bad = 1 } END { exit bad || !n }' ||
    fail "not within $3 %: $1 and $2"
}

# rate SUMMARY KEY: the field with its name.
rate() { grep -oE "\"$2\": [0-9.]+" "$1" | head -n1; }

# Every optimizer learns, and about as AdamW does.
finetune plain
finetune again
[ "$(losses plain)" = "$(losses again)" ] || fail "two runs differ: $(losses plain) and $(losses again)"
finetune eight --optimizer adamw8bit
near "$(losses plain)" "$(losses eight)" 5
finetune half --optimizer adamwbf16
near "$(losses plain)" "$(losses half)" 5
finetune least --optimizer adamw8bit --bf16-weights --gradient-checkpointing all --update-in-backward
near "$(losses plain)" "$(losses least)" 10  # gradients are clipped one by one
finetune factored --optimizer adafactor --bf16-weights --update-in-backward
near "$(losses plain)" "$(losses factored)" 20
finetune moments --update-in-backward moments
near "$(losses plain)" "$(losses moments)" 10
finetune one --gradient-accumulation 1
finetune released --gradient-accumulation 1 --update-in-backward
near "$(losses one)" "$(losses released)" 10
for folder in half least factored moments one released; do
  [ "$(losses plain)" != "$(losses $folder)" ] || fail "$folder has the losses of a plain run"
done

# The encoder's states from the cache: the same losses, and none computed again.
finetune frozen --freeze-encoder
finetune cached --freeze-encoder --cache-encoder --cache cache --prepare-workers 2
near "$(losses frozen)" "$(losses cached)" 0.001
holds cached.log "cache: 10 of 10 samples"
finetune frozen16 --freeze-encoder --bf16 --max-steps 2
finetune cached16 --freeze-encoder --bf16 --max-steps 2 --cache-encoder --cache cache
for when in before after; do
  [ "$(rate frozen16/summary.json wer_$when)" = "$(rate cached16/summary.json wer_$when)" ] ||
    fail "the cache changes the error rate $when: $(cat frozen16/summary.json cached16/summary.json)"
done
finetune warm --freeze-encoder --cache-encoder --cache cache --prepare-workers 2
[ "$(losses cached)" = "$(losses warm)" ] ||
  fail "states from the cache give other losses: $(losses cached) and $(losses warm)"
finetune other --freeze-encoder --cache-encoder --cache cache --optimizer adamwbf16  # has another encoder
near "$(losses cached)" "$(losses other)" 5
[ "$(losses cached)" != "$(losses other)" ] || fail "a bf16 encoder has the states of an fp32 one"

# Weights below adapters in 8 bits: learnt from as from wide ones, and resumed.
finetune wide --lora 4 --lora-patterns "*proj,*fc1"
finetune narrow --lora 4 --lora-patterns "*proj,*fc1" --int8-base
near "$(losses wide)" "$(losses narrow)" 2
[ "$(losses wide)" != "$(losses narrow)" ] || fail "--int8-base changes nothing"
[ ! -e narrow/model.safetensors ] || fail "--int8-base saves the whole model"
finetune narrow_half --lora 4 --lora-patterns "*proj,*fc1" --int8-base --bf16-weights
near "$(losses wide)" "$(losses narrow_half)" 5

# Adapters: saved alone, merged by all programs, trained on.
finetune adapted --lora 4 --lora-alpha 8 --lora-dropout 0.1 --lora-patterns "*proj,*fc1"
[ ! -e adapted/model.safetensors ] || fail "--lora saves the whole model"
holds adapted/adapter_config.json '"lora_alpha": 8'
holds adapted/adapter_config.json "\"base_model_name_or_path\": \"$tiny\""
runs whisper_evaluate --model adapted --manifest "$tiny/clips.jsonl" --normalizer none --max-audio-seconds 1 \
  --no-fallback --summary evaluated.json
[ "$(rate evaluated.json wer)" = "$(rate adapted/summary.json wer_after | sed 's/_after//')" ] ||
  fail "merged adapters transcribe otherwise: $(cat evaluated.json adapted/summary.json)"
runs whisper_export --model adapted --ggml adapted.bin
runs whisper_export --model "$tiny" --ggml plain.bin
! cmp -s adapted.bin plain.bin || fail "whisper_export leaves the adapters out"
finetune further --model adapted --max-steps 2
[ -e further/model.safetensors ] || fail "a run that goes on from adapters saves no model"
# A snapshot of another model's weights is refused, whatever is trained of them.
finetune begun --lora 4 --max-steps 2 --snapshot-every 1
begun=("${tune[@]}" --output begun --lora 4 --max-steps 3 --snapshot-every 1 --resume auto)
refused_late "is not of this run: looptorch::app::RunSettings: --model is weights " "${begun[@]}" --model further
# So are weights in 8 bits, by their flag before the tensors that differ.
difference="--lora is 4, alpha 16, dropout 0, *q_proj,*v_proj, --int8-base here and 4, "
refused_late "is not of this run: looptorch::app::RunSettings: $difference" "${begun[@]}" --int8-base
# So are other validation clips.
cp -r "$tiny" fewer
sed -i 1d fewer/clips.jsonl
refused_late "RunSettings: the validation list (--validation or --transcripts) is 9 samples with checksum " \
  "${begun[@]}" --validation fewer/clips.jsonl
# Adapters never take the place of the weights that they, or others, stand on.
cp -r "$tiny" own
refused "is the folder of --model" "${tune[@]}" --model own --output ./own/../own --lora 4
refused "is the folder of --model" "${tune[@]}" --model adapted --output adapted --lora 4
lora=(--lora 2 --max-steps 1)
runs "${tune[@]}" --model own --output on_own "${lora[@]}"
refused "is the folder of the model that the adapters of --model are for" "${tune[@]}" --model on_own --output own
refused "plain holds a whole model, model.safetensors" "${tune[@]}" --output plain --lora 4
cmp "$tiny/model.safetensors" own/model.safetensors || fail "a refused run changed the model"
refused "--lora-alpha is of adapters: give their rank, as --lora 8" "${tune[@]}" --output bad --lora-alpha 4
refused "--lora-patterns names no layers" "${tune[@]}" --output bad --lora 2 --lora-patterns " , "
refused "--lora-patterns model.encoder.*q_proj is of the encoder" "${tune[@]}" --output bad --lora 2 --freeze-encoder \
  --lora-patterns "model.encoder.*q_proj"
finetune named_layers --lora 2 --freeze-encoder --lora-patterns "model.decoder.*q_proj, *v_proj" --max-steps 1
refused "matches 'nothing'" "${tune[@]}" --output bad --lora 2 --lora-patterns nothing

# --fit: what it chooses is what it says, the process is held to it, and what cannot fit is one sentence.
finetune fitted --fit 1GB
holds fitted.log "--fit 1 GB: chooses nothing beside the flags that are given, 2 x 2 clips: needs "
[ "$(losses plain)" = "$(losses fitted)" ] || fail "--fit with room for all changes the run"
# A run of --fit that is resumed without it is refused where the choice belongs to the run, and told of it.
finetune chosen --optimizer adamw8bit --max-steps 1 --snapshot-every 1
echo '{"saving": "8-bit moments", "batch_size": 2}' >chosen/fit.json
refused "The run was begun by --fit, which chose: 8-bit moments ($(pwd -P)/chosen/fit.json): give --fit again" \
  "${tune[@]}" --output chosen --max-steps 2 --snapshot-every 1 --resume auto
finetune chosen --max-steps 2 --snapshot-every 1 --resume auto --fit 1GB
# On the real tiny.en (748 MB before any activation) it chooses what fits, holds to it to the end, and is the run of the
# flags it names.
if [ -e "$real/model.safetensors" ]; then
  large=(whisper_finetune --model "$real" --train "$tiny/clips.jsonl" --validation "$tiny/clips.jsonl" --batch-size 2
    --max-steps 1 --epochs 1 --learning-rate 1e-5 --workers 1 --normalizer none --best loss --device cpu --no-report
    --no-fallback --max-audio-seconds 1)
  runs "${large[@]}" --output least --fit 300MB
  mv errors.txt least.log
  flags=$(grep -oE 'the same as --.*' least.log | sed 's/the same as //') ||
    fail "--fit 300MB chooses nothing: $(cat least.log)"
  [[ $flags == *--bf16-weights* ]] || fail "--fit 300MB chooses $flags"
  # shellcheck disable=SC2086
  runs "${large[@]}" --output named $flags
  mv errors.txt named.log
  cmp -s least/model.safetensors named/model.safetensors || fail "--fit 300MB and $flags give two models"
  # A run that is resumed goes on with what it began with, without dry steps, and ends with the same bits.
  small=("${large[@]}" --max-steps 2 --snapshot-every 1 --fit 400MB)
  runs "${small[@]}" --output begun_small
  mv errors.txt begun_small.log
  flags=$(grep -oE 'the same as --.*' begun_small.log) || fail "--fit 400MB chooses nothing: $(cat begun_small.log)"
  runs "${small[@]}" --output resumed --resume begun_small/snapshots/step-00000001
  mv errors.txt resumed.log
  holds resumed.log "as the run began; $flags"
  lacks resumed.log "chooses"
  cmp begun_small/model.safetensors resumed/model.safetensors || fail "--fit resumed and at once give two models"
  cmp begun_small/fit.json resumed/fit.json || fail "the choice is not kept for the next run"
  # What is measured beside training counts, too: windows of 30 s.
  needs() { grep -oE 'needs [0-9.]+ MB' "$1" | head -n1 | tr -dc '0-9.'; }
  for folder in short whole; do
    longer=()
    [ $folder = short ] || longer=(--whole-windows)
    runs "${large[@]}" --output $folder --fit 900MB --freeze-encoder --lora 2 --bf16-weights --batch-size 8 \
      "${longer[@]}"
    mv errors.txt $folder.log
  done
  awk -v a="$(needs short.log)" -v b="$(needs whole.log)" 'BEGIN { exit !(b > a + 10) }' ||
    fail "--fit does not count whole windows: $(cat short.log whole.log)"
fi
# --preflight tries what --fit tries, and names the flags.
remedied all "${tune[@]}" --max-steps 1 --memory-cap 0.00015
holds errors.txt "preflight: 150 KB: chooses "
# A precision is named instead of the one that is given, at one of these caps at least: what a step needs differs a
# little between machines. A run that is resumed is named what it can go on with.
for cap in 0.00012 0.00011 0.0001 0.00009; do
  refused_late "preflight" "${tune[@]}" --output large --bf16 --preflight --memory-cap $cap
  cat errors.txt >>all.log
  if grep -qF -- " --fp32 instead of --bf16" all.log; then break; fi
done
holds all.log " --fp32 instead of --bf16"
finetune going --max-steps 2 --snapshot-every 1
for cap in 0.0001 0.00015 0.00018; do
  refused_late "what else saves memory needs a run anew" "${tune[@]}" --output going --max-steps 3 --snapshot-every 1 \
    --resume auto --preflight --memory-cap $cap
  lacks errors.txt --optimizer --bf16 --lora adapters "moments in" Adafactor
done
refused_late "preflight: 20 KB, of which 10 % stay free: nothing fits, and each choice needs at least " "${tune[@]}" \
  --output large --preflight --memory-cap 0.00002
refused_late "--fit 0.02MB: " "${tune[@]}" --output none --fit 0.02MB
refused "--fit: \"4GiB\" is no size, such as 4GB or 900MB" "${tune[@]}" --output bad --fit 4GiB
