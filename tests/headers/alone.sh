#!/usr/bin/env bash
# alone.sh LIST COMMAND...: runs COMMAND with each of the sources that the file LIST names, a line each, two at a time;
# fails if one of them does.
set -euo pipefail

[ $# -gt 1 ] || { echo "usage: alone.sh LIST COMMAND..." >&2 && exit 2; }
list=$1
shift
[ -s "$list" ] || { echo "$list names no source" >&2 && exit 1; }
xargs -d '\n' -n 1 -P 2 "$@" <"$list"
echo "$(wc -l <"$list") chains of headers compile alone"
