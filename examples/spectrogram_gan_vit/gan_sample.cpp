// SPDX-License-Identifier: MIT
// Draws labelled spectrograms from a trained generator, as tensors for training, pictures and sound.
#include <looptorch/app/charts/png.hpp>
#include <looptorch/app/device.hpp>
#include <looptorch/app/run/output_files.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/audio/encode.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "clips/labels.hpp"
#include "clips/loudness.hpp"
#include "gan/model.hpp"
#include "gan/sampling.hpp"
#include "pictures/spectrogram_picture.hpp"
#include "presets.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace app = looptorch::app;
namespace fs = std::filesystem;
namespace lt = looptorch;
namespace sg = spectrogram_gan;

struct Options {
  fs::path model, output;
  std::int64_t count = 0, gpu_memory = 0, pictures = 16, sounds = 4, batch_size = 16, seed = 1;
  std::string valence = "drawn", arousal = "drawn", device = "auto";
};

constexpr const char* kHeader = "sample,valence,arousal";  ///< first line of labels.csv

/// Clips in one file, all in memory at once: 170 MB at 128 mel bins.
constexpr std::int64_t kClipsInFile = 256;

/// Parses "drawn" or a number from -1 to 1. Throws CommandLineError.
std::optional<double> wanted(const char* flag, const std::string& text) {
  if (text == "drawn") return std::nullopt;
  try {
    return app::parse_number<double>(text, {.min = -1, .max = 1});
  } catch (const app::CommandLineError& error) {
    throw app::CommandLineError(lt::message("--", flag, ": ", error.what()));
  }
}

std::string numbered(const char* name, std::int64_t number, const char* extension) {
  auto digits = std::to_string(number);
  return name + std::string(5 - std::min<std::size_t>(digits.size(), 5), '0') + digits + extension;
}

/// True for a name that `numbered` gives, such as sample-00012, but not for sample-drums.
bool is_numbered(const std::string& stem, std::string_view name) {
  const std::string_view digits = std::string_view(stem).substr(std::min(name.size(), stem.size()));
  return stem.starts_with(name) && digits.size() >= 5 &&
         std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
}

/// Samples that share a file.
struct Samples {
  at::Tensor spectrograms_B1MF, conditions_B2;
};

Samples draw_file(sg::Generator& generator, const at::Tensor& labels_N2, const Options& options,
                  std::int64_t first, const sg::WantedConditions& wanted) {
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const auto conditions_B2 =
      sg::draw_conditions(labels_N2, seed, first, std::min(kClipsInFile, options.count - first), wanted);
  const auto& config = generator->config();
  const auto spectrograms_B1MF = at::empty({conditions_B2.size(0), 1, config.n_mels, config.frames});
  for (std::int64_t i = 0; i < conditions_B2.size(0); i += options.batch_size) {
    const auto end = i + options.batch_size;
    spectrograms_B1MF.slice(0, i, end).copy_(
        sg::draw_samples(generator, seed, first + i, conditions_B2.slice(0, i, end)));
  }
  return {spectrograms_B1MF, conditions_B2};
}

void write_files(const Samples& samples, const sg::DecibelScale& scale, const Options& options,
                 std::int64_t first) {
  lt::save_safetensors(options.output / numbered("spectrograms-", first / kClipsInFile, ".safetensors"),
                       {{"spectrograms", samples.spectrograms_B1MF}, {"conditions", samples.conditions_B2}},
                       {{"origin", "generated"}});
  for (std::int64_t i = first; i < first + samples.conditions_B2.size(0); ++i) {
    const auto spectrogram_MF = samples.spectrograms_B1MF[i - first][0];
    if (i < options.pictures)
      app::write_png(options.output / numbered("sample-", i, ".png"), sg::picture_of(spectrogram_MF));
    if (i < options.sounds)
      lt::audio::encode(options.output / numbered("sample-", i, ".wav"),
                        {sg::sound_of(spectrogram_MF, scale, static_cast<std::uint64_t>(options.seed)),
                         sg::SpectrogramOptions::kRate});
  }
}

/// True for the name of a file that `write_files` writes.
bool is_own(const fs::path& file) {
  const auto name = file.stem().string(), extension = file.extension().string();
  return (is_numbered(name, "spectrograms-") && extension == ".safetensors") ||
         (is_numbered(name, "sample-") && (extension == ".png" || extension == ".wav"));
}

