# shellcheck shell=bash disable=SC2034
# Sourced by setup.sh and matrix.sh: the versions of LibTorch that it installs, each with what its Python package pins.
#
#   choose_libtorch VERSION   sets torch_version, torch_packages, toolkit_packages, toolkit_release and toolkit_folder;
#                             fails for a version that stands not here
#   write_nvcc TOOLKIT        writes a stand-in for nvcc into a folder that has none

readonly known_libtorch='2.7.1, 2.11.0 and 2.15.0' default_libtorch=2.11.0

# torch_packages are those that libtorch links against and its CMake config looks for, without those that only its Python
# code needs. toolkit_packages are what the config needs besides if there is no CUDA Toolkit of the release that
# toolkit_release matches. toolkit_folder is where they lie together, in site-packages.
choose_libtorch() {
  torch_version=$1 toolkit_folder=nvidia/cu13
  case $1 in
    2.7.1) # CUDA 12.6; PyPI's last with kernels for compute capability 5.0 to 7.0
      torch_packages=(
        nvidia-cublas-cu12==12.6.4.1 nvidia-cuda-cupti-cu12==12.6.80 nvidia-cuda-nvrtc-cu12==12.6.77
        nvidia-cuda-runtime-cu12==12.6.77 nvidia-cudnn-cu12==9.5.1.17 nvidia-cufft-cu12==11.3.0.4
        nvidia-cufile-cu12==1.11.1.6 nvidia-curand-cu12==10.3.7.77 nvidia-cusolver-cu12==11.7.1.2
        nvidia-cusparse-cu12==12.5.4.2 nvidia-cusparselt-cu12==0.6.3 nvidia-nccl-cu12==2.26.2
        nvidia-nvjitlink-cu12==12.6.85 nvidia-nvtx-cu12==12.6.77 torch==2.7.1)
      toolkit_packages=(nvidia-cuda-nvcc-cu12==12.6.85)
      toolkit_release=12 toolkit_folder=nvidia/cu12
      ;;
    2.11.0) # CUDA 13.0
      torch_packages=(
        nvidia-cublas==13.1.0.3 nvidia-cuda-cupti==13.0.85 nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-runtime==13.0.96
        nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35
        nvidia-cusolver==12.0.4.66 nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0 nvidia-nccl-cu13==2.28.9
        nvidia-nvjitlink==13.0.88 nvidia-nvshmem-cu13==3.4.5 nvidia-nvtx==13.0.85 torch==2.11.0)
      toolkit_packages=(nvidia-cuda-crt==13.0.88 nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88)
      toolkit_release=13
      ;;
    2.15.0) # CUDA 13.2, whose libraries an older toolkit's may not replace
      torch_packages=(
        nvidia-cublas==13.4.1.3 nvidia-cuda-cupti==13.2.86 nvidia-cuda-nvrtc==13.2.86 nvidia-cuda-runtime==13.2.86
        nvidia-cudnn-cu13==9.26.0.51 nvidia-cufft==12.2.0.57 nvidia-cufile==1.17.1.22 nvidia-cusolver==12.2.0.11
        nvidia-cusparse==12.7.10.12 nvidia-cusparselt-cu13==0.8.1 nvidia-nccl-cu13==2.30.7 nvidia-nvjitlink==13.2.86
        nvidia-nvshmem-cu13==3.7.2 nvidia-nvtx==13.2.86 torch==2.15.0)
      toolkit_packages=(nvidia-cuda-crt==13.2.86 nvidia-cuda-nvcc==13.2.86 nvidia-nvvm==13.2.86)
      toolkit_release=13.2
      ;;
    *) return 1 ;;
  esac
}

# NVIDIA's Python packages for CUDA 12 hold no nvcc, which LibTorch's CMake config wants even for C++. This one answers
# what CMake asks of a CUDA compiler, and refuses to compile anything else.
write_nvcc() { # write_nvcc TOOLKIT
  mkdir -p "$1/bin"
  printf '%s\n' '#include <cuda_runtime.h>' '#define __CUDACC__' >"$1/bin/nvcc.h"
  nvcc_stand_in >"$1/bin/nvcc.partial"
  chmod +x "$1/bin/nvcc.partial"
  mv "$1/bin/nvcc.partial" "$1/bin/nvcc"
}

nvcc_stand_in() {
  cat <<'NVCC'
#!/usr/bin/env bash
# Written by looptorch's packaging/setup.sh in the place of nvcc 12.6: passes CMake's checks of a CUDA compiler.
set -euo pipefail

toolkit=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
compiler=${CUDAHOSTCXX:-${CXX:-c++}} arguments=() source='' verbose=''
while [ $# -gt 0 ]; do
  case $1 in
    --version)
      printf '%s\n' 'nvcc: NVIDIA (R) Cuda compiler driver' 'Cuda compilation tools, release 12.6, V12.6.85' \
        "(looptorch's stand-in, which compiles no CUDA)"
      exit
      ;;
    __cmake_determine_cuda | __dummy) echo "#\$ TOP=$toolkit" && exit ;;
    -v) verbose=1 ;;
    -ccbin=*) compiler=${1#-ccbin=} ;;
    -Xcompiler=*) arguments+=("${1#-Xcompiler=}") ;;
    -Xcompiler) shift && arguments+=("$1") ;;
    -x | --keep-dir | -gencode) shift ;;
    --keep | -forward-unknown-to-host-compiler | --generate-code=* | -arch=*) ;;
    *.cu) source=$1 && arguments+=(-x c++ "$1" -x none) ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

case ${source##*/} in
  CMakeCUDACompiler*.cu | main.cu | feature_tests.cu | '') ;;
  *)
    echo "nvcc: this stand-in compiles nothing but CMake's own checks; install the CUDA Toolkit 12.6 to compile $source" >&2
    exit 1
    ;;
esac
if [ -n "$verbose" ]; then # in nvcc's words, as CMake reads them
  libraries="\"-L$toolkit/lib64\""
  printf '#$ %s\n' "TOP=$toolkit" "PATH=$PATH" "INCLUDES=\"-I$toolkit/include\"" "LIBRARIES=$libraries" \
    "cicc -arch compute_52" "$compiler \"a.o\" $libraries -o \"a.out\"" >&2
fi
exec "$compiler" -D__NVCC__ -D__CUDACC_VER_MAJOR__=12 -D__CUDACC_VER_MINOR__=6 -D__CUDACC_VER_BUILD__=85 \
  -include "$toolkit/bin/nvcc.h" "${arguments[@]}" -I"$toolkit/include" -L"$toolkit/lib64" -lcudart
NVCC
}
