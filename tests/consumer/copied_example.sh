#!/usr/bin/env bash
# copied_example.sh EXAMPLE BUILD TARGET CMAKE-OPTION...: copies the folder EXAMPLE out, configures it as a project of its
# own against an installed looptorch, builds the program TARGET and asks it for its flags. No header of the folder may include
# one that lies outside.
set -euo pipefail

example=$1 build=$2 target=$3
shift 3
rm -rf "$build"
mkdir -p "$build"
cp -r "$example" "$build/copied"
cd "$build/copied"

status=0
while IFS=: read -r file include; do
  header=$(sed -E 's/.*"(.*)".*/\1/' <<<"$include")
  [ -e "$(dirname "$file")/$header" ] || [ -e "$header" ] || { echo "$file: $include lies outside" >&2; status=1; }
done < <(grep -rE '^#include "' --include='*.hpp' --include='*.cpp' .)
[ $status = 0 ] || exit $status

cmake -S . -B build -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON "$@"
cmake --build build --target "$target"
"build/$target" --help | grep -q "^usage: $target "
