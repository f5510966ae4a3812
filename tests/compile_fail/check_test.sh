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

cases=("$folder/case.cpp")
case_with() { printf '%s\n' "$@" '#ifdef LOOPTORCH_TWIN' '#endif' >"${cases[0]}"; }

expect() { # expect 0|1 WHAT STATUS
  local status=0
  bash "$check" "${cases[@]}" -- "$folder/fake_compiler" "$3" 2>"$folder/why" || status=$?
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

# Several cases at a time: messages of both compilers, shared out.
cases=("$folder/case.cpp" "$folder/other.cpp")
case_with '// expect: looptorch: no.' '// max-lines: 5'
printf '%s\n' '// expect: looptorch: never.' '// anywhere: for ever' '#ifdef LOOPTORCH_TWIN' '#endif' >"$folder/other.cpp"
cat >"$folder/says" <<'SAYS'
/x/other.cpp: In function 'int one()':
/x/checks.hpp:7:3: error: looptorch: never.
/x/checks.hpp:7:3: error: for ever
/x/checks.hpp: In instantiation of 'struct Check<case>':
/x/trainer.hpp:5:1:   required from 'struct Trainer<case>'
/x/case.cpp:9:12:   required from here
/x/checks.hpp:7:3: error: looptorch: no.
/x/checks.hpp:7:3: note: case::Mine
SAYS
echo '// anywhere: note: Mine' >>"${cases[0]}"
expect 0 "g++ speaks of each" 1
expect 1 "both compile" 0
sed -i 's/looptorch: no\./looptorch: yes./' "$folder/says"
expect 1 "the sentence of one is not there" 1
cat >"$folder/says" <<'SAYS'
/x/checks.hpp:7:3: error: looptorch: never.
/x/trainer.hpp:5:1: note: in instantiation of 'Trainer<other>' requested here
/x/other.cpp:9:12: note: in instantiation of 'Check<other>' requested here, for ever
/x/checks.hpp:7:3: error: looptorch: no.
/x/case.cpp:9:12: note: Mine in instantiation of 'Check<case>' requested here
SAYS
expect 0 "clang++ speaks of each" 1
sed -i '4,5d' "$folder/says"
expect 1 "one of the two is not spoken of, so it compiles" 1
printf '%s\n' '/x/case.cpp:1:1: error: looptorch: never.' '/x/case.cpp:1:1: note: for ever' \
  '/x/other.cpp:1:1: error: looptorch: no.' >"$folder/says"
expect 1 "each sentence stands at the other case" 1
