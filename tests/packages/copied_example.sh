#!/usr/bin/env bash
# copied_example.sh EXAMPLE WORK PROGRAM CMAKE-OPTION... [-- ARGUMENT...]: copies the folder EXAMPLE out, configures it as a
# project of its own against an installed looptorch, builds PROGRAM and runs it; {} among the arguments is its output
# folder. Without arguments it ends behind the configuration. No header of the folder may include one that lies outside.
set -euo pipefail

example=$1 work=$2 program=$3
shift 3
options=()
while [ $# != 0 ] && [ "$1" != -- ]; do
  options+=("$1")
  shift
done
rm -rf "$work"
mkdir -p "$work"
cp -r "$example" "$work/copied"
cd "$work/copied"

status=0
while IFS=: read -r file include; do
  header=$(sed -E 's/.*"(.*)".*/\1/' <<<"$include")
  [ -e "$(dirname "$file")/$header" ] || [ -e "$header" ] || { echo "$file: $include lies outside" >&2; status=1; }
done < <(grep -rE '^#include "' --include='*.hpp' --include='*.cpp' .)
[ $status = 0 ] || exit $status

cmake -S . -B build -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON "${options[@]}"
[ $# != 0 ] || exit 0
shift
cmake --build build --target "$program"
mkdir "$work/output"
"build/$program" "${@/#{\}/$work/output}" 2>&1 | tee "$work/log"
case $program in
  morse_corpus) [ "$(find "$work/output/audio" -name '*.flac' | wc -l)" = 10 ] ;;
  *) grep -q '"steps": *2' "$work/output/summary.json" ;;
esac
