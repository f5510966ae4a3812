# looptorch_precompiled: the precompiled header of all tests, and the library of its code (clang_instead.sh). Programs share
# it where clang++ compiles them. Each is used by REUSE_FROM, and by linking the library.
if(TARGET looptorch_precompiled)
  return()
endif()
find_package(Catch2 CONFIG QUIET)
if(NOT Catch2_FOUND)
  message(FATAL_ERROR "looptorch's tests need Catch2 (2.13 or 3), which was not found. Name the folder of its package "
                      "config in CMAKE_PREFIX_PATH, or run eval \"$(packaging/setup.sh)\" first, which installs it.")
endif()
option(LOOPTORCH_UNITY_TESTS "Compile tests several files at a time: half the work of a whole build, more that of a change")
set(folder ${CMAKE_CURRENT_LIST_DIR})
add_library(looptorch_precompiled STATIC ${folder}/precompiled.cpp)
target_link_libraries(looptorch_precompiled PUBLIC looptorch::looptorch looptorch::audio)
target_include_directories(looptorch_precompiled PRIVATE ${folder}/..)
target_include_directories(looptorch_precompiled SYSTEM PRIVATE $<TARGET_PROPERTY:Catch2::Catch2,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_options(looptorch_precompiled PRIVATE ${looptorch_test_options})
looptorch_link_precompiled(looptorch_precompiled)
target_precompile_headers(looptorch_precompiled PRIVATE ${folder}/precompiled.hpp)
if(NOT LOOPTORCH_UNITY_TESTS) # a changed header would compile every test again
  return()
endif()
target_precompile_headers(looptorch_precompiled PRIVATE ${folder}/precompiled_looptorch.hpp)
if(NOT LOOPTORCH_CLANG) # g++ would instantiate all templates anew in each file
  return()
endif()

# clang leaves the code of what is precompiled to the library, and two thirds of a test's code, and of a program's, are
# functions and templates that others use too. So all headers of looptorch are precompiled, but for those that
# LOOPTORCH_DISTRIBUTED changes.
include(${folder}/../headers/chains.cmake)
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/include/*.hpp)
set(includes)
foreach(header IN LISTS headers)
  looptorch_closure(closure ${header})
  if(NOT "${header};${closure}" MATCHES "looptorch/(app/ranks\\.hpp|distributed/)")
    string(APPEND includes "#include <${header}>\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT precompiled_headers.hpp CONTENT "#pragma once\n@includes@" @ONLY)
target_precompile_headers(looptorch_precompiled PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/precompiled_headers.hpp
                                                        ${folder}/looptorch_instances.hpp)
target_compile_options(looptorch_precompiled PRIVATE ${looptorch_strict} -Werror) # as headers.together does elsewhere
