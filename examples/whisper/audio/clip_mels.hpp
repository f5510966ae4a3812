// SPDX-License-Identifier: MIT
// Provides the log-mel frames of a manifest's clips for training, computed each time or cached in a folder. A
// cache does not change what is learnt: frames depend only on the file, and training's random choices, such
// as masks, are made later.
//
// Shapes: M mel bins, T mel frames.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/manifest/utterance.hpp>

#include "log_mel_reader.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// A dataset of the frames `[M, T]` of clips.
class ClipMels {
 public:
  ClipMels(std::vector<looptorch::Utterance> utterances, const SpeechOptions& options)
      : utterances_(std::move(utterances)), reader_(options) {}

  [[nodiscard]] std::int64_t size() const { return std::ssize(utterances_); }
  /// Throws what LogMelReader throws.
  [[nodiscard]] at::Tensor get(std::int64_t index) const { return reader_(clip(index)); }

  /// Returns the clip's identity for a cache: the contents of its file, and times. Throws FileError.
  [[nodiscard]] std::string identity(std::int64_t index) const {
    const auto& utterance = clip(index);
    const auto microseconds = [](double seconds) { return std::llround(1e6 * seconds); };
    return looptorch::message(looptorch::remembered_content_identity(utterance.audio_filepath), '|',
                              microseconds(utterance.start.value_or(0)), '|',
                              utterance.end ? microseconds(*utterance.end) : -1);
  }

  [[nodiscard]] std::filesystem::path path(std::int64_t index) const { return clip(index).audio_filepath; }

 private:
  [[nodiscard]] const looptorch::Utterance& clip(std::int64_t index) const {
    return utterances_[static_cast<std::size_t>(index)];
  }

  std::vector<looptorch::Utterance> utterances_;
  LogMelReader reader_;
};

namespace detail {

/// Names everything that frames depend on besides the clip, for a cache.
[[nodiscard]] inline std::string mel_settings(const SpeechOptions& options) {
  return looptorch::message("Whisper's log-mel, ", options.mel_bins, " bins, ", options.max_seconds, " s");
}

}  // namespace detail

/// The source of a tensor for each clip: its file, or a cache.
class MelSource {
 public:
  /// Computes tensors each time or, if `cache` names a folder, once for clips and `settings`: 32 kB a second
  /// of the clips' common length for frames. Throws what CachedDataset throws.
  template <class Clips>
  MelSource(Clips clips, const std::string& settings, const std::filesystem::path& cache) {
    if (cache.empty()) {
      get_ = [clips = std::make_shared<const Clips>(std::move(clips))](std::int64_t i) {
        return clips->get(i);
      };
      return;
    }
    const looptorch::CacheOptions options{.folder = cache, .settings = settings};
    const auto cached = std::make_shared<const looptorch::CachedDataset<Clips>>(std::move(clips), options);
    get_ = [cached](std::int64_t i) { return cached->get(i); };
    build_ = [cached](const looptorch::CacheBuildOptions& how) { (void)cached->build(how); };
  }

  [[nodiscard]] at::Tensor operator()(std::int64_t index) const { return get_(index); }

  /// Computes missing tensors of a cache, in parallel. Skips unusable clips: reading them throws as without a
  /// cache. Does nothing without one.
  void prepare(std::int64_t workers,
               const std::function<void(const looptorch::CacheProgress&)>& progress) const {
    if (build_) build_({.workers = workers, .progress = progress, .skip_failures = true});
  }

 private:
  std::function<at::Tensor(std::int64_t)> get_;
  std::function<void(const looptorch::CacheBuildOptions&)> build_;
};

}  // namespace whisper
