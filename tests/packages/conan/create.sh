#!/usr/bin/env bash
# create.sh CONAN SOURCE LIBTORCH WORK TORCH-DIR: packages the checkout SOURCE with Conan, in a cache of its own and without a
# remote, and builds and runs test_package. LIBTORCH is `external`, named by Torch_DIR, or `conan`: a stand-in for Conan
# Center's recipe around the same files, with that recipe's targets.
set -euo pipefail

conan=$1 source=$2 libtorch=$3 work=$4 torch=$5
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
rm -rf "$work"
mkdir -p "$work"
export CONAN_HOME=$work/home
"$conan" profile detect --name default >/dev/null 2>&1
"$conan" remote disable '*' >/dev/null

if [ "$libtorch" = conan ]; then
  LOOPTORCH_TORCH_PREFIX=$(cd "$torch/../../.." && pwd) "$conan" create "$here/libtorch" -s build_type=Debug
  unset CMAKE_PREFIX_PATH Torch_DIR
else
  export Torch_DIR=$torch
fi
"$conan" create "$source/packaging/conan" -o "looptorch/*:libtorch=$libtorch" -s compiler.cppstd=20 --build=missing \
  -tf "" >"$work/create.log" 2>&1 || { cat "$work/create.log"; exit 1; }

# One package for all settings and options: the one that a release made serves a debug build.
ids=$("$conan" list 'looptorch/*:*' --format=json | grep -oE '"[0-9a-f]{40}"' | sort -u | wc -l)
[ "$ids" = 1 ] || { echo "$ids packages, not one" >&2; exit 1; }
version=$("$conan" inspect "$source/packaging/conan" --format=json | sed -n 's/.*"version": "\(.*\)".*/\1/p')

cp -r "$source/packaging/conan/test_package" "$work/test_package" # what is built stays out of the checkout
echo 'target_compile_options(three_steps PRIVATE -g0)' >>"$work/test_package/CMakeLists.txt" # or g++ takes twice as long
"$conan" test "$work/test_package" "looptorch/$version" -o "looptorch/*:libtorch=$libtorch" -s compiler.cppstd=20 \
  -s build_type=Debug 2>&1 | tee "$work/test.log"
grep -q "^looptorch $version: 3 steps" "$work/test.log"
