# looptorch_add_ranks_of_program(PROGRAM [--exact] [--torchrun] ARGUMENT...): two steps on two ranks, as ranks_test.sh says.
function(looptorch_add_ranks_of_program program)
  if(NOT TARGET looptorch::distributed)
    return()
  endif()
  set(options ${ARGN})
  list(FILTER options INCLUDE REGEX "^--(exact|torchrun)$")
  list(FILTER ARGN EXCLUDE REGEX "^--(exact|torchrun)$")
  add_test(NAME distributed.${program}
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/ranks_test.sh ${options} $<TARGET_FILE:${program}> ${ARGN})
  set_tests_properties(distributed.${program} PROPERTIES PROCESSORS 2 TIMEOUT 300)
endfunction()
