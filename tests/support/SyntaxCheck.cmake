# Tests that only ask a compiler whether a file is right: no object, one precompiled header a compiler.
#
# looptorch_syntax_compilers   g++ and clang++, as far as they are here; the project's own compiler always
# looptorch_syntax_command(<variable> <compiler>)   the command that checks a file, when the file is appended

set(looptorch_syntax_compilers ${CMAKE_CXX_COMPILER})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  find_program(LOOPTORCH_OTHER_COMPILER clang++ DOC "Second compiler for the syntax tests")
else()
  find_program(LOOPTORCH_OTHER_COMPILER g++ DOC "Second compiler for the syntax tests")
endif()
if(LOOPTORCH_OTHER_COMPILER)
  list(APPEND looptorch_syntax_compilers ${LOOPTORCH_OTHER_COMPILER})
endif()

set(folder ${CMAKE_CURRENT_BINARY_DIR}/syntax)
set(includes "$<TARGET_PROPERTY:looptorch_test_support,INCLUDE_DIRECTORIES>")
set(defines "$<TARGET_PROPERTY:looptorch_test_support,COMPILE_DEFINITIONS>")
file(GENERATE OUTPUT ${folder}/flags CONTENT
"-std=c++20
-fsyntax-only
-fmessage-length=0
-I${PROJECT_SOURCE_DIR}/include
-I${PROJECT_SOURCE_DIR}/examples
-I${CMAKE_CURRENT_SOURCE_DIR}
-I${CMAKE_CURRENT_BINARY_DIR}
$<$<BOOL:${includes}>:-isystem$<JOIN:$<REMOVE_DUPLICATES:${includes}>,\n-isystem>>
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

function(looptorch_syntax_command variable compiler)
  looptorch_syntax_name(name ${compiler})
  set(command ${compiler} @${CMAKE_BINARY_DIR}/tests/syntax/flags)
  if(name STREQUAL "clang++")
    list(APPEND command -fno-caret-diagnostics -include-pch ${CMAKE_BINARY_DIR}/tests/syntax/precompiled.pch)
  else()
    list(APPEND command -fno-diagnostics-show-caret -Winvalid-pch -include
         ${CMAKE_BINARY_DIR}/tests/syntax/precompiled.hpp)
  endif()
  set(${variable} ${command} PARENT_SCOPE)
endfunction()

set(precompiled)
foreach(compiler IN LISTS looptorch_syntax_compilers)
  looptorch_syntax_name(name ${compiler})
  if(name STREQUAL "clang++")
    set(output ${folder}/precompiled.pch)
  else()
    set(output ${folder}/precompiled.hpp.gch)
  endif()
  list(APPEND precompiled ${output})
  # Compiling for real undoes -fsyntax-only: -c is not enough, so the flag is filtered out.
  add_custom_command(OUTPUT ${output} DEPENDS support/precompiled.hpp support/catch.hpp ${folder}/flags VERBATIM
    COMMAND sed /^-fsyntax-only$/d ${folder}/flags > ${output}.flags
    COMMAND ${compiler} @${output}.flags -x c++-header ${CMAKE_CURRENT_SOURCE_DIR}/support/precompiled.hpp -o ${output}
    COMMENT "Precompiling for the syntax tests with ${name}")
endforeach()
add_custom_target(looptorch_syntax_precompiled ALL DEPENDS ${precompiled})
