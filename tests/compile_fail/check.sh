#!/usr/bin/env bash
# check.sh CASE.cpp... -- COMPILER...: each mistake must not compile, and the compiler must say so well.
#
# A case declares in comment lines what is expected of the compiler's output, as plain substrings:
#   // expect: looptorch: ...   stands in one of the first lines; may be given more than once
#   // expect-g++: ...          the same, asked of g++ only
#   // within: 6                ... of the first so many lines
#   // anywhere: ...            stands somewhere in the output; `anywhere-g++`: asked of g++ only
#   // max-lines: 25            longest output
# where lines that say by way of which headers a file was included do not count. And it holds the correct twin, one line
# different, under `#ifdef LOOPTORCH_TWIN`; the twins of all cases compile as one file.
#
# Several cases compile as one file, each in a namespace of its own: g++ takes 8 s to begin with a precompiled header, and
# little for a case. The messages are then shared out by the case that they name. Templates that two cases instantiate
# alike are reported for the first only: a case that suffers from it declares `// alone`.
set -euo pipefail

cases=()
while [ "$1" != -- ]; do cases+=("$1") && shift; done
compile=("${@:2}")
case ${compile[0]##*/} in
  *clang*) compiler=clang++ compile+=(-ferror-limit=0) ;;
  *) compiler=g++ ;;
esac

declared() { sed -n "s|^// $1: ||p" "$case_file"; }

failures=0
fail() {
  printf '%s: %s\n' "$case_file" "$1" >&2
  [ -z "${output-}" ] || printf '%s\n' '--- the compiler says' "$output" >&2
  failures=$((failures + 1))
}

# share NAMES NAME: of messages about the cases NAMES, those about NAME. A message is an error with the lines that say
# where it was instantiated (before it with g++, behind it with clang++) and its notes. One that names no case belongs to
# the case of the message before it: g++ says only once where several were instantiated. Names lose the case's namespace.
share() {
  awk -v names="$1" -v name="$2" '
    function finish(  i) {
      if (owner == name) for (i = 0; i < lines; ++i) print line[i]
      lines = has_error = named = 0
    }
    BEGIN { split(names, list, " "); for (i in list) is_case[list[i]] = 1 }
    {
      context = /: In [a-z]+ |: At global scope:|:   required (from|by)/
      if (has_error && (context || /: (fatal )?error: /)) finish()
      if (/: (fatal )?error: /) has_error = 1
      rest = $0
      while (!named && match(rest, /[A-Za-z0-9_]+\.cpp:/)) {
        candidate = substr(rest, RSTART, RLENGTH - 5)
        if (candidate in is_case) { owner = candidate; named = 1 }
        rest = substr(rest, RSTART + RLENGTH)
      }
      gsub(name "::", "")
      line[lines++] = $0
    }
    END { finish() }'
}

check() { # check: what `case_file` declares, against `output`
  local expected sentence lines first_lines within max_lines
  within=$(declared within)
  max_lines=$(declared max-lines)
  mapfile -t expected < <(declared expect; declared "expect-$compiler")
  [ ${#expected[@]} -gt 0 ] || { fail "declares no '// expect:' line"; return; }
  grep -q LOOPTORCH_TWIN "$case_file" || { fail "has no twin under #ifdef LOOPTORCH_TWIN"; return; }
  [ "$compiles" = no ] && [ -n "$output" ] || { fail "compiles, but must not"; return; }

  lines=$(wc -l <<<"$output")
  [ "$lines" -le "${max_lines:-25}" ] || fail "says $lines lines, more than ${max_lines:-25}"
  first_lines=$(head -n "${within:-6}" <<<"$output")
  for sentence in "${expected[@]}"; do
    [[ $first_lines == *"$sentence"* ]] || fail "does not say in its first ${within:-6} lines: $sentence"
  done
  mapfile -t expected < <(declared anywhere; declared "anywhere-$compiler")
  for sentence in "${expected[@]}"; do
    [[ $output == *"$sentence"* ]] || fail "does not say: $sentence"
  done
}

compile() { # compile FILE: sets `compiles` and `said`
  compiles=no
  ! said=$("${compile[@]}" "$1" 2>&1) || compiles=yes
  said=$(grep -vE '^(In file included| +) from ' <<<"$said" || true)
}

if [ ${#cases[@]} = 1 ]; then
  case_file=${cases[0]}
  compile "$case_file"
  output=$said
  check
else
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  names=()
  for case_file in "${cases[@]}"; do
    name=$(basename "$case_file" .cpp)
    names+=("$name")
    printf 'namespace %s {\n#include "%s"\n}\n' "$name" "$case_file"
  done >"$folder/together.cpp"
  compile "$folder/together.cpp"
  for case_file in "${cases[@]}"; do
    output=$(share "${names[*]}" "$(basename "$case_file" .cpp)" <<<"$said")
    check
  done
fi
[ $failures = 0 ]
