# The programs and scripts of the GAN and of the ViT.
if(NOT TARGET gan_train)
  return()
endif()
add_test(NAME spectrogram_gan.corpus
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/emotion_corpus_cli_test.sh $<TARGET_FILE_DIR:emotion_corpus>)
add_test(NAME spectrogram_gan.programs
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/spectrogram_gan_cli_test.sh $<TARGET_FILE_DIR:gan_train>)
add_test(NAME spectrogram_gan.predict
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/vit_predict_cli_test.sh $<TARGET_FILE_DIR:vit_predict>)
set_tests_properties(spectrogram_gan.corpus spectrogram_gan.programs spectrogram_gan.predict
                     PROPERTIES TIMEOUT 600 ${in_one_thread})
set(command ${CMAKE_CURRENT_SOURCE_DIR}/spectrogram_gan_run_test.sh
            ${PROJECT_SOURCE_DIR}/examples/spectrogram_gan_vit/run.sh $<TARGET_FILE_DIR:gan_train>)
add_test(NAME spectrogram_gan.run COMMAND ${command} --quick)
add_test(NAME spectrogram_gan.run_all CONFIGURATIONS long COMMAND ${command})
set_tests_properties(spectrogram_gan.run PROPERTIES TIMEOUT 900 ${in_one_thread})
set_tests_properties(spectrogram_gan.run_all PROPERTIES LABELS long PROCESSORS 2 TIMEOUT 3600)

# The GAN, on the tiny clips as nine songs.
set(tiny ${CMAKE_CURRENT_BINARY_DIR}/tiny_gan)
set(annotations "song_id,valence_mean,arousal_mean,split\n")
foreach(song RANGE 1 9)
  configure_file(${tiny_clips}/clips.wav ${tiny}/audio/${song}.wav COPYONLY)
  set(split train)
  if(song EQUAL 8)
    set(split validation)
  elseif(song EQUAL 9)
    set(split test)
  endif()
  string(APPEND annotations "${song},${song},5,${split}\n")
endforeach()
file(WRITE ${tiny}/annotations.csv ${annotations})
looptorch_add_killed_program(gan_train
                             --data ${tiny} --output {} --small --n-mels 16 --channels 8 --batch-size 2
                             --gradient-accumulation 2 --epochs 3 --r1 1 --instance-noise 0.2 --workers 2
                             --validate-every 0)
# Not exact: each rank draws noise of its own.
looptorch_add_ranks_of_program(gan_train
                               --data ${tiny} --output {} --small --n-mels 16 --channels 8 --batch-size 1 --epochs 3
                               --winning 0.5 --mismatched 0 --r1 1 --workers 1 --validate-every 0)

# A ViT that transformers saved, unfrozen block by block. Its clips must differ, which those above do not.
set(tiny ${CMAKE_CURRENT_BINARY_DIR}/tiny_vit)
set(pretrained ${parity}/vit/classifier)
add_test(NAME spectrogram_gan.tiny_corpus
         COMMAND emotion_corpus --output ${tiny} --train 7 --validation 3 --test 3 --seconds 2)
set_tests_properties(spectrogram_gan.tiny_corpus PROPERTIES FIXTURES_SETUP tiny_emotions)
looptorch_add_killed_program(vit_train
                             --data ${tiny} --output {} --pretrained ${pretrained}
                             --n-mels 16 --batch-size 2 --gradient-accumulation 2 --epochs 4 --unfreeze 1:1,2:0-1
                             --learning-rate 0.01 --mixup 0.4 --spec-augment --gradient-checkpointing --mixed-precision
                             --workers 2)
looptorch_add_ranks_of_program(vit_train --exact
                               --data ${tiny} --output {} --pretrained ${pretrained}
                               --n-mels 16 --batch-size 1 --epochs 1 --unfreeze 1:1 --learning-rate 0.01 --workers 1)
add_test(NAME spectrogram_gan.vit_train
         COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/vit_train_cli_test.sh $<TARGET_FILE:vit_train> ${tiny} ${pretrained})
set_tests_properties(spectrogram_gan.vit_train PROPERTIES TIMEOUT 300 ${in_one_thread})
foreach(name spectrogram_gan.vit_train faults.vit_train faults.vit_train_all_1 faults.vit_train_all_2 faults.vit_train_all_3
             faults.vit_train_all_4 device.vit_train device.vit_train_retry_on_oom device.vit_train_waits
             distributed.vit_train)
  if(TEST ${name}) # without Gloo there are no ranks
    set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED tiny_emotions)
  endif()
endforeach()
