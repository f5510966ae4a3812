#!/usr/bin/env bash
# trained.sh FINETUNE_EXPORTED PROGRAMS [PYTHON]: what the program trains goes back to Python. It makes two steps of models of
# tests/parity/exported_programs.py; PyTorch reads its model.pt2, which has the bits of its model.safetensors, and computes what the
# program that went in computes with these. Skipped (77) without a Python that reads such files.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
program=$(realpath "$1") programs=$(realpath "$2")
# shellcheck source-path=SCRIPTDIR source=torch_python.sh
source "$here/torch_python.sh" "${3:-}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$python" "$here/trained_exports.py" write
train() { # train NAME LOSS SCORES
  "$program" --model "$programs/$1.pt2" --train "$1.safetensors" --output "$1" --loss "$2" --scores "$3" --epochs 1 --batch-size 2 \
    --learning-rate 0.01 --device cpu --workers 1 --no-report >out.txt 2>&1 || { cat out.txt; exit 1; }
}
train cnn cross-entropy output
train recurrent mse 0
"$python" "$here/trained_exports.py" compare "$programs"
