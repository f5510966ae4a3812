# shellcheck shell=bash
# Sourced by tests of an example's programs, with `programs` the folder that holds them: such a test works in a folder of its
# own, which goes with it, and counts its failures.

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# refused TEXT PROGRAM [ARGUMENT...]: exit code 2 and exactly one line, which begins with the program and holds TEXT.
refused() {
  local text=$1 code=0 said
  shift
  said=$("${programs:?}/$1" "${@:2}" 2>&1 >/dev/null) || code=$?
  [ "$code" = 2 ] || fail "$* exited with $code instead of 2: $said"
  [ "$(printf '%s' "$said" | grep -c '')" = 1 ] || fail "$* did not say one line: $said"
  [[ $said == "$1: "*"$text"* ]] || fail "$* said \"$said\" without \"$text\""
}

# holds FILE TEXT
holds() { grep -qF -- "$2" "$1" || fail "$1 does not hold \"$2\": $(cat "$1")"; }
