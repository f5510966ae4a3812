#!/usr/bin/env bash
# vit_train_cli_test.sh PROGRAM CORPUS FOLDER: tests what a user sees of vit_train. CORPUS is a corpus of
# emotion_corpus with a few clips, FOLDER a small ViT that transformers saved.
#
# Bad input gives one line and exit code 2; a run says what it loaded, what it trains and how well it predicts, and leaves
# a model, a curve and a summary; a clip that is trained on and held out is refused.
set -euo pipefail

programs=$(dirname -- "$(realpath "$1")") corpus=$(realpath "$2") folder=$(realpath "$3")
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"
export OMP_NUM_THREADS=1

load_once
has_help vit_train data output weights rename generated preset pretrained from-scratch n-mels image-size unfreeze \
  dropout backbone-rate weight-decay patience mixup spec-augment mask-frames mask-bins gpu-memory batch-size \
  gradient-accumulation epochs quick learning-rate gradient-checkpointing device workers seed cache snapshot-every \
  resume resume-changed autopsy replay on-bad-audio fp32 bf16 fp16 mixed-precision tf32 cudnn-benchmark flush-every \
  prefetch memory retry-on-oom memory-snapshot preflight memory-cap report profile

train=(vit_train --data "$corpus" --cache cache --device cpu --n-mels 16 --batch-size 2 --gradient-accumulation 1
  --workers 1)
tuned=("${train[@]}" --pretrained "$folder")
refused "--output is missing" "${tuned[@]}"
refused "--pretrained names a Hugging Face folder" "${train[@]}" --output x
refused "choose one" "${tuned[@]}" --output x --from-scratch

# Weights to begin with: transformers' names, wrapped; and this program's own folder, whose normalisation stays.
small=("${train[@]}" --preset small --max-steps 1 --learning-rate 1e-30 --warmup-steps 0 --weight-decay 0 --no-report)
refused "--rename translates names of --weights FILE: give that, too" "${small[@]}" --output x --rename a=b
refused "(--weights says no sizes)" "${train[@]}" --output x --weights "$first_weights/vit.pth"
refused "gan_players.pt: none of its names is one of the model's" "${small[@]}" --output x \
  --weights "$first_weights/gan_players.pt"
reason="does not fit the model, and nothing was loaded; 1 of another shape: "
refused "${reason}head.weight [3, 96] instead of [2, 96]. --rename head.weight= leaves one out" "${small[@]}" \
  --output x --weights "$first_weights/vit.pth" --rename regressor.=head.
[ ! -e x ] || [ -z "$(ls x)" ] || fail "weights that were refused left $(ls x)"
runs "${small[@]}" --output python --weights "$first_weights/vit.pth"
holds said.txt 'vit.pth: 2 loaded; renamed: '
holds said.txt '1 surplus: regressor.weight'
[ "$(bytes_of python/model.safetensors vit.layernorm.bias | cut -c-16)" = 0000003f0000003f ] ||
  fail "the ViT does not begin with the file's weights"
runs "${small[@]}" --output folder --seed 4 --weights python
grep -qE '^python: [0-9]+ loaded$' said.txt || fail "--weights FOLDER said $(cat said.txt)"
for name in vit.encoder.layer.0.attention.attention.query.weight classifier.weight normalisation.mean; do
  same_tensor $name python/model.safetensors folder/model.safetensors
done
refused "--backbone-rate needs --pretrained" "${train[@]}" --output x --preset small --backbone-rate 0.5
refused "--mask-frames needs --spec-augment" "${train[@]}" --output x --preset small --mask-frames 5
refused "--unfreeze needs --pretrained" "${train[@]}" --output x --preset small --unfreeze 1:1
refused '--unfreeze: "1" is not EPOCH:BLOCK or EPOCH:FIRST-LAST: it has no colon' "${tuned[@]}" --output x --unfreeze 1
refused "--unfreeze: there is no block 2; the model's are 0 to 1" "${tuned[@]}" --data nowhere --output x --unfreeze 1:2
refused "--gpu-memory: the smallest card with settings has 8 GB, not 6" "${tuned[@]}" --output x --gpu-memory 6
refused "--preset small and --gpu-memory each say the sizes" vit_train --data "$corpus" --output x --preset small \
  --gpu-memory 8
refused "cannot be cut into patches of 4" "${tuned[@]}" --output x --image-size 18
refused "nowhere/config.json" "${train[@]}" --pretrained nowhere --output x
refused "nowhere: holds no folder audio" "${tuned[@]}" --data nowhere --output x
refused "--fp16 needs an accelerator" "${tuned[@]}" --output x --fp16 --device cpu
refused "there is no cuda:99" "${tuned[@]}" --output x --device cuda:99
mkdir deit
sed 's/"vit"/"deit"/' "$folder/config.json" >deit/config.json
cp "$folder/model.safetensors" deit
refused 'model_type is "deit", not "vit"' "${train[@]}" --pretrained deit --output x
sed 's/"intermediate_size": 12/"intermediate_size": 13/' "$folder/config.json" >deit/config.json
refused "blocks.0.up.weight [12, 8] instead of [13, 8]" "${train[@]}" --pretrained deit --output x
[ ! -e x/model.safetensors ] || fail "a run that was refused left a model"

