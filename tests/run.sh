#!/usr/bin/env bash
# Set-up, build and all tests in one command; arguments go to ctest, for example: tests/run.sh -R unit.loop
#
# Builds in ${LOOPTORCH_BUILD:-build}; see packaging/setup.sh for what is installed and where. The exit code is ctest's.
# LOOPTORCH_LIBTORCH=2.7.1 takes another version of LibTorch and builds in build-libtorch-2.7.1; packaging/matrix.sh does
# that for each version.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=../packaging/build.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../packaging/build.sh"

[ "${1-}" != --help ] || show_help "${BASH_SOURCE[0]}"
looptorch_build all
say "Testing"
exec ctest --test-dir "$build" --output-on-failure --parallel "$LOOPTORCH_JOBS" "$@"
