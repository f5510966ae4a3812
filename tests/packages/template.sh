#!/usr/bin/env bash
# template.sh EXAMPLES WORK CMAKE-OPTION...: makes a project of examples/template, builds it against the installed looptorch,
# trains, is interrupted and resumes.
set -euo pipefail

examples=$1 work=$2
shift 2
rm -rf "$work"
mkdir -p "$work"
cd "$work"
fail() { echo "$*" >&2; exit 1; }

for name in '' 9lives 'two words' ../up test looptorch looptorch_audio torch_cpu c10 edit_cache; do
  ! "$examples/new_project.sh" "$name" made >log 2>&1 || fail "new_project.sh took the name '$name'"
done
[ ! -e made ] || fail "new_project.sh left something for a name that it refused"
"$examples/new_project.sh" my-net "a project/my net/" >words
! "$examples/new_project.sh" my-net "a project/my net" >log 2>&1 || fail "new_project.sh overwrote a project"
grep -q 'exists already' log
! grep -rn template_train "a project" || fail "the template's name is left"
grep -qF 'cd a\ project/my\ net' words || fail "no shell can read: $(cat words)"
# From a checkout whose path has what sed, CMake and the shell read as their own.
odd='an $odd & "checkout" | of \mine'
mkdir -p "$odd"
cp -r "$examples" "$odd/examples"
"$odd/examples/new_project.sh" my-net -odd >words
grep -qF "$(printf %q "$PWD/$odd")/packaging/setup.sh" words || fail "no shell can read: $(cat words)"
cat >read.cmake <<'CMAKE'
file(STRINGS ./-odd/CMakeLists.txt line REGEX "^set.LOOPTORCH_SOURCE")
string(REPLACE "CACHE PATH \"looptorch's folder, if it is not installed\"" "" line "${line}")
cmake_language(EVAL CODE "${line}")
file(WRITE source "${LOOPTORCH_SOURCE}")
CMAKE
cmake -P read.cmake
[ "$(cat source)" = "$PWD/$odd" ] || fail "the checkout in $PWD/$odd became $(cat source)"

cd "a project/my net"
# With what the template says of export.
lines() { grep -h "$1" "$examples/template/README.md"; }
[ "$(lines export_model | wc -l)" = 2 ] || fail "the template has other lines of export: $(lines export_model)"
sed -i -e "/include <looptorch.trainer.hpp>/r "<(lines 'include.*export_model') -e "/session.finish(/r "<(lines 'lt::export_model') train.cpp
cmake --preset release -DLOOPTORCH_SOURCE= -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON "$@"
cmake --build --preset release
train=build/my-net

"$train" --output whole --epochs 12 --seed 1 --profile 2-3 --histograms 2>&1 | tail -n5
python3 "$(dirname -- "$0")/../examples/read_trace.py" whole/trace.json 2 3 forward backward update "data wait" || fail "--profile"
grep -qF '"kind":"distribution"' whole/report.html || fail "--histograms"
"$train" --output cut --epochs 12 --seed 1 --snapshot-every 10 >/dev/null 2>&1 &
until compgen -G 'cut/snapshots/step-????????' >/dev/null || ! kill -0 $! 2>/dev/null; do sleep 0.01; done
status=0
"$train" --output cut --epochs 1 >/dev/null 2>second || status=$?
[ $status = 2 ] || fail "exit code $status of a second run in one folder: $(cat second)"
grep -qE '^my-net: cut: another run ' second || fail "a second run in one folder said $(cat second)"
kill -TERM $! || fail "it ended before it was interrupted"
status=0
wait $! || status=$?
[ $status = 143 ] || fail "exit code $status after SIGTERM"
[ ! -e cut/model.safetensors ] || fail "an interrupted run left a model"
"$train" --output cut --epochs 12 --seed 1 --snapshot-every 10 --resume auto >/dev/null 2>&1
cmp whole/model.safetensors cut/model.safetensors || fail "the resumed run has other bits"
accuracy=$(sed -n 's/.*"accuracy": \([0-9.]*\).*/\1/p' whole/summary.json)
awk -v accuracy="$accuracy" 'BEGIN { exit !(accuracy > 0.9) }' || fail "accuracy $accuracy"
"$train" --output short --epochs 2 --seed 1 >/dev/null 2>&1
accuracy=$(sed -n 's/.*"accuracy": \([0-9.]*\).*/\1/p' short/summary.json)
awk -v right="$accuracy" 'BEGIN { right *= 200; off = right - int(right + 0.5); exit !(off < 1e-3 && off > -1e-3) }' ||
  fail "of 200 points $accuracy is no whole number"
if grep -q LOOPTORCH_DISTRIBUTED build/build.ninja; then # Gloo's headers are here
  "$(dirname -- "$0")/../examples/ranks_test.sh" --exact "$train" --output {} --batch-size 8 --epochs 1
fi

# A learning rate that explodes: the error names the operator, and another process does the kept window again. A damaged
# bundle is refused.
status=0
"$train" --output exploded --epochs 2 --seed 1 --learning-rate 1e30 --autopsy >/dev/null 2>errors || status=$?
[ $status = 2 ] || fail "exit code $status of a run that explodes: $(tail -n1 errors)"
found=$(grep -o 'aten::[a-z_]* .*' errors) || fail "no operator is named: $(tail -n1 errors)"
status=0
"$train" --output again --seed 9 --learning-rate 1e30 --replay exploded/bad-windows >/dev/null 2>replayed || status=$?
[ $status = 2 ] || fail "exit code $status of a replay: $(tail -n1 replayed)"
grep -qF "${found%% The window is kept in*}" replayed || fail "another finding: $(tail -n1 replayed)"
grep -q 'match the recorded window bit for bit' replayed || fail "other bits: $(tail -n1 replayed)"
[ ! -e again/model.safetensors ] || fail "a replay left a model"
for file in exploded/bad-windows/*/*.safetensors; do printf x | dd of="$file" bs=1 seek=99 conv=notrunc 2>/dev/null; done
! "$train" --output again --replay exploded/bad-windows >/dev/null 2>&1 || fail "a damaged bundle was replayed"

[ -s short/model.pt2 ] || fail "no model is exported"
if [ -n "${LOOPTORCH_TORCH_PYTHON:-}" ]; then
  status=0
  "$LOOPTORCH_TORCH_PYTHON" -c 'import sys
try:
    import torch
    load = torch.export.load
except (ImportError, AttributeError):
    sys.exit(77)
logits = load("short/model.pt2").module()(torch.randn(7, 2))
assert logits.shape == (7, 2), logits.shape' || status=$?
  [ $status = 0 ] || [ $status = 77 ] || fail "PyTorch does not read the exported model"
fi
