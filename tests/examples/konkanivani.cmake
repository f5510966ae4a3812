# The KonkaniVani example's programs and scripts.
if(NOT TARGET konkanivani_train)
  return()
endif()
set(example ${PROJECT_SOURCE_DIR}/examples/konkanivani)
set(programs $<TARGET_FILE_DIR:konkanivani_corpus>)
add_test(NAME konkanivani.programs COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/konkanivani_cli_test.sh ${programs})
set_tests_properties(konkanivani.programs PROPERTIES TIMEOUT 600 ${in_one_thread})
add_test(NAME konkanivani.run COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/konkanivani_run_test.sh ${example}/run.sh ${programs})
set_tests_properties(konkanivani.run PROPERTIES TIMEOUT 900 ${in_one_thread})
add_test(NAME konkanivani.low_memory
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/konkanivani_low_memory_test.sh ${example}/run_low_memory.sh ${programs})
set_tests_properties(konkanivani.low_memory PROPERTIES TIMEOUT 600 ${in_one_thread})

set(tiny ${CMAKE_CURRENT_BINARY_DIR}/tiny_konkanivani)
configure_file(${tiny_clips}/clips.wav ${tiny}/clips.wav COPYONLY)
foreach(split train validation test)
  configure_file(${tiny_clips}/clips.jsonl ${tiny}/${split}.jsonl COPYONLY)
endforeach()
set(job --data ${tiny} --output {} --d-model 16 --encoder-layers 1 --decoder-layers 1 --subsampling 1 --batch-size 2)
looptorch_add_killed_program(konkanivani_train ${job} --gradient-accumulation 3 --epochs 4 --warmup-steps 3
                             --schedule linear --workers 2)
# Not exact: batch statistics are per rank.
looptorch_add_ranks_of_program(konkanivani_train ${job} --batch-frames 0 --epochs 1 --workers 1)
