#!/usr/bin/env bash
# rooms.sh REPOSITORY: the headers of include/looptorch include one another in one direction only.
#
# A room is a folder. The floors below say which top-level rooms a room may include; within and between all rooms, folders
# in folders too, no chain of includes comes back to where it began. docs/architecture.md names where to begin in each.
# No header has more than 320 lines, except tables, and no folder of an example more than 15 headers.
set -euo pipefail

cd "$1/include/looptorch"
declare -A floors=(
  [base]=''
  [autopsy]='base'
  [data]='base'
  [state]='base'
  [optim]='base'
  [layers]='base data memory'
  [metrics]='base'
  [memory]='base data'
  [adapters]='base layers optim state'
  [shapes_only]='base memory optim'
  [audio]='base data metrics state'
  [report]='base data state'
  [objective]='base'
  [loop]='base data objective state optim memory report autopsy'
  [redo]='base objective autopsy data memory optim loop'
  [resume]='base objective data state optim autopsy loop redo'
  [ranks]='base data objective optim autopsy loop'
  [distributed]='base objective data state optim memory report loop resume ranks'
  [flops]='base autopsy'
  [graph]='base objective data memory loop flops optim'
  [policies]='base objective data state optim memory report autopsy loop redo resume graph flops'
  [export]='base autopsy loop'
  [exported]='base state memory adapters layers optim export'
  [app]='base objective data state optim memory report loop resume distributed policies loop.hpp trainer.hpp policies.hpp preflight preflight.hpp replay.hpp audio metrics'
  [preflight]='base objective data state optim memory report loop resume policies loop.hpp'
  [preflight.hpp]='preflight'
  [policies.hpp]='policies data'
  [loop.hpp]='base objective data state optim memory loop redo'
  [replay.hpp]='loop redo resume loop.hpp'
  [trainer.hpp]='data optim policies loop.hpp'
)
status=0
fail() {
  printf '%s\n' "$1" >&2
  status=1
}

edges=$(grep -rE '^#include <looptorch/' --include='*.hpp' . | sed -E 's|^\./||; s|:#include <looptorch/(.*)>.*| \1|')
while read -r from to; do
  [ -e "$to" ] || fail "$from includes $to, which does not exist"
  from_top=${from%%/*} to_top=${to%%/*}
  [ "$from_top" = "$to_top" ] && continue
  [ -n "${floors[$from_top]+known}" ] || { fail "rooms.sh does not know the room $from_top"; continue; }
  [[ " ${floors[$from_top]} " == *" $to_top "* ]] || fail "$from includes $to: $from_top must not include $to_top"
done <<<"$edges"

room_of() { sed -E 's|/[^/ ]*\.hpp| |g; s|([^ /]+\.hpp)|\1|g'; }
if ! circle=$(room_of <<<"$edges" | awk '$1 != $2 { print $1, $2 }' | sort -u | tsort 2>&1 >/dev/null); then
  fail "rooms that include one another in a circle: $(sed 's/^tsort: //; s/^-: //' <<<"$circle" | tr '\n' ' ')"
fi
# The page names the header to begin with in each room, as a path within it.
while IFS='|' read -r _ folder _ begin _; do
  folder=$(tr -d '` ' <<<"$folder") begin=$(tr -d '` ' <<<"$begin")
  [[ $folder == */ ]] || continue
  for header in ${begin//,/ }; do
    [ -e "$folder$header" ] && [[ $header == *.hpp ]] || begin=
  done
  [ -n "$begin" ] || fail "docs/architecture.md: $folder names no header of its own to begin with"
done < <(sed -n '/^| folder | holds | begin with /,/^$/p' "$1/docs/architecture.md")

tables='/(canonical_tables|unicode_ranges|plain_letters)\.hpp$'
while read -r lines header; do
  [ "$lines" -le 320 ] || [[ $header =~ $tables ]] || fail "$header has $lines lines, more than 320: split it"
done < <(find . ../../examples -name '*.hpp' -exec wc -l {} \;)
while read -r headers folder; do
  [ "$headers" -le 15 ] || fail "$folder has $headers headers, more than 15: make a folder of those that belong together"
done < <(find ../../examples -name '*.hpp' -printf '%h\n' | sort | uniq -c)
exit $status
