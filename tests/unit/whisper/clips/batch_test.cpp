// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/clips/batch.hpp>

#include <cstdint>
#include <utility>
#include <vector>

using whisper::Sample;

namespace {

constexpr int64_t kEnd = 295, kStart = 296, kNoTimestamps = 298;

Sample sample(std::vector<int64_t> tokens) {
  return {.mel_MT = at::full({3, 4}, static_cast<double>(tokens.size())),
          .tokens = std::move(tokens),
          .text = "t"};
}

at::Tensor ids(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<at::Tensor> tensors;
  for (const auto& row : rows) tensors.push_back(torch::tensor(row, at::kLong));
  return at::stack(tensors);
}

}  // namespace

TEST_CASE("Padding is masked by length, and the real end of text is learnt although it is the padding id") {
  std::vector<Sample> samples{sample({kStart, kNoTimestamps, 5, 6, 7, kEnd}),
                              sample({kStart, kNoTimestamps, kEnd}),
                              sample({kStart, kNoTimestamps, kEnd, 8, kEnd})};
  const auto batch = whisper::collate(samples, kEnd);
  const auto no = whisper::kIgnored;
  CHECK(at::equal(batch.tokens_BL, ids({{kStart, kNoTimestamps, 5, 6, 7},
                                        {kStart, kNoTimestamps, kEnd, kEnd, kEnd},
                                        {kStart, kNoTimestamps, kEnd, 8, kEnd}})));
  CHECK(at::equal(batch.labels_BL, ids({{kNoTimestamps, 5, 6, 7, kEnd},
                                        {kNoTimestamps, kEnd, no, no, no},
                                        {kNoTimestamps, kEnd, 8, kEnd, no}})));
  CHECK(batch.label_count == 11);
  CHECK(batch.label_count == (batch.labels_BL != no).sum().item<int64_t>());
  CHECK(batch.mel_BMT.sizes() == at::IntArrayRef({3, 3, 4}));
  CHECK(batch.mel_BMT[1][0][0].item<double>() == 3);
  CHECK(batch.texts.size() == 3);
}

TEST_CASE("Some samples of a batch have their own number of labels") {
  std::vector<Sample> samples{sample({kStart, kNoTimestamps, 5, 6, 7, kEnd}),
                              sample({kStart, kNoTimestamps, kEnd}),
                              sample({kStart, kNoTimestamps, kEnd, 8, kEnd})};
  const auto batch = whisper::collate(samples, kEnd);
  const auto some = batch.slice(1, 3);
  CHECK(some.label_count == 6);  // of 11
  CHECK(at::equal(some.tokens_BL, batch.tokens_BL.slice(0, 1, 3)));
  CHECK(at::equal(some.labels_BL, batch.labels_BL.slice(0, 1, 3)));
  CHECK(at::equal(some.mel_BMT, batch.mel_BMT.slice(0, 1, 3)));
  CHECK((some.texts.size() == 2 && some.indices.size() == 2 && some.languages.size() == 2));
  auto unnamed = batch;
  unnamed.languages.clear();
  CHECK(unnamed.slice(1, 3).languages.empty());
}

TEST_CASE("Tokens of a batch are padded to a multiple, but not beyond what the model can take") {
  std::vector<Sample> samples{sample({kStart, kNoTimestamps, 5, 6, 7, kEnd}),
                              sample({kStart, kNoTimestamps, kEnd})};
  const auto plain = whisper::collate(samples, kEnd), padded = whisper::collate(samples, kEnd, 8);
  CHECK(padded.tokens_BL.sizes() == at::IntArrayRef({2, 8}));
  CHECK(at::equal(padded.tokens_BL.narrow(1, 0, 5), plain.tokens_BL));
  CHECK(at::equal(padded.labels_BL.narrow(1, 0, 5), plain.labels_BL));
  CHECK(padded.labels_BL.narrow(1, 5, 3).eq(whisper::kIgnored).all().item<bool>());
  CHECK(padded.label_count == plain.label_count);
  CHECK(whisper::collate(samples, kEnd, 8, 6).tokens_BL.size(1) == 6);
  CHECK(whisper::collate(samples, kEnd, 8, 3).tokens_BL.size(1) == 5);  // what they need is theirs to check
  CHECK(whisper::collate(samples, kEnd, 5).tokens_BL.size(1) == 5);
}
