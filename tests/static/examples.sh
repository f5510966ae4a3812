#!/usr/bin/env bash
# examples.sh REPOSITORY: examples use what every user may: none names looptorch::detail, nor includes a header that lies in
# a folder called detail; and their rooms include one another in one direction. An example's own `detail` is its own affair.
# Nothing of this repository calls a function that crashes with LibTorch.
set -euo pipefail

cd "$1"
hidden='(^|[^[:alnum:]_])(looptorch|lt)::detail|namespace +[[:alnum:]_]+ *= *(::)?looptorch::detail|<looptorch/.*/detail/'
if grep -rnE "$hidden" examples >&2; then
  echo "examples name what users must not name" >&2
  exit 1
fi
# the pattern finds what it is meant to find
for line in 'looptorch::detail::mix64(1)' 'using lt::detail::hex;' '#include <looptorch/data/detail/x.hpp>'; do
  grep -qE "$hidden" <<<"$line" || { echo "the pattern misses: $line" >&2; exit 1; }
done

# std::filesystem::remove_all crashes in every program that is linked with LibTorch 2.11 (docs/errors.md).
crashing='(^|[^[:alnum:]_])remove_all *\('
if grep -rnE "$crashing" include examples packaging tests --include='*.hpp' --include='*.cpp' --include='*.h' --include='*.in' >&2; then
  echo "std::filesystem::remove_all crashes with LibTorch 2.11: remove entries one by one" >&2
  exit 1
fi
for line in 'fs::remove_all(folder);' '  std::filesystem::remove_all (folder, error);' 'remove_all(folder)'; do
  grep -qE "$crashing" <<<"$line" || { echo "the pattern misses: $line" >&2; exit 1; }
done

# The rooms of an example, its folders, include one another in one direction.
rooms_in_a_circle() { # rooms_in_a_circle EXAMPLE: names them
  { (cd "$1" && grep -rE '^#include "\.\./' --include='*.hpp' .) || true; } |
    sed -nE 's|^\./([^/]+)/[^:]*:#include "\.\./([^/"]+)/.*|\1 \2|p' | sort -u | tsort 2>&1 >/dev/null |
    sed 's/^tsort: //; s/^-: //' | tr '\n' ' '
}
for example in examples/*/; do
  circle=$(rooms_in_a_circle "$example") || true
  [ -z "$circle" ] || { echo "$example: rooms that include one another in a circle: $circle" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/one" "$work/two"
echo '#include "../two/b.hpp"' >"$work/one/a.hpp"
echo '#include "../one/a.hpp"' >"$work/two/b.hpp"
[ -n "$(rooms_in_a_circle "$work" || true)" ] || { echo "a circle of rooms was not found" >&2; exit 1; }
