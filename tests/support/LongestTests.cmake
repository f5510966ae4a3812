# Tests that begin first, so that none of them is left for one core at the end; unit tests among them run by themselves.
set(longest_tests
    device.error_anywhere_test device.quickstart device.tests device.token_graphs_test export.python
    konkanivani.low_memory konkanivani.programs konkanivani.run spectrogram_gan.programs spectrogram_gan.run unit.distributed
    unit.distributed.rank_watch_test unit.exported unit.optim.compiled_kernels_test unit.optim.optimizer_kernels_test
    unit.spectrogram_gan_vit unit.trainer.every_pair_test unit.whisper whisper.memory whisper.programs
    whisper.transcribe)
