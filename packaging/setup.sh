#!/usr/bin/env bash
# Installs what looptorch's build, tests and quickstart need on Debian or Ubuntu, and prints the environment to build
# in:
#
#   eval "$(packaging/setup.sh)"
#   eval "$(packaging/setup.sh --libtorch 2.7.1)"    for a GPU of compute capability 5.0 to 7.0, or CUDA 12's driver
#   eval "$(packaging/setup.sh --distributed)"       with torchrun and Gloo's headers, for looptorch::distributed
#   eval "$(packaging/setup.sh --tests)"             that, Conan, by which the tests make looptorch's package, and a Python
#                                                    with torch.export, which reads what C++ exported
#
# Missing Debian packages are installed by apt (as root or by sudo). Everything else goes into one cache folder,
# ${LOOPTORCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/looptorch}: LibTorch from its Python package in a private virtual
# environment, the few parts of the CUDA Toolkit that its CMake config needs if there is no nvcc, a
# SndFileConfig.cmake for Debian's libsndfile, and OpenAI's Whisper tiny.en. A LibTorch that CMAKE_PREFIX_PATH or
# Torch_DIR names is used unchanged. Steps are printed to stderr; stdout has only the exports.
#
# --libtorch, or the environment variable LOOPTORCH_LIBTORCH, takes 2.7.1, 2.11.0 (the default) or 2.15.0. Each version
# has a folder of its own in the cache.
#
# It is safe to run at any time, twice at once, and again after an interruption: each part is verified and downloaded
# again unless it is complete.
set -euo pipefail

parts=(
  steps             # prints what is being done, and for how long
  environment       # what the machine has, and what of it the exports name
  debian            # a compiler, CMake, libsndfile and the like, by apt
  python            # virtual environments and their packages, by pip
  libtorch_versions # the versions of LibTorch, and the packages of each
  libtorch          # LibTorch, and parts of the CUDA Toolkit
  sndfile           # a CMake package for Debian's libsndfile
  whisper           # Whisper tiny.en
  torch_python      # torchrun, and a Python that imports torch
  conan             # Conan
)
for part in "${parts[@]}"; do
  # shellcheck source=/dev/null
  source "$(dirname -- "${BASH_SOURCE[0]}")/setup/$part.sh"
done

# shellcheck disable=SC2034 # `venv` and the like are the parts'
main() {
  read_arguments "$@"
  find_cache
  { mkdir -p "$cache" && : >"$cache/.lock"; } 2>/dev/null ||
    fail "cannot write to $cache; name another folder in LOOPTORCH_CACHE"
  exec 9>"$cache/.lock"
  if ! flock --nonblock 9; then
    say "Waiting for another set-up to end"
    flock 9
  fi
  trap 'stop_ticker; rm -rf "$cache/tmp"' EXIT

  venv=
  exports=() # the lines for stdout
  prefix_path=${CMAKE_PREFIX_PATH:-}
  path=$PATH
  install_debian_packages
  install_torch
  write_sndfile_config
  install_whisper
  [ -z "$distributed" ] || install_torchrun
  [ -z "$tests" ] || install_torch_python
  [ -z "$tests" ] || install_conan
  print_exports
}

# shellcheck disable=SC2154 # known_libtorch and default_libtorch are libtorch_versions.sh's
read_arguments() { # sets libtorch, the version that is asked for, if one is, tests and distributed
  libtorch=${LOOPTORCH_LIBTORCH:-} tests='' distributed=''
  while [ $# -gt 0 ]; do
    case $1 in
      --libtorch)
        [ -n "${2-}" ] || fail "--libtorch needs a version: $known_libtorch are known"
        libtorch=$2
        shift
        ;;
      --distributed) distributed=1 ;;
      --tests) tests=1 distributed=1 ;;
      --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit ;;
      *) fail "there is no option $1; packaging/setup.sh --help lists them" ;;
    esac
    shift
  done
  choose_libtorch "${libtorch:-$default_libtorch}" ||
    fail "there is no LibTorch $libtorch for looptorch to install; $known_libtorch are known"
}

# shellcheck disable=SC2034
find_cache() { # sets cache and log; absolute, since the exports are for any folder
  cache=${LOOPTORCH_CACHE:-${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}}
  [ -n "$cache" ] || fail "HOME is not set; name a folder for downloads in LOOPTORCH_CACHE"
  [ -n "${LOOPTORCH_CACHE-}" ] || cache=$cache/looptorch
  cache=$(realpath --canonicalize-missing --no-symlinks -- "$cache")
  log=$cache/setup.log
  readonly cache log
}

print_exports() {
  local line
  [ "$path" = "$PATH" ] || exports+=("PATH=$path")
  exports+=("CMAKE_PREFIX_PATH=$prefix_path"
            "CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}"
            "CCACHE_DIR=${CCACHE_DIR:-$cache/ccache}"
            "CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:-pch_defines,time_macros,include_file_mtime,include_file_ctime}"
            "LOOPTORCH_JOBS=${LOOPTORCH_JOBS:-$(jobs)}")
  for line in "${exports[@]}"; do
    printf 'export %s=%q\n' "${line%%=*}" "${line#*=}"
  done
}

# Prints the number of compile jobs: one a core, with 2 GB of memory each, which a file with <torch/torch.h> takes; 3 GB for
# 18 files of tests.
jobs() {
  local cores fit
  cores=$(nproc)
  fit=$(awk -v each="${tests:+3}" '/MemTotal/ { print int($2 / 1e6 / (each ? each : 2)) }' /proc/meminfo)
  echo $((fit < 1 ? 1 : fit < cores ? fit : cores))
}

main "$@"
