#!/usr/bin/env bash
# Set-up, build and all tests in one command; arguments go to ctest, for example: tests/run.sh -R unit.loop
#
# tests/run.sh --quick [ARGUMENT...] builds and runs what a change usually needs: the unit tests of the loop, the policies, the
# trainer, the base, the optimizers and the saved state, static_asserts and the house rules of docs/. No pairs of
# policies one by one, no program and no simulated device.
#
# Builds in ${LOOPTORCH_BUILD:-build}; see packaging/setup.sh for what is installed and where. The exit code is ctest's.
# LOOPTORCH_LIBTORCH=2.7.1 takes another version of LibTorch and builds in build-libtorch-2.7.1; packaging/matrix.sh does
# that for each version.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../packaging/build.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../packaging/build.sh"

[ "${1-}" != --help ] || show_help "${BASH_SOURCE[0]}"
if [ "${1-}" = --quick ]; then
  shift
  folders=(base loop objective optim policies redo resume state trainer)
  # shellcheck disable=SC2034 # looptorch_build reads it
  for_tests=1
  looptorch_build "${folders[@]/#/unit_}" looptorch_syntax_looptorch unit_everywhere
  set -- --tests-regex "^(unit\\.($(IFS='|' && echo "${folders[*]}"))(\\.|\$)|static\\.|docs\\.(links|sentences|includes|rooms|mirrors|fields|scaling|glossary|line_length))" \
    --exclude-regex 'every_pair_test' "$@"
else
  looptorch_build all
fi
say "Testing"
# One more than there are jobs: some tests mostly wait, for ranks that are silent or processes that are killed.
exec ctest --test-dir "$build" --output-on-failure --parallel "$((LOOPTORCH_JOBS + 1))" "$@"
