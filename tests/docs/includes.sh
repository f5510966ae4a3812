#!/usr/bin/env bash
# includes.sh REPOSITORY [--write]: the last column of the table "Where things are" in docs/architecture.md says what the
# headers of each folder include. Fails where it differs, or writes it there.
set -euo pipefail

cd "$1"
page=docs/architecture.md

headers_of() { # of `folder/` or `file.hpp`
  case $1 in
    */) find "include/looptorch/$1" -name '*.hpp' ;;
    *) echo "include/looptorch/$1" ;;
  esac
}

included_by() { # the folders, as a cell of the table
  local name=${1%/}
  headers_of "$1" | xargs sed -nE 's%^#include <looptorch/([a-z_]+)(/.*|\.hpp>)$%\1%p' | sort -u | grep -vxF -e "${name%.hpp}" |
    sed 's/.*/`&`/' | paste -sd, - | sed 's/,/, /g'
}

table() { # the page, with that column as it should be
  local line folder
  while IFS= read -r line; do
    if [[ $line =~ ^\|\ \`([a-z_]+/|[a-z_]+\.hpp)\`\ \|.*\|.*\|$ ]]; then
      folder=${BASH_REMATCH[1]}
      [ -e "include/looptorch/$folder" ] || { echo "$page: there is no include/looptorch/$folder" >&2; exit 1; }
      line=${line%|}
      printf '%s| %s |\n' "${line%|*}" "$(included_by "$folder")"
    else
      printf '%s\n' "$line"
    fi
  done <"$page"
}

missing=$(for folder in include/looptorch/*/; do
  grep -qF "| \`$(basename "$folder")/\` |" "$page" || echo "$folder"
done)
[ -z "$missing" ] || { echo "$page: \"Where things are\" lacks" $missing >&2; exit 1; }

made=$(mktemp)
trap 'rm -f "$made"' EXIT
table >"$made"
if [ "${2-}" = --write ]; then
  cp "$made" "$page"
else
  diff -u "$page" "$made" >&2 || { echo "$page: run tests/docs/includes.sh . --write" >&2; exit 1; }
fi
