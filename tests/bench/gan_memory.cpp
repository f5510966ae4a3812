// SPDX-License-Identifier: MIT
// Measures the device memory of a dataset of spectrograms: all of it at once, as the project did that the
// spectrogram GAN follows until it ran out of memory, beside one batch after the other from a loader. 1,802
// songs of 30 s, as many as DEAM has, for each of the settings by the memory of a graphics card. The songs
// are 64 files, made here and read repeatedly. With a CUDA device the program prints its allocator's peak.
// Without one it prints the largest batch and, as a bound for both, the peak of all tensors while the loader
// runs, including its workers'.
//
//   gan_memory   prints a JSON object a row
#include <looptorch/audio/encode.hpp>
#include <looptorch/base/device/older_libtorch.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "support/counting_allocator.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/cuda.h>

#include <spectrogram_gan_vit/clips/data.hpp>
#include <spectrogram_gan_vit/corpus/catalogue.hpp>
#include <spectrogram_gan_vit/presets.hpp>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

namespace lt = looptorch;
namespace sg = spectrogram_gan;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSongs = 1802, kFiles = 64;

/// A folder that is removed at the end.
class Folder {
 public:
  Folder() : path_((fs::temp_directory_path() / "looptorch-XXXXXX").string()) {
    if (!::mkdtemp(path_.data())) throw lt::Error("cannot create " + path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    for (std::int64_t i = 0; i < kFiles; ++i) fs::remove(file(i));
    fs::remove(path_);
  }

  [[nodiscard]] fs::path file(std::int64_t i) const { return fs::path(path_) / (std::to_string(i) + ".wav"); }

 private:
  std::string path_;
};

std::vector<sg::Song> make_songs(const Folder& folder) {
  for (std::int64_t i = 0; i < kFiles; ++i) {
    const auto clip = sg::plan_clip(1, sg::Split::train, i);
    auto samples = sg::perform(clip.traits, 30, clip.seed);
    lt::audio::encode(folder.file(i), {at::from_blob(samples.data(), {std::ssize(samples)}), 22050});
  }
  std::vector<sg::Song> songs;
  for (std::int64_t i = 0; i < kSongs; ++i) songs.push_back({.id = i, .audio = folder.file(i % kFiles)});
  return songs;
}

/// Counts the tensors of the device or, without one, of the host.
class Counter {
 public:
  Counter() : device_(torch::cuda::is_available() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU)) {}

  void begin() {
    if (device_.is_cuda()) memory().resetPeakStats(device_.index());
    bench_forget_peak();
    before_ = device_.is_cuda() ? stats().current : bench_live_bytes();
  }
  [[nodiscard]] std::int64_t peak() const {
    return (device_.is_cuda() ? stats().peak : bench_peak_bytes()) - before_;
  }
  [[nodiscard]] at::Device device() const { return device_; }

 private:
  [[nodiscard]] lt::detail::DeviceAllocator& memory() const {
    return *lt::detail::device_allocator(device_.type());
  }
  [[nodiscard]] c10::CachingAllocator::Stat stats() const {
    return memory().getDeviceStats(device_.index()).allocated_bytes[0];
  }

  at::Device device_;
  std::int64_t before_ = 0;
};

/// Returns the bytes of all songs in one tensor of the device, and their labels in another.
std::int64_t bytes_of_all(const sg::SpectrogramDataset& songs, Counter& counter) {
  const auto options = at::TensorOptions(at::kFloat).device(counter.device());
  const auto all = at::empty({songs.size(), 1, songs.options().mel_bins, songs.options().frames()}, options);
  const auto labels = at::empty({songs.size(), 2}, options);
  for (std::int64_t i = 0; i < songs.size(); ++i) all[i].copy_(songs.get(i).spectrogram_1MF);
  return static_cast<std::int64_t>(all.nbytes() + labels.nbytes());
}

struct Lazy {
  std::int64_t largest_batch = 0, peak = 0;
};

/// Reads an epoch of batches; each is moved to the device and released before the next.
Lazy bytes_of_batches(const sg::SpectrogramDataset& songs, std::int64_t batch_size, Counter& counter) {
  lt::PinnedPrefetchLoader loader(songs, {.batch_size = batch_size, .workers = 2});
  Lazy lazy;
  counter.begin();
  for (auto& batch : loader) {
    lt::move_to(batch, counter.device());
    std::int64_t bytes = 0;
    lt::for_each_tensor(
        batch, [&](const at::Tensor& tensor) { bytes += static_cast<std::int64_t>(tensor.nbytes()); });
    lazy.largest_batch = std::max(lazy.largest_batch, bytes);
  }
  lazy.peak = counter.peak();
  return lazy;
}

void print(const sg::GpuPreset& preset, const char* what, std::int64_t value, std::int64_t all) {
  std::printf(
      "{\"name\": \"%lld GB, %lld x %lld mel: %s\", \"value\": %lld, \"unit\": \"bytes\", \"peer\": \"all songs on "
      "the device\", \"peer_value\": %lld}\n",
      static_cast<long long>(preset.gigabytes), static_cast<long long>(preset.gan_batch_size),
      static_cast<long long>(preset.n_mels), what, static_cast<long long>(value),
      static_cast<long long>(all));
  std::fflush(stdout);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const Folder folder;
  const auto songs = make_songs(folder);
  Counter counter;
  std::int64_t mels = 0, all = 0;
  for (const auto& preset : sg::kGpuPresets) {
    const sg::SpectrogramDataset dataset(songs, {.mel_bins = preset.n_mels});
    if (mels != preset.n_mels) all = bytes_of_all(dataset, counter);
    mels = preset.n_mels;
    const auto lazy = bytes_of_batches(dataset, preset.gan_batch_size, counter);
    print(preset, "a batch", lazy.largest_batch, all);
    print(preset, counter.device().is_cuda() ? "peak of the device" : "peak, with the loader", lazy.peak,
          all);
  }
}