# Two epochs of a pretrained model, at another image size.
runs "${tuned[@]}" --output tuned --epochs 2 --unfreeze 1:1 --image-size 32 --mixed-precision --profile 2-3
holds errors.txt "Profile: tuned/trace.json has steps 2 to 3; open it in https://ui.perfetto.dev"
has_trace tuned 2 3 forward backward update 'data wait' ClipGradNorm.before_update
holds tuned/report.html '"kind":"picture","title":"predicted valence '
holds said.txt "38 tensors loaded; new: head.weight, head.bias; left aside: classifier.bias, classifier.weight"
holds said.txt "test, linear probe"
holds errors.txt "epoch 1 trains 0 of 2 blocks and the head, 18 of "
says_memory errors.txt
holds errors.txt "epoch 2 trains 1 of 2 blocks and the head, "
holds tuned/config.json '"image_size": 32'
has_keys tuned/summary.json ccc_arousal ccc_valence ccc_arousal_probe ccc_valence_probe mse_valence r2_arousal \
  validation_ccc best_step seconds
has_report tuned "$(sed -nE 's/.*"steps": ([0-9]+).*/\1/p' tuned/summary.json)"
holds tuned/report.html '["image-size","32"]' '["batch-size","2"]' '["training clips","7"]' '"name":"validation.ccc"'
[ "$(wc -l <tuned/curve.csv)" = 3 ] || fail "the curve has other rows: $(cat tuned/curve.csv)"

# The folder is a model's: others are refused there, and it can be fine-tuned itself.
refused "holds another model than the one asked for: image_size 32x32 instead of 16x16" "${tuned[@]}" --output tuned
runs "${train[@]}" --pretrained tuned --output again --epochs 1 --unfreeze 0:0-1
holds said.txt "left aside: classifier.bias, classifier.weight, normalisation.deviation, normalisation.mean"

# What would not fit ends before it begins, with flags that make it fit.
remedied all vit_train --data "$corpus" --cache cache --device cpu --workers 1 --preset small --n-mels 16 --epochs 1 \
  --batch-size 6 --max-steps 1 --memory-cap 0.012
has_remedy --gradient-checkpointing

# A start that fails claims no folder; one folder is for one run at a time, and never that of the data.
refused "nowhere" "${tuned[@]}" --data nowhere --output claimed
[ ! -e claimed/config.json ] || fail "a run without data claimed its folder"
refused ": is the folder of the data" "${tuned[@]}" --output "$corpus"
cp -r "$folder" downloaded
refused "--output downloaded would overwrite --pretrained downloaded: choose another place" "${train[@]}" \
  --pretrained downloaded --output downloaded
refused "--output python would overwrite --weights python: choose another place" "${small[@]}" --output python \
  --weights python
[ ! -e "$corpus/config.json" ] || fail "a run wrote into the folder of its data"
exec 8<tuned
flock 8
refused "tuned: another run writes its results there" "${tuned[@]}" --output tuned --image-size 32
exec 8<&-

# A clip that is trained on and held out.
mkdir leaky
cp -r "$corpus/audio" "$corpus/annotations.csv" leaky
song() { awk -F, -v part="$1" '$4 == part { print $1; exit }' leaky/annotations.csv; }
cp "leaky/audio/$(song train).flac" "leaky/audio/$(song test).flac"
refused "is a copy of" "${tuned[@]}" --data leaky --cache leaky/cache --output x

# A run goes on with the validation songs that it began with.
cp -r "$corpus" others
awk -F, -v OFS=, '$4 == "validation" && !done++ { $2 = $2 == 5 ? 6 : 5 } { print }' "$corpus"/annotations.csv \
  >others/annotations.csv
begun=("${tuned[@]}" --output begun --snapshot-every 1 --no-report)
runs "${begun[@]}" --max-steps 1
refused_late "RunSettings: the validation list of --data is " "${begun[@]}" --max-steps 2 --resume auto --data others

# From scratch, on the CPU's size, killed by a limit of steps.
runs vit_train --data "$corpus" --cache cache --device cpu --preset small --batch-size 2 --output small --max-steps 1 \
  --workers 1 --no-report
holds said.txt "330530 parameters, 7 training clips and 0 generated ones"
holds said.txt "1 steps, the weights are the last, since no epoch ended; "
has_no_report small
[ -s small/model.safetensors ] || fail "small left no model"

# Weights that diverge after the last loss are an error, and no result.
refused_late "the loss on validation clips is NaN or infinite: the weights have diverged" vit_train --data "$corpus" \
  --cache cache --device cpu --preset small --batch-size 7 --output diverged --max-steps 1 --workers 1 --no-report \
  --weight-decay 1e30 --warmup-steps 0
[ ! -e diverged/model.safetensors ] || fail "weights that diverged are saved"
[ ! -e diverged/summary.json ] || fail "a run that diverged has a summary"
lacks diverged/curve.csv "-nan"

# A rehearsal has three batches of each part, and says that it was one.
runs vit_train --data "$corpus" --cache cache --device cpu --preset small --batch-size 1 --output rehearsed --quick \
  --workers 1 --no-report
holds errors.txt "--quick: a rehearsal, with 3 batches of each part"
holds said.txt "330530 parameters, 3 training clips and 0 generated ones"
holds said.txt "3 steps, the best weights are those of step 3; "
holds rehearsed/summary.json '"rehearsal": true'
