// SPDX-License-Identifier: MIT
// Excludes the samples of a list from all epochs: another sampler orders the remaining samples. Indices stay
// those of the whole dataset. Also reads and writes such lists as files; SkipBadWindows adds to such a file.
// While an epoch's order is made, costs 8 bytes for each sample that is not excluded.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/data/samplers/sampler.hpp>
#include <looptorch/data/samplers/sampler_identity.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace looptorch {

namespace detail {

[[nodiscard]] inline std::vector<std::int64_t> sorted_once(std::vector<std::int64_t> samples) {
  std::sort(samples.begin(), samples.end());
  samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
  return samples;
}

/// Returns a line as a sample's index. Throws FileError unless it is a number of at least 0.
[[nodiscard]] inline std::int64_t sample_of(std::string_view line, const std::filesystem::path& path,
                                            std::int64_t number) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  std::int64_t sample = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), sample);
  if (error != std::errc() || end != line.data() + line.size() || sample < 0)
    throw FileError(message(path.string(), ":", number, ": expected the index of a sample, got \"",
                            line.substr(0, 40), "\""));
  return sample;
}

}  // namespace detail

/// Reads a list of samples: one index per line, in any order. Throws FileError for a file that cannot be
/// read, and for a line that is not an index, which the message names.
[[nodiscard]] inline std::vector<std::int64_t> read_sample_list(const std::filesystem::path& path) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 32;
  const std::string text = read_file(path, kMaxBytes);
  std::vector<std::int64_t> samples;
  std::int64_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    samples.push_back(detail::sample_of(line, path, ++number));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return detail::sorted_once(std::move(samples));
}

/// Adds samples to a list on disk, which need not exist. Replaces the file in one step. Throws FileError.
inline void add_to_sample_list(const std::filesystem::path& path, const std::vector<std::int64_t>& samples) {
  std::vector<std::int64_t> all = samples;
  if (detail::may_exist(path)) {
    const std::vector<std::int64_t> before = read_sample_list(path);
    all.insert(all.end(), before.begin(), before.end());
  }
  std::string text;
  for (const std::int64_t sample : detail::sorted_once(std::move(all))) text += std::to_string(sample) + '\n';
  write_file_atomically(path, text);
}

/// Yields the order that `Inner` gives for a dataset without some samples. Inner sees a smaller dataset, so
/// it must have no setting per sample, such as a weight or a length.
///
///     ExcludeSamples sampler(read_sample_list("bad_samples.txt"), RandomSampler{.seed = 1});
template <class Inner = RandomSampler>
class ExcludeSamples {
  static_assert(
      Sampler<Inner>,
      "looptorch: ExcludeSamples's second argument must be a sampler. Give the type "
      "`order(std::int64_t epoch, std::int64_t size) const` returning std::vector<std::int64_t>. See "
      "docs/errors.md#sampler");

 public:
  /// Throws UsageError for a negative index.
  explicit ExcludeSamples(std::vector<std::int64_t> samples, Inner inner = {})
      : samples_(detail::sorted_once(std::move(samples))), inner_(std::move(inner)) {
    if (!samples_.empty() && samples_.front() < 0)
      throw UsageError(message("ExcludeSamples: ", samples_.front(), " is not the index of a sample"));
  }

  /// Throws UsageError if no sample is left.
  [[nodiscard]] std::vector<std::int64_t> order(std::int64_t epoch, std::int64_t size) const {
    const std::vector<std::int64_t> kept = kept_of(size);
    std::vector<std::int64_t> order = inner_.order(epoch, std::ssize(kept));
    for (std::int64_t& index : order) index = kept[static_cast<std::size_t>(index)];
    return order;
  }

  [[nodiscard]] std::int64_t count(std::int64_t size) const {
    return detail::sampled_count(inner_, kept_count(size));
  }

  [[nodiscard]] std::string identity() const {
    return message("ExcludeSamples of ", samples_.size(), " samples, ",
                   detail::checksum_of(std::span<const std::int64_t>(samples_)), ", of ",
                   detail::sampler_identity(inner_));
  }

 private:
  /// Returns how many samples are kept. Indices beyond the dataset have no effect.
  [[nodiscard]] std::int64_t kept_count(std::int64_t size) const {
    const auto end = std::lower_bound(samples_.begin(), samples_.end(), size);
    const std::int64_t kept = size - (end - samples_.begin());
    if (kept == 0 && size > 0)
      throw UsageError(message("ExcludeSamples leaves out all ", size, " samples of the dataset"));
    return kept;
  }

  [[nodiscard]] std::vector<std::int64_t> kept_of(std::int64_t size) const {
    std::vector<std::int64_t> kept;
    kept.reserve(static_cast<std::size_t>(kept_count(size)));
    auto skipped = samples_.begin();
    for (std::int64_t sample = 0; sample < size; ++sample)
      skipped != samples_.end() && *skipped == sample ? void(++skipped) : kept.push_back(sample);
    return kept;
  }

  std::vector<std::int64_t> samples_;
  Inner inner_;
};

ExcludeSamples(std::vector<std::int64_t>)->ExcludeSamples<RandomSampler>;
template <class Inner>
ExcludeSamples(std::vector<std::int64_t>, Inner) -> ExcludeSamples<Inner>;

}  // namespace looptorch
