# shellcheck shell=bash
# Sourced by tests of the examples' programs, with `programs` the folder of the programs. The test then works in a
# temporary folder, which is removed at its end. A check that fails is printed and counted; the test's exit code is 1
# if there was one, so that a test needs no closing line.
#
# A check says what is claimed, runs a program, and looks at what that left:
#
#   # A rate of 0 is refused; the one that was used is in the summary.
#   refused "--learning-rate: 0 is not above 0" my_train --output out --learning-rate 0
#   runs my_train --output out --learning-rate 0.1
#   holds out/summary.json '"learning_rate": 0.1'
#
# Helpers, in the order below:
#   runs         load_once, fail, runs, refused, refused_late, interrupted
#   files        holds, lacks, has_keys, has_files, step_of_lowest, is_png, bytes_of, same_tensor, other_tensor
#   programs     has_help, has_flags, says_memory, has_report, has_no_report, has_trace, remedied, has_remedy
#   input        sharpened

# Checkpoints that tests/parity/first_weights.py has written.
# shellcheck disable=SC2034
first_weights=$(realpath -- "${BASH_SOURCE[0]%/*}/../parity/data/first_weights")
read_trace=$(realpath -- "${BASH_SOURCE[0]%/*}/read_trace.py")
built=${programs:-}
failures=0
work=$(mktemp -d) stand_ins=$(mktemp -d)
finish() { # as the test ends, also by an error
  local code=$?
  rm -rf "$work" "$stand_ins"
  [ "$code" = 0 ] || exit "$code"
  [ "$failures" = 0 ] || exit 1
}
trap finish EXIT
cd "$work" || exit

# load_once: from here on each program in $programs is loaded once, and a run of it is a fork of that process: a tenth
# of a start's time (tests/support/load_once). $built is the folder as it was, for runs that are killed.
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

# fail TEXT...: prints and counts a check that failed.
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# ---- A run ----

# runs PROGRAM [ARGUMENT...]: it succeeds. What it printed is in said.txt and errors.txt.
runs() {
  local code=0
  "${programs:?}/$1" "${@:2}" >said.txt 2>errors.txt || code=$?
  [ "$code" = 0 ] || fail "$* exited with $code: $(cat errors.txt)"
}

# refused TEXT PROGRAM [ARGUMENT...]: exit code 2 and one line on stderr, beside that on memory: "PROGRAM: " and TEXT.
refused() {
  local text=$1 code=0 said
  shift
  said=$("${programs:?}/$1" "${@:2}" 2>&1 >/dev/null) || code=$?
  said=$(sed '/^memory: /d' <<<"$said")
  [ "$code" = 2 ] || fail "$* exited with $code instead of 2: $said"
  [ "$(printf '%s' "$said" | grep -c '')" = 1 ] || fail "$* did not say one line: $said"
  [[ $said == "$1: "*"$text"* ]] || fail "$* said \"$said\" without \"$text\""
}

# last_message PROGRAM: of the standard input, what follows the last "PROGRAM: " at the beginning of a line.
last_message() {
  tr '\r' '\n' | awk -v begin="$1: " 'index($0, begin) == 1 { text = "" } { text = text $0 "\n" } END { print text }'
}

# refused_late TEXT PROGRAM [ARGUMENT...]: exit code 2 after other lines, which stay in errors.txt. The last message
# that begins with "PROGRAM: " has TEXT.
refused_late() {
  local text=$1 code=0 message
  shift
  "${programs:?}/$1" "${@:2}" >said.txt 2>errors.txt || code=$?
  message=$(last_message "$1" <errors.txt)
  [ "$code" = 2 ] || fail "$* exited with $code instead of 2: $(cat errors.txt)"
  [[ $message == "$1: "*"$text"* ]] || fail "$* ended with \"$message\" without \"$text\""
}

# interrupted SIGNAL PATTERN PROGRAM [ARGUMENT...]: sends SIGNAL when a file's name matches PATTERN, unless the program
# has ended. Its exit code is in $code, what it printed in said.txt and errors.txt.
interrupted() {
  local process
  "${built:?}/$3" "${@:4}" >said.txt 2>errors.txt &
  process=$!
  until compgen -G "$2" >/dev/null || ! kill -0 "$process" 2>/dev/null; do sleep 0.01; done
  kill "-$1" "$process" 2>/dev/null || true
  code=0
  wait "$process" 2>/dev/null || code=$?
}

# ---- Files ----

