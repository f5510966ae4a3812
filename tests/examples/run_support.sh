# shellcheck shell=bash
# Sourced by tests of an example's run.sh, with `run` the script, `program` a program that it needs, and `work` a
# folder to work in. Has the checks that such tests share, such as how every run.sh refuses wrong arguments.
# Such a test ends with `[ "$failures" = 0 ] || exit 1`.

failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
value() { sed -n "s/^ *\"$2\": *\([-0-9.e+]*\),\{0,1\}\$/\1/p" "$1"; } # value FILE KEY
is_true() { awk "BEGIN { exit !($1) }"; }                                # is_true CONDITION, of numbers

run_refused() { # run_refused TEXT ARGUMENT...
  local text=$1 code=0 said
  shift
  said=$("${run:?}" "$@" 2>&1) || code=$?
  [[ $code == 2 && $said == *"$text"* ]] || fail "run.sh $* exited with $code and said \"$said\""
}

# Wrong arguments, and a folder without programs, which must leave OUTPUT's summary alone.
check_refusals() { # check_refusals OUTPUT
  run_refused "no output folder"
  run_refused "there is no option --wrong" --wrong
  run_refused "one output folder at most" "${work:?}/a" "$work/b"
  run_refused "--programs needs a folder" "$work/a" --programs
  mkdir "$1"
  echo kept >"$1/summary.json"
  run_refused "holds no ${program:?}" --programs "$work" "$1"
  [ "$(cat "$1/summary.json")" = kept ] || fail "a refused run.sh took the summary away"
}
