#!/usr/bin/env bash
# refusals.sh LOOPTORCH WORK PREFIX: what the set-up and the package installed in PREFIX say where they are held wrong.
set -euo pipefail

looptorch=$1 work=$2 prefix=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
failures=0

says() { # says SENTENCE COMMAND...: it fails, and the first error is this sentence
  local sentence=$1 code=0
  shift
  "$@" >log 2>&1 </dev/null || code=$?
  if [ $code = 0 ] || ! grep -m1 -iF error log | grep -qF -- "$sentence"; then
    printf 'FAILED: %s\nexit code %s:\n%s\n' "$*" "$code" "$(head -n20 log)"
    failures=$((failures + 1))
  fi
}

says "error: there is no option --nonsense; packaging/setup.sh --help" "$looptorch/packaging/setup.sh" --nonsense
says "error: there is no option 2.7.1" "$looptorch/packaging/setup.sh" 2.7.1
says "error: there is no LibTorch 9.9" "$looptorch/packaging/setup.sh" --libtorch 9.9
says "error: there is no option --targts" "$looptorch/packaging/matrix.sh" --targts x
says "error: HOME is not set; name a folder for downloads in LOOPTORCH_CACHE" \
  env -u HOME -u XDG_CACHE_HOME -u LOOPTORCH_CACHE "$looptorch/packaging/setup.sh"
says "error: cannot write to $work/log/cache; name another folder" env LOOPTORCH_CACHE=log/cache "$looptorch/packaging/setup.sh"
for header in trainer policies app/command_line; do
  echo "#include <looptorch/$header.hpp>" >main.cpp
  says "looptorch needs C++20" "${CXX:-c++}" -std=c++17 -fsyntax-only -I "$looptorch/include" main.cpp
done

# A LibTorch that is too old, and one that is none; a package that is asked for quietly is not found, and no more.
mkdir -p old/share/cmake/Torch none
echo 'set(Torch_FOUND TRUE)' >old/share/cmake/Torch/TorchConfig.cmake
echo 'set(PACKAGE_VERSION 2.5.1)' >old/share/cmake/Torch/TorchConfigVersion.cmake
cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(none LANGUAGES CXX)
find_package(looptorch CONFIG QUIET)
if(looptorch_FOUND)
  message(FATAL_ERROR "error: found")
endif()
message(FATAL_ERROR "error: ${looptorch_NOT_FOUND_MESSAGE}")
CMAKE
quietly() { # quietly LIBTORCH: what a project is told, on one line
  env -u Torch_DIR CMAKE_PREFIX_PATH="$1" cmake -S . -B build --fresh -Dlooptorch_ROOT="$prefix" 2>&1 | tr -s '\n ' ' ' |
    grep -o 'error: .*'
  return 1
}
says "error: looptorch needs LibTorch 2.7 or newer, and the one in $work/old/share/cmake/Torch is 2.5.1" quietly "$work/old"
says "error: looptorch needs LibTorch, which was not found" quietly "$work/none"

exit $((failures > 0))
