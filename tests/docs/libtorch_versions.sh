#!/usr/bin/env bash
# libtorch_versions.sh REPOSITORY: the versions of LibTorch that packaging/ installs are those that docs/packaging.md and
# app/device/cuda_device.hpp name; another one is refused; the stand-in for nvcc answers CMake and compiles nothing else.
set -euo pipefail

cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}
refused() { # refused TEXT COMMAND...
  local text=$1 said
  shift
  ! said=$(LOOPTORCH_CACHE=$work "$@" 2>&1) || fail "$* was not refused"
  [[ $said == *"$text"* && $(wc -l <<<"$said") = 1 ]] || fail "$* said \"$said\""
}

# shellcheck source-path=SCRIPTDIR/../../packaging source=setup/libtorch_versions.sh
source packaging/setup/libtorch_versions.sh
versions=$(grep -oE '[0-9]+(\.[0-9]+)+' <<<"$known_libtorch")
named=$(sed -nE 's/^      \{"([0-9.]+)", [0-9]+, .*/\1/p' include/looptorch/app/device/cuda_device.hpp)
[ "$(sort <<<"$versions")" = "$(sort <<<"$named")" ] || fail "cuda_device.hpp names ${named//$'\n'/ } and packaging ${versions//$'\n'/ }"
[ "$(head -1 <<<"$named")" = "$default_libtorch" ] || fail "cuda_device.hpp does not begin with $default_libtorch"
for version in $versions; do
  choose_libtorch "$version"
  [[ " ${torch_packages[*]} " == *" torch==$version "* ]] || fail "the packages of $version are another one's"
  for package in "${torch_packages[@]}" "${toolkit_packages[@]}"; do
    [[ $package =~ ^[a-z0-9-]+==[0-9.]+$ ]] || fail "$package is not pinned"
  done
  grep -q "^| ${version}[ ,]" docs/packaging.md || fail "docs/packaging.md has no row for $version"
done
! choose_libtorch 1.0 || fail "LibTorch 1.0 is known"

refused "there is no LibTorch 1.0 for looptorch to install; $known_libtorch are known" packaging/setup.sh --libtorch 1.0
refused "there is no LibTorch 1.0 for" env LOOPTORCH_LIBTORCH=1.0 packaging/setup.sh
refused "--libtorch needs a version: $known_libtorch are known" packaging/setup.sh --libtorch
refused "there is no LibTorch 1.0 for" packaging/matrix.sh 2.11.0 1.0
refused "--targets needs names of targets" packaging/matrix.sh --targets

mkdir -p "$work/toolkit/include" "$work/toolkit/lib64"
write_nvcc "$work/toolkit"
nvcc=$work/toolkit/bin/nvcc
[[ $("$nvcc" --version) == *'release 12.6, V12.6.85'* ]] || fail "the stand-in for nvcc has another version"
[ "$("$nvcc" -v __cmake_determine_cuda)" = "#\$ TOP=$work/toolkit" ] || fail "the stand-in for nvcc is elsewhere"
echo '__global__ void kernel() {}' >"$work/kernel.cu"
refused "install the CUDA Toolkit 12.6 to compile $work/kernel.cu" "$nvcc" -c "$work/kernel.cu" -o "$work/kernel.o"
echo "all well"
