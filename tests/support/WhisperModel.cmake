# Whisper tiny.en's real weights, for the tests of a folder that mentions them: converted once into the build folder, by the
# test whisper.import (examples/whisper.cmake).
#
# LOOPTORCH_WHISPER_CT2, as packaging/setup.sh exports it, names what is converted; without it those tests say so and skip.
#
# whisper_model       the folder of the converted model, in tests that require the fixture of this name
# has_whisper_model   whether there is such a fixture
if(DEFINED ENV{LOOPTORCH_WHISPER_CT2})
  set(LOOPTORCH_WHISPER_CT2 $ENV{LOOPTORCH_WHISPER_CT2} CACHE PATH "Whisper tiny.en in CTranslate2's format" FORCE)
endif()
set(whisper_model ${CMAKE_CURRENT_BINARY_DIR}/whisper-tiny.en)
set(has_whisper_model OFF)
if(LOOPTORCH_WHISPER_CT2 AND TARGET whisper_import)
  set(has_whisper_model ON)
endif()
