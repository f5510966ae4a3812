# Tests that only check a file's syntax by a compiler: no object, and precompiled headers for each compiler.
#
# looptorch_syntax_compilers   g++ and clang++, if installed; the project's own compiler always
# looptorch_syntax_fastest     clang++ if it is among them, which takes half of g++'s time
# looptorch_syntax_command(<variable> <compiler> [<name>])   the command that checks the file appended to it; precompiled
#                                                            are `libtorch`, by the fastest compiler only, `looptorch`, or
#                                                            nothing
# looptorch_strict             the warnings of a strict user, of which looptorch's headers cause none

set(looptorch_strict -Wall -Wextra -Wconversion -Wshadow)
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

# A precompiled header contains templates that are not instantiated yet, and g++ instantiates them in every file that uses
# it: 4 s for all of <torch/torch.h>. So only few headers are worth precompiling here; clang can instantiate them once, and
# all of its precompiled headers stand behind the first, libtorch.
#
# looptorch_syntax_precompile(<name> <header> <compiler>...)
function(looptorch_syntax_precompile name header)
  set(all)
  foreach(compiler IN LISTS ARGN)
    looptorch_syntax_name(compiler_name ${compiler})
    set(output ${looptorch_syntax_folder}/${name}.hpp.gch)
    set(options)
    set(first)
    if(compiler_name STREQUAL "clang++")
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
      COMMAND ${compiler} @${looptorch_syntax_folder}/flags ${options} -w -x c++-header ${header} -o ${output}
              -MD -MF ${dependencies} -MT ${output}
      COMMENT "Precompiling ${name} for the syntax tests with ${compiler_name}")
    list(APPEND all ${output})
  endforeach()
  add_custom_target(looptorch_syntax_${name} ALL DEPENDS ${all})
endfunction()

function(looptorch_syntax_command variable compiler)
  looptorch_syntax_name(compiler_name ${compiler})
  set(command ${compiler} -fsyntax-only @${looptorch_syntax_folder}/flags)
  set(header ${looptorch_syntax_folder}/${ARGN})
  if(compiler_name STREQUAL "clang++")
    list(APPEND command -fno-caret-diagnostics)
    if(ARGN)
      list(APPEND command -include-pch ${header}.pch)
    endif()
  else()
    list(APPEND command -fno-diagnostics-show-caret -Winvalid-pch)
    if(ARGN)
      list(APPEND command -include ${header}.hpp)
    endif()
  endif()
  set(${variable} ${command} PARENT_SCOPE)
endfunction()

set(folder ${CMAKE_CURRENT_SOURCE_DIR}/support)
looptorch_syntax_precompile(libtorch ${folder}/precompiled.hpp ${looptorch_syntax_fastest})
looptorch_syntax_precompile(looptorch ${folder}/precompiled_looptorch.hpp ${looptorch_syntax_compilers})
