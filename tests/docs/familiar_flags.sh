#!/usr/bin/env bash
# familiar_flags.sh REPOSITORY [--write]: docs/from_python.md lists the flags of other programs that the parser knows, and
# those for which it says what to do instead, as include/looptorch/app/flags/familiar_flags.hpp has them; and what is named there
# is a flag of a program. Fails where that is not so, or writes the page.
set -euo pipefail

cd "$1"
page=docs/from_python.md header=include/looptorch/app/flags/familiar_flags.hpp

equals() { sed -nE 's/^    \{"([^"]+)", "([^"]+)"\},$/\1|\2/p' "$header"; }
others() { # a sentence stands in the row or has a name
  local theirs where instead
  tr -d '\n' <"$header" | grep -oE '\{"[^"]+", *"[^"]+", *(k[A-Za-z]+|"[^"]+")\}' |
    sed -E 's/^\{"([^"]+)", *"([^"]+)", *(.*)\}$/\1|\2|\3/' |
    while IFS='|' read -r theirs where instead; do
      if [[ $instead == k* ]]; then
        instead=$(tr '\n' ' ' <"$header" | sed -E "s/.* $instead = *\"([^\"]+)\".*/\1/")
      fi
      instead=${instead#\"}
      echo "$theirs|$where|${instead%\"}"
    done
}

flags=$(grep -rhoE '(option|required|toggle|flag|choice|preset|add)\(\s*"[a-z0-9-]+"|^ +"[a-z0-9-]+", ' include/looptorch/app examples |
  grep -oE '"[a-z0-9-]+"' | tr -d '"' | sort -u)
unknown=$({ equals | cut -d'|' -f2; others | cut -d'|' -f2; } | sed -E 's/ .*//; s/^no-//' | sort -u | comm -23 - <(echo "$flags"))
[ -z "$unknown" ] || { echo "$header: no program has the flag ${unknown//$'\n'/ }" >&2; exit 1; }
if [ "$(equals | wc -l)" -lt 40 ] || [ "$(others | wc -l)" -lt 25 ]; then
  echo "$header: what does this script read?" >&2
  exit 1
fi

tables() {
  printf '| theirs | here |\n|---|---|\n'
  equals | awk -F'|' '{ gsub(/-/, "_", $1); if ($1 in here) here[$1] = here[$1] " or `--" $2 "`"; else { here[$1] = "`--" $2 "`"; order[++n] = $1 } }
    END { for (i = 1; i <= n; ++i) printf "| `--%s` | %s |\n", order[i], here[order[i]] }'
  printf '\nThese flags have no equivalent here. A program that cannot translate one by the table above prints this advice instead:\n'
  printf '\n| theirs | in programs | instead |\n|---|---|---|\n'
  others | awk -F'|' '{ where = $2 == "batch-size" || $2 == "epochs" ? "that train" : "with `--" $2 "`"
      gsub(/-/, "_", $1); row = where " | " $3
      if (row in theirs) theirs[row] = theirs[row] ", `--" $1 "`"; else { theirs[row] = "`--" $1 "`"; order[++n] = row } }
    END { for (i = 1; i <= n; ++i) printf "| %s | %s |\n", theirs[order[i]], order[i] }'
}

made=$(mktemp)
trap 'rm -f "$made"' EXIT
{ sed '/<!-- flags of other programs: /q' "$page"; tables; sed -n '/<!-- end of flags -->/,$p' "$page"; } >"$made"
if [ "${2-}" = --write ]; then
  cp "$made" "$page"
else
  diff -u "$page" "$made" >&2 || { echo "$page: run tests/docs/familiar_flags.sh . --write" >&2; exit 1; }
fi
