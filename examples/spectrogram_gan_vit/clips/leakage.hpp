// SPDX-License-Identifier: MIT
// Refuses data in which a held-out clip is also a training clip, which would make a model look better than it
// is. Compares clips by id, by content, and by likeness. Reads each clip once, and keeps 4 KB of it.
//
// Shapes: N clips, M mel bins, F frames, K patches.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/hash/stable_hash.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "data.hpp"
#include "patches.hpp"
#include "skipped_items.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spectrogram_gan {

/// Thrown for a clip that is in two parts of the data. Names both.
struct LeakageError : looptorch::Error {
  using Error::Error;
};

/// Two clips whose patterns correlate more than this are copies of one another. Among 640 clips of the
/// synthetic corpus the highest correlation is 0.71. With its original, a copy through MP3 (at libsndfile's
/// default quality) or Griffin-Lim correlates by 0.98 or more, and a copy that begins 0.05 s later by 0.90.
/// One that begins 0.25 s later is not found.
inline constexpr double kCopyCorrelation = 0.9;

/// Returns how a clip's loudness changes in each band: its patches `[K]`, minus the mean of their band,
/// scaled to length 1. Uses only the part with sound, so that two short clips are not alike because of their
/// padding. Neither level nor equaliser changes the result. It is all 0 for a clip of less than 7.5 s, which
/// has too few patches to be recognised.
[[nodiscard]] inline at::Tensor pattern_of(const Clip& clip) {
  constexpr std::int64_t kFewestColumns = 16;  // of the 64 that 30 s have
  const auto rows = std::min<std::int64_t>(16, clip.spectrogram_1MF.size(1)),
             frames = clip.spectrogram_1MF.size(2);
  const auto patches_RC = patches_of(clip.spectrogram_1MF.unsqueeze(0)).view({rows, -1});
  const auto columns = patches_RC.size(1);
  const double frames_of_sound =
      clip.seconds * static_cast<double>(SpectrogramOptions::kRate) / SpectrogramOptions::kHop;
  const auto sounding =
      std::min(columns, static_cast<std::int64_t>(frames_of_sound * static_cast<double>(columns) /
                                                  static_cast<double>(frames - 1)));
  if (sounding < kFewestColumns) return at::zeros(patches_RC.numel());
  const auto part_RC = patches_RC.narrow(1, 0, sounding);
  const auto moving_RC =
      at::constant_pad_nd(part_RC - part_RC.mean(1, /*keepdim=*/true), {0, columns - sounding});
  return (moving_RC / moving_RC.norm().clamp_min(1e-6)).flatten();
}

/// The parts of a clip that are compared.
struct Fingerprint {
  std::string name;
  std::int64_t song_id, hash;  ///< the hash of the spectrogram's bytes
  at::Tensor pattern_K;
};

/// The fingerprints of a dataset of clips.
template <class Dataset>
class FingerprintDataset {
 public:
  /// Keeps a reference to `clips`.
  explicit FingerprintDataset(const Dataset& clips) : clips_(&clips) {}

  [[nodiscard]] std::int64_t size() const { return clips_->size(); }
  [[nodiscard]] std::filesystem::path path(std::int64_t index) const { return clips_->path(index); }

  [[nodiscard]] Fingerprint get(std::int64_t index) const {
    const auto clip = clips_->get(index);
    const auto bytes_1MF = clip.spectrogram_1MF.contiguous();
    const std::string_view bytes(static_cast<const char*>(bytes_1MF.const_data_ptr()), bytes_1MF.nbytes());
    const auto file = path(index).string();
    return {.name = clip.song_id < 0 ? looptorch::message("generated clip ", -clip.song_id, " (", file, ")")
                                     : looptorch::message("song ", clip.song_id, " (", file, ")"),
            .song_id = clip.song_id,
            .hash = std::bit_cast<std::int64_t>(looptorch::stable_hash(bytes)),
            .pattern_K = pattern_of(clip)};
  }

 private:
  const Dataset* clips_;
};

/// The fingerprints of one part of the data.
struct Fingerprints {
  std::string part;  ///< "training", "validation" or "testing"
  std::vector<std::string> names;
  std::vector<std::int64_t> song_ids, hashes;
  at::Tensor patterns_NK;
};

