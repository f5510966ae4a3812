#!/usr/bin/env bash
# sentences.sh REPOSITORY: each compile-time sentence that docs/writing_a_policy.md quotes is one that the library says, the
# page lists every hook and capability, and its policy is as short as it promises.
set -euo pipefail

cd "$1"
page=docs/writing_a_policy.md
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
while IFS=, read -r name argument result; do
  name=${name//[[:space:]]/}
  said+="looptorch: $name would never run. Make it one public \`${result# } $name(${argument# }) const\`"
  grep -q "\`[^\`]*\b$name(" "$page" || fail "$page does not list the hook $name"
done < <(sed -nE 's/^  ROW\(([a-z_]+, [^"]*[^)])\) *\\?$/\1/p' "$table")
while IFS= read -r name; do
  said+="looptorch: a policy's \`$name\` would be ignored. Make it a public"
  grep -q "^| \`$name\` |" "$page" || fail "$page does not list the capability $name"
done < <(sed -nE 's/^  ROW\(([a-z_]+), ".*/\1/p' "$table")

count=0
while IFS= read -r quoted; do
  count=$((count + 1))
  [[ $said == *"$quoted"* ]] || fail "$page quotes a sentence that the library does not say: $quoted"
done < <(grep -oE '\| `+looptorch: .*' "$page" | sed -E 's/^\| `+//; s/`+ \.\.\..*//; s/`+ \|$//')
[ "$count" -ge 8 ] || fail "only $count sentences were found in $page"

lines=$(sed -n '/^```cpp header gradient_noise.hpp/,/^```$/p' "$page" | sed '1d;$d;/^$/d' | wc -l)
[ "$lines" -gt 0 ] && [ "$lines" -le 20 ] || fail "$page promises a policy in 20 lines and has $lines"
exit $status