# holds FILE TEXT...: the file has each text.
holds() {
  local text
  for text in "${@:2}"; do
    grep -qF -- "$text" "$1" || fail "$1 does not hold \"$text\": $(cat "$1")"
  done
}

# lacks FILE TEXT...: the file has none of the texts.
lacks() {
  local text
  [ -f "$1" ] || fail "there is no $1"
  for text in "${@:2}"; do
    ! grep -qF -- "$text" "$1" || fail "$1 holds \"$text\": $(cat "$1")"
  done
}

# has_keys FILE KEY...: the JSON file has each key.
has_keys() {
  local key
  for key in "${@:2}"; do holds "$1" "\"$key\":"; done
}

# has_files FOLDER FILE...: each file is there, and is not empty.
has_files() {
  local file
  for file in "${@:2}"; do [ -s "$1/$file" ] || fail "no $1/$file"; done
}

# step_of_lowest CSV COLUMN: prints the step, in the first column, of the first row with the lowest number in COLUMN.
step_of_lowest() {
  awk -F, -v c="$2" 'NR > 1 && (least == "" || $c + 0 < least + 0) { least = $c; step = $1 } END { print step }' "$1"
}

# is_png FILE
is_png() { [ "$(head -c 8 "$1" | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || fail "$1 is no PNG file"; }

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

# same_tensor NAME A B: two safetensors files have the same bytes of a tensor.
same_tensor() { cmp <(bytes_of "$2" "$1") <(bytes_of "$3" "$1") || fail "$2 and $3 have another $1"; }

# other_tensor NAME A B
other_tensor() { ! cmp -s <(bytes_of "$2" "$1") <(bytes_of "$3" "$1") || fail "$2 and $3 have the same $1"; }

# ---- What every program of an example does ----

# has_help PROGRAM [FLAG...]: --help, which stays in PROGRAM.txt, lists the flags; an unknown flag is refused.
has_help() {
  "${built:?}/$1" --help >"$1.txt" || fail "$1 --help"
  holds "$1.txt" "usage: $1"
  has_flags "$1.txt" "${@:2}"
  refused "unknown option --wrong" "$1" --wrong
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
  local line='^memory: [0-9.]+ GB of [0-9.]+ GB to use on [a-z0-9:]+; '
  line+='the run will hold [0-9.]+ [KMG]B beside its activations: weights .*optimizer '
  grep -qE "$line" "$1" || fail "$1 has no line on memory: $(cat "$1")"
}

# has_report FOLDER STEPS [METRIC]: the files of a report, and in metrics.jsonl the metric (loss) of each step once, in
# order.
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

# remedied COUNT PROGRAM [ARGUMENT...]: with --preflight the run does not fit, names flags and no policies, and fits by
# the first COUNT remedies that it names, or `all`. What it said is in errors.txt.
remedied() {
  local count=$1 remedy number=0
  shift
  refused_late "" "$@" --output does-not-fit --preflight
  [ ! -e does-not-fit/summary.json ] || fail "$*: a run that does not fit left a model"
  [ ! -e does-not-fit/config.json ] || fail "$*: a run that does not fit claimed its folder"
  lacks errors.txt Accumulate Checkpointed Autocast Freeze
  # A line is "  fits (3.1 GB): --batch-size 1" or "preflight: ...: chooses ... the same as --batch-size 1".
  grep -E '^  fits \(|^preflight: [^:]*: chooses ' errors.txt | sed -E 's/^  fits \([^)]*\): //; s/.*the same as //' |
    sed -n "1,${count/all/\$}p" >remedies.txt
  [ -s remedies.txt ] || fail "$* has no remedy: $(cat errors.txt)"
  holds errors.txt ": give $(head -n1 remedies.txt), or leave out --preflight"
  cp errors.txt does-not-fit.txt
  while read -r remedy; do
    number=$((number + 1))
    # shellcheck disable=SC2086 # several arguments
    runs "$@" --output "fits-$number" --preflight $remedy
    holds errors.txt "preflight: the run fits: needs "
  done <remedies.txt
  cp does-not-fit.txt errors.txt
  rm -rf does-not-fit fits-*
}

# has_remedy PATTERN: a run that does not fit, whose output is in errors.txt, fits by flags that match.
has_remedy() { grep -qE -- "^  fits \(.*\): $1" errors.txt || fail "no flags $1 are named: $(cat errors.txt)"; }

# ---- Input ----

# sharpened MODEL COPY: copies the folder of a small Whisper whose random weights write no text, with an encoder and an
# attention to it so large that what is decoded depends on the sound.
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
