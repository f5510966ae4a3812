# looptorch_add_killed_program(PROGRAM ARGUMENT...): what training programs survive. {} among the arguments is the output
# folder. The tests of PROGRAM, a target, are
#
#   faults.PROGRAM                 it is killed, as ../faults/killed_program.sh says: a sample of the moments
#   faults.PROGRAM_all_1 to _4     500 random moments and every call in four parts, for `ctest -C long -L long`
#   device.PROGRAM                 it is killed on the simulated accelerator
#   device.PROGRAM_out_of_memory   the accelerator has too little memory: it says what helps
#   device.PROGRAM_retry_on_oom    its memory runs out once, and --retry-on-oom goes on
#   device.PROGRAM_waits           counts the waits of a step there
#
# What it trains on is also the job of the copied-out example, in ../packages.
function(looptorch_add_killed_program program)
  set_property(GLOBAL PROPERTY looptorch_tiny_job_of_${program} ${ARGN})
  set(tests ${PROJECT_SOURCE_DIR}/tests)
  set(killed ${tests}/faults/killed_program.sh $<TARGET_FILE:faults_preloaded> $<TARGET_FILE:${program}> ${ARGN}
             --snapshot-every 2 --resume auto)
  set(name faults.${program})
  add_test(NAME ${name} COMMAND ${killed} --device cpu)
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 ${in_one_thread})
  foreach(part RANGE 1 4)
    add_test(NAME ${name}_all_${part} CONFIGURATIONS long COMMAND ${killed} --device cpu)
    set_tests_properties(${name}_all_${part} PROPERTIES LABELS long TIMEOUT 3600 ENVIRONMENT
      "LOOPTORCH_KILLS=500;LOOPTORCH_EVERY_CALL=1;LOOPTORCH_PART=${part}/4")
  endforeach()

  set(name device.${program})
  set(on_device LABELS device TIMEOUT 300 PROCESSORS 2)
  set(accelerator $<TARGET_FILE:accelerator_preloaded>)
  add_test(NAME ${name} COMMAND ${killed} --device sim)
  set_tests_properties(${name} PROPERTIES ${on_device} ENVIRONMENT
    "LOOPTORCH_KILLS=0;LOOPTORCH_CALLS=2;LOOPTORCH_PRELOAD=${accelerator};CUDA_VISIBLE_DEVICES=")
  foreach(test out_of_memory retry_on_oom)
    add_test(NAME ${name}_${test}
             COMMAND ${tests}/device/${test}_test.sh ${accelerator} $<TARGET_FILE:${program}> ${ARGN})
    set_tests_properties(${name}_${test} PROPERTIES ${on_device} ENVIRONMENT "CUDA_VISIBLE_DEVICES=")
  endforeach()
  add_test(NAME ${name}_waits
           COMMAND ${tests}/device/example_waits.sh ${PROJECT_SOURCE_DIR}/docs/performance.md ${accelerator}
                   $<TARGET_FILE:${program}> ${ARGN})
  set_tests_properties(${name}_waits PROPERTIES ${on_device} ENVIRONMENT "CUDA_VISIBLE_DEVICES=")
endfunction()