/// True for a folder of sounds that have samples' names and are not an earlier call's, since no spectrograms
/// are there.
bool holds_others_sounds(const fs::path& folder) {
  if (!fs::is_directory(folder) || fs::exists(folder / numbered("spectrograms-", 0, ".safetensors")))
    return false;
  return std::ranges::any_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    return is_own(entry.path()) && entry.path().extension() == ".wav";
  });
}

/// Throws UsageError for a folder of recordings, whose tables training programs read, and for a folder with
/// others' sounds, which `clear` would remove.
void require_no_recordings(const fs::path& folder) {
  std::ifstream labels(folder / "labels.csv");
  std::string header = kHeader;
  if (labels) std::getline(labels, header);
  if (holds_others_sounds(folder))
    throw lt::UsageError("--output " + folder.string() +
                         ": has sounds named as samples, sample-00000.wav and the like, without their "
                         "spectrograms, and they would be replaced: choose another folder");
  if (fs::is_directory(folder / "audio") || header != kHeader)
    throw lt::UsageError("--output " + folder.string() +
                         ": is a folder of recordings and their labels, as for --data of gan_train, which "
                         "generated ones would mix with: choose another folder");
}

/// Removes the files of an earlier call, which may have used another model, or drawn more clips.
void clear(const fs::path& folder) {
  fs::remove(folder / "labels.csv");
  std::vector<fs::path> old;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_own(entry.path())) old.push_back(entry.path());
  std::ranges::sort(old);  // spectrograms last: they show that the sounds are this program's
  for (const auto& file : old) fs::remove(file);
}

void sample(Options options) {
  options.count = sg::samples_to_draw(options.count, options.gpu_memory);
  const sg::WantedConditions conditions{wanted("valence", options.valence),
                                        wanted("arousal", options.arousal)};
  require_no_recordings(options.output);
  const auto device = app::choose_device(options.device);
  auto generator = sg::load_generator(options.model);
  generator->to(device);
  const auto scale = sg::load_loudness(options.model / "loudness.json");
  const auto labels_N2 = sg::load_labels(options.model);
  app::create_output_folder("output", options.output);
  clear(options.output);
  std::string labels = lt::message(kHeader, '\n');
  for (std::int64_t first = 0; first < options.count; first += kClipsInFile) {
    const auto samples = draw_file(generator, labels_N2, options, first, conditions);
    write_files(samples, scale, options, first);
    for (std::int64_t i = 0; i < samples.conditions_B2.size(0); ++i)
      labels += lt::message(first + i, ',', samples.conditions_B2[i][0].item<float>(), ',',
                            samples.conditions_B2[i][1].item<float>(), '\n');
  }
  lt::write_file_atomically(options.output / "labels.csv", labels);
  std::cout << options.count << " spectrograms, " << std::min(options.pictures, options.count)
            << " pictures and " << std::min(options.sounds, options.count) << " sounds in "
            << options.output.string() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  app::CommandLine line("gan_sample", "Draws labelled spectrograms from a generator that gan_train made.");
  line.required("model", "DIR", options.model, "folder that gan_train wrote");
  line.required("output", "DIR", options.output,
                "folder for spectrograms-*.safetensors, labels.csv, sample-*.png and sample-*.wav");
  line.option("count", "N", options.count, "spectrograms; 0: 16, or by --gpu-memory", {.min = 0, .max = 1e6});
  sg::add_gpu_memory_flag(line, options.gpu_memory, "number of spectrograms");
  line.option("valence", "X", options.valence, "from -1 to 1, or drawn from the training labels");
  line.option("arousal", "X", options.arousal, "from -1 to 1, or drawn from the training labels");
  line.option("pictures", "N", options.pictures, "of the first so many a PNG", {.min = 0});
  line.option("sounds", "N", options.sounds, "of the first so many a WAV, by Griffin-Lim", {.min = 0});
  line.option("batch-size", "N", options.batch_size, "spectrograms made at once", {.min = 1, .max = 65536});
  line.option("seed", "N", options.seed, "noise and drawn emotions", {.min = 0});
  line.option("device", "NAME", options.device, "cpu, cuda, cuda:1, or auto: an accelerator if there is one");
  return app::run_main(argc, argv, line, [&] { sample(options); });
}
