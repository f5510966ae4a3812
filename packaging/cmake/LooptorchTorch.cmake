# Finds LibTorch by its package config, also on machines without a GPU.
if(NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST} AND NOT DEFINED TORCH_CUDA_ARCH_LIST)
  set(TORCH_CUDA_ARCH_LIST "9.0") # without a GPU the architecture probe fails; headers alone need no architecture
endif()
find_package(Torch CONFIG REQUIRED)
