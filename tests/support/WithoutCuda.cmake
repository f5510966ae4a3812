# looptorch_run_without_cuda(TEST...): runs tests of this folder without LibTorch's CUDA library where there is no GPU.
# Loading it takes half a second of each process, and CI starts some thousand. An empty library of the same name is preloaded
# instead. Tests named packages.*, cuda.*, distributed.*, sanitized.*, unit.distributed*, unit.app.cuda*, device.refused_gpu*
# and device.*launches_test use the whole LibTorch: the last count its calls for CUDA.
if(EXISTS ${Torch_DIR}/../../../lib/libtorch_cuda.so AND NOT EXISTS /dev/nvidiactl AND NOT EXISTS /dev/dxg)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/without_cuda)
  # What programs with NCCL refer to as they start, and never use; functions are looked up when they are called.
  file(CONFIGURE OUTPUT ${folder}/empty.cpp
       CONTENT "void* type_of_work[8] __asm__(\"_ZTIN4c10d16ProcessGroupNCCL8WorkNCCLE\");\n")
  add_library(torch_cuda_stand_in SHARED ${folder}/empty.cpp)
  set_target_properties(torch_cuda_stand_in PROPERTIES OUTPUT_NAME torch_cuda LIBRARY_OUTPUT_DIRECTORY ${folder})
  add_dependencies(looptorch_test_main torch_cuda_stand_in) # so that every test has it
endif()

function(looptorch_run_without_cuda)
  if(NOT TARGET torch_cuda_stand_in)
    return()
  endif()
  list(FILTER ARGN INCLUDE REGEX "^(unit|faults|device|mutants|whisper|konkanivani|spectrogram_gan|exported|from_python)\\.")
  list(FILTER ARGN EXCLUDE REGEX "^(unit\\.app\\.cuda|unit\\.distributed|device\\.(refused_gpu|(cuda_)?launches_test))")
  foreach(test IN LISTS ARGN)
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT LD_PRELOAD=$<TARGET_FILE:torch_cuda_stand_in>)
  endforeach()
endfunction()
