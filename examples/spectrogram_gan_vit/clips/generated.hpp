// SPDX-License-Identifier: MIT
// Reads clips that gan_sample generated, as training clips. The files are mapped, so thousands of clips cost
// only the memory of those that are being read.
//
// Shapes: N clips of a file, M mel bins, F frames.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "data.hpp"
#include "spectrogram.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace spectrogram_gan {

/// Thrown for a folder of generated clips that cannot be used. The message begins with the folder or file.
struct GeneratedClipsError : looptorch::Error {
  using Error::Error;
};

/// Generated clips as a dataset for training alone, with SpectrogramDataset's type of sample. Spectrograms
/// are scaled to mean 0 and deviation 1, as songs' are. Song ids are -1, -2, ..., which no recorded song has.
/// Draws nothing, and needs no cache. To train on both, concatenate them with the recorded clips:
///
///     GeneratedClips generated("samples", {.mel_bins = 64});
///     require_no_leakage(loading, skipped, validation, test, recorded, generated);   // leakage.hpp
///     looptorch::ConcatDataset training(recorded, generated);                         // both by reference
///     looptorch::PinnedPrefetchLoader loader(training, loading, looptorch::RandomSampler{.seed = seed});
class GeneratedClips {
 public:
  /// Opens the folder's `spectrograms-*.safetensors` and checks them. Throws GeneratedClipsError for a folder
  /// without such files, one that gan_sample has not finished, and a file whose clips are not marked as
  /// generated, have another size than the options', or lack an emotion in [-1, 1] each. Throws UsageError
  /// for options that make no picture, and what looptorch::load_safetensors throws.
  explicit GeneratedClips(std::filesystem::path folder, const SpectrogramOptions& options = {});

  [[nodiscard]] std::int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  /// Throws GeneratedClipsError for a clip that is not finite.
  [[nodiscard]] Clip get(std::int64_t index) const;

  [[nodiscard]] Batch collate(std::span<Clip> clips) const { return batch_of(clips); }

  /// Returns the file of a clip, for errors.
  [[nodiscard]] std::filesystem::path path(std::int64_t index) const {
    return files_[place(index).file].path;
  }

  /// Returns valence and arousal of all clips, `[N, 2]`.
  [[nodiscard]] at::Tensor conditions() const;

 private:
  struct File {
    std::filesystem::path path;
    at::Tensor spectrograms_N1MF, conditions_N2;
  };
  struct Place {
    std::size_t file;
    std::int64_t row;
  };

  [[nodiscard]] Place place(std::int64_t index) const {
    const auto file = static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
    return {file, file == 0 ? index : index - ends_[file - 1]};
  }

  double seconds_;
  std::vector<File> files_;
  std::vector<std::int64_t> ends_;  ///< clips up to the end of each file
};

// ---- Implementation ----

namespace detail {

/// Returns the folder's files of spectrograms, sorted by name.
[[nodiscard]] inline std::vector<std::filesystem::path> spectrogram_files(
    const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto& path = entry.path();
    if (path.extension() == ".safetensors" && path.filename().string().starts_with("spectrograms-"))
      files.push_back(path);
  }
  if (error) throw GeneratedClipsError(folder.string() + ": " + error.message());
  if (files.empty())
    throw GeneratedClipsError(folder.string() +
                              ": holds no spectrograms-*.safetensors, which gan_sample writes");
  std::ranges::sort(files);
  return files;
}

