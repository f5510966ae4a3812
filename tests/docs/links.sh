#!/usr/bin/env bash
# links.sh REPOSITORY: what the documentation and the errors point at exists. Checks Markdown links to files and
# headings, headers that a README's table of folders names, and the docs/errors.md#anchor that each compile-time error names.
# No markers of a merge are left.
set -euo pipefail

cd "$1"
status=0

broken() {
  printf '%s: %s\n' "$1" "$2" >&2
  status=1
}

anchors() { # as GitHub makes them of headings, and explicit <a name="..."> or <a id="...">
  sed -nE 's/^#{1,6} +//p' "$1" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^[:alnum:] _-]//g; s/ /-/g'
  grep -oE '<a (name|id)="[^"]+"' "$1" | sed -E 's/.*"([^"]+)"/\1/' || true
}

has_anchor() { [ -e "$1" ] && anchors "$1" | grep -qxF -- "$2"; }

if markers=$(grep -rnE '^(<<<<<<<|>>>>>>>)( |$)' README.md docs examples include tests packaging CMakeLists.txt); then
  broken 'left by a merge' "$markers"
fi

while IFS= read -r page; do
  while IFS= read -r target; do
    file=${target%%#*}
    case $target in *://* | mailto:*) continue ;; esac
    [ -n "$file" ] && path=$(dirname "$page")/$file || path=$page
    [ -e "$path" ] || { broken "$page" "links to $target, which does not exist"; continue; }
    [[ $target != *#* ]] || has_anchor "$path" "${target#*#}" || broken "$page" "links to $target: no such heading"
  done < <(sed '/^```/,/^```/d' "$page" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\((.*)\)$/\1/')
done < <(find README.md docs examples -name '*.md')

while IFS=: read -r page row; do
  room=$(dirname "$page")/$(cut -d'`' -f2 <<<"$row")
  while IFS= read -r header; do
    [ -e "$room$header" ] || broken "$page" "names $header, which is not in $room"
  done < <(grep -oE '`[a-z_/]+\.hpp`' <<<"$row" | tr -d '`')
done < <(grep -E '^\| `[a-z_]+/` \|' examples/*/README.md)

while IFS=: read -r file anchor; do
  has_anchor docs/errors.md "${anchor#*#}" || broken "$file" "names $anchor, which does not exist"
done < <(grep -roE 'docs/errors\.md#[a-z0-9-]+' include | sort -u)
exit $status
