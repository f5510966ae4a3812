#!/usr/bin/env bash
# overlay.sh MUTANTS INCLUDE OUTPUT: copies the headers that the file MUTANTS names from INCLUDE to OUTPUT with all its
# mutants in them, each switched off unless LOOPTORCH_MUTANT has its name as the program starts.
set -euo pipefail

mutants=$1 include=$2 output=$3
name='' header='' from='' to=''
rm -rf "$output"

fail() {
  printf '%s: mutant %s: %s\n' "$mutants" "$name" "$1" >&2
  exit 1
}

apply() { # apply: the change that has been read, if any
  [ -n "$from$to" ] || return 0
  [ -n "$header" ] || fail "names no header"
  local file=$output/$header text rest
  if [ ! -e "$file" ]; then
    [ -e "$include/$header" ] || fail "$include/$header is not there"
    mkdir -p "$(dirname "$file")"
    { echo '#include "device/mutants/mutant.hpp"' && cat "$include/$header"; } >"$file"
  fi
  text=$(cat "$file" && echo .)
  rest=${text#*"$from"}
  [ "$rest" != "$text" ] || fail "$header does not hold
$from"
  [[ $rest != *"$from"* ]] || fail "$header holds more than once
$from"
  to=${to//MUTANT/::looptorch_test::is_mutant(\"$name\")}
  text=${text%%"$from"*}$to$rest
  printf '%s' "${text%.}" >"$file"
  from='' to=''
}

while IFS= read -r line; do
  case $line in
    '== '*)
      apply
      name=${line#== } name=${name%%:*} header=''
      ;;
    '@ '*)
      apply
      header=${line#@ }
      ;;
    -*) from+=${from:+$'\n'}${line#-} ;;
    +*) to+=${to:+$'\n'}${line#+} ;;
    '' | '#'* | 'catch: '*) ;;
    *) fail "cannot read: $line" ;;
  esac
done <"$mutants"
apply
