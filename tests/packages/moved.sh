#!/usr/bin/env bash
# moved.sh BUILD SOURCE PREFIX [LEFT-OUT]: installs the build folder BUILD of SOURCE elsewhere, then moves it to PREFIX.
# Nothing that is installed may name a folder of this machine.
set -euo pipefail

build=$1 source=$2 prefix=$3
rm -rf "$prefix" "$prefix.first"
cmake --install "$build" --prefix "$prefix.first" >/dev/null
mkdir -p "$(dirname "$prefix")"
mv "$prefix.first" "$prefix"

if grep -rnF -e "$source" -e "$build" -e "$prefix.first" -e "$HOME/" "$prefix" | head; [ "${PIPESTATUS[0]}" = 0 ]; then
  echo "what is installed names folders of this machine" >&2
  exit 1
fi
for file in include/looptorch/trainer.hpp share/looptorch/looptorch{Config,ConfigVersion,Targets,AudioTargets}.cmake \
  share/looptorch/LooptorchTorch.cmake share/licenses/looptorch/LICENSE; do
  [ -s "$prefix/$file" ] || { echo "$file is not installed" >&2; exit 1; }
done
