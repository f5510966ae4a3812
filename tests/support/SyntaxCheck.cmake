# Tests that only check a file's syntax by a compiler: no object.
#
# looptorch_syntax_compilers   g++ and clang++, if installed; the project's own compiler always
# looptorch_syntax_fastest     clang++ if it is among them, which takes half of g++'s time
# looptorch_syntax_command(<variable> <compiler> [<name>])   the command that checks the file appended to it, behind nothing,
#                                                            `libtorch` or `looptorch`: headers that are precompiled for
#                                                            the fastest compiler

set(looptorch_syntax_compilers ${CMAKE_CXX_COMPILER})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  find_program(LOOPTORCH_OTHER_COMPILER clang++ DOC "Second compiler for the syntax tests")
else()
  find_program(LOOPTORCH_OTHER_COMPILER g++ DOC "Second compiler for the syntax tests")
endif()
if(LOOPTORCH_OTHER_COMPILER)
  list(APPEND looptorch_syntax_compilers ${LOOPTORCH_OTHER_COMPILER})
endif()

# The flags are those of the test targets; /usr/include must not come before the compiler's own folders.
set(looptorch_syntax_folder ${CMAKE_CURRENT_BINARY_DIR}/syntax)
set(includes "$<FILTER:$<TARGET_PROPERTY:looptorch_precompiled,INCLUDE_DIRECTORIES>,EXCLUDE,^(/usr/include|${PROJECT_SOURCE_DIR}/.*)$>")
set(defines "$<TARGET_PROPERTY:looptorch_precompiled,COMPILE_DEFINITIONS>")
file(GENERATE OUTPUT ${looptorch_syntax_folder}/flags CONTENT
"-std=c++20
-fmessage-length=0
-I${PROJECT_SOURCE_DIR}/include
-I${PROJECT_SOURCE_DIR}/examples
-I${CMAKE_CURRENT_SOURCE_DIR}
-isystem$<JOIN:$<REMOVE_DUPLICATES:${includes}>,\n-isystem>
$<$<BOOL:${defines}>:-D$<JOIN:$<REMOVE_DUPLICATES:${defines}>,\n-D>>
")

function(looptorch_syntax_name variable compiler) # g++ or clang++: what tests are named after
  get_filename_component(name ${compiler} NAME)
  if(name MATCHES "clang")
    set(${variable} clang++ PARENT_SCOPE)
  else()
    set(${variable} g++ PARENT_SCOPE)
  endif()
endfunction()

set(looptorch_syntax_fastest ${CMAKE_CXX_COMPILER})
foreach(compiler IN LISTS looptorch_syntax_compilers)
  looptorch_syntax_name(name ${compiler})
  if(name STREQUAL "clang++")
    set(looptorch_syntax_fastest ${compiler})
  endif()
endforeach()

# looptorch_syntax_precompile(<name> <header>): for the fastest compiler. g++ instantiates what is precompiled in every file
# that uses it, which takes 4 s for <torch/torch.h> alone, and it takes a minute to precompile looptorch: as long as for the
# few files that it checks in CI. clang++ instantiates it once, and its precompiled looptorch stands behind libtorch.
function(looptorch_syntax_precompile name header)
  set(output ${looptorch_syntax_folder}/${name}.hpp.gch)
  set(options)
  set(first)
  looptorch_syntax_name(compiler ${looptorch_syntax_fastest})
  if(compiler STREQUAL "clang++")
    set(output ${looptorch_syntax_folder}/${name}.pch)
    # Without times: a package manager sets a system header's back, which the build does not notice and clang refuses.
    set(options -fpch-instantiate-templates -Xclang -fno-pch-timestamp)
    if(NOT name STREQUAL "libtorch")
      set(first ${looptorch_syntax_folder}/libtorch.pch)
      list(APPEND options -include-pch ${first})
    endif()
  endif()
  set(dependencies ${output}.d) # the headers that this one includes, for the next build
  add_custom_command(
    OUTPUT ${output} DEPENDS ${header} ${first} ${looptorch_syntax_folder}/flags DEPFILE ${dependencies} VERBATIM
    COMMAND ${looptorch_syntax_fastest} @${looptorch_syntax_folder}/flags ${options} -w -x c++-header ${header} -o ${output}
            -MD -MF ${dependencies} -MT ${output}
    COMMENT "Precompiling ${name} for the syntax tests")
  add_custom_target(looptorch_syntax_${name} ALL DEPENDS ${output})
endfunction()

set(folder ${CMAKE_CURRENT_SOURCE_DIR}/support)
set(looptorch_syntax_header_libtorch ${folder}/precompiled.hpp)
set(looptorch_syntax_header_looptorch ${folder}/precompiled_looptorch.hpp)
looptorch_syntax_precompile(libtorch ${looptorch_syntax_header_libtorch})
set(looptorch_syntax_shared)
if(LOOPTORCH_UNITY_TESTS AND LOOPTORCH_CLANG AND LOOPTORCH_CLANG STREQUAL looptorch_syntax_fastest)
  # The tests' precompiled header has all of looptorch (Precompiled.cmake), and is used with the flags that it was made with.
  get_target_property(folder looptorch_precompiled BINARY_DIR)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELEASE}")
  set(looptorch_syntax_shared ${flags} ${looptorch_test_options} -std=gnu++20
                              -include-pch ${folder}/CMakeFiles/looptorch_precompiled.dir/cmake_pch.hxx.gch)
  add_custom_target(looptorch_syntax_looptorch DEPENDS looptorch_precompiled)
else()
  looptorch_syntax_precompile(looptorch ${looptorch_syntax_header_looptorch})
endif()

function(looptorch_syntax_command variable compiler)
  looptorch_syntax_name(compiler_name ${compiler})
  set(command ${compiler} -fsyntax-only @${looptorch_syntax_folder}/flags)
  set(clang)
  if(compiler_name STREQUAL "clang++")
    list(APPEND command -fno-caret-diagnostics)
    set(clang 1)
  else()
    list(APPEND command -fno-diagnostics-show-caret -Winvalid-pch)
  endif()
  if(NOT ARGN)
  elseif(NOT compiler STREQUAL looptorch_syntax_fastest)
    list(APPEND command -include ${looptorch_syntax_header_${ARGN}})
  elseif(looptorch_syntax_shared AND ARGN STREQUAL "looptorch")
    list(APPEND command ${looptorch_syntax_shared})
  elseif(clang)
    list(APPEND command -include-pch ${looptorch_syntax_folder}/${ARGN}.pch)
  else()
    list(APPEND command -include ${looptorch_syntax_folder}/${ARGN}.hpp)
  endif()
  set(${variable} ${command} PARENT_SCOPE)
endfunction()
