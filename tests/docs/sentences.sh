#!/usr/bin/env bash
# sentences.sh REPOSITORY: each compile-time sentence that docs/writing_a_policy.md quotes is one that the library says, and
# its policy is as short as it promises.
set -euo pipefail

cd "$1"
# adjacent string literals as one text
said=$(find include -name '*.hpp' -exec cat {} + | tr '\n' ' ' | sed -E 's/" +"//g')
status=0
count=0
while IFS= read -r quoted; do
  count=$((count + 1))
  [[ $said == *"$quoted"* ]] || { printf 'docs/writing_a_policy.md quotes what nobody says: %s\n' "$quoted" >&2; status=1; }
done < <(grep -oE '\| `+looptorch: .*' docs/writing_a_policy.md | sed -E 's/^\| `+//; s/`+ \.\.\..*//; s/`+ \|$//')
[ "$count" -ge 8 ] || { printf 'only %d sentences were found in docs/writing_a_policy.md\n' "$count" >&2; status=1; }

lines=$(sed -n '/^```cpp header gradient_noise.hpp/,/^```$/p' docs/writing_a_policy.md | sed '1d;$d;/^$/d' | wc -l)
[ "$lines" -gt 0 ] && [ "$lines" -le 20 ] ||
  { printf 'docs/writing_a_policy.md promises a policy in 20 lines and has %d\n' "$lines" >&2; status=1; }
exit $status
