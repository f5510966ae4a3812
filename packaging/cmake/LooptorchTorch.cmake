# Finds LibTorch by its own package config, on machines with and without a GPU: sets Torch_FOUND, and looptorch_torch_missing
# to a sentence on what is wrong if there is none.
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
set(looptorch_torch_missing)
find_path(looptorch_torch_config TorchConfig.cmake NO_CACHE
          HINTS "${Torch_DIR}" ENV Torch_DIR PATH_SUFFIXES . Torch share/cmake/Torch lib/cmake/Torch)
if(EXISTS "${looptorch_torch_config}/../../../lib/libtorch_cuda.so")
  find_program(looptorch_nvcc nvcc NO_CACHE
               HINTS "${CUDA_TOOLKIT_ROOT_DIR}" ENV CUDA_HOME ENV CUDA_PATH ENV CUDA_BIN_PATH
               PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin .)
  if(NOT looptorch_nvcc)
    string(CONCAT looptorch_torch_missing "the LibTorch in ${looptorch_torch_config} was built for CUDA, and its CMake config "
                  "needs nvcc, which was not found. Install the CUDA Toolkit, name a LibTorch for CPU in CMAKE_PREFIX_PATH, "
                  "or run eval \"$(packaging/setup.sh)\", which gets the few parts needed")
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
if(looptorch_torch_missing)
  set(Torch_FOUND FALSE)
else()
  find_package(Torch CONFIG QUIET)
endif()
set(CMAKE_MESSAGE_LOG_LEVEL "${looptorch_log_level}")
if(NOT looptorch_cuda_standard)
  set(CMAKE_CUDA_STANDARD "${CMAKE_CXX_STANDARD}") # as Torch's config leaves it
endif()
unset(looptorch_log_level)
unset(looptorch_cuda_standard)
unset(looptorch_nvcc)
unset(looptorch_torch_config)

if(Torch_FOUND AND Torch_VERSION AND Torch_VERSION VERSION_LESS 2.7)
  set(Torch_FOUND FALSE)
  string(CONCAT looptorch_torch_missing "looptorch needs LibTorch 2.7 or newer, and the one in ${Torch_DIR} is "
                "${Torch_VERSION}: name another in CMAKE_PREFIX_PATH")
elseif(NOT Torch_FOUND AND NOT looptorch_torch_missing)
  string(CONCAT looptorch_torch_missing "looptorch needs LibTorch, which was not found: name the folder of its package config "
                "in CMAKE_PREFIX_PATH, or run eval \"$(packaging/setup.sh)\" first, which gets one")
endif()

# LibTorch as Conan packages it has other targets, which TORCH_LIBRARIES names.
if(Torch_FOUND AND NOT TARGET torch)
  add_library(torch INTERFACE IMPORTED)
  if(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
    set_target_properties(torch PROPERTIES IMPORTED_GLOBAL ON)
  endif()
  target_link_libraries(torch INTERFACE ${TORCH_LIBRARIES})
endif()
