#!/usr/bin/env bash
# cpu_only.sh TORCH_DIR LOOPTORCH WORK CMAKE-ARGUMENT...: a project on a LibTorch without CUDA configures, links and runs,
# and no CUDA compiler is asked for.
#
# That LibTorch is made in the folder WORK of the one whose TorchConfig.cmake lies in TORCH_DIR: its headers and CPU
# libraries by symbolic links, and a CMake package as a build without CUDA has it. libtorch_cpu.so itself is CUDA's build
# still, and finds the two CUDA libraries that it links against in the neighbouring packages.
set -euo pipefail

torch=$(cd -- "$1/../../.." && pwd) source=$2 work=$3
project=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)/cpu_only
shift 3
fail() {
  printf 'FAILED: %s\n' "$*"
  exit 1
}

rm -rf "$work"
mkdir -p "$work"/site/torch/{lib,include/c10} "$work"/bin
[ ! -d "$torch/../nvidia" ] || ln -s "$(cd "$torch/../nvidia" && pwd)" "$work/site/nvidia"
[ ! -d "$torch/../cusparselt" ] || ln -s "$(cd "$torch/../cusparselt" && pwd)" "$work/site/cusparselt"
prefix=$work/site/torch
ln -s "$torch"/lib/lib{torch_cpu,c10}.so "$torch"/lib/libgomp* "$prefix/lib"
for entry in "$torch"/include/* "$torch"/include/c10/*; do
  name=${entry#"$torch/include/"}
  [ "$name" = c10 ] || [ "$name" = c10/cuda ] || ln -s "$entry" "$prefix/include/$name"
done
echo 'int looptorch_cpu_only;' >"$work/shim.cpp"
"${CXX:-c++}" -shared -fPIC "$work/shim.cpp" -o "$prefix/lib/libtorch.so" -L"$prefix/lib" -Wl,--no-as-needed -ltorch_cpu \
  -Wl,--allow-shlib-undefined

# The CMake package, without what it has for CUDA.
cp -r "$torch/share" "$prefix/share"
package=$prefix/share/cmake
sed -i '/^if(\(ON\|1\))$/{N;s/^if([^)]*)\(\n.*public\/cuda.cmake exclusively\)/if(OFF)\1/}' "$package/Caffe2/Caffe2Config.cmake"
sed -i '/^if(\(ON\|1\))$/{N;s/^if([^)]*)\(\n  if(MSVC)\)/if(OFF)\1/}' "$package/Torch/TorchConfig.cmake"
sed -i 's/;torch_cuda_library"/"/' "$package/Caffe2/Caffe2Targets.cmake"
awk -v RS= -v ORS='\n\n' '!/c10_cuda|torch_cuda|torch_nvshmem/' "$package/Caffe2/Caffe2Targets-release.cmake" >"$work/targets"
mv "$work/targets" "$package/Caffe2/Caffe2Targets-release.cmake"
grep -q '^if(OFF)' "$package/Torch/TorchConfig.cmake" || fail "TorchConfig.cmake has another form than expected"

# An nvcc that is asked anything says so.
printf '#!/bin/sh\necho asked >%s/asked\nexit 1\n' "$work" >"$work/bin/nvcc"
chmod +x "$work/bin/nvcc"
export PATH=$work/bin:$PATH
unset CUDA_HOME CUDA_PATH CUDACXX CUDA_BIN_PATH CMAKE_PREFIX_PATH Torch_DIR

cmake -S "$project" -B "$work/build" -DTorch_DIR="$package/Torch" -DLOOPTORCH_SOURCE="$source" "$@" >"$work/log" 2>&1 ||
  { cat "$work/log" && fail "CMake"; }
cmake --build "$work/build" >"$work/log" 2>&1 || { cat "$work/log" && fail "the build"; }
[ ! -e "$work/asked" ] || fail "nvcc was asked"
ldd "$work/build/cpu_only" >"$work/log"
! grep -E 'libtorch_cuda|libc10_cuda' "$work/log" || fail "the program links CUDA"
"$work/build/cpu_only" || fail "the program"
echo "all well"
