# shellcheck shell=bash disable=SC2034,SC2154
# Installs LibTorch from its Python package, and the parts of the CUDA Toolkit that its CMake config needs. `torch_config` is
# the folder of the TorchConfig.cmake in use.

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
