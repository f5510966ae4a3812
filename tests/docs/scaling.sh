#!/usr/bin/env bash
# scaling.sh REPOSITORY [--write]: the tables of "Many GPUs, on paper" in docs/distributed_figures.md are what
# tests/bench/scaling.py prints. Fails where they differ, or writes them there.
set -euo pipefail

cd "$1"
page=docs/distributed_figures.md
made=$(mktemp)
trap 'rm -f "$made"' EXIT
python3 tests/bench/scaling.py | awk -v page="$page" '
  { table = table $0 "\n" }
  END {
    while ((getline line < page) > 0) {
      if (line == "<!-- end of scaling.py -->") inside = 0
      if (!inside) print line
      if (line == "<!-- scaling.py -->") { inside = 1; found = 1; printf "\n%s\n", table }
    }
    if (!found) { print page " has no place for the tables" > "/dev/stderr"; exit 1 }
  }' >"$made"
if [ "${2-}" = --write ]; then
  cp "$made" "$page"
else
  diff -u "$page" "$made" >&2 || { echo "$page: run tests/docs/scaling.sh . --write" >&2; exit 1; }
fi
