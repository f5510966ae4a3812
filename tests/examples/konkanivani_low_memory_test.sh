#!/usr/bin/env bash
# konkanivani_low_memory_test.sh RUN PROGRAMS: tests the script that trains on a card with little memory.
#
# examples/konkanivani/run_low_memory.sh (RUN) must go down its settings until one fits, and only for want of memory; a
# run that memory ended goes on. First with a stand-in that says how it was called, then with the program itself, under
# a cap that only the last setting keeps. PROGRAMS is the folder of the programs.
set -euo pipefail

run=$(realpath -- "$1") programs=$(realpath -- "$2")
# shellcheck source-path=SCRIPTDIR source=run_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/run_support.sh"

mkdir "$work/data" "$work/programs"
script_refused "0 folders were given instead of a corpus and an output folder"
script_refused "1 folders were given" "$work/data"
script_refused "there is no option --wrong" --wrong
script_refused "there is no folder $work/nowhere" "$work/nowhere" "$work/out"
script_refused "--memory-cap needs a number of GB" --memory-cap much "$work/data" "$work/out"
script_refused "holds no konkanivani_train" --programs "$work" "$work/data" "$work/out"

cat >"$work/programs/konkanivani_train" <<'END'
#!/usr/bin/env bash
echo "$*" >>"${0%/*}/calls"
answer=$(head -1 "${0%/*}/answers")
sed -i 1d "${0%/*}/answers"
echo "$answer" >&2
[ "$answer" = trained ] || exit 2
END
chmod +x "$work/programs/konkanivani_train"
# answers CODE CALLS ANSWER...: the program says each answer in turn; the script must call it CALLS times and end with
# CODE.
answers() {
  local code=0
  rm -f "$work/programs/calls"
  printf '%s\n' "${@:3}" >"$work/programs/answers"
  "$run" --small --memory-cap 4 --programs "$work/programs" "$work/data" "$work/out" -- --epochs 3 >"$work/log" \
    2>&1 || code=$?
  [ "$code $(wc -l <"$work/programs/calls")" = "$1 $2" ] ||
    fail "exit code $code: $(cat "$work/log" "$work/programs/calls")"
}
# called TIMES FLAGS: of the calls, so many have the flags.
called() {
  [ "$(grep -cF -- "$2" programs/calls)" = "$1" ] || fail "not $1 times \"$2\": $(cat programs/calls)"
}
fits_not="konkanivani_train: the run does not fit into 4 GB: give --gradient-checkpointing, or leave out --preflight"
answers 0 1 trained
no_memory="DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
answers 0 2 "konkanivani_train: $no_memory. Memory ran out: give --bf16" trained
answers 0 3 "$fits_not" "konkanivani_train: CUDA out of memory. Tried to allocate 2 GiB" trained
called 1 " --batch-size 2 --gradient-accumulation 4 --epochs 3"
called 1 " --batch-size 1 --gradient-accumulation 8 --epochs 3"
called 1 " --batch-size 1 --gradient-accumulation 8 --gradient-checkpointing --epochs 3"
called 3 "--data $work/data --output $work/out"
called 3 "--preset original --d-model 128 --encoder-layers 6 --decoder-layers 3"
called 3 "--mixed-precision --flush-every 50 --preflight --memory --memory-cap 4"
called 3 "--resume auto"
answers 2 3 "$fits_not" "$fits_not" "$fits_not"
holds log "error: none of the settings fits"
answers 2 1 "konkanivani_train: corpus: holds no corpus"
holds log "holds no corpus"

# The program itself.
runs konkanivani_corpus --output "$work/corpus" --train 8 --validation 1 --test 1 --min-words 2 --max-words 3
tiny=(--d-model 32 --encoder-layers 4 --decoder-layers 1 --max-steps 2 --device cpu --workers 1)
script_runs --programs "$programs" --memory-cap 0.0062 "$work/corpus" "$work/trained" -- "${tiny[@]}"
[ "$(grep -c '^==> Training with ' "$work/log")" = 3 ] || fail "it did not try three settings: $(cat "$work/log")"
[ "$(grep -c 'preflight: the run does not fit' "$work/log")" = 2 ] || fail "two should not fit: $(cat "$work/log")"
is_true \
  "$(value "$work/trained/summary.json" steps) == 2 && $(value "$work/trained/summary.json" memory_peak) < 6200000" ||
  fail "trained otherwise: $(cat "$work/trained/summary.json")"
has_files "$work/trained" model.safetensors config.json vocabulary.json
