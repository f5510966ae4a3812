#!/usr/bin/env bash
# whisper_cli_test.sh PROGRAMS MODEL TINY: tests what a user sees of the Whisper example's programs.
#
# Bad input gives one line and exit code 2; corpus, a two-step fine-tune and a transcription run from end to end, also
# when they are run again. PROGRAMS is the folder of the built programs, MODEL a Hugging Face folder of tiny.en, TINY
# one of a model with windows of 1 s, for tests that any model can serve.
set -euo pipefail

programs=$(cd -- "$1" && pwd)
model=$(cd -- "$2" && pwd)
tiny=$(cd -- "$3" && pwd)
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/cli_support.sh"
load_once

# Each program lists its flags and refuses others.
has_help whisper_import
has_help whisper_export
has_help whisper_corpus
has_help whisper_finetune model train validation test output batch-size gradient-accumulation epochs max-steps quick \
  learning-rate warmup-steps train-subset gradient-checkpointing no-gradient-checkpointing freeze-encoder device \
  workers seed max-audio-seconds transcripts strict language normalizer snapshot-every resume resume-changed autopsy \
  replay on-bad-audio fp32 bf16 fp16 mixed-precision tf32 cudnn-benchmark flush-every prefetch memory retry-on-oom \
  memory-snapshot preflight memory-cap fallback whole-windows save-dtype validate-every best early-stopping chunking \
  timestamps-share prompt-share spec-augment time-masks mask-frames mel-masks mask-bins cache prepare-workers \
  empty-texts spell all-signs report optimizer bf16-weights update-in-backward cache-encoder fit lora int8-base \
  lora-alpha lora-dropout lora-patterns profile report-sound histograms
has_help whisper_transcribe model max-audio-seconds language device task beam-size patience length-penalty temperature \
  best-of fallback compression-ratio-threshold logprob-threshold no-speech-threshold initial-prompt suppress-tokens \
  timestamps
has_help whisper_evaluate model manifest summary transcripts language normalizer max-audio-seconds empty-texts strict \
  examples beam-size fallback suppress-tokens device workers on-bad-audio

