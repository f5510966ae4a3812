# Unit tests that try a sample in CI, once more with all of it: `ctest -C long -L long`.
add_test(NAME unit.trainer.every_pair_test_all CONFIGURATIONS long COMMAND unit_trainer "-#" "[#every_pair_test]")
set_tests_properties(unit.trainer.every_pair_test_all PROPERTIES LABELS long TIMEOUT 3600
                                                                 ENVIRONMENT "LOOPTORCH_TRIPLES=500;LOOPTORCH_KILLED_PAIRS=1000")
add_test(NAME unit.trainer.random_runs_test_all CONFIGURATIONS long COMMAND unit_trainer "-#" "[#random_runs_test]")
set_tests_properties(unit.trainer.random_runs_test_all PROPERTIES LABELS long TIMEOUT 3600 ENVIRONMENT LOOPTORCH_RANDOM_RUNS=4000)
add_test(NAME unit.optim.compiled_kernels_test_all CONFIGURATIONS long COMMAND unit_optim "-#" "[#compiled_kernels_test]")
set_tests_properties(unit.optim.compiled_kernels_test_all PROPERTIES LABELS long TIMEOUT 3600 ENVIRONMENT LOOPTORCH_ALL_GPUS=1)

# The published sizes of Whisper, each in full.
add_test(NAME unit.whisper.sizes_test_all CONFIGURATIONS long COMMAND unit_whisper "-#" "[#sizes_test]")
set_tests_properties(unit.whisper.sizes_test_all PROPERTIES LABELS long PROCESSORS 2 TIMEOUT 3600
                                                            ENVIRONMENT LOOPTORCH_ALL_SIZES=1)

# All settings of a recording of minutes, beside openai-whisper's, all with 16-bit weights, ten hours, and every character; by
# default one setting, two, ten minutes, and a sample beyond U+20000.
if(has_whisper_model)
  foreach(name openai_transcribe openai_decoding long_recording english_normalizer)
    add_test(NAME unit.whisper.${name}_all CONFIGURATIONS long COMMAND unit_whisper "-#" "[#${name}_test]")
    set_tests_properties(unit.whisper.${name}_all PROPERTIES LABELS long TIMEOUT 3600 FIXTURES_REQUIRED whisper_model
                         ENVIRONMENT "LOOPTORCH_WHISPER_LONG=1;LOOPTORCH_WHISPER_MODEL=${whisper_model}")
  endforeach()
endif()
