#!/usr/bin/env bash
# graph_reasons.sh REPOSITORY: docs/errors.md#eager-windows has a row for each reason of
# include/looptorch/graph/graph_reasons.hpp, and no other headers of graph/ spell reasons of their own.
set -euo pipefail

cd "$1"
page=docs/errors.md header=include/looptorch/graph/graph_reasons.hpp
section=$(sed -n '/^### eager-windows/,/^### open-window/p' "$page")
reasons=$(tr -d '\n' <"$header" | grep -oE 'Reason k[A-Za-z]+ = *"[^"]+"' | sed -E 's/^[^"]*"(.*)"$/\1/')
if [ "$(wc -l <<<"$reasons")" -lt 20 ]; then
  echo "$header: what does this script read?" >&2
  exit 1
fi

status=0
while read -r reason; do # without spaces at its ends
  grep -qF -- "$reason" <<<"$section" || { echo "$page#eager-windows lacks \"$reason\", which $header has" >&2; status=1; }
done <<<"$reasons"
if others=$(grep -rnE '(refuse|run_eagerly|end_eagerly)\("|reason = "|refused = "' include/looptorch/graph); then
  printf '%s\nthese belong in %s\n' "$others" "$header" >&2
  status=1
fi
exit $status
