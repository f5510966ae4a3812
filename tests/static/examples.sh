#!/usr/bin/env bash
# examples.sh REPOSITORY: examples use what every user may: none names looptorch::detail, nor includes a header that lies in
# a folder called detail. An example's own `detail` is its own affair.
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
