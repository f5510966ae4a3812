# finetune_exported, on models that Python exported, unpacked by a unit test.
if(NOT TARGET finetune_exported)
  return()
endif()
set(models ${CMAKE_CURRENT_BINARY_DIR}/exported_models)
set(text ${parity}/exported/text.jsonl)
file(MAKE_DIRECTORY ${models})
add_test(NAME exported.models COMMAND unit_exported "[.write_exported]")
set_tests_properties(exported.models PROPERTIES FIXTURES_SETUP exported_models ENVIRONMENT LOOPTORCH_EXPORTED=${models})
add_test(NAME exported.programs
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/finetune_exported_cli_test.sh $<TARGET_FILE:finetune_exported> ${models}
                 ${parity}/exported_programs)
add_test(NAME faults.finetune_exported
         COMMAND ${PROJECT_SOURCE_DIR}/tests/faults/killed_program.sh $<TARGET_FILE:faults_preloaded>
                 $<TARGET_FILE:finetune_exported> --model ${models}/bert.pt2 --output {}
                 --train ${text} --batch-size 2 --gradient-accumulation 2
                 --epochs 4 --learning-rate 0.01 --workers 2 --snapshot-every 2 --resume auto --device cpu)
set_tests_properties(exported.programs faults.finetune_exported PROPERTIES FIXTURES_REQUIRED exported_models TIMEOUT 300
                                                                           ${in_one_thread})
looptorch_add_ranks_of_program(finetune_exported --exact
                               --model ${models}/bert.pt2 --train ${text} --validation ${text} --output {}
                               --batch-size 2 --epochs 1 --learning-rate 0.01 --workers 1)
if(TEST distributed.finetune_exported)
  set_tests_properties(distributed.finetune_exported PROPERTIES FIXTURES_REQUIRED exported_models)
endif()
