#!/usr/bin/env bash
# overlay.sh MUTANTS OUTPUT FOLDER...: copies the headers that the file MUTANTS names from the first FOLDER that has them to
# OUTPUT with all its mutants in them, each switched off unless LOOPTORCH_MUTANT has its name as the program starts.
set -euo pipefail

mutants=$1 output=$2
folders=("${@:3}")
name='' header='' from='' to=''
rm -rf "$output"

fail() {
  printf '%s: mutant %s: %s\n' "$mutants" "$name" "$1" >&2
  exit 1
}

apply() { # apply: the change that has been read, if any
  [ -n "$from$to" ] || return 0
  [ -n "$header" ] || fail "names no header"
  local file=$output/$header text rest folder
  if [ ! -e "$file" ]; then
    for folder in "${folders[@]}"; do
      [ ! -e "$folder/$header" ] || break
    done
    [ -e "$folder/$header" ] || fail "$header is not there"
    mkdir -p "$(dirname "$file")"
    { # a neighbour is found from the copy, too
      echo '#include "device/mutants/mutant.hpp"'
      sed -E "s|^#include \"([^/\"]+)\"|#include <$(dirname "$header")/\1>|" "$folder/$header"
    } >"$file"
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
