// SPDX-License-Identifier: MIT
// Batches of a loader on their way to a device: pinned slots that are reused in time, and on a GPU a Whisper
// that trains on clips which workers decode. How fast they are is measured by tests/bench/loader.cpp.
#include "support/precompiled.hpp"

#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/encode.hpp>
#include <looptorch/audio/log_mel.hpp>
#include <looptorch/data/loader/on_device.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>
#include <looptorch/trainer.hpp>

#include "device/support/work.hpp"
#include "support/device.hpp"
#include "support/temporary_folder.hpp"

#include <whisper/model/model.hpp>

#include <cmath>
#include <filesystem>

namespace lt = looptorch;
using namespace looptorch::testing;

namespace {

/// Samples of 4 MB that cost next to nothing to make: sample i is full of i.
struct Wide {
  at::Tensor sample = torch::ones({1 << 20});
  std::int64_t size() const { return 64; }
  at::Tensor get(std::int64_t index) const { return sample * double(index); }
};

}  // namespace

TEST_CASE("the default collate writes into pinned memory, and so do those that ask for it") {
  if (!has_device()) return;
  lt::PinnedPrefetchLoader asked(Wide{}, {.batch_size = 2, .workers = 1, .pin = true});
  CHECK(asked.begin()->is_pinned());
  const at::Tensor used = torch::ones({1}, test_device());  // from here on the process uses it
  lt::PinnedPrefetchLoader stacked(Wide{}, {.batch_size = 2, .workers = 1});
  CHECK(stacked.begin()->is_pinned());
  CHECK(stacked.stats().slots == 0);  // of its own
  bool pinned_inside = false;
  const auto collate = [&](std::span<at::Tensor> samples) {
    at::Tensor batch = lt::batch_empty({2, 1 << 20}, samples[0].options());
    pinned_inside = batch.is_pinned();
    return at::stack_out(batch, at::TensorList(samples.data(), samples.size()));
  };
  lt::PinnedPrefetchLoader own(Wide{}, {.batch_size = 2, .workers = 1, .pin = true}, {}, collate);
  CHECK(own.begin()->is_pinned());
  CHECK(pinned_inside);
  lt::PinnedPrefetchLoader pageable(Wide{}, {.batch_size = 2, .workers = 1, .pin = false});
  CHECK_FALSE(pageable.begin()->is_pinned());
  CHECK(pageable.stats().slots > 0);
  CHECK_FALSE(lt::batch_empty({2}).is_pinned());
}

TEST_CASE("a batch that repeats elements, or has gaps in memory, is pinned like any other") {
  if (!has_device()) return;
  struct Small {
    std::int64_t size() const { return 4; }
    at::Tensor get(std::int64_t index) const { return torch::arange(6) + index; }
  };
  const auto expanded = [](std::span<at::Tensor> samples) { return samples[0].unsqueeze(0).expand({3, 6}); };
  lt::PinnedPrefetchLoader repeats(Small{}, {.batch_size = 2, .workers = 1, .pin = true}, {}, expanded);
  const auto first = repeats.begin();
  CHECK(first->is_pinned());
  CHECK(torch::equal(*first, torch::arange(6).expand({3, 6})));
  const auto strided = [](std::span<at::Tensor> samples) { return samples[1].slice(0, 0, 6, 2); };
  lt::PinnedPrefetchLoader gaps(Small{}, {.batch_size = 2, .workers = 1, .pin = true}, {}, strided);
  const auto second = gaps.begin();
  CHECK(second->is_pinned());
  CHECK(torch::equal(*second, torch::tensor({1, 3, 5})));
}

