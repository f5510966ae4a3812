# shellcheck shell=bash
# Sourced by tests of an example's programs, with `programs` the folder that holds them. The test then works in a
# temporary folder, which is removed at its end, and counts its failures.

# Checkpoints that tests/parity/first_weights.py has written.
# shellcheck disable=SC2034
first_weights=$(realpath -- "${BASH_SOURCE[0]%/*}/../parity/data/first_weights")
read_trace=$(realpath -- "${BASH_SOURCE[0]%/*}/read_trace.py")
work=$(mktemp -d) stand_ins=$(mktemp -d)
trap 'rm -rf "$work" "$stand_ins"' EXIT
cd "$work" || exit
failures=0

# load_once: from here on each program in $programs is loaded once, and a run of it is a fork of that process: a tenth of a start's
# time (tests/support/load_once). $built is the folder as it was, for runs that are killed.
load_once() {
  local program
  built=$programs
  [ -n "${LOOPTORCH_LOAD_ONCE:-}" ] || return 0
  export LOOPTORCH_LOADED_FOR=$$
  ln -sf "$LOOPTORCH_LOAD_ONCE/liblooptorch_load_once.so" "$stand_ins/preloaded.so"
  for program in "$built"/*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    ln -s "$program" "$stand_ins/${program##*/}.program"
    ln -s "$LOOPTORCH_LOAD_ONCE/looptorch_stand_in" "$stand_ins/${program##*/}"
  done
  programs=$stand_ins
}

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# refused TEXT PROGRAM [ARGUMENT...]: exit code 2 and exactly one line, beside that on memory, which begins with the program and
# holds TEXT.
refused() {
  local text=$1 code=0 said
  shift
  said=$("${programs:?}/$1" "${@:2}" 2>&1 >/dev/null) || code=$?
  said=$(sed '/^memory: /d' <<<"$said")
  [ "$code" = 2 ] || fail "$* exited with $code instead of 2: $said"
  [ "$(printf '%s' "$said" | grep -c '')" = 1 ] || fail "$* did not say one line: $said"
  [[ $said == "$1: "*"$text"* ]] || fail "$* said \"$said\" without \"$text\""
}

# has_flags FILE FLAG...: the --help in FILE lists each, also as --[no-]FLAG, and none with an underscore.
has_flags() {
  local flag
  for flag in "${@:2}"; do
    grep -qE -- "^  --(\[no-\])?$flag " "$1" || fail "$1 lists no --$flag: $(cat "$1")"
  done
  if grep -qE -- '--[a-z-]*_' "$1"; then fail "a flag has an underscore: $(cat "$1")"; fi
}

# says_memory FILE: a line says what the device has and what the run will hold.
says_memory() {
  grep -qE '^memory: [0-9.]+ GB of [0-9.]+ GB to use on [a-z0-9:]+; the run will hold [0-9.]+ [KMG]B beside its activations: weights .*optimizer ' "$1" ||
    fail "$1 has no line on memory: $(cat "$1")"
}

# remedied PROGRAM FLAG...: with --preflight that run does not fit, names flags alone, and fits by each remedy that it names, or
# by the first $checked of them. Leaves what it said in errors.txt.
remedied() {
  local code=0 remedy number=0
  "$programs/$1" "${@:2}" --output does-not-fit --preflight >train.txt 2>errors.txt || code=$?
  [ "$code" = 2 ] || fail "$*: a run that does not fit exited with $code: $(cat errors.txt)"
  [ ! -e does-not-fit/summary.json ] || fail "$*: a run that does not fit left a model"
  [ ! -e does-not-fit/config.json ] || fail "$*: a run that does not fit claimed its folder"
  if grep -qE 'Accumulate|Checkpointed|Autocast|Freeze' errors.txt; then fail "$* names policies: $(cat errors.txt)"; fi
  grep -E '^  fits \(|^preflight: [^:]*: chooses ' errors.txt | sed -E 's/^  fits \([^)]*\): //; s/.*the same as //' |
    sed -n "1,${checked:-\$}p" >remedies.txt
  [ -s remedies.txt ] || fail "$* has no remedy: $(cat errors.txt)"
  holds errors.txt ": give $(head -n1 remedies.txt), or leave out --preflight"
  while read -r remedy; do
    number=$((number + 1))
    # shellcheck disable=SC2086
    "$programs/$1" "${@:2}" --output "fits-$number" --preflight $remedy >train.txt 2>fits.txt || fail "$* does not fit by $remedy: $(cat fits.txt)"
    holds fits.txt "preflight: the run fits: needs "
  done <remedies.txt
  rm -rf does-not-fit fits-*
}

# bytes_of FILE NAME: a tensor's bytes in a safetensors file, as hexadecimal digits.
bytes_of() {
  python3 - "$@" <<'PYTHON'
import json, struct, sys
with open(sys.argv[1], "rb") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    begin, end = json.loads(file.read(size))[sys.argv[2]]["data_offsets"]
    file.seek(8 + size + begin)
    print(file.read(end - begin).hex())
PYTHON
}

# sharpened MODEL COPY: copies the folder of a small Whisper whose random weights hear nothing, with an encoder and an attention to
# it so large that what is decoded depends on the sound.
sharpened() {
  python3 - "$@" <<'PYTHON'
import array, json, pathlib, shutil, struct, sys
model, copy = map(pathlib.Path, sys.argv[1:])
shutil.copytree(model, copy)
data = bytearray((model / "model.safetensors").read_bytes())
start = 8 + struct.unpack_from("<Q", data)[0]
for name, tensor in json.loads(data[8:start]).items():
    if "encoder_attn" in name or "encoder.conv" in name:
        begin, end = (start + offset for offset in tensor["data_offsets"])
        values = array.array("f", bytes(data[begin:end]))
        data[begin:end] = array.array("f", (20 * value for value in values)).tobytes()
(copy / "model.safetensors").write_bytes(data)
PYTHON
}

# holds FILE TEXT
holds() { grep -qF -- "$2" "$1" || fail "$1 does not hold \"$2\": $(cat "$1")"; }

# has_report FOLDER STEPS [METRIC]: the files of a report, and in metrics.jsonl the metric (loss) of each step once, in order.
has_report() {
  local file steps
  for file in report.html metrics.jsonl metrics.csv 'events.out.tfevents.*.looptorch'; do
    compgen -G "$1/$file" >/dev/null || fail "no $1/$file"
  done
  steps=$(grep -F "\"${3-loss}\":" "$1/metrics.jsonl" | grep -oE '^\{"step":[0-9]+' | cut -d: -f2)
  [ "$steps" = "$(seq "$2")" ] || fail "$1/metrics.jsonl has other steps than 1 to $2: $(tr '\n' ' ' <<<"$steps")"
}

# has_trace FOLDER FIRST LAST NAME...: --profile left a trace of these steps, each with ranges of these names.
has_trace() { python3 "$read_trace" "$1/trace.json" "${@:2}" || fail "the trace of $1"; }

# has_no_report FOLDER
has_no_report() {
  local file
  for file in report.html metrics.jsonl metrics.csv 'events.out.tfevents.*'; do
    ! compgen -G "$1/$file" >/dev/null || fail "--no-report leaves $1/$file"
  done
}