/// Reads all clips of a part. Lists unreadable clips in `skipped`, or throws the first error, as `loading`
/// says.
template <class Dataset>
[[nodiscard]] Fingerprints fingerprints_of(std::string part, const Dataset& clips,
                                           looptorch::LoaderOptions loading, SkippedItems& skipped) {
  loading.starving = 1;  // never reported as starving: nothing but reading happens
  Fingerprints all;
  all.part = std::move(part);
  std::vector<at::Tensor> patterns;
  const auto append = [](auto& list, const at::Tensor& numbers_B) {
    const auto* first = numbers_B.const_data_ptr<std::int64_t>();
    list.insert(list.end(), first, first + numbers_B.size(0));
  };
  looptorch::PinnedPrefetchLoader loader(FingerprintDataset<Dataset>(clips), loading);
  for (const auto& [names, song_ids_B, hashes_B, patterns_BK] : loader) {
    all.names.insert(all.names.end(), names.begin(), names.end());
    append(all.song_ids, song_ids_B);
    append(all.hashes, hashes_B);
    patterns.push_back(patterns_BK.clone());
  }
  skipped.add(loader.skipped());
  if (!patterns.empty()) all.patterns_NK = at::cat(patterns);
  return all;
}

namespace detail {

template <class... What>
[[noreturn]] void refuse_pair(const Fingerprints& a, std::size_t i, const Fingerprints& b, std::size_t j,
                              const What&... why) {
  throw LeakageError(
      looptorch::message(b.names[j], ", for ", b.part, ", ", why..., " ", a.names[i], ", for ", a.part));
}

/// Throws LeakageError if `a` and `b` share an id, or a hash, as `numbers` selects.
inline void require_different(const Fingerprints& a, const Fingerprints& b,
                              std::vector<std::int64_t> Fingerprints::*numbers, const char* why) {
  std::map<std::int64_t, std::size_t> places;
  for (std::size_t i = 0; i < (a.*numbers).size(); ++i) places.emplace((a.*numbers)[i], i);
  for (std::size_t j = 0; j < (b.*numbers).size(); ++j) {
    if (const auto found = places.find((b.*numbers)[j]); found != places.end())
      refuse_pair(a, found->second, b, j, why);
  }
}

}  // namespace detail

/// Throws LeakageError for the first clip of `b` that equals one of `a` in id or in all bits of its
/// spectrogram, or whose pattern correlates with that of one of `a` by more than kCopyCorrelation.
inline void require_disjoint(const Fingerprints& a, const Fingerprints& b) {
  detail::require_different(a, b, &Fingerprints::song_ids, "has the id of");
  detail::require_different(a, b, &Fingerprints::hashes, "is a copy of");
  if (!a.patterns_NK.defined() || !b.patterns_NK.defined()) return;
  const auto [correlation_N, nearest_N] = at::mm(b.patterns_NK, a.patterns_NK.t()).max(1);
  const auto [most, place] = correlation_N.max(0);
  if (most.item<double>() <= kCopyCorrelation) return;
  const auto j = place.item<std::int64_t>();
  detail::refuse_pair(a, static_cast<std::size_t>(nearest_N[j].item<std::int64_t>()), b,
                      static_cast<std::size_t>(j), "is nearly a copy (correlation ", most.item<double>(),
                      ") of");
}

/// Throws LeakageError if a clip is in two of the three parts, by require_disjoint. `training` are all
/// datasets for training, recorded and generated ones. Lists unreadable clips in `skipped`, or throws the
/// first error, as `loading` says.
template <class Recorded, class... Training>
void require_no_leakage(const looptorch::LoaderOptions& loading, SkippedItems& skipped,
                        const Recorded& validation, const Recorded& test, const Training&... training) {
  const auto of_validation = fingerprints_of("validation", validation, loading, skipped),
             of_test = fingerprints_of("testing", test, loading, skipped);
  const auto check = [&](const auto& clips) {
    const auto of_training = fingerprints_of("training", clips, loading, skipped);
    require_disjoint(of_training, of_validation);
    require_disjoint(of_training, of_test);
  };
  (check(training), ...);
  require_disjoint(of_validation, of_test);
}

}  // namespace spectrogram_gan
