# looptorch_compile_together(TARGET): with LOOPTORCH_UNITY_TESTS, compiles up to 18 sources of TARGET as one.
# A compiler's work on <torch/torch.h> in each translation unit, even precompiled, takes longer than most
# tests. One unit of 18 takes two thirds of the time of three units of 6, and up to 3 GB.
#
# Sources need no change: each is put into a namespace of its own, after the includes of all. A source that
# replaces the global operator new, or sets the optimisation level, is compiled by itself.
function(looptorch_compile_together target)
  if(NOT LOOPTORCH_UNITY_TESTS)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set(includes)
  set(folders)
  foreach(source IN LISTS sources)
    file(STRINGS ${source} lines REGEX "^(#include |namespace |using |TEST_CASE)")
    foreach(line IN LISTS lines)
      if(NOT line MATCHES "^#include ")
        break() # later includes belong to the source alone
      endif()
      list(APPEND includes ${line})
    endforeach()
    file(STRINGS ${source} global REGEX "operator new\\(|#pragma GCC optimize")
    if(global)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    get_filename_component(path ${source} ABSOLUTE)
    get_filename_component(folder ${path} DIRECTORY)
    list(APPEND folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES includes)
  list(REMOVE_DUPLICATES folders)
  list(JOIN includes "\n" includes)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
  file(CONFIGURE OUTPUT together/${target}.hpp CONTENT "#pragma once\n@includes@\n" @ONLY)
  target_include_directories(${target} PRIVATE ${folders})
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 18 UNITY_BUILD_UNIQUE_ID looptorch_together
    UNITY_BUILD_CODE_BEFORE_INCLUDE "#include \"${CMAKE_CURRENT_BINARY_DIR}/together/${target}.hpp\"\nnamespace looptorch_together {"
    UNITY_BUILD_CODE_AFTER_INCLUDE "}  // namespace looptorch_together")
endfunction()
