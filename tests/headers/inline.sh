#!/usr/bin/env bash
# inline.sh NM LIBRARY: LIBRARY, which holds the code of the precompiled headers, defines nothing that a header lacks an
# `inline` for. Files that use these headers have no code of their own for it, so headers_link would not tell.
set -euo pipefail

symbols=$("$1" -C --defined-only "$2")
twice=$(grep -E '^[0-9a-f]+ [TDBR] ' <<<"$symbols" || true)
[ -z "$twice" ] || {
  printf '%s\n' "a header defines, but does not declare inline:" "$twice" >&2
  exit 1
}