TEST_CASE(
    "the compute stream waits for its batch, and slots and copies are reused only when they are done with") {
  if (!has_device()) return;
  const Work work;
  const bool pin = GENERATE(true, false);
  lt::PinnedPrefetchLoader loader(Wide{}, {.batch_size = 2, .workers = 2, .prefetch = 1, .pin = pin});
  for (int epoch = 0; epoch < (is_simulated() ? 1 : 5); ++epoch) {
    std::vector<at::Tensor> sums, expected;
    for (auto batch = loader.begin(); batch != loader.end(); ++batch) {
      at::Tensor there = std::move(*batch);
      work(4);  // the device is behind the host, which drops both tensors before they are read
      lt::move_to(there, test_device());
      work(4);
      sums.push_back(there.sum(1, false, at::kDouble));
      expected.push_back(
          torch::tensor({double(batch.indices()[0]), double(batch.indices()[1])}, at::kDouble));
    }
    CHECK(torch::equal(at::stack(sums).cpu(), at::stack(expected) * double(1 << 20)));
  }
}

TEST_CASE("a transform runs on the device, with the CPU's numbers") {
  if (!has_device()) return;
  const lt::audio::LogMel log_mel({.max_samples = 1600});
  struct Sounds {
    std::int64_t size() const { return 6; }
    at::Tensor get(std::int64_t index) const {
      return torch::sin(torch::arange(1600) * (0.01 * double(index + 1)));
    }
  };
  lt::OnDevice there(lt::PinnedPrefetchLoader(Sounds{}, {.batch_size = 3}), test_device(), log_mel);
  lt::OnDevice on_cpu(lt::PinnedPrefetchLoader(Sounds{}, {.batch_size = 3}), at::kCPU, log_mel);
  auto reference = on_cpu.begin();
  for (const at::Tensor& mel : there) {
    CHECK(mel.device() == test_device());
    CHECK(torch::allclose(mel.cpu(), *reference, 1e-4, 1e-4));
    ++reference;
  }
}

TEST_CASE("Whisper tiny trains on clips that 4 workers decode", "[cuda]") {
  if (!has_cuda()) return;
  struct Clip {
    at::Tensor mel_MT, tokens_L;
  };
  struct ClipBatch {
    at::Tensor mel_BMT, tokens_BL;
  };
  struct Clips {
    std::filesystem::path file;
    lt::audio::LogMel log_mel;
    std::int64_t size() const { return 72; }
    Clip get(std::int64_t) const {
      return {log_mel(lt::audio::decode(file, {.sample_rate = 16000}).samples_T),
              torch::ones({64}, at::kLong)};
    }
    ClipBatch collate(std::span<Clip> clips) const {
      ClipBatch batch{lt::batch_empty({std::ssize(clips), 80, 3000}),
                      torch::ones({std::ssize(clips), 64}, at::kLong)};
      for (std::size_t i = 0; i < clips.size(); ++i) batch.mel_BMT[std::int64_t(i)].copy_(clips[i].mel_MT);
      return batch;
    }
  };
  const lt::testing::TemporaryFolder folder;
  const at::Tensor time = torch::arange(480000, torch::kFloat) / 16000;
  lt::audio::encode(folder / "clip.flac", {torch::sin(time * 2000) * torch::sin(time) * 0.5, 16000});

  whisper::Whisper model(whisper::WhisperConfig{});
  model->to(test_device());
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-5});
  lt::Trainer trainer(model, optimizer, [](whisper::Whisper& model, const ClipBatch& batch) {
    return torch::nn::functional::cross_entropy(model(batch.mel_BMT, batch.tokens_BL).flatten(0, 1),
                                                batch.tokens_BL.flatten());
  });
  lt::PinnedPrefetchLoader loader(Clips{folder / "clip.flac", lt::audio::LogMel()},
                                  {.batch_size = 16, .workers = 4});
  CHECK(trainer.fit(loader, {.epochs = 1}).steps == 5);  // the last with 8 clips
  const lt::LoaderStats before = loader.stats();
  const lt::FitResult result = trainer.fit(loader, {.epochs = 3});
  const lt::LoaderStats stats = loader.stats().since(before);
  CHECK(result.steps == 15);
  CHECK(std::isfinite(result.loss));
  CHECK(trainer.progress().samples == 3 * 72);
  CHECK(stats.batches == 10);
  CHECK((stats.wait_share() >= 0 && stats.wait_share() <= 1));
  for (const at::Tensor& parameter : model->parameters()) CHECK(parameter.isfinite().all().item<bool>());
}
