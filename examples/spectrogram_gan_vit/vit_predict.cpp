// SPDX-License-Identifier: MIT
// Predicts the valence and arousal of audio files, or of all audio files in folders, by a ViT of vit_train,
// and draws the ViT's attention. Reports unusable files and continues.
#include <looptorch/app/charts/png.hpp>
#include <looptorch/app/device.hpp>
#include <looptorch/app/run/output_files.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/audio/probe.hpp>
#include <looptorch/data/datasets/audio_files.hpp>

#include "clips/saved_spectrogram.hpp"
#include "clips/spectrogram.hpp"
#include "pictures/attention_picture.hpp"
#include "vit/hugging_face.hpp"
#include "vit/model.hpp"
#include "vit/prediction.hpp"

#include <cstddef>
#include <filesystem>
#include <iostream>
#include <set>
#include <string>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace sg = spectrogram_gan;
namespace sv = spectrogram_vit;

struct Options {
  std::vector<std::string> files;
  fs::path model, attention;
  std::string format = "text", device = "auto";
};

/// Predicts emotions of files one by one.
class EmotionPredictor {
 public:
  EmotionPredictor(sv::ViT model, at::Device device)
      : model_(std::move(model)), device_(device), read_({.mel_bins = model_->config().n_mels}) {
    model_->to(device);
    model_->eval();
  }

  /// Reads the next file. Throws what sg::ClipReader throws.
  sv::Prediction predict(const fs::path& file) {
    const torch::NoGradGuard no_grad;
    picture_ = read_(file);
    const auto emotion_2 = model_(spectrogram().to(device_))[0].to(at::kCPU, at::kDouble);
    return {.file = file,
            .valence = emotion_2[0].item<double>(),
            .arousal = emotion_2[1].item<double>(),
            .seconds = picture_.seconds,
            .sample_rate = sg::is_saved_spectrogram(file) ? sg::SpectrogramOptions::kRate
                                                          : looptorch::audio::probe(file).sample_rate};
  }

  [[nodiscard]] std::string remark_on(const sv::Prediction& prediction) const {
    const auto& options = read_.options();
    return sv::remark_on(prediction, {options.seconds, options.kRate}, sg::mel_options(options).max_hz);
  }

  /// Returns the last file's spectrogram with the class token's attention to each patch drawn over it: the
  /// mean over the heads of the last block.
  [[nodiscard]] at::Tensor attention_picture() {
    const torch::NoGradGuard no_grad;
    const auto grid = model_->config().grid();
    const auto weights_ATT = model_->attention(spectrogram().to(device_))[0];
    const auto weights_HW = weights_ATT.select(1, 0).slice(1, 1).mean(0).view({grid.height, grid.width});
    return sg::attention_picture(picture_.spectrogram_1MF[0], weights_HW);
  }

 private:
  [[nodiscard]] at::Tensor spectrogram() const { return picture_.spectrogram_1MF.unsqueeze(0); }

  sv::ViT model_;
  at::Device device_;
  sg::ClipReader read_;
  sg::Picture picture_;
};

/// Names a picture after its file. Adds a number if the name is taken.
fs::path picture_name(const fs::path& file, std::set<std::string>& taken) {
  const auto stem = file.stem().string();
  auto name = stem;
  for (int number = 2; !taken.insert(name).second; ++number) name = looptorch::message(stem, '-', number);
  return name + ".png";
}

void predict(const Options& options) {
  const auto files = looptorch::audio_files(options.files, [](const fs::path& file) {
    return looptorch::is_audio_file(file) || sg::is_saved_spectrogram(file);
  });
  EmotionPredictor predictor(sv::load_vit(options.model), app::choose_device(options.device));
  if (!options.attention.empty()) app::create_output_folder("attention", options.attention);
  if (options.format == "csv") std::cout << sv::kCsvHeader << std::endl;
  std::set<std::string> taken;
  std::size_t failed = 0;
  for (const auto& file : files) {
    try {
      if (fs::is_directory(file))
        throw sg::ClipError(file.string() + ": holds no audio and no .npy spectrogram");
      const auto prediction = predictor.predict(file);
      std::cout << sv::line_of(prediction, predictor.remark_on(prediction), options.format) << std::endl;
    } catch (const looptorch::Error& error) {
      if (files.size() == 1) throw;
      std::cerr << "vit_predict: " << error.what() << std::endl;
      ++failed;
      continue;
    }
    if (!options.attention.empty())
      app::write_png(options.attention / picture_name(file, taken), predictor.attention_picture());
  }
  if (failed > 0)
    throw sg::ClipError(looptorch::message(failed, " of ", files.size(), " files could not be used"));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line(
      "vit_predict",
      "Prints the valence and arousal of each FILE, from -1 to 1; a folder stands for its files "
      "of these kinds.\nThe first 30 s count. A FILE that cannot be used is a line on stderr, and the exit "
      "code is then 2.");
  line.positional("FILE", options.files,
                  "WAV, FLAC, MP3, Ogg or Opus, any sample rate; or a .npy spectrogram");
  line.required("model", "DIR", options.model, "folder that vit_train wrote");
  line.choice("format", options.format, {"text", "csv", "json"}, "a line a file");
  line.option("attention", "DIR", options.attention,
              "folder for a picture of each file: bright where the ViT looked");
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: an accelerator if there is one");
  return app::run_main(argc, argv, line, [&] { predict(options); });
}
