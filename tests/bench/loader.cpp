// SPDX-License-Identifier: MIT
// Measures clips a second from FLAC files to batches of Whisper's log-mel features, by PinnedPrefetchLoader.
// loader.py provides the clips, alternates between this program and its peers, and prints the rows.
//
//   loader FOLDER   FOLDER/long has clips of 30 s, FOLDER/short of 1 s; reads requests and answers each by a
//                   line of JSON:
//                     epoch WORKERS    an epoch of the long clips
//                     cached WORKERS   the same from a CachedDataset in FOLDER/cache, which is built once
//                     memory 0         bytes in memory while 100,000 samples of the short clips pass
//                     train WORKERS    on a GPU: the share of its time that Whisper tiny waits for the long
//                     clips copies PINNED    on a GPU: bytes a second of batches that are pinned (1) or not
//                     (0)
#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/log_mel.hpp>
#include <looptorch/data/cache/cached_dataset.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/data/samplers/weighted_sampler.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/trainer.hpp>

#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>
#include <torch/nn/functional/loss.h>

#include <unistd.h>
#include <whisper/model/model.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lt = looptorch;
namespace fs = std::filesystem;

namespace {

struct Mels {
  Mels(const fs::path& folder, std::int64_t seconds) : log_mel({.max_samples = 16000 * seconds}) {
    for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
    std::ranges::sort(files);
  }

  std::int64_t size() const { return std::ssize(files); }
  at::Tensor get(std::int64_t index) const {
    return log_mel(lt::audio::decode(path(index), {.sample_rate = 16000}).samples_T);
  }
  fs::path path(std::int64_t index) const { return files[static_cast<std::size_t>(index)]; }
  std::string identity(std::int64_t index) const { return lt::file_identity(path(index)); }

  std::vector<fs::path> files;
  lt::audio::LogMel log_mel;
};

/// Reads an epoch, and prints its length, time and the first batch's sum.
template <class Loader>
void time_epoch(Loader& loader) {
  std::int64_t clips = 0;
  at::Tensor first;
  const auto begin = std::chrono::steady_clock::now();
  for (at::Tensor& batch : loader) {
    clips += batch.size(0);
    if (!first.defined()) first = batch;
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  std::printf("{\"clips\": %lld, \"seconds\": %.6f, \"sum\": %.6f}\n", static_cast<long long>(clips),
              time.count(), first.sum(at::kDouble).item<double>());
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0, pages = 0;
  file >> size >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

void measure_memory(const Mels& mels) {
  constexpr std::int64_t kSamples = 100'000, kBatch = 8;
  const lt::WeightedSampler sampler(std::vector<double>(mels.files.size(), 1), {.draws = kSamples});
  lt::PinnedPrefetchLoader loader(mels, {.batch_size = kBatch, .workers = 2, .starving = 1}, sampler);
  std::int64_t early = 0, most = 0;
  for (auto batch = loader.begin(); batch != loader.end(); ++batch) {
    if (batch.number() == kSamples / kBatch / 10) early = resident_bytes();
    if (batch.number() % 100 == 0) most = std::max(most, resident_bytes());
  }
  std::printf("{\"early\": %lld, \"most\": %lld}\n", static_cast<long long>(early),
              static_cast<long long>(most));
}

template <class Work>
double seconds_of(Work work) {
  const auto index = at::accelerator::getDeviceIndex();
  at::accelerator::synchronizeDevice(index);
  const auto begin = std::chrono::steady_clock::now();
  work();
  at::accelerator::synchronizeDevice(index);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void measure_wait(const Mels& mels, std::int64_t workers) {
  const at::Device device(at::kCUDA, 0);
  whisper::Whisper model(whisper::WhisperConfig{});
  model->to(device);
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-5});
  lt::Trainer trainer(model, optimizer, [&](whisper::Whisper& model, const at::Tensor& mel_BMT) {
    const at::Tensor tokens_BL = at::ones({mel_BMT.size(0), 64}, at::TensorOptions(at::kLong).device(device));
    return torch::nn::functional::cross_entropy(model(mel_BMT, tokens_BL).flatten(0, 1), tokens_BL.flatten());
  });
  lt::PinnedPrefetchLoader loader(mels, {.batch_size = 16, .workers = workers, .starving = 1});
  trainer.fit(loader, {.epochs = 1});  // kernels are loaded
  const lt::LoaderStats before = loader.stats();
  const double seconds = seconds_of([&] { trainer.fit(loader, {.epochs = 3}); });
  std::printf("{\"share\": %.6f, \"seconds\": %.6f}\n", loader.stats().since(before).wait_share(), seconds);
}

void measure_copies(bool pinned) {
  constexpr std::int64_t kBatches = 4, kBytes = std::int64_t{64} << 20;
  const auto options = at::TensorOptions(at::kByte).pinned_memory(pinned);
  std::vector<at::Tensor> host;
  for (std::int64_t i = 0; i < kBatches; ++i) host.push_back(at::empty({kBytes}, options).fill_(1));
  const auto copy_all = [&host] {
    for (at::Tensor batch : host) lt::move_to(batch, at::Device(at::kCUDA, 0));
  };
  copy_all();
  std::printf("{\"bytes_per_second\": %.0f}\n", double(kBatches * kBytes) / seconds_of(copy_all));
}

void measure_beside() {
  const at::Device device(at::kCUDA, 0);
  const at::Tensor host = at::ones({std::int64_t{1} << 28}, at::TensorOptions().pinned_memory(true));
  const at::Tensor matrix = at::ones({4096, 4096}, at::TensorOptions().device(device));
  const auto copy = [&] {
    at::Tensor batch = host;
    lt::move_to(batch, device);
  };
  const auto multiply = [&](int times) {
    for (int i = 0; i < times; ++i) (void)at::mm(matrix, matrix);
  };
  multiply(10), copy();  // kernels are loaded
  const double copied = seconds_of(copy), product = seconds_of([&] { multiply(20); }) / 20;
  const int times = std::max(1, static_cast<int>(copied / product));
  const double multiplied = seconds_of([&] { multiply(times); });
  const double both = seconds_of([&] { multiply(times), copy(); });
  std::printf("{\"copy\": %.6f, \"products\": %.6f, \"both\": %.6f}\n", copied, multiplied, both);
}

void answer(const std::string& question, std::int64_t workers, const fs::path& folder) {
  static const Mels mels(folder / "long", 30), short_mels(folder / "short", 1);
  const lt::LoaderOptions options{.batch_size = 8, .workers = workers, .starving = 1};
  if (question == "epoch") {
    lt::PinnedPrefetchLoader loader(mels, options);
    time_epoch(loader);
  } else if (question == "cached") {
    static const lt::CachedDataset cached(mels, {.folder = folder / "cache", .settings = "log-mel 80, 30 s"});
    lt::PinnedPrefetchLoader loader(cached, options);
    if (cached.counts().read == 0) cached.build({.workers = 2});
    time_epoch(loader);
  } else if (question == "memory") {
    measure_memory(short_mels);
  } else if (question == "train") {
    measure_wait(mels, workers);
  } else if (question == "copies") {
    measure_copies(workers != 0);
  } else if (question == "beside") {
    measure_beside();
  } else {
    throw std::invalid_argument("no such question: " + question);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::invalid_argument("usage: loader FOLDER");
  std::string question;
  for (std::int64_t workers = 0; std::cin >> question >> workers;) answer(question, workers, argv[1]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
