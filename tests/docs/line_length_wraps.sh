#!/usr/bin/env bash
# line_length_wraps.sh: line_length.sh --write wraps a list item, and a code span that was broken there has one blank.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/docs" "$folder/examples"
words=$(printf 'word %.0s' {1..30})
printf -- '- A span of code `one\n  two`, then %send.\n' "$words" >"$folder/README.md"
! bash "$here/line_length.sh" "$folder" 2>/dev/null || { echo "a line of 160 characters passed" >&2; exit 1; }
bash "$here/line_length.sh" "$folder" --write
bash "$here/line_length.sh" "$folder"
grep -qF '`one two`, then word' "$folder/README.md" || { cat "$folder/README.md" >&2; exit 1; }
