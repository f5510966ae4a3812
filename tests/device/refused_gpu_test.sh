#!/usr/bin/env bash
# refused_gpu_test.sh PROGRAM DRIVER: a training program refuses a GPU whose driver is too old, before it reads anything.
#
# The driver is the fake libcuda.so.1 in the folder DRIVER, which LibTorch's own CUDA runtime loads too. PROGRAM takes --data,
# --output and --device.
set -euo pipefail

program=$1 driver=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

says() { # says TEXT LINES DEVICE: exit code 2, and TEXT in at most so many lines
  local said status=0
  said=$(LD_LIBRARY_PATH=$driver "$program" --data nowhere --output model --device "$3" 2>&1 >/dev/null) || status=$?
  [[ $status = 2 && $said == *"$1"* && $(wc -l <<<"$said") -le $2 ]] ||
    { echo "FAILED: --device $3 ended with exit code $status and said \"$said\"" && exit 1; }
}
for device in auto cuda cuda:0; do
  says "--device: the NVIDIA driver supports CUDA 11.4 at most, and LibTorch " 1 "$device"
  says " for cuda:0 (Fake GTX 980): update the driver, or choose --device cpu; see docs/errors.md#cuda-device" 1 "$device"
done
says nowhere 3 cpu # LibTorch may warn of the driver first
[ ! -e model ] || { echo "FAILED: the output folder was made" && exit 1; }
echo "all well"
