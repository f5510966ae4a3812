// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "../support.hpp"
#include "../tone_corpus.hpp"

#include <konkanivani/clips/batch.hpp>

#include <string>
#include <vector>

using namespace konkanivani_test;
namespace lt = looptorch;

TEST_CASE("A batch is padded to a multiple of 32, and says how long each clip is, for the encoder too") {
  Corpus corpus({{16000, "कखग"}, {6400, "घ"}});
  for (const int64_t subsampling : {1, 2, 4}) {
    const auto dataset = corpus.dataset({.subsampling = subsampling});
    std::vector<konkanivani::Clip> clips{dataset.get(0, {}), dataset.get(1, {})};
    const auto batch = dataset.collate(clips);
    CHECK(batch.mel_BMF.sizes() == at::IntArrayRef({2, 80, 128}));
    CHECK(at::equal(batch.lengths_B, ids({100, 40})));
    CHECK(at::equal(konkanivani::encoder_frames(batch.lengths_B, subsampling),
                    ids({100 / subsampling, 40 / subsampling})));
    CHECK(batch.indices == std::vector<int64_t>{0, 1});
    CHECK(batch.mel_BMF[1].narrow(1, 0, 40).equal(clips[1].mel_MF));
    CHECK(batch.mel_BMF[1].narrow(1, 40, 88).eq(0).all().item<bool>());
    CHECK(at::equal(batch.targets.input_lengths_B, ids({4, 2})));
    CHECK(batch.texts == std::vector<std::string>{"कखग", "घ"});
    CHECK(batch.targets.characters_BL.size(1) == 3);
  }
  auto dataset = corpus.dataset();
  dataset.pad_texts(8);
  std::vector<konkanivani::Clip> clips{dataset.get(0, {}), dataset.get(1, {})};
  const auto padded = dataset.collate(clips);
  CHECK(padded.targets.characters_BL.size(1) == 8);
  CHECK(padded.targets.weight() == 6);
}

TEST_CASE("A loader collates into memory that it has") {
  Corpus corpus({{16000, "कख"}, {15000, "ग"}, {14000, "घ"}, {13000, "क"}});
  const auto dataset = corpus.dataset();
  lt::PinnedPrefetchLoader loader(dataset, {.batch_size = 2, .workers = 0, .pin = false});
  for (const auto& batch : loader) CHECK(batch.mel_BMF.size(0) == 2);
  const auto first = loader.stats();
  CHECK(first.slot_allocations >= 7);  // frames, lengths and five of the texts
  for (const auto& batch : loader) CHECK(batch.mel_BMF.size(0) == 2);
  CHECK(loader.stats().slot_allocations == first.slot_allocations);
  CHECK(loader.stats().slot_reuses == first.slot_reuses + 14);
}
