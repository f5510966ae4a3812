#!/usr/bin/env bash
# archive.sh SOURCE ARCHIVE: packs what a release of the checkout SOURCE holds.
set -euo pipefail

cd "$1"
tar -czf "$2" --exclude=./tests/parity/data CMakeLists.txt LICENSE include packaging examples tests
