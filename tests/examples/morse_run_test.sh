#!/usr/bin/env bash
# morse_run_test.sh RUN PROGRAMS: tests in some minutes the script that teaches Whisper Morse code.
#
# examples/whisper/run_morse.sh (RUN) --quick must teach single characters, take each stage's model over to the next,
# and leave what its opening comment says; started again it trains no further. PROGRAMS is the folder of the programs;
# LOOPTORCH_WHISPER_CT2 names the published model.
set -euo pipefail

run=$(realpath -- "$1") programs=$(realpath -- "$2")
# shellcheck source-path=SCRIPTDIR source=run_support.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/run_support.sh"

# morse_refused TEXT ARGUMENT...: the script fails, with an exit code of its own, and says TEXT.
morse_refused() {
  local text=$1 said
  shift
  ! said=$("$run" "$@" 2>&1) || fail "run_morse.sh $* was not refused"
  [[ $said == *"$text"* ]] || fail "run_morse.sh $* said \"$said\""
}
morse_refused "there is no option --wrong" --wrong
morse_refused "one output folder at most" "$work/a" "$work/b"
morse_refused "holds no whisper_finetune" --programs "$work" "$work/a"

# With stand-ins for the programs: a run into a rehearsal's folder trains what that cut short, a rehearsal nothing.
mkdir "$work/stand-ins"
cat >"$work/stand-ins/whisper_finetune" <<'END'
#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --output) out=$2 ;; --max-steps) steps=$2 ;; --summary) summary=$2 ;; esac
  shift
done
mkdir -p "$out"
case $0 in
  *corpus) echo clip | tee "$out/validation.csv" >"$out/test.csv" ;;
  *finetune) echo "max-steps=$steps" >"$out/run.conf" && printf '"steps": %s\n' "$steps" >"$out/summary.json" ;;
  *evaluate) printf '"cer": 1,\n"wer": 1,\n"clips": 1\n' >"$summary" ;;
esac
END
chmod +x "$work/stand-ins/whisper_finetune"
for program in whisper_import morse_corpus whisper_evaluate; do ln -s whisper_finetune "$work/stand-ins/$program"; done
steps_of() { # steps_of STEPS ARGUMENT...
  LOOPTORCH_WHISPER_CT2=x script_runs "${@:2}" --programs "$work/stand-ins" "$work/staged"
  [ "$(value "$work/staged/summary.json" steps)" = "$1" ] || fail "steps of $*: $(cat "$work/staged/summary.json")"
}
steps_of 108 --quick
steps_of 600
steps_of 600 --quick

out=$work/out
script_runs --quick --device cpu --programs "$programs" "$out"
cat "$out/summary.json"
has_numbers "$out/summary.json" cer wer clips steps seconds
for stage in characters groups phrases; do
  [ -s "$out/$stage/model.safetensors" ] && [ -s "$out/$stage/curve.csv" ] || fail "$stage is missing"
done
is_true "$(value "$out/characters/summary.json" wer_after) < 0.5" ||
  fail "characters were not learnt: $(cat "$out/characters/summary.json")"
is_true "$(value "$out/groups/summary.json" wer_before) < 2" ||
  fail "groups began with another model: $(cat "$out/groups/summary.json")"
[ "$(value "$out/summary.json" steps)" = 108 ] || fail "other steps: $(cat "$out/summary.json")"
tr -d ' \n' <"$out/phrases/generation_config.json" | grep -q '"suppress_tokens":\[502' || fail "signs stay suppressed"

cer=$(value "$out/summary.json" cer)
script_runs --quick --device cpu --programs "$programs" "$out"
lacks log "==> Stage" # it trains no further
is_true "$(value "$out/summary.json" cer) == $cer" || fail "the same model was measured otherwise"
