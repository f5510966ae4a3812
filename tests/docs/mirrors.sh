#!/usr/bin/env bash
# mirrors.sh REPOSITORY: each header of include/looptorch and of the examples has a test, and each test of tests/unit names
# its header.
#
# The test of include/looptorch/A/b.hpp is tests/unit/A/b_test.cpp; that of include/looptorch/b.hpp is
# tests/unit/b/b_test.cpp; that of examples/A/b.hpp is tests/unit/A/b_test.cpp, too. A test that covers other headers, or
# has none of its own name, says so at its top, a folder a line, with names that lie in it (none before the colon: in
# include/looptorch itself):
#
#   // Tests data/loader: batch_cut, turn_lock
#   // Tests whisper/model: attention
#
# Such a header must be reached by the test's includes. Headers without a test stand below, with the reason.
# Each header begins with the licence, alone on its line, and a comment that says what the header offers.
set -euo pipefail

cd "$1"
declare -A untested=(
  [base/unicode/canonical_tables]='a generated table'
  [loop/compose/checks]='tests/compile_fail'
  [loop/compose/check_batch]='tests/compile_fail'
  [loop/compose/check_order]='tests/compile_fail'
  [loop/compose/check_split]='tests/compile_fail'
  [loop/compose/deduction]='tests/compile_fail'
  [loop/compose/hook_table]='rows only: tests/static and tests/compile_fail check what they generate'
  [loop/compose/deferred_code]='tests/compile_fail/forgotten'
  [loop/compose/parts]='types only: tests/static and tests/compile_fail'
  [loop/step/window_state]='data only'
  [version]='macros only: tests/packages compares them with CMake, Conan and vcpkg'
  [metrics/tables/unicode_ranges]='a generated table'
  [policies]='includes only'
  [policies/declared]='tests/compile_fail/own_header'
  [konkanivani/training/flags]='flags: tests/examples/konkanivani_cli_test.sh and konkanivani_run_test.sh'
  [konkanivani/training/train_options]='settings: tests/examples/konkanivani_cli_test.sh and konkanivani_run_test.sh'
  [spectrogram_gan_vit/gan/train_options]='flags: tests/examples/spectrogram_gan_cli_test.sh and spectrogram_gan_run_test.sh'
  [whisper/training/plan/fit_memory]='memory_plan_test and plan_trial_test have its parts, tests/examples/whisper_memory_cli_test.sh the whole'
  [whisper/training/flags]='flags: tests/examples/whisper_cli_test.sh'
)
status=0
fail() {
  printf '%s\n' "$1" >&2
  status=1
}

while IFS= read -r header; do
  { read -r licence && read -r opening; } <"$header"
  [ "$licence" = '// SPDX-License-Identifier: MIT' ] || fail "$header does not begin with the licence line alone"
  [[ $opening == '// '* ]] || fail "$header has no opening comment behind the licence line"
done < <(find include examples -name '*.hpp')

# The file of a header, by its name without .hpp.
file_of() {
  if [ -e "include/looptorch/$1.hpp" ]; then printf 'include/looptorch/%s.hpp\n' "$1"; else printf 'examples/%s.hpp\n' "$1"; fi
}
headers=$({ cd include/looptorch && find . -name '*.hpp'; cd ../../examples && find . -name '*.hpp'; } |
  sed -E 's|^\./||; s|\.hpp$||' | sort)

# The mirrored header of a test, as a name without .hpp.
mirrored() {
  local name=${1#tests/unit/}
  name=${name%_test.cpp}
  [ "${name%/*}" = "${name##*/}" ] && name=${name##*/}
  printf '%s\n' "$name"
}

declare -A tested=()
declarations=$(grep -rE '^// Tests ' --include='*.cpp' tests || true)
while IFS= read -r line; do
  [ -n "$line" ] || continue
  file=${line%%:*} text=${line#*:// Tests }
  folder='' names=$text
  [[ $text == *:* ]] && folder=${text%%:*} names=${text#*:}
  for name in ${names//,/ }; do
    header=${folder:+$folder/}$name
    tested[$header]+="$file "
  done
done <<<"$declarations"

# What each test with a declaration includes, directly or by way of other headers: "TEST FILE" a line.
reached=$(
  {
    grep -rE '^#include [<"]' --include='*.hpp' --include='*.cpp' include examples tests | sed 's/:#include / /'
    cut -d: -f1 <<<"$declarations" | sort -u
  } | awk '
    function included(file, name,   path) {
      if (name ~ /^<looptorch\//) return "include/" substr(name, 2, length(name) - 2)
      if (name ~ /^</) return "examples/" substr(name, 2, length(name) - 2)
      name = substr(name, 2, length(name) - 2)
      if (name ~ /^(unit|support|device)\//) return "tests/" name
      path = file
      sub(/[^\/]*$/, "", path)
      path = path name
      while (sub(/[^\/]+\/\.\.\//, "", path)) { }
      return path
    }
    NF > 1 { next_of[$1] = next_of[$1] " " included($1, $2) }
    NF == 1 { tests[$1] }
    END {
      for (file in tests) {
        split("", seen)
        n = split(next_of[file], queue, " ")
        for (i = 1; i <= n; ++i) {
          if (queue[i] in seen) continue
          seen[queue[i]]
          print file, queue[i]
          m = split(next_of[queue[i]], more, " ")
          for (k = 1; k <= m; ++k) queue[++n] = more[k]
        }
      }
    }'
)
declare -A reach=()
while read -r file header; do reach["$file $header"]=1; done <<<"$reached"

for header in "${!tested[@]}"; do
  path=$(file_of "$header")
  [ -e "$path" ] || { fail "${tested[$header]}says that it tests $header.hpp, which does not exist"; continue; }
  for file in ${tested[$header]}; do
    [ -n "${reach["$file $path"]+yes}" ] || fail "$file says that it tests $header.hpp, and does not include it"
  done
done

for header in $headers; do
  test=tests/unit/${header}_test.cpp
  [[ $header == */* ]] || test=tests/unit/$header/${header}_test.cpp
  if [ -e "$test" ] || [ -n "${tested[$header]+yes}" ]; then
    [ -z "${untested[$header]+yes}" ] || fail "mirrors.sh lists $header.hpp as untested, and it has a test"
  elif [ -z "${untested[$header]+yes}" ]; then
    fail "$(file_of "$header") has no test: write $test, or name it in a line \"// Tests\" of another"
  fi
done
for header in "${!untested[@]}"; do
  [ -e "$(file_of "$header")" ] || fail "mirrors.sh lists $header.hpp, which does not exist"
done

while read -r test; do
  name=$(mirrored "$test")
  [ -e "$(file_of "$name")" ] || grep -q "^// Tests " "$test" ||
    fail "$test: there is no $name.hpp. Rename it, or say what it is about: // Tests FOLDER: HEADER"
done < <(find tests/unit -name '*_test.cpp' | sort)
exit $status
