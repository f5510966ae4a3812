#!/usr/bin/env bash
# docstrings.sh REPOSITORY: each public type has a docstring: a line "///" directly before each struct, class, enum,
# concept and alias template that include/looptorch declares in a namespace other than `detail`, before its `template` and
# `requires`. Forward declarations and specialisations need none.
set -euo pipefail

cd "$1"
find include/looptorch -name '*.hpp' | sort | xargs awk '
  function name_of(line) { # the word before the bases, the value or the body
    sub(/^(struct|class|enum class|enum|concept|using) (\[\[[^]]*\]\] *)?/, "", line)
    gsub(/::/, ".", line)
    sub(/[ :{=;].*/, "", line)
    return line
  }
  function count(line) { # counts the type NAME, which begins at LINE
    if (name ~ /</) return # a specialisation
    ++types
    if (!documented) { printf "%s:%d: %s has no docstring\n", FILENAME, line, name; ++lacking }
  }
  FNR == 1 { depth = hidden = heading = opening = 0; before = "" }
  /R"[a-z]+\($/, /^\)[a-z]+"/ { next } # scripts and kernels as text
  /^(inline )?namespace.*\{$/ { hidden += scopes[++depth] = /[ :]detail[ :]/ || /^namespace \{/ }
  /^\}.*\/\/ namespace/ { hidden -= scopes[depth--] }
  hidden { before = $0; next }

  # heading: the lines of `template` and `requires` before a type; opening: the line of a type whose `{` or `;` is to come
  /^(template|struct|class|enum|concept|using) / && !heading { documented = before ~ /^\/\/\// }
  /^template / { heading = 1 }
  /^concept / || (/^using / && heading) { name = name_of($0); count(FNR) }
  /^(struct|class|enum) / { name = name_of($0); opening = FNR }
  opening && /[{;]/ { if (/\{/) count(opening); opening = 0 }
  !/^(template|requires) |^  / { heading = 0 }
  { before = $0 }
  END {
    if (types < 400) { print "docstrings.sh found only " types + 0 " types: what does this script read?"; exit 1 }
    exit lacking > 0
  }' >&2
