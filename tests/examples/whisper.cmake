# The Whisper example's programs and scripts as a user meets them, good input and bad.
if(NOT TARGET whisper_finetune)
  return()
endif()
set(programs $<TARGET_FILE_DIR:whisper_finetune>)
add_test(NAME whisper.morse COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/morse_cli_test.sh ${programs})
set_tests_properties(whisper.morse PROPERTIES TIMEOUT 300 ${in_one_thread})

# The real weights, and scripts that convert them by themselves.
set(tiny ${CMAKE_CURRENT_BINARY_DIR}/tiny_whisper)
if(has_whisper_model)
  add_test(NAME whisper.import COMMAND whisper_import --ctranslate2 ${LOOPTORCH_WHISPER_CT2} --output ${whisper_model})
  set_tests_properties(whisper.import PROPERTIES FIXTURES_SETUP whisper_model)
  add_test(NAME whisper.programs
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/whisper_cli_test.sh ${programs} ${whisper_model} ${tiny})
  set_tests_properties(whisper.programs PROPERTIES FIXTURES_REQUIRED whisper_model TIMEOUT 1800 ${in_one_thread})
  add_test(NAME whisper.transcribe
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/whisper_transcribe_cli_test.sh ${programs} ${whisper_model} ${tiny})
  set_tests_properties(whisper.transcribe PROPERTIES FIXTURES_REQUIRED whisper_model TIMEOUT 600 ${in_one_thread})
  add_test(NAME whisper.timestamps CONFIGURATIONS long
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/whisper_timestamps_test.sh ${programs} ${whisper_model})
  set_tests_properties(whisper.timestamps PROPERTIES FIXTURES_REQUIRED whisper_model LABELS long TIMEOUT 3600 ${in_one_thread})
  add_test(NAME whisper.morse_run CONFIGURATIONS long
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/morse_run_test.sh ${PROJECT_SOURCE_DIR}/examples/whisper/run_morse.sh ${programs})
  set_tests_properties(whisper.morse_run PROPERTIES LABELS long TIMEOUT 3600
                       ENVIRONMENT "OMP_NUM_THREADS=1;LOOPTORCH_WHISPER_CT2=${LOOPTORCH_WHISPER_CT2}")
  add_test(NAME device.quickstart
           COMMAND ${PROJECT_SOURCE_DIR}/tests/device/quickstart_test.sh ${PROJECT_SOURCE_DIR}/examples/quickstart.sh
                   ${programs} $<TARGET_FILE:accelerator_preloaded>)
  set_tests_properties(device.quickstart PROPERTIES LABELS device TIMEOUT 900 ENVIRONMENT
                       "LOOPTORCH_WHISPER_CT2=${LOOPTORCH_WHISPER_CT2};CUDA_VISIBLE_DEVICES=")
endif()

# A model of 6,000 weights, and clips.
foreach(file clips.jsonl clips.wav config.json generation_config.json model.safetensors)
  configure_file(${parity}/tiny_whisper/${file} ${tiny}/${file} COPYONLY) # again when it changes
endforeach()
configure_file(${parity}/small_tokenizer.json ${tiny}/tokenizer.json COPYONLY)
looptorch_add_killed_program(whisper_finetune
                             --model ${tiny} --train ${tiny}/clips.jsonl --validation ${tiny}/clips.jsonl
                             --output {} --batch-size 2 --gradient-accumulation 3 --epochs 4 --warmup-steps 3
                             --learning-rate 0.01 --workers 2 --normalizer none)
looptorch_add_ranks_of_program(whisper_finetune --exact --torchrun
                               --model ${tiny} --train ${tiny}/clips.jsonl --validation ${tiny}/clips.jsonl --output {}
                               --batch-size 2 --validate-every 1 --learning-rate 0.01 --workers 1 --normalizer none)
set(memory ${CMAKE_CURRENT_SOURCE_DIR}/whisper_memory_cli_test.sh ${programs} ${tiny})
add_test(NAME whisper.memory COMMAND ${memory})
set_tests_properties(whisper.memory PROPERTIES TIMEOUT 900 ${in_one_thread})
add_test(NAME whisper.memory_all CONFIGURATIONS long # --fit on the real tiny.en takes minutes, too
         COMMAND ${memory} ${whisper_model})
set_tests_properties(whisper.memory_all PROPERTIES FIXTURES_REQUIRED whisper_model LABELS long TIMEOUT 3600 ${in_one_thread})
