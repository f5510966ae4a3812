#!/usr/bin/env bash
# alone.sh LIST COMMAND...: runs COMMAND with sources that the file LIST names, a line each, two at a time; fails if one of
# them does. Takes a quarter of them, which the headers' contents choose: the same for a commit, another one as they
# change. LOOPTORCH_CHAINS=2/4 names the quarter, as a failure says, and LOOPTORCH_CHAINS=1/1 takes all at once.
set -euo pipefail

[ $# -gt 1 ] || { echo "usage: alone.sh LIST COMMAND..." >&2 && exit 2; }
list=$1
shift
[ -s "$list" ] || { echo "$list names no source" >&2 && exit 1; }
headers=$(dirname -- "${BASH_SOURCE[0]}")/../../include
contents=$(find "$headers" -name '*.hpp' -print0 | sort -z | xargs -0 cat | cksum)
chains=${LOOPTORCH_CHAINS:-$((${contents%% *} % 4 + 1))/4}
part=${chains%/*} parts=${chains#*/}
if [[ ! $chains =~ ^[1-9][0-9]*/[1-9][0-9]*$ ]] || [ "$part" -gt "$parts" ]; then
  echo "LOOPTORCH_CHAINS: \"$chains\" is not PART/PARTS" >&2
  exit 2
fi
taken=$(awk -v part="$part" -v parts="$parts" 'NR % parts == part % parts' "$list")
[ -n "$taken" ] || { echo "$list has no part $chains" >&2 && exit 1; }
xargs -d '\n' -n 1 -P 2 "$@" <<<"$taken" || { echo "FAILED with LOOPTORCH_CHAINS=$chains" >&2 && exit 1; }
echo "$(wc -l <<<"$taken") of $(wc -l <"$list") chains of headers compile alone (LOOPTORCH_CHAINS=$chains)"
