#!/usr/bin/env bash
# sentences.sh REPOSITORY: each compile-time sentence that docs/writing_a_policy.md quotes is one that the library says, the
# page lists every hook and capability for authors with an example of each hook, docs/architecture/policy_protocol.md all
# others, and the policies of the page are as short as it promises.
set -euo pipefail

cd "$1"
page=docs/writing_a_policy.md
protocol=docs/architecture/policy_protocol.md
table=include/looptorch/loop/compose/hook_table.hpp
status=0
fail() {
  printf '%s\n' "$1" >&2
  status=1
}

# adjacent string literals as one text; what the macros of checks.hpp make of the rows of the table
one_text() { tr '\n' ' ' | sed -E 's/ +\\ +/ /g; s/" +"//g'; }
said=$(find include -name '*.hpp' -exec cat {} + | one_text)
for sentence in 'looptorch: " #hook " would never run. Make it one public `" #Result " " #hook "(" #Argument ") const`' \
  'looptorch: a policy'\''s `" #capability "` would be ignored. Make it a public'; do
  [[ $said == *"$(printf %s "$sentence" | one_text)"* ]] || fail "checks.hpp does not say: $sentence"
done
# rows AUTHOR|PROTOCOL KIND: the rows of one table, as they stand in the header
rows() { sed -nE "/^#define LOOPTORCH_DETAIL_$1_$2\\(/,/[^\\\\]\$/s/^  (ROW\\(.*)/\\1/p" "$table"; }
examples=$(sed -n '/^```cpp/,/^```$/p' "$page")
authors=0
for of in AUTHOR PROTOCOL; do
  [ $of = AUTHOR ] && documented=$page || documented=$protocol
  while IFS=, read -r name argument result; do
    said+="looptorch: $name would never run. Make it one public \`${result# } $name(${argument# }) const\`"
    grep -q "^| .*\`[^\`]*\b$name(" "$documented" || fail "$documented does not list the hook $name"
    [ $of = PROTOCOL ] && continue
    authors=$((authors + 1))
    [[ $examples =~ " $name(" ]] || fail "$page has no example of the hook $name"
  done < <(rows $of HOOKS | sed -nE 's/^ROW\(([a-z_]+, [^"]*[^)])\) *\\?$/\1/p')
  while IFS= read -r name; do
    said+="looptorch: a policy's \`$name\` would be ignored. Make it a public"
    grep -q "^| \`$name\` |" "$documented" || fail "$documented does not list the capability $name"
    grep -q "\`$name\`" docs/errors.md || fail "docs/errors.md does not list the capability $name"
  done < <(rows $of CAPABILITIES | sed -nE 's/^ROW\(([a-z_]+), ".*/\1/p')
done
[ "$authors" -ge 10 ] && [ "$authors" -le 16 ] || fail "$table has $authors hooks for authors, and promises at most 16"

count=0
while IFS= read -r quoted; do
  count=$((count + 1))
  [[ $said == *"$quoted"* ]] || fail "$page quotes a sentence that the library does not say: $quoted"
done < <(grep -oE '\| `+looptorch: .*' "$page" | sed -E 's/^\| `+//; s/`+ \.\.\..*//; s/`+ \|$//')
[ "$count" -ge 8 ] || fail "only $count sentences were found in $page"

short() { # short POLICY LINES: a header of the page has at most so many lines
  local lines
  lines=$(sed -n "/^\`\`\`cpp header $1.hpp/,/^\`\`\`$/p" "$page" | sed '1d;$d;/^$/d' | wc -l)
  [ "$lines" -gt 0 ] && [ "$lines" -le "$2" ] || fail "$page promises $1 in $2 lines and has $lines"
}
short gradient_noise 20
short clip_and_count 25
exit $status
