#!/usr/bin/env bash
# fields.sh REPOSITORY: the tables of options and results have every field of their types, in the order of the header.
set -euo pipefail

cd "$1"
status=0
fail() {
  printf '%s\n' "$1" >&2
  status=1
}

declared() { # declared HEADER TYPE: the fields of a struct, or the values of an enum class
  sed -nE "/^(struct|enum class) $2 \\{/,/^\\};/{s|//.*||;p}" "include/looptorch/$1.hpp" |
    sed -nE 's/^  ([a-zA-Z][^=]* )?([a-z_]+)( =.*|;.*|,.*)$/\2/p'
}
listed() { # listed PAGE TYPE: the names in the first column of the tables of the section of that name
  awk -v heading="## $2" '/^## / { here = $0 == heading } here' "docs/$1.md" | sed -nE 's/^\| `([a-z_]+)` \|.*/\1/p'
}

while read -r header type page; do
  fields=$(declared "$header" "$type")
  [ -n "$fields" ] || fail "$header.hpp has no fields of $type: what does this script read?"
  [ "$fields" = "$(listed "$page" "$type")" ] ||
    fail "docs/$page.md: the table of $type differs from $header.hpp: $(diff <(echo "$fields") <(listed "$page" "$type") | grep '^[<>]' | tr '\n' ' ')"
done <<'END'
loop/fit FitOptions api
loop/fit FitResult api
loop/run FitStatus api
loop/run Progress api
objective/loss Loss api
objective/loss Metric api
loop/evaluation Evaluation api
loop/fit StepResult own_loop
loop/update UpdateOptions updates
export/export_model ExportOptions export
export/export_model ExportReport export
export/program/dynamic_dims DynamicDim export
END
exit $status