/// Returns the tensors "spectrograms" and "conditions" of a file. Throws GeneratedClipsError for others.
[[nodiscard]] inline std::pair<at::Tensor, at::Tensor> generated_tensors(const std::filesystem::path& file,
                                                                         const SpectrogramOptions& options) {
  const auto refuse = [&](const auto&... what) {
    throw GeneratedClipsError(looptorch::message(file.string(), ": ", what...));
  };
  const auto [tensors, metadata] = looptorch::load_safetensors(file);
  const auto origin = metadata.find("origin");
  if (origin == metadata.end() || origin->second != "generated")
    refuse("is not marked as generated; only what gan_sample writes is read");
  const auto spectrograms = tensors.find("spectrograms"), conditions = tensors.find("conditions");
  if (spectrograms == tensors.end() || conditions == tensors.end())
    refuse("holds no tensors \"spectrograms\" and \"conditions\"");
  const auto &clips_N1MF = spectrograms->second, &conditions_N2 = conditions->second;
  if (clips_N1MF.scalar_type() != at::kFloat || clips_N1MF.dim() != 4 || clips_N1MF.size(1) != 1)
    refuse("spectrograms is ", clips_N1MF.scalar_type(), " ", clips_N1MF.sizes(),
           "; it must be Float [N, 1, M, F]");
  if (clips_N1MF.size(2) != options.mel_bins || clips_N1MF.size(3) != options.frames())
    refuse("holds spectrograms of ", clips_N1MF.size(2), " mel bins and ", clips_N1MF.size(3),
           " frames; the recorded ones have ", options.mel_bins, " and ", options.frames());
  if (conditions_N2.scalar_type() != at::kFloat ||
      conditions_N2.sizes() != at::IntArrayRef({clips_N1MF.size(0), 2}))
    refuse("conditions is ", conditions_N2.scalar_type(), " ", conditions_N2.sizes(), " for ",
           clips_N1MF.size(0), " spectrograms; it must be Float [N, 2]");
  if (!(conditions_N2.abs() <= 1).all().item<bool>()) refuse("some emotions are outside [-1, 1]");
  return {clips_N1MF, conditions_N2};
}

/// Returns the number of clips that labels.csv lists, which gan_sample writes last. Throws
/// GeneratedClipsError if there is none.
[[nodiscard]] inline std::int64_t labelled_clips(const std::filesystem::path& folder) {
  std::ifstream labels(folder / "labels.csv");
  if (!labels)
    throw GeneratedClipsError(folder.string() + ": holds no labels.csv: gan_sample has not finished it");
  std::int64_t lines = 0;
  for (std::string line; std::getline(labels, line);) ++lines;
  return std::max<std::int64_t>(0, lines - 1);
}

}  // namespace detail

inline GeneratedClips::GeneratedClips(std::filesystem::path folder, const SpectrogramOptions& options)
    : seconds_(options.seconds) {
  for (const auto& file : detail::spectrogram_files(folder)) {
    const auto [spectrograms, conditions] = detail::generated_tensors(file, options);
    files_.push_back({file, spectrograms, conditions});
    ends_.push_back(size() + spectrograms.size(0));
  }
  if (const auto labelled = detail::labelled_clips(folder); labelled != size())
    throw GeneratedClipsError(looptorch::message(folder.string(), ": labels.csv lists ", labelled,
                                                 " clips, and the files hold ", size()));
}

inline Clip GeneratedClips::get(std::int64_t index) const {
  const auto [file, row] = place(index);
  const auto [spectrogram_MF, scale] = z_scored(files_[file].spectrograms_N1MF[row][0]);
  if (!std::isfinite(scale.mean) || !std::isfinite(scale.deviation))
    throw GeneratedClipsError(
        looptorch::message(files_[file].path.string(), ": spectrogram ", row, " is not finite"));
  const auto* condition = files_[file].conditions_N2.const_data_ptr<float>() + 2 * row;
  return {.song_id = -1 - index,
          .spectrogram_1MF = spectrogram_MF.unsqueeze(0),
          .valence = condition[0],
          .arousal = condition[1],
          .scale = {},
          .seconds = seconds_};
}

inline at::Tensor GeneratedClips::conditions() const {
  std::vector<at::Tensor> parts;
  for (const auto& file : files_) parts.push_back(file.conditions_N2);
  return at::cat(parts);
}

}  // namespace spectrogram_gan
