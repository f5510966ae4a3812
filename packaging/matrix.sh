#!/usr/bin/env bash
# Builds and tests looptorch against each version of LibTorch in turn and prints a table in Markdown:
#
#   packaging/matrix.sh [--targets "TARGET..."] [VERSION...] [-- CTEST-ARGUMENT...]
#   packaging/matrix.sh                                                     everything, with every version known
#   packaging/matrix.sh --targets 'unit_loop unit_optim' 2.7.1 -- -R '^unit\.(loop|optim)\.'
#
# Each version has a build folder of its own, build-libtorch-VERSION beside build, and shares ccache. A version whose build
# fails is a row of the table, too; then the exit code is 1, as when a test fails. The columns: passed, failed and skipped
# are tests of ctest; minutes are those of build and tests together on this machine.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=build.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/build.sh"
# shellcheck source-path=SCRIPTDIR source=setup/libtorch_versions.sh
source "$root/packaging/setup/libtorch_versions.sh"

targets=(all) versions=() selection=()
while [ $# -gt 0 ]; do
  case $1 in
    --help) show_help "${BASH_SOURCE[0]}" ;;
    --targets)
      read -r -a targets <<<"${2-}"
      [ ${#targets[@]} -gt 0 ] || fail "--targets needs names of targets"
      shift
      ;;
    --) shift && selection=("$@") && break ;;
    -*) fail "there is no option $1; packaging/matrix.sh --help lists them" ;;
    *)
      choose_libtorch "$1" || fail "there is no LibTorch $1 for looptorch to install; $known_libtorch are known"
      versions+=("$1")
      ;;
  esac
  shift
done
[ ${#versions[@]} -gt 0 ] || mapfile -t versions < <(grep -oE '[0-9]+(\.[0-9]+)+' <<<"$known_libtorch")

compiler_of() { # compiler_of BUILD-FOLDER: of the programs, and of the tests if that is another
  local variable path
  for variable in CMAKE_CXX_COMPILER LOOPTORCH_CLANG; do
    path=$(sed -n "s/^$variable:[A-Z]*=//p" "$1/CMakeCache.txt" 2>/dev/null)
    case $("${path:-true}" --version) in
      '') ;;
      *clang*) echo "clang++ $("$path" -dumpversion)" ;;
      *) echo "g++ $("$path" -dumpfullversion)" ;;
    esac
  done | paste -sd , | sed 's/,/, /'
}

# One row: counts of ctest's log, in which a line a test ends in Passed, ***Failed, ***Skipped and the like.
row() { # row VERSION BUILD-FOLDER BUILT SECONDS
  local log=$2/matrix-tests.log passed=- failed=- skipped=-
  if [ "$3" = yes ]; then
    passed=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#.* Passed ' "$log" || true)
    skipped=$(grep -cE '^ *[0-9]+/[0-9]+ Test +#.*\*\*\*(Skipped|Not Run)' "$log" || true)
    failed=$(($(grep -cE '^ *[0-9]+/[0-9]+ Test +#' "$log" || true) - passed - skipped))
  fi
  printf '| %s | %s | %s | %s | %s | %s | %d |\n' "$1" "$(compiler_of "$2")" "$3" "$passed" "$failed" "$skipped" \
    $((($4 + 30) / 60))
}

rows=() status=0 for_tests=1
for version in "${versions[@]}"; do
  say "LibTorch $version"
  folder=$root/build-libtorch-$version built=yes begin=$SECONDS
  export LOOPTORCH_LIBTORCH=$version
  # In a shell of its own, so that one version's environment does not reach the next.
  if (build=$folder && looptorch_build "${targets[@]}"); then
    (
      environment=$("$root/packaging/setup.sh" --tests) && eval "$environment"
      ctest --test-dir "$folder" --output-on-failure --parallel "$LOOPTORCH_JOBS" "${selection[@]}"
    ) 2>&1 | tee "$folder/matrix-tests.log" >&2 || status=1
  else
    built=no status=1
  fi
  rows+=("$(row "$version" "$folder" "$built" $((SECONDS - begin)))")
done

echo "Targets: ${targets[*]}. ctest${selection[*]:+ ${selection[*]}}. $(date +%F), $(nproc) cores."
echo
echo '| LibTorch | compiler | built | passed | failed | skipped | minutes |'
echo '|---|---|---|---|---|---|---|'
printf '%s\n' "${rows[@]}"
exit $status
