# shellcheck shell=bash
# Sourced by examples/quickstart.sh and tests/run.sh: sets up, configures and builds, naming each step.
#
#   looptorch_build TARGET...   builds in ${LOOPTORCH_BUILD:-build}, whose path is then in `build`; `all` has the tests
#   for_tests=1                 other targets are built as `all` builds them: by clang++, if there is one
#   distributed=1               training programs run on several processes, too

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=${LOOPTORCH_BUILD:-$root/build${LOOPTORCH_LIBTORCH:+-libtorch-$LOOPTORCH_LIBTORCH}}

say() { printf '==> %s\n' "$*" >&2; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

show_help() { # show_help SCRIPT: its opening comment
  sed -n '2,/^set/s/^# \{0,1\}//p' "$1"
  exit
}

looptorch_build() {
  local environment
  local -a tests=()
  local clang=OFF
  [ -z "${distributed-}" ] || tests=(--distributed)
  if [ "$*" = all ] || [ -n "${for_tests-}" ]; then
    tests=(--tests)
    ! command -v clang++ >/dev/null || clang=ON
  fi
  environment=$("$root/packaging/setup.sh" "${tests[@]}") || exit
  eval "$environment"

  say "Configuring in $build"
  mkdir -p "$build"
  # -O1: a program compiles in half the time that -O3 takes and trains as fast, for its work is done in LibTorch.
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release '-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG' \
    -DLOOPTORCH_BUILD_TESTS=ON -DLOOPTORCH_BUILD_EXAMPLES=ON -DLOOPTORCH_UNITY_TESTS=ON \
    -DLOOPTORCH_TESTS_WITH_CLANG=$clang >"$build/configure.log" 2>&1 || {
    grep -A5 'CMake Error' "$build/configure.log" >&2
    fail "CMake could not configure (all it says: $build/configure.log); if $build is from another set-up, remove it"
  }
  say "Building${*:+ $*} with $LOOPTORCH_JOBS jobs; the first time takes minutes"
  ninja -C "$build" -j "$LOOPTORCH_JOBS" "$@" >&2 || fail "the build failed; see the compiler's words above"
}
