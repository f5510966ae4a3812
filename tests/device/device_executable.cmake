# looptorch_add_device_executable(TARGET SOURCE...): an executable of device tests, but for the accelerator that it links. The
# listener fails a program that leaves violations.
function(looptorch_add_device_executable target)
  set(tests ${PROJECT_SOURCE_DIR}/tests)
  set(listener ${tests}/support/accelerator/listener.cpp)
  set(training ${tests}/device/support/training.cpp)
  looptorch_add_catch_executable(${target} ${ARGN} ${tests}/device/support/place.cpp ${training})
  target_sources(${target} PRIVATE ${listener})
  set_source_files_properties(${listener} PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  set_source_files_properties(${training} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
