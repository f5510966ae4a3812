#!/usr/bin/env bash
# tensorboard.sh UNIT_REPORT: TensorBoard itself reads the events that the program writes, by its own loader and over HTTP.
# Skipped (77) unless LOOPTORCH_PYTHON, or else python3, can import tensorboard.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
python=${LOOPTORCH_PYTHON:-python3}
"$python" -c 'import tensorboard' 2>/dev/null || {
  echo "skipped: $python cannot import tensorboard"
  exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
LOOPTORCH_EVENTS=$folder/run "$1" '[write_events]' >/dev/null
timeout 120 "$python" "$here/read_events.py" "$folder"
