#!/usr/bin/env bash
# clang_instead.sh CLANG COMPILER [LAUNCHER] COMPILER ARGUMENT...: runs a compiler's command with CLANG
# instead of COMPILER, g++. As a launcher of CMake it gives some targets another compiler than the rest of the
# build.
set -euo pipefail

clang=$1 compiler=$2
shift 2
command=()
while [ "$1" != "$compiler" ]; do # ccache, for example
  command+=("$1")
  shift
done
shift
command+=("$clang")
precompiles=
[[ " $* " != *" -x c++-header "* ]] || precompiles=1
[ -z "$precompiles" ] || command+=(-fpch-instantiate-templates) # once, instead of in each file that uses them

while [ $# -gt 0 ]; do
  if [ -n "$precompiles" ] && [ "$1" = -include ]; then # else clang's driver takes an older precompiled header for it
    command+=(-Xclang -include -Xclang "$2")
    shift
  else
    command+=("$1")
  fi
  shift
done
exec "${command[@]}" -Xclang -fno-pch-timestamp