# The corpus: made, made again without speaking, and made whole again after a clip was lost and another cut off.
corpus=(--output corpus --train 4 --validation 2 --test 2)
runs whisper_corpus "${corpus[@]}"
[ "$(cat corpus/*.jsonl | wc -l)" = 8 ] || fail "the manifests do not hold 8 lines"
[ "$(cat corpus/*.jsonl | grep -o '"text":"[^"]*"' | sort -u | wc -l)" = 8 ] || fail "a sentence occurs twice"
cp -r corpus first
clips=(corpus/audio/*.flac)
[ "${#clips[@]}" = 8 ] || fail "there are ${#clips[@]} clips"
rm "${clips[0]}"
truncate -s 1000 "${clips[1]}"
runs whisper_corpus "${corpus[@]}"
diff -r first corpus || fail "a second run made another corpus"
if PATH=$work/nowhere "$programs/whisper_corpus" --output other 2>errors.txt >/dev/null; then
  fail "whisper_corpus did without espeak-ng"
fi
holds errors.txt "whisper_corpus: espeak-ng is not installed (Debian: apt-get install espeak-ng)"

# The clips cut to 0.9 s, each with a word that the tiny model learns fast.
mkdir short
words=(k b x d m f g h)
for i in 0 1 2 3 4 5 6 7; do
  sox "${clips[i]}" "short/$i.flac" trim 0.5 0.9
  printf '{"audio_filepath": "%s.flac", "text": "%s"}\n' "$i" "${words[i]}"
done >short/all.jsonl
head -4 short/all.jsonl >short/train.jsonl
sed -n 5,6p short/all.jsonl >short/validation.jsonl
sed -n 7,8p short/all.jsonl >short/test.jsonl

# Bad input.
data=(--train short/train.jsonl --validation short/validation.jsonl)
finetune=(whisper_finetune --model "$tiny" --output none)
refused "--output is missing" whisper_finetune --model "$tiny" "${data[@]}"
refused "--train is missing" "${finetune[@]}" --validation short/validation.jsonl
refused "--validation is missing" "${finetune[@]}" --train short/train.jsonl
refused "--transcripts stands for --train, --validation and --test" "${finetune[@]}" "${data[@]}" --transcripts talks
refused "--on-bad-audio: \"ignore\" is not skip|stop" "${finetune[@]}" "${data[@]}" --on-bad-audio ignore
refused "--gradient-checkpointing: \"some\" is not none|encoder|all" "${finetune[@]}" "${data[@]}" \
  --gradient-checkpointing=some
refused "--fp16 and --bf16 exclude each other: give one of them" "${finetune[@]}" "${data[@]}" --fp16 --bf16
refused "--fp16 needs an accelerator" "${finetune[@]}" "${data[@]}" --fp16 --device cpu
refused "--prefetch 3 needs threads that read ahead" "${finetune[@]}" "${data[@]}" --prefetch 3 --workers 0
refused "--freeze-encoder leaves nothing for --gradient-checkpointing encoder to save" "${finetune[@]}" "${data[@]}" \
  --freeze-encoder --gradient-checkpointing encoder
refused "--normalizer: \"basic\" is not auto, english, marks, characters or none" "${finetune[@]}" "${data[@]}" \
  --normalizer basic
refused "--early-stopping waits for a better model, so it needs --best wer or --best loss" "${finetune[@]}" \
  "${data[@]}" --early-stopping 2 --best last
refused "--timestamps-share needs windows, which keep times and previous text: give --chunking, too" \
  "${finetune[@]}" "${data[@]}" --timestamps-share 0.5
refused "--prepare-workers fills a cache: name it by --cache" "${finetune[@]}" "${data[@]}" --prepare-workers 2
refused "nowhere: No such file or directory" "${finetune[@]}" --transcripts nowhere
refused "--batch-size: \"x\" is not an integer" "${finetune[@]}" "${data[@]}" --batch-size x
refused "--train-subset: 0 is not above 0" "${finetune[@]}" "${data[@]}" --train-subset 0
refused "--device: \"tpu\"" "${finetune[@]}" "${data[@]}" --device tpu
refused "--device: there is no cuda:99" "${finetune[@]}" "${data[@]}" --device cuda:99
refused "nowhere/config.json" whisper_finetune --model nowhere --output none "${data[@]}"
cp -r "$tiny" own
refused "is the folder of --model" whisper_finetune --model own --output ./own/../own "${data[@]}"
refused "missing.jsonl" "${finetune[@]}" --train missing.jsonl --validation short/validation.jsonl
: >empty.jsonl
refused "empty.jsonl" "${finetune[@]}" --train empty.jsonl --validation short/validation.jsonl
printf '{"audio_filepath":"%s","text":"\xff"}\n' "${clips[2]}" >bytes.jsonl
refused "bytes.jsonl: holds no utterances; 1 wrong, the first on line 1: column " "${finetune[@]}" --train bytes.jsonl \
  --validation short/validation.jsonl
gone='{"audio_filepath": "audio/gone.flac", "text": "gone"}'
sed "2i $gone" corpus/train.jsonl >corpus/mixed.jsonl
sed "2i $gone" short/train.jsonl >short/mixed.jsonl
refused "short/mixed.jsonl:2: audio file short/audio/gone.flac does not exist" "${finetune[@]}" \
  --train short/mixed.jsonl --validation short/validation.jsonl --strict
refused "longer than the 0.5 s of --max-audio-seconds (short/train.jsonl:1) (no clip of 4 can be used)" \
  "${finetune[@]}" "${data[@]}" --max-audio-seconds 0.5
refused "longer than the 0.5 s" "${finetune[@]}" "${data[@]}" --max-audio-seconds 0.5 --on-bad-audio stop

sharpened "$tiny" sharp
transcribe=(whisper_transcribe --model sharp --no-fallback)
sox -n -r 16000 -b 16 silent.wav trim 0 1
sox -n -r 16000 -b 16 none.wav trim 0 0
sox "${clips[7]}" whole.wav
head -c 20000 whole.wav >cut.wav
sox "${clips[7]}" -r 8000 narrow.wav
refused "silent.wav: is silent" "${transcribe[@]}" silent.wav
refused "no FILE given" "${transcribe[@]}"
refused "--task: \"sing\" is not transcribe|translate" "${transcribe[@]}" --task sing whole.wav
refused "the model cannot translate: it knows English only" "${transcribe[@]}" --task translate whole.wav
refused "--beam-size: 0 is less than 1" "${transcribe[@]}" --beam-size 0 whole.wav
refused "--patience: 0.1 times 2 texts is less than one" "${transcribe[@]}" --beam-size 2 --patience 0.1 whole.wav
refused "--suppress-tokens: \"x\" is not an integer" "${transcribe[@]}" --suppress-tokens 1,x whole.wav

# Bad files among good ones: the others are transcribed, the exit code tells. Audio at 8 kHz is resampled.
refused_late "4 of 6 files could not be transcribed" whisper_transcribe --model "$model" --max-audio-seconds 5 \
  --no-fallback narrow.wav silent.wav whole.wav absent.wav none.wav cut.wav
[ "$(cut -f1 said.txt | tr '\n' ' ')" = "narrow.wav whole.wav " ] || fail "transcribed: $(cat said.txt)"
[ "$(grep -c $'\t.*[[:alpha:]]' said.txt)" = 2 ] || fail "nothing was transcribed: $(cat said.txt)"
[ "$(wc -l <errors.txt)" = 5 ] || fail "four bad files: $(cat errors.txt)"
holds errors.txt "whisper_transcribe: silent.wav: is silent" absent.wav none.wav cut.wav

# Settings of the decoding: each run says something, the same again, and other settings other words.
runs whisper_transcribe --model "$model" --max-audio-seconds 5 --no-fallback --language auto --beam-size 3 \
  --initial-prompt "Lufthansa, Speedbird, runway." --timestamps --suppress-tokens none whole.wav
grep -qP '\t\S' said.txt || fail "--beam-size 3: nothing was transcribed: $(cat said.txt)"
holds said.txt whole.wav
lacks said.txt '<|' # timestamps
runs "${transcribe[@]}" --temperature 1 --best-of 2 short/0.flac
mv said.txt drawn.txt
runs "${transcribe[@]}" --temperature 1 --best-of 2 short/0.flac
cmp drawn.txt said.txt || fail "a second run draws another text"
runs "${transcribe[@]}" short/0.flac
cmp -s drawn.txt said.txt && fail "--temperature 1 changes nothing: $(cat said.txt)"

sox -n -r 8000 -b 16 -c 1 long.wav synth 120 sine 300
for clip in silent none cut; do
  printf '{"audio_filepath":"%s.wav","text":"hello"}\n' "$clip" >"$clip.jsonl"
  refused "$clip.wav" "${finetune[@]}" --train "$clip.jsonl" --validation short/validation.jsonl
done

# Two steps, twice into the same folder: the second run does not take over what the first one left.
twice=(whisper_finetune --model "$tiny" --output twice "${data[@]}" --batch-size 2 --no-fallback)
runs "${twice[@]}" --max-steps 1 --bf16
has_keys twice/summary.json best_step best_wer curve # measured within the epoch, as the run ended
runs "${twice[@]}" --max-steps 2 --fp32
holds twice/summary.json '"steps": 2'
has_report twice 2 # begun anew by the second run

# Two steps of tiny.en. A wrong line of a manifest is listed and left out.
cat corpus/*.jsonl | grep -F -e "${clips[4]##*/}" -e "${clips[7]##*/}" >corpus/clear.jsonl # short transcripts
real=(--validation corpus/clear.jsonl --test corpus/clear.jsonl)
runs whisper_finetune --model "$model" --output out --train corpus/mixed.jsonl "${real[@]}" --batch-size 2 \
  --max-steps 2 --fp32 --profile 2-2
holds out/summary.json '"steps": 2'
says_memory errors.txt
holds errors.txt "1 line is wrong:"
holds errors.txt "corpus/mixed.jsonl:2: audio file corpus/audio/gone.flac does not exist"
holds out/skipped.txt "corpus/mixed.jsonl:2: audio file corpus/audio/gone.flac does not exist"
holds said.txt "training on 4 clips"
holds out/summary.json '"normalizer": "english"'
has_keys out/summary.json wer_before wer_after seconds peak_bytes
holds said.txt "reference  " "before     " "after      " "word error rate " "the model is in out"
has_report out 2
has_trace out 2 2 forward backward update 'data wait' ClipGradNorm.before_update
holds out/report.html '"kind":"sound","title":"clip 2","data":"data:audio/wav;base64,' \
  '["model type","whisper::Whisper"]' '["parameters","' '["training clips","4"]' '["max-steps","2"]' \
  '"name":"validation.wer"'
cmp -s "$model/model.safetensors" out/model.safetensors && fail "the weights did not change"

# Durations that a manifest rounds down are no error; clips that are cut off, too long or silent are left out and
# listed, silent ones among the training clips by the loader; or the first one stops, before training but for those.
{
  for clip in short/[012].flac; do printf '{"audio_filepath":"%s","text":"hello","duration":0.1}\n' "$clip"; done
  for clip in silent cut long; do printf '{"audio_filepath":"%s.wav","text":"hello","duration":0.2}\n' "$clip"; done
} >spoilt.jsonl
spoilt=(--model "$tiny" --output spoilt --train spoilt.jsonl --validation spoilt.jsonl --batch-size 2)
runs whisper_finetune "${spoilt[@]}" --epochs 2
holds said.txt "transcribing 3 clips"
holds said.txt "training on 4 clips"
holds errors.txt " clips are skipped (--on-bad-audio stop ends the run instead):"
for reason in "cut.wav: cut off" "long.wav: lasts 120 s, longer than the 30 s that Whisper transcribes at once" \
  "silent.wav: is silent"; do
  holds errors.txt "  $reason"
  [ "$(grep -cF "$reason" spoilt/skipped.txt)" = 1 ] || fail "skipped.txt on \"$reason\": $(cat spoilt/skipped.txt)"
done
for line in 4 5 6; do holds spoilt/skipped.txt "(spoilt.jsonl:$line)"; done
holds spoilt/summary.json '"clips_skipped": 3'
refused "cut.wav: cut off" whisper_finetune "${spoilt[@]}" --on-bad-audio stop
grep -v 'cut.wav\|long.wav' spoilt.jsonl >silent.jsonl
refused "silent.wav: is silent" whisper_finetune --model "$tiny" --output stopped_early --train short/train.jsonl \
  --validation silent.jsonl --on-bad-audio stop

# Recomputing the layers' activations changes no bit of the result, nor do frames that were computed before.
recomputed() { # recomputed LIKE MODEL FLAG...: as other projects' scripts spell these flags
  runs whisper_finetune --model "$2" --output_dir recomputed "${@:3}" --batch_size 2 --gradient_accumulation_steps 1 \
    --dataloader_num_workers 2 --num_epochs 1 --max_steps 2 --flush_every 1 --prefetch 3 --cache frames \
    --prepare-workers 2 --no-report --no-fallback
  holds errors.txt "cache: 4 of 4 samples"
  has_no_report recomputed
  cmp "$1/model.safetensors" recomputed/model.safetensors || fail "recomputing trains other weights than $1"
}
recomputed out "$model" --train corpus/train.jsonl "${real[@]}" --gradient_checkpointing
recomputed twice "$tiny" "${data[@]}" --gradient_checkpointing encoder

# Stopped by a signal, killed, and gone on: the weights of a run that was left alone, bit for bit.
# The curve, the best weights and the wait for better ones go on, too.
long=(whisper_finetune --model sharp --train short/train.jsonl --validation short/train.jsonl --test short/test.jsonl
  --batch-size 1 --epochs 40 --learning-rate 0.01 --validate-every 20 --early-stopping 9)
runs "${long[@]}" --output alone --no-report-sound
lacks alone/report.html '"kind":"sound"'
stopped=("${long[@]}" --output stopped --snapshot-every 10 --resume auto)
interrupted TERM 'stopped/snapshots/step-*' "${stopped[@]}"
holds errors.txt "no snapshot to resume from: starts a new run"
if [ "$code" = 143 ]; then
  holds errors.txt "whisper_finetune: SIGTERM was received: stopped after"
else
  [ "$code" = 0 ] || fail "SIGTERM: exit code $code: $(cat errors.txt)"
fi
interrupted KILL 'stopped/snapshots/step-*[6-9]0' "${stopped[@]}"
interrupted KILL 'stopped/snapshots/step-*1[0-5]0' "${stopped[@]}"
newest=$(printf '%s\n' stopped/snapshots/step-???????? | tail -1)
truncate -s 100 "$newest/state.json"
runs "${stopped[@]}"
lacks said.txt "transcribing 2 clips" # the transcripts of the untrained model are known
grep -o '"wer_before": [^,]*' alone/summary.json stopped/summary.json | cut -d: -f2- | uniq | wc -l | grep -qx 1 ||
  fail "a resumed run has another word error rate before training"
holds errors.txt "rejected $newest"
holds errors.txt "resumes from stopped/snapshots/step-"
cmp alone/model.safetensors stopped/model.safetensors ||
  fail "a run that was stopped and killed ends with other weights"
has_report alone 160
has_report stopped 160
cmp alone/curve.csv stopped/curve.csv || fail "a run that was stopped and killed has another curve"
[ "$(cut -d, -f1 alone/curve.csv | tr '\n' ' ')" = "step 20 40 60 80 100 120 140 160 " ] ||
  fail "curve.csv: $(cat alone/curve.csv)"
best=$(step_of_lowest alone/curve.csv 4)
holds alone/summary.json "\"best_step\": $best"
[ "$best" -gt 20 ] || fail "the best weights are older than what was killed: $(cat alone/curve.csv)"
holds alone/summary.json '"wer": '
is_png alone/curve.png
refused_late "--best is loss here and wer in the snapshot" "${long[@]}" --best loss --output stopped \
  --resume stopped/snapshots
refused "stopped/snapshots holds a run: go on with --resume auto" "${long[@]}" --output stopped
refused_late " is not of this run: " "${long[@]}" --learning-rate 1e-3 --output stopped --resume stopped/snapshots
# The same weights with a tokenizer in which two letters have changed places learn other tokens.
cp -r sharp swapped
sed 's/"k":/"was_k":/; s/"b":/"k":/; s/"was_k":/"b":/' sharp/tokenizer.json >swapped/tokenizer.json
refused_late "the training text in tokens is checksum" "${long[@]}" --model swapped --output stopped --resume stopped/snapshots

# Clips of noise alone are learnt as empty texts, and the model may then write all signs, which its folder says. The
# program that measures counts what the training has counted.
sox -n -r 16000 -b 16 -c 1 corpus/noise.wav synth 2 whitenoise vol 0.2
{
  cat corpus/train.jsonl
  echo '{"audio_filepath": "noise.wav", "text": ""}'
} >corpus/noisy.jsonl
runs whisper_finetune --model "$model" --output noisy --train corpus/noisy.jsonl "${real[@]}" --batch-size 2 \
  --max-steps 1 --best last --whole-windows --bf16 --empty-texts --spell --all-signs
holds said.txt "training on 5 clips"
lacks errors.txt "wrong:"
tr -d ' \n' <noisy/generation_config.json | grep -qF '"begin_suppress_tokens":[220]' ||
  fail "an empty text stays suppressed"
tr -d ' \n' <noisy/generation_config.json | grep -qF '"suppress_tokens":[50257,' || fail "signs stay suppressed"
echo '{"audio_filepath": "3.flac", "text": ""}' | cat short/train.jsonl - >short/noisy.jsonl
refused "short/noisy.jsonl:5: \"text\" is empty" "${finetune[@]}" --train short/noisy.jsonl \
  --validation short/validation.jsonl --strict
runs whisper_evaluate --model noisy --max-audio-seconds 5 --manifest corpus/noisy.jsonl --empty-texts \
  --summary measured.json --transcripts transcripts.json --examples 1 --temperature 0 --no-fallback
holds said.txt "over 5 clips"
[ "$(grep -c '^reference  ' said.txt)" = 1 ] || fail "not one example: $(cat said.txt)"
has_keys measured.json wer cer seconds
holds measured.json '"normalizer": "english"'
[ "$(grep -c '"hypothesis":' transcripts.json)" = 5 ] || fail "transcripts: $(cat transcripts.json)"
holds transcripts.json '"fallback": false'
evaluate=(whisper_evaluate --model "$tiny")
# Results replace neither the manifest nor each other, and are refused before anything is decoded.
cp short/test.jsonl kept.jsonl
refused "--transcripts and --manifest name the same file" "${evaluate[@]}" --manifest kept.jsonl --transcripts kept.jsonl
refused "--summary and --transcripts name the same file" "${evaluate[@]}" --manifest kept.jsonl --summary a.json \
  --transcripts ./a.json
refused "--summary nodir/a.json: there is no folder nodir" "${evaluate[@]}" --manifest kept.jsonl \
  --summary nodir/a.json
cmp -s kept.jsonl short/test.jsonl || fail "whisper_evaluate replaced its manifest"
refused "short/noisy.jsonl:5: \"text\" is empty" "${evaluate[@]}" --manifest short/noisy.jsonl --strict
refused "cut.wav: cut off" "${evaluate[@]}" --manifest cut.jsonl
refused "--manifest is missing" "${evaluate[@]}"
refused "nowhere.jsonl" "${evaluate[@]}" --manifest nowhere.jsonl
refused "--normalizer: \"basic\" is not" "${evaluate[@]}" --manifest short/test.jsonl --normalizer basic

# One long recording with a transcript: cut by its times, split, and what cannot be used told.
mkdir talks
sox short/*.flac talks/talk.wav
seconds=$(soxi -D talks/talk.wav)
{
  echo '[{"text": "hm", "start": 0, "duration": 1},'
  for i in 0 1 2 3 4 5 6 7 8 9; do
    printf '{"text": "part %d", "start": %s, "duration": 1},\n' "$i" "$(awk -v i="$i" 'BEGIN { print i * 0.6 }')"
  done
  printf '{"text": "after the end", "start": %d, "duration": 1}]' "$((${seconds%.*} + 5))"
} >talks/talk.json
runs whisper_finetune --model "$tiny" --output talked --transcripts talks --max-steps 1 --normalizer marks \
  --freeze-encoder --memory --fallback
holds said.txt "transcribing 1 clips"
holds said.txt "training on 8 clips of up to 1 s"
holds errors.txt "talks/talk.json:1: its text has 2 characters, fewer than 3"
holds errors.txt "talks/talk.json:12: "
holds talked/summary.json '"normalizer": "marks"'
number() { sed -n "s/^ *\"$1\": *\([0-9]*\),\{0,1\}\$/\1/p" talked/summary.json; }
[ $(("$(number gradients)" * 10)) -lt $(("$(number weights)" * 8)) ] ||
  fail "a frozen encoder has gradients: $(cat talked/summary.json)"
refused "talks/talk.json:12: " "${finetune[@]}" --transcripts talks --strict

# The same in windows: a recording of all clips glued ten times, each time with its segments.
mkdir windows
sox "${clips[@]}" talk.wav
seconds=$(soxi -D talk.wav)
mapfile -t ten < <(yes talk.wav | head -10)
sox "${ten[@]}" windows/talk.wav
{
  for i in 0 1 2 3 4 5 6 7 8 9; do
    from=$(awk -v i="$i" -v s="$seconds" 'BEGIN { print i * s }')
    printf '%s{"text": "hm", "start": %s, "duration": 0.5},\n' "$([ "$i" != 0 ] || echo '[')" "$from"
    printf '{"text": "part %d", "start": %s, "duration": 4}%s\n' "$i" "$(awk -v f="$from" 'BEGIN { print f + 1 }')" \
      "$([ "$i" = 9 ] && echo ']' || echo ',')"
  done
} >windows/talk.json
runs whisper_finetune --model "$model" --output windowed --transcripts windows --chunking --max-audio-seconds 6 \
  --timestamps-share 0.5 --prompt-share 0.5 --spec-augment --max-steps 1 --batch-size 2
holds said.txt "training on 8 clips of up to 6 s"

refused "give either --ctranslate2 DIR or --openai FILE" whisper_import --output none
refused "--openai needs --tokenizer DIR" whisper_import --openai small.pt --output none
refused "cannot open" whisper_import --openai small.pt --tokenizer "$model" --output imported
printf 'PK\3\4 and no more' >cut.pt
refused "cut.pt: the archive is cut off" whisper_import --openai cut.pt --tokenizer "$model" --output imported

# Out and in again: from 16 bits to CTranslate2's folder and GGML's file, and the folder back to the same 16 bits.
runs whisper_export --model out --ctranslate2 ct2 --ggml model.ggml --fp16
has_files ct2 config.json model.bin vocabulary.json tokenizer.json preprocessor_config.json
[ "$(head -c 4 model.ggml)" = lmgg ] || fail "whisper_export wrote no GGML"
runs whisper_import --ctranslate2 ct2 --output half --save-dtype fp16
holds half/config.json '"torch_dtype": "float16"'
[ $(($(stat -c %s half/model.safetensors) * 19 / 10)) -lt "$(stat -c %s out/model.safetensors)" ] ||
  fail "--save-dtype fp16 saved no 16 bits"
runs whisper_export --model half --ctranslate2 again --fp16
cmp ct2/model.bin again/model.bin || fail "16 bits came back as others"
runs whisper_export --model "$tiny" --pt2 exported
[ -s exported/encoder.pt2 ] && [ -s exported/decoder.pt2 ] && [ "$(ls exported | wc -l)" = 2 ] ||
  fail "whisper_export --pt2 wrote $(ls exported)"
rm -r exported
refused "nothing to write: give --ctranslate2, --ggml or --pt2" whisper_export --model out
refused "--fp32, --fp16 and --int8 are for --ctranslate2 and --ggml" whisper_export --model out --pt2 exported --int8
refused "--fp32: whisper.cpp cannot compute with it" whisper_export --model out --ggml model.ggml --fp32
refused "--ctranslate2: must be another folder than --model" whisper_export --model out --ctranslate2 ./out
refused "nowhere" whisper_export --model nowhere --ggml model.ggml
refused "--ggml and --model name the same file" whisper_export --model out --ggml out/model.safetensors
# A run's folder is no place for imported weights, whether it is finished or under way.
refused "--output out holds a training run (" whisper_import --ctranslate2 ct2 --output out
refused "--ctranslate2 out holds a model of transformers (model.safetensors)" whisper_export --model sharp --ctranslate2 out
mkdir locked
exec 8<locked
flock 8
refused "locked: another run writes its results there" whisper_import --ctranslate2 ct2 --output locked
exec 8<&-
cp -r "$tiny" torn
# a NaN
printf '\0\0\xc0\x7f' |
  dd of=torn/model.safetensors bs=1 seek=$(($(stat -c %s torn/model.safetensors) - 4)) conv=notrunc status=none
refused " holds NaN: export one that was saved before training diverged" whisper_export --model torn --ggml torn.ggml
refused " holds NaN: export one that was saved before training diverged" whisper_export --model torn --pt2 torn_pt2
refused "torn: the weights \"model.encoder" "${evaluate[@]/$tiny/torn}" --manifest short/test.jsonl
[ ! -e torn.ggml ] || fail "whisper_export wrote a model with a NaN"
rm -r again half/model.safetensors
refused "half/model.safetensors" whisper_export --model half --ctranslate2 ct2
[ -s ct2/model.bin ] || fail "a failed export took the old one away"

# A folder without tokenizer.json.
cp -r out older
python3 - older <<'PYTHON' 2>/dev/null || rm -rf older
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
whole = json.loads((folder / "tokenizer.json").read_text())
merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in whole["model"]["merges"]]
(folder / "vocab.json").write_text(json.dumps(whole["model"]["vocab"]))
(folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
(folder / "added_tokens.json").write_text(json.dumps({t["content"]: t["id"] for t in whole["added_tokens"]}))
(folder / "tokenizer.json").unlink()
PYTHON

# The tuned folder transcribes: a line a file, name, tab, text.
transcribe=(whisper_transcribe --max-audio-seconds 5 --no-fallback)
runs "${transcribe[@]}" --model out "${clips[4]}" whole.wav
mv said.txt texts.txt
[ "$(wc -l <texts.txt)" = 2 ] || fail "two files gave $(wc -l <texts.txt) lines"
grep -qP "^\Q${clips[4]}\E\t\S" texts.txt || fail "no line for ${clips[4]}: $(cat texts.txt)"
grep -qP "^whole.wav\t\S" texts.txt || fail "no line for whole.wav: $(cat texts.txt)"
if [ -d older ]; then
  runs "${transcribe[@]}" --model older "${clips[4]}" whole.wav
  cmp texts.txt said.txt || fail "vocab.json and merges.txt give another text"
fi
