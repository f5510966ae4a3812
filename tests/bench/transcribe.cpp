// SPDX-License-Identifier: MIT
// Measures how fast Whisper tiny.en turns log-mel windows of 30 s into tokens, encoder and decoder together,
// in fp32 on two threads of a CPU: greedily and by a beam of 5, clip by clip and all clips in one batch.
//
//   transcribe FOLDER   writes the model that LOOPTORCH_WHISPER_CT2 names to FOLDER, as transformers reads
//   it,
//                       and the features of FOLDER/*.wav, in the order of their names; then reads lines "BEAM
//                       BATCH" from stdin, transcribes all clips, and answers each line with a JSON object;
//                       transcribe.py, the peers, sends them and takes turns
#include <looptorch/audio/log_mel.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/module_state.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include <ATen/Parallel.h>

#include <time.h>
#include <whisper/audio/log_mel_reader.hpp>
#include <whisper/decoding/decoding.hpp>
#include <whisper/decoding/generation_config.hpp>
#include <whisper/formats/ctranslate2_import.hpp>
#include <whisper/formats/huggingface_folder.hpp>
#include <whisper/model/model.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;

namespace {

/// Loads the model, and writes it to `folder` for transformers.
whisper::Whisper import_model(const fs::path& folder) {
  const char* source = std::getenv("LOOPTORCH_WHISPER_CT2");
  if (!source) throw lt::UsageError("LOOPTORCH_WHISPER_CT2 does not name the weights");
  const auto file = fs::path(source) / "model.bin";
  auto [config, weights] = whisper::convert_ctranslate2(whisper::load_ctranslate2(file), file.string());
  const auto ids = whisper::added_token_ids(lt::load_json(fs::path(source) / "tokenizer.json"));
  whisper::set_token_ids(config, ids);
  const auto settings =
      whisper::generation_config(config, lt::load_json(fs::path(source) / "config.json"), ids);
  lt::save_safetensors(folder / "model.safetensors", weights, {{"format", "pt"}});
  whisper::save_config(folder / "config.json", config);
  lt::write_file_atomically(folder / "generation_config.json", settings.dump(2) + "\n");
  whisper::Whisper model(config);
  lt::load_state_dict(model, weights);
  model->decoder()->hold_half_weights();
  model->eval();
  return model;
}

/// Reads the clips of `folder` as `[B, M, T]`, and writes them to features.safetensors.
at::Tensor read_clips(const fs::path& folder, std::int64_t mel_bins) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".wav") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  const whisper::LogMelReader read({.mel_bins = mel_bins});
  std::vector<at::Tensor> clips;
  for (const auto& file : files) clips.push_back(read(file));
  auto mel_BMT = at::stack(clips);
  lt::save_safetensors(folder / "features.safetensors", {{"mel", mel_BMT}});
  return mel_BMT;
}

/// Returns the processor time of all threads so far.
double processor_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

class Transcribing {
 public:
  explicit Transcribing(const fs::path& folder)
      : model_(import_model(folder)),
        mel_BMT_(read_clips(folder, model_->config().num_mel_bins)),
        options_(whisper::load_decoding_options(folder, model_->config())) {}

  /// Transcribes all clips, `batch` at once, and prints the time and the number of tokens.
  void run(std::int64_t beam, std::int64_t batch) {
    torch::NoGradGuard no_grad;
    options_.beam_size = beam;
    const auto begin = std::chrono::steady_clock::now();
    const auto used = processor_ms();
    std::vector<std::int64_t> tokens;
    for (const auto& mel : mel_BMT_.split(batch))
      for (const auto& decoded : whisper::decode(model_, model_->encoder()(mel), options_))
        tokens.insert(tokens.end(), decoded.tokens.begin(), decoded.tokens.end());
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
    std::printf("{\"ms\": %.3f, \"cpu_ms\": %.3f, \"tokens\": %zu}\n", ms.count(), processor_ms() - used,
                tokens.size());
    std::fflush(stdout);
  }

 private:
  whisper::Whisper model_;
  at::Tensor mel_BMT_;
  whisper::DecodingOptions options_;
};

}  // namespace

int main(int count, char** words) {
  if (count != 2) return std::fputs("usage: transcribe FOLDER\n", stderr), 2;
  at::set_num_threads(2);
  Transcribing transcribing(words[1]);
  std::puts("{}");  // the model and the features are written
  std::fflush(stdout);
  for (std::int64_t beam = 0, batch = 0; std::cin >> beam >> batch;) transcribing.run(beam, batch);
}
