# looptorch_add_folder(FOLDER): adds a folder of tests whose CMakeLists.txt ends with looptorch_finish_folder().
# looptorch_finish_folder(): says of all tests of a folder what depends on their names: which begin first, and which run
# without CUDA's library. CMake 3.25 sets a test's properties only in the folder that has added the test.
function(looptorch_add_folder folder)
  add_subdirectory(${folder})
  get_property(finished DIRECTORY ${folder} PROPERTY looptorch_finished)
  if(NOT finished)
    message(FATAL_ERROR "tests/${folder}/CMakeLists.txt does not end with looptorch_finish_folder()")
  endif()
endfunction()

function(looptorch_finish_folder)
  set_property(DIRECTORY PROPERTY looptorch_finished ON)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    if(test IN_LIST longest_tests)
      set_tests_properties(${test} PROPERTIES COST 100)
    endif()
  endforeach()
  looptorch_run_without_cuda(${tests})
endfunction()
