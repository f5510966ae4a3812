#!/usr/bin/env bash
# check.sh NM OBJECT TWIN POLICIES_FOLDER: OBJECT, a Trainer without policies, has no symbol that names a policy or a type
# that belongs to one; TWIN, the same Trainer with one, does, so that the check can tell.
set -euo pipefail

nm=$1 object=$2 twin=$3 folder=$4

fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

# What the headers define at namespace scope, one name a line.
policy_types() {
  find "$folder" -name '*.hpp' -exec sed -nE 's/^(struct|class|enum class) ([A-Za-z0-9_]+).*/\2/p' {} + | sort -u
}

named_in() { # named_in OBJECT: its symbols that name one of the types
  "$nm" -C "$1" | grep -E "looptorch::(detail::)?($types)([^A-Za-z0-9_]|$)" || true
}

types=$(policy_types | paste -sd'|')
for known in Accumulate Autocast CacheFlushEvery ClipGradNorm On ScheduleLr ShowProgress Validate; do
  [[ "|$types|" == *"|$known|"* ]] || fail "$known was not found in $folder: this check no longer reads the headers"
done
[[ $("$nm" -C "$object") == *"looptorch::Trainer<"* ]] || fail "$object has no Trainer"
[ -n "$(named_in "$twin")" ] || fail "$twin lists a policy, but none of its symbols names one"
[ -z "$(named_in "$object")" ] || fail "$object lists no policy, but has" "$(named_in "$object" | cut -c1-400)"
