#!/usr/bin/env bash
# Tests check.sh itself with a compiler whose output the test chooses: a harness that cannot fail proves nothing.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
check=$(dirname -- "${BASH_SOURCE[0]}")/check.sh

# fake_compiler STATUS: prints $folder/says and ends with STATUS
cat >"$folder/fake_compiler" <<'COMPILER'
#!/usr/bin/env bash
cat "$(dirname -- "$0")/says"
exit "$1"
COMPILER
chmod +x "$folder/fake_compiler"

case_with() { printf '%s\n' "$@" '#ifdef LOOPTORCH_TWIN' '#endif' >"$folder/case.cpp"; }

expect() { # expect 0|1 WHAT STATUS
  local status=0
  bash "$check" "$folder/case.cpp" "$folder/fake_compiler" "$3" 2>"$folder/why" || status=$?
  [ $status = "$1" ] && return
  printf 'check.sh ended with %s where %s: %s\n' "$status" "$2" "$(cat "$folder/why")" >&2
  exit 1
}

printf '%s\n' 'In file included from one.hpp:1,' '                 from two.hpp:2:' 'required from here' \
  'error: looptorch: no. Do this.' >"$folder/says"
case_with '// expect: looptorch: no. Do this.'
expect 0 "all is well" 1
expect 1 "the mistake compiles" 0

case_with '// expect: looptorch: no. Do this.' '// within: 1'
expect 1 "the sentence comes too late" 1
case_with '// expect: looptorch: no. Do this.' '// within: 2' '// max-lines: 2'
expect 0 "it comes in time but for lines that say who includes whom" 1
case_with '// expect: looptorch: no. Do this.' '// max-lines: 1'
expect 1 "the output is too long" 1
case_with '// expect: looptorch: no. Do th.s.'
expect 1 "the sentence differs" 1
case_with '// expect: looptorch: no.' '// expect: And that'
expect 1 "one of two sentences is missing" 1
case_with '// expect: looptorch: no.' '// expect: Do this.'
expect 0 "both sentences are there" 1
case_with '// expect: looptorch: no.' '// expect-g++: nowhere'
expect 1 "what only g++ is asked is missing" 1
case_with '// expect: looptorch: no.' '// expect-clang++: nowhere'
expect 0 "what only clang++ is asked is missing with g++" 1
case_with '// nothing'
expect 1 "nothing is expected" 1
echo '// expect: looptorch: no.' >"$folder/case.cpp"
expect 1 "there is no twin" 1
