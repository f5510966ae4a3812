# looptorch_add_device_entries(SOURCE...): ctest's entries for the sources of device_tests, as below: device.NAME,
# device.NAME_all, device.NAME_behind_1 to _8, cuda.NAME.
#
# With LOOPTORCH_UNITY_TESTS the simulated runs are one entry, device.tests, as the unit tests of a folder are; files by
# themselves are left to `ctest -C long`. Those in a process of their own look for devices and memory that nothing has used,
# ask LibTorch what is a kernel on CUDA, or take longest.
set(device_tests_alone accelerator_test cuda_launches_test device_memory_test error_anywhere_test launches_test token_graphs_test)
set(device_tests_behind checkpointed_test combinations_test copy_stream_test loader_test several_devices_test snapshot_test)
# They see no GPU, since LibTorch takes its pinned memory first.
set(on_simulated "OMP_WAIT_POLICY=passive;CUDA_VISIBLE_DEVICES=")

function(looptorch_add_device_entries)
  set(together)
  set(behind_together)
  foreach(source IN LISTS ARGN)
    get_filename_component(name ${source} NAME_WE)
    set(when)
    if(LOOPTORCH_UNITY_TESTS AND NOT name IN_LIST device_tests_alone)
      list(APPEND together "[#${name}]~[cuda]")
      set(when CONFIGURATIONS long)
    endif()
    add_test(NAME device.${name} ${when} COMMAND device_tests "-#" "[#${name}]~[cuda]")
    set_tests_properties(device.${name} PROPERTIES LABELS device FAIL_REGULAR_EXPRESSION "No test" TIMEOUT 300
                                                   ENVIRONMENT "${on_simulated}")
    looptorch_add_whole_sample(${name} ${source})
    if(NOT source MATCHES "device/accelerator/")
      looptorch_add_runs_behind(${name})
      looptorch_add_run_on_gpu(${name} ${source})
    endif()
  endforeach()
  if(together)
    list(JOIN together "," together)
    list(JOIN behind_together "," behind_together)
    add_test(NAME device.tests COMMAND device_tests "-#" ${together})
    add_test(NAME device.tests_behind_1 COMMAND device_tests "-#" ${behind_together})
    set_tests_properties(device.tests PROPERTIES LABELS device TIMEOUT 1500 ENVIRONMENT "${on_simulated}")
    set_tests_properties(device.tests_behind_1 PROPERTIES LABELS device TIMEOUT 1500
                                                          ENVIRONMENT "${on_simulated};LOOPTORCH_DEVICE_SEED=1")
  endif()
endfunction()

# A test of orders or of calls has a sample by default; all of it with `ctest -C long -L long`.
function(looptorch_add_whole_sample name source)
  file(STRINGS ${source} mentions REGEX "schedules\\.hpp|LOOPTORCH_EVERY_CALL")
  if(mentions)
    add_test(NAME device.${name}_all CONFIGURATIONS long COMMAND device_tests "-#" "[#${name}]")
    set_tests_properties(device.${name}_all PROPERTIES LABELS "device;long" TIMEOUT 3600 ENVIRONMENT
                         "${on_simulated};LOOPTORCH_SCHEDULES=10000;LOOPTORCH_EVERY_CALL=1")
  endif()
endfunction()

# Once more behind the host: some in one schedule, all in eight with `ctest -C long -L long`.
function(looptorch_add_runs_behind name)
  foreach(seed RANGE 1 8)
    set(when CONFIGURATIONS long)
    set(labels "device;long")
    if(seed EQUAL 1 AND name IN_LIST device_tests_behind)
      if(LOOPTORCH_UNITY_TESTS)
        list(APPEND behind_together "[#${name}]~[cuda]")
        set(behind_together ${behind_together} PARENT_SCOPE)
      else()
        set(when)
      endif()
      set(labels device)
    endif()
    add_test(NAME device.${name}_behind_${seed} ${when} COMMAND device_tests "-#" "[#${name}]~[cuda]")
    set_tests_properties(device.${name}_behind_${seed} PROPERTIES
                         LABELS "${labels}" TIMEOUT 300 ENVIRONMENT "${on_simulated};LOOPTORCH_DEVICE_SEED=${seed}")
  endforeach()
endfunction()

function(looptorch_add_run_on_gpu name source)
  file(STRINGS ${source} simulated LIMIT_COUNT 4 REGEX "^// Simulated device only")
  if(NOT simulated)
    add_test(NAME cuda.${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/on_gpu.sh $<TARGET_FILE:device_tests> "-#" "[#${name}]")
    set_tests_properties(cuda.${name} PROPERTIES LABELS cuda FAIL_REGULAR_EXPRESSION "No test" TIMEOUT 300
                                                 SKIP_REGULAR_EXPRESSION "skipped: no CUDA device" RESOURCE_LOCK gpu
                                                 ENVIRONMENT "OMP_WAIT_POLICY=passive;LOOPTORCH_TEST_DEVICE=cuda")
  endif()
endfunction()
