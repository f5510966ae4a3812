#!/usr/bin/env bash
# python.sh UNIT_EXPORT [PYTHON]: PyTorch reads the files of export_model, and computes C++'s outputs to the bit.
# Skipped (77) unless LOOPTORCH_PYTHON, or else PYTHON or python3, can import torch.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
for python in "${LOOPTORCH_PYTHON:-}" "${2:-}" python3 none; do
  [ "$python" = none ] && { echo "skipped: no Python here can import torch"; exit 77; }
  [ -n "$python" ] && "$python" -c 'import torch, torch.export' 2>/dev/null && break
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
LOOPTORCH_EXPORTS=$folder "$1" '[write_exports]' >/dev/null
timeout 240 "$python" "$here/read_exports.py" "$folder"
