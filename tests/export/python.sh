#!/usr/bin/env bash
# python.sh UNIT_EXPORT PAGE [PYTHON [--compile|--real]]: PyTorch reads the files of export_model, and computes C++'s outputs to
# the bit; and the Python of PAGE, docs/export.md, runs: that of ONNX where its packages are there. With --compile, which takes
# minutes, the larger models are decomposed, too, and the page's AOTInductor runs, whose packages C++ runs then. --real reads the
# models of the examples at real size in place of all that. Skipped (77) unless LOOPTORCH_PYTHON, or else LOOPTORCH_TORCH_PYTHON,
# which packaging/setup.sh --tests makes, PYTHON or python3, can import torch 2.11 or newer.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
page=$(realpath "$2") mode=${4:-}
# shellcheck source-path=SCRIPTDIR source=torch_python.sh
source "$here/torch_python.sh" "${3:-}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [ "$mode" = --real ]; then
  LOOPTORCH_EXPORTS=$folder "$1" '[write_real_exports]' >/dev/null
  timeout 900 "$python" "$here/read_exports.py" "$folder" 6
  exit
fi
LOOPTORCH_EXPORTS=$folder "$1" '[write_exports]' >/dev/null
cp "$folder"/konkanivani{,_decoder}.pt2 "$folder/page"

blocks() { # blocks FENCE: the page's blocks of this kind, as one program beside its models
  awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } /^```/ { inside = 0 } inside' "$page" >"$folder/page/blocks.py"
  [ -s "$folder/page/blocks.py" ] || { echo "$page has no blocks \"$1\""; exit 1; }
}
run_blocks() { # run_blocks FENCE
  blocks "$1"
  (cd "$folder/page" && timeout 1500 "$python" blocks.py) || { echo "FAILED: $1 of $page"; exit 1; }
  echo "the page's blocks \"$1\" run"
}
blocks python
all=()
[ "$mode" != --compile ] || all=(--decompose-all)
timeout 400 "$python" "$here/read_exports.py" "$folder" 31 "${all[@]}" "$folder/page/blocks.py"
! "$python" -c 'import onnxscript, onnx' 2>/dev/null || run_blocks 'python onnx'
if [ "$mode" = --compile ]; then
  command -v g++ >/dev/null || { echo "skipped: AOTInductor needs g++"; exit 77; }
  for name in mlp vit whisper generator konkanivani; do cp "$folder/$name".{pt2,cases} "$folder/page"; done
  run_blocks 'python aoti'
  LOOPTORCH_EXPORTS=$folder/page "$1" '[run_compiled]'
fi
