# Some tests once more, under the sanitizers of the preset asan-ubsan: small executables without the precompiled header,
# which was made for other flags. LibTorch itself is not instrumented.
set(sanitizers -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
list(JOIN sanitizers " " CMAKE_REQUIRED_FLAGS)
include(CheckCXXSourceCompiles)
check_cxx_source_compiles("int main() {}" LOOPTORCH_HAS_SANITIZERS)
unset(CMAKE_REQUIRED_FLAGS)
looptorch_links_with_clang(sanitized_by_clang ${sanitizers}) # Debian has its sanitizers in a package of their own

# looptorch_add_sanitized_tests(TARGET SOURCE...): one translation unit, for most of the work is LibTorch's headers. Leaks
# are looked for in the tests of recompute/.
function(looptorch_add_sanitized_tests target)
  if(NOT LOOPTORCH_HAS_SANITIZERS OR CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    return()
  endif()
  add_executable(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE looptorch_test_main looptorch::looptorch)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/examples)
  target_compile_definitions(${target} PRIVATE LOOPTORCH_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LOOPTORCH_SANITIZED)
  target_compile_options(${target} PRIVATE -Wall -Wextra ${sanitizers})
  if(sanitized_by_clang) # each compiler has sanitizers of its own, so it links, too
    list(JOIN CMAKE_CXX_COMPILER_LAUNCHER " " launcher)
    set_target_properties(${target} PROPERTIES RULE_LAUNCH_LINK "${launcher}")
  else()
    looptorch_with_project_compiler(${target})
  endif()
  target_link_options(${target} PRIVATE ${sanitizers})
  looptorch_compile_together(${target})
  foreach(source IN LISTS ARGN)
    get_filename_component(name ${source} NAME_WE)
    set(leaks 0)
    if(source MATCHES "/recompute/")
      set(leaks 1)
    endif()
    set(options ASAN_OPTIONS=detect_container_overflow=0:detect_leaks=${leaks}:protect_shadow_gap=0
                UBSAN_OPTIONS=print_stacktrace=1)
    add_test(NAME sanitized.${name} COMMAND ${target} "-#" "[#${name}]")
    set_tests_properties(sanitized.${name} PROPERTIES FAIL_REGULAR_EXPRESSION "No test" TIMEOUT 300 ENVIRONMENT "${options}")
  endforeach()
endfunction()

file(GLOB_RECURSE sources CONFIGURE_DEPENDS *_mutation_test.cpp)
set(folder ${CMAKE_CURRENT_SOURCE_DIR}/memory/recompute)
looptorch_add_sanitized_tests(sanitized_tests ${sources} ${folder}/exceptions_test.cpp ${folder}/threads_test.cpp
                              ${folder}/host_copy_test.cpp)
