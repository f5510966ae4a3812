#!/usr/bin/env bash
# on_gpu.sh PROGRAM ARGUMENT...: runs PROGRAM, or says that there is no GPU, without loading LibTorch to find out.
for device in /dev/nvidiactl /dev/nvhost-ctrl-gpu /dev/dxg; do
  [ ! -e $device ] || exec "$@"
done
echo "skipped: no CUDA device"
