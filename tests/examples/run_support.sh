# shellcheck shell=bash
# Sourced by tests of an example's run.sh, with `run` the script, `programs` the folder of the programs, and `program`
# one that the script needs. Paths are absolute, since the test works in the temporary folder $work of cli_support.sh,
# whose helpers it has beside these.
# shellcheck source-path=SCRIPTDIR source=cli_support.sh
source "${BASH_SOURCE[0]%/*}/cli_support.sh"

# value FILE KEY: prints the number of a field in a JSON file with a field a line.
value() { sed -n "s/^ *\"$2\": *\([-0-9.e+]*\),\{0,1\}\$/\1/p" "$1"; }

# has_numbers FILE KEY...: each field is there and a number.
has_numbers() {
  local key
  for key in "${@:2}"; do [ -n "$(value "$1" "$key")" ] || fail "$1 has no $key"; done
}

# is_true CONDITION: whether a condition on numbers holds.
is_true() { awk "BEGIN { exit !($1) }"; }

# script_runs ARGUMENT...: the script succeeds, else the test ends. What it printed is in the file log.
script_runs() { "${run:?}" "$@" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }; }

# script_refused TEXT ARGUMENT...: the script ends with code 2, and says TEXT.
script_refused() {
  local text=$1 code=0 said
  shift
  said=$("${run:?}" "$@" 2>&1) || code=$?
  [[ $code == 2 && $said == *"$text"* ]] || fail "run.sh $* exited with $code and said \"$said\""
}

# script_refuses_all OUTPUT: the script refuses wrong arguments, and a folder without programs, for which it leaves
# OUTPUT's summary alone.
script_refuses_all() {
  script_refused "no output folder"
  script_refused "there is no option --wrong" --wrong
  script_refused "one output folder at most" "$work/a" "$work/b"
  script_refused "--programs needs a folder" "$work/a" --programs
  mkdir "$1"
  echo kept >"$1/summary.json"
  script_refused "holds no ${program:?}" --programs "$work" "$1"
  [ "$(cat "$1/summary.json")" = kept ] || fail "a refused run.sh took the summary away"
}
