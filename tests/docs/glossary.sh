#!/usr/bin/env bash
# glossary.sh REPOSITORY: each identifier in the last column of docs/glossary.md's tables exists in the library, and the
# page has the words that people search for.
set -euo pipefail
cd "$1"
page=docs/glossary.md
status=0
fail() {
  printf '%s: %s\n' "$page" "$1" >&2
  status=1
}
words=$(grep -rhoE '\b[A-Za-z_][A-Za-z0-9_]*\b' include --include='*.hpp' | sort -u)
named=$(sed -nE 's/^\|.*\| ([^|]*) \|$/\1/p' "$page" | grep -oE '`[^`]+`' | tr -d '`' | sort -u)
[ "$(wc -l <<<"$named")" -ge 60 ] || fail "what does this script read?"
while IFS= read -r unknown; do
  [ -z "$unknown" ] || fail "the library has no $unknown"
done < <(comm -13 <(printf '%s\n' "$words") <(printf '%s\n' "$named"))
for word in rollback all-reduce NaN 'weight decay' 'gradient clipping' DDP EMA 'activation checkpointing' micro-batch \
  window retry trace shard barrier overflow veto 'loss scale' snapshot resume prefetch 'pinned' capture; do
  grep -qF -- "$word" "$page" || fail "lacks the term $word"
done
exit $status
