# shellcheck shell=bash
# Sourced by the tests here, with a PYTHON or nothing: sets `python` to one that can import torch 2.11 or newer, and ends the test
# as skipped (77) without one. Older ones read other files, or round otherwise.
# It is asked what is installed: an import takes four seconds.
can_read='from importlib import metadata, util
assert all(map(util.find_spec, ["torch", "sympy", "typing_extensions"]))
assert tuple(map(int, metadata.version("torch").split(".")[:2])) >= (2, 11)'
for python in "${LOOPTORCH_PYTHON:-}" "${LOOPTORCH_TORCH_PYTHON:-}" "${1:-}" python3 none; do
  [ "$python" = none ] && { echo "skipped: no Python here can import torch 2.11 or newer"; exit 77; }
  [ -n "$python" ] && "$python" -c "$can_read" 2>/dev/null && break
done
