# Executables of Catch2's tests, and their entries in ctest.
#
# looptorch_add_catch_tests(TARGET PREFIX SOURCE...)     an executable and its entries, of the two below
# looptorch_add_catch_executable(TARGET SOURCE...)       the executable
# looptorch_add_catch_entries(TARGET PREFIX SOURCE...)   the entries, PREFIX.NAME for each source
# looptorch_compile_tests(TARGET)                        flags, folders and precompiled headers of TARGET, whose sources are
#                                                        tests
function(looptorch_add_catch_tests target prefix)
  looptorch_add_catch_executable(${target} ${ARGN})
  looptorch_add_catch_entries(${target} ${prefix} ${ARGN})
endfunction()

function(looptorch_add_catch_executable target)
  add_executable(${target} ${ARGN})
  looptorch_compile_tests(${target})
endfunction()

function(looptorch_compile_tests target)
  target_link_libraries(${target} PRIVATE looptorch_test_support)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/examples ${PROJECT_BINARY_DIR}/tests/docs)
  target_compile_options(${target} PRIVATE -Wall -Wextra)
  target_precompile_headers(${target} REUSE_FROM looptorch_precompiled)
  looptorch_compile_together(${target})
endfunction()

# Catch2's `-#` tags each case with its file. With LOOPTORCH_UNITY_TESTS the unit tests of a folder are one entry, PREFIX:
# loading LibTorch takes 0.6 s, most files less.
function(looptorch_add_catch_entries target prefix)
  looptorch_catch_properties(properties ${ARGV2})
  set(together)
  foreach(source IN LISTS ARGN)
    get_filename_component(name ${source} NAME_WE)
    if(name MATCHES "_mutation_test$") # a third by default: the sanitizers have all (support/mutations.hpp)
      add_test(NAME ${prefix}.${name}_all CONFIGURATIONS long COMMAND ${target} "-#" "[#${name}]")
      set_tests_properties(${prefix}.${name}_all PROPERTIES LABELS long TIMEOUT 3600 ENVIRONMENT LOOPTORCH_MUTATIONS=3000)
    endif()
    if(name STREQUAL "seeded_bugs_test") # what other tests would notice
      add_test(NAME ${prefix}.${name} CONFIGURATIONS long COMMAND ${target} "-#" "[#${name}]")
      set_tests_properties(${prefix}.${name} PROPERTIES LABELS long TIMEOUT 600 ${properties})
    elseif(LOOPTORCH_UNITY_TESTS AND prefix MATCHES "^unit\\." AND NOT "${prefix}.${name}" IN_LIST longest_tests)
      list(APPEND together "[#${name}]")
    else()
      add_test(NAME ${prefix}.${name} COMMAND ${target} "-#" "[#${name}]")
      set_tests_properties(${prefix}.${name} PROPERTIES TIMEOUT 300 ${properties})
    endif()
  endforeach()
  if(together)
    list(JOIN together "," together)
    add_test(NAME ${prefix} COMMAND ${target} "-#" ${together})
    set_tests_properties(${prefix} PROPERTIES TIMEOUT 1500 ${properties})
  endif()
endfunction()

# looptorch_catch_properties(VARIABLE SOURCE): the properties of the tests in SOURCE's folder. Beside other tests a second thread
# of OpenMP costs up to as much as it computes, so only rooms that have parallel loops of their own get one; it must not spin.
function(looptorch_catch_properties variable source)
  get_filename_component(source ${source} ABSOLUTE)
  get_filename_component(folder ${source} DIRECTORY)
  string(REGEX REPLACE "(/unit/[^/]+)/.*" "\\1" folder ${folder})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp ${folder}/*.hpp)
  set(threads OMP_NUM_THREADS=1)
  if(folder MATCHES "/unit/(audio|data|optim|state)$")
    set(threads OMP_WAIT_POLICY=passive)
  endif()
  set(properties FAIL_REGULAR_EXPRESSION "No test" ENVIRONMENT ${threads})
  if(has_whisper_model)
    foreach(source IN LISTS sources)
      file(STRINGS ${source} mentions LIMIT_COUNT 1 REGEX LOOPTORCH_WHISPER_MODEL)
      if(mentions)
        set(properties FAIL_REGULAR_EXPRESSION "No test" FIXTURES_REQUIRED whisper_model
                       ENVIRONMENT "${threads}\\;LOOPTORCH_WHISPER_MODEL=${whisper_model}")
        break()
      endif()
    endforeach()
  endif()
  set(${variable} "${properties}" PARENT_SCOPE)
endfunction()
