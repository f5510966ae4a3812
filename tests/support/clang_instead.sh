#!/usr/bin/env bash
# clang_instead.sh CLANG COMPILER [LAUNCHER] COMPILER ARGUMENT...: runs a compiler's command with CLANG
# instead of COMPILER, g++. As a launcher of CMake it gives some targets another compiler than the rest of the
# build.
#
# A precompiled header leaves the code of its functions, and of the templates that it instantiates, to one
# object: that of precompiled.cpp, which is made of the precompiled header itself. Other files compile none of
# it.
set -euo pipefail
export GLIBC_TUNABLES=${GLIBC_TUNABLES:+$GLIBC_TUNABLES:}glibc.malloc.hugetlb=1 # huge pages, which take a twelfth less time

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
[ -z "$precompiles" ] || command+=(-fpch-instantiate-templates -fpch-codegen) # once, instead of in each file that uses them
holds_code=
[[ "${!#}" != */tests/support/precompiled.cpp ]] || holds_code=1
header=

while [ $# -gt 0 ]; do
  if [ -n "$precompiles" ] && [ "$1" = -include ]; then # else clang's driver takes an older precompiled header for it
    command+=(-Xclang -include -Xclang "$2")
    shift
  elif [ -n "$holds_code" ] && [ "$1" = -include ]; then
    header=$2.gch
    shift
  elif [ -n "$header" ] && [ $# = 1 ]; then
    command+=(-Wno-unused-command-line-argument -ffunction-sections "$header")
  else
    command+=("$1")
  fi
  shift
done
exec "${command[@]}" -Xclang -fno-pch-timestamp
