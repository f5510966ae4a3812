#!/usr/bin/env bash
# project.sh SOURCE BUILD PROGRAM CMAKE-OPTION...: configures SOURCE in an empty folder BUILD, builds PROGRAM and runs it;
# with --configure-only for PROGRAM, no more than the first.
set -euo pipefail

source=$1 build=$2 program=$3
shift 3
rm -rf "$build"
cmake -S "$source" -B "$build" "$@"
[ "$program" != --configure-only ] || exit 0
cmake --build "$build" --target "$program"
"$build/$program"
