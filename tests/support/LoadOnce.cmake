# Programs that are loaded once and run a hundred times by a test, as examples/cli_support.sh says.
#
# in_one_thread   the property ENVIRONMENT of tests of programs. They find load_once by it, and compute in one thread: two at
#                 a time end sooner than one after the other in two threads each.
add_library(looptorch_load_once MODULE support/load_once/preloaded.cpp)
add_executable(looptorch_stand_in support/load_once/stand_in.cpp)
foreach(target looptorch_load_once looptorch_stand_in)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
endforeach()
target_link_libraries(looptorch_load_once PRIVATE ${CMAKE_DL_LIBS}) # dlsym, before glibc 2.34

set(in_one_thread ENVIRONMENT "OMP_NUM_THREADS=1\;LOOPTORCH_LOAD_ONCE=$<TARGET_FILE_DIR:looptorch_stand_in>")
