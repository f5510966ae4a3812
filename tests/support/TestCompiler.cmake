# Chooses the tests' compiler: the project's at -O1 or, with LOOPTORCH_TESTS_WITH_CLANG, clang++ at -O0, which
# takes 0.4 of the time and also compiles the programs that tests run. Projects of packages/, which train with
# copies of an example, keep the project's compiler, so that looptorch is tested as both compile it. Both
# agree on the ABI.
#
# looptorch_with_project_compiler(TARGET)        leaves TARGET to the project's compiler
# looptorch_link_precompiled(TARGET)             for TARGET, a library of precompiled.cpp: links what uses its precompiled header
#                                              with the code of that header (clang_instead.sh)
# looptorch_links_with_clang(VARIABLE FLAG...)   sets VARIABLE if the tests' compiler is clang++ and links with these flags
option(LOOPTORCH_TESTS_WITH_CLANG "Compile tests and programs with clang++ at -O0, which takes less than half of g++'s time")

# The warnings of a strict user, of which looptorch's headers cause none. LibTorch's TORCH_WARN_ONCE uses __COUNTER__, which
# clang 22 calls an extension.
set(looptorch_strict -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wno-unknown-warning-option -Wno-c2y-extensions)

set(looptorch_project_launcher ${CMAKE_CXX_COMPILER_LAUNCHER})
set(looptorch_test_options)
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND LOOPTORCH_TESTS_WITH_CLANG AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  find_program(LOOPTORCH_CLANG clang++ REQUIRED DOC "The tests' compiler")
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/clang_instead.sh ${LOOPTORCH_CLANG} ${CMAKE_CXX_COMPILER}
                                  ${looptorch_project_launcher})
  set(looptorch_test_options -O0)
elseif(CMAKE_BUILD_TYPE STREQUAL "Release") # a third less to compile than by -O3; g++ 12 warns without cause there
  set(looptorch_test_options -O1 $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()

function(looptorch_with_project_compiler target)
  set_property(TARGET ${target} PROPERTY CXX_COMPILER_LAUNCHER ${looptorch_project_launcher})
endfunction()

# No program calls all of that code, and it refers to functions that LibTorch hides, hence --gc-sections.
function(looptorch_link_precompiled target)
  if(LOOPTORCH_CLANG AND looptorch_test_options STREQUAL "-O0")
    find_program(LOOPTORCH_LLD ld.lld DOC "A linker that takes a fifth of GNU ld's time")
    target_link_options(${target} PUBLIC -Wl,--gc-sections $<$<BOOL:${LOOPTORCH_LLD}>:-fuse-ld=lld>)
  endif()
endfunction()

function(looptorch_links_with_clang variable)
  set(${variable} OFF PARENT_SCOPE)
  if(LOOPTORCH_CLANG AND looptorch_test_options STREQUAL "-O0")
    set(program ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/links_with_clang)
    file(WRITE ${program}.cpp "int main() {}\n")
    execute_process(COMMAND ${LOOPTORCH_CLANG} ${ARGN} ${program}.cpp -o ${program} RESULT_VARIABLE failed
                    OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
      set(${variable} ON PARENT_SCOPE)
    endif()
  endif()
endfunction()
