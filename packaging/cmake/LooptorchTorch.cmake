# Finds LibTorch by its own package config, on machines with and without a GPU: sets Torch_FOUND.
#
# Shared by looptorch's build and its installed package. Torch's config prints a dozen status lines and two warnings that
# concern only CUDA sources; here only its errors are shown. `cmake --log-level=STATUS` shows everything.

# Torch's config probes the GPU for its architecture, which fails without a GPU. C++ sources need no architecture, so any
# value will do; the user's own value is kept.
if(NOT DEFINED TORCH_CUDA_ARCH_LIST AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST} AND NOT EXISTS /dev/nvidia0)
  set(TORCH_CUDA_ARCH_LIST "9.0")
endif()

# A LibTorch built for CUDA requires the CUDA Toolkit, also on a machine that will never run a kernel. Checking first
# gives a better error than its own.
find_path(looptorch_torch_config TorchConfig.cmake NO_CACHE
          HINTS "${Torch_DIR}" ENV Torch_DIR PATH_SUFFIXES . Torch share/cmake/Torch lib/cmake/Torch)
if(EXISTS "${looptorch_torch_config}/../../../lib/libtorch_cuda.so")
  find_program(looptorch_nvcc nvcc NO_CACHE
               HINTS "${CUDA_TOOLKIT_ROOT_DIR}" ENV CUDA_HOME ENV CUDA_PATH ENV CUDA_BIN_PATH
               PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin .)
  if(NOT looptorch_nvcc)
    message(FATAL_ERROR "looptorch: the LibTorch in ${looptorch_torch_config} was built for CUDA and its CMake config "
                        "needs nvcc, which was not found. Install the CUDA Toolkit, name a LibTorch for CPU in "
                        "CMAKE_PREFIX_PATH, or run eval \"$(packaging/setup.sh)\", which gets the few parts needed.")
  endif()
endif()

# Torch's config enables CUDA as a language. A toolchain file that requires C++20, as Conan's does, would have CMake's check of
# nvcc require CUDA20, which CMake 3.25 does not know. So CUDA is of 17 while it is checked.
set(looptorch_log_level "${CMAKE_MESSAGE_LOG_LEVEL}")
set(looptorch_cuda_standard "${CMAKE_CUDA_STANDARD}")
if(NOT CMAKE_CUDA_STANDARD)
  set(CMAKE_CUDA_STANDARD 17)
endif()
set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
find_package(Torch CONFIG QUIET)
set(CMAKE_MESSAGE_LOG_LEVEL "${looptorch_log_level}")
if(NOT looptorch_cuda_standard)
  set(CMAKE_CUDA_STANDARD "${CMAKE_CXX_STANDARD}") # as Torch's config leaves it
endif()
unset(looptorch_log_level)
unset(looptorch_cuda_standard)
unset(looptorch_nvcc)
unset(looptorch_torch_config)

# LibTorch as Conan packages it has other targets, which TORCH_LIBRARIES names.
if(Torch_FOUND AND NOT TARGET torch)
  add_library(torch INTERFACE IMPORTED)
  if(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
    set_target_properties(torch PROPERTIES IMPORTED_GLOBAL ON)
  endif()
  target_link_libraries(torch INTERFACE ${TORCH_LIBRARIES})
endif()
