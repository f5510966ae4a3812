// SPDX-License-Identifier: MIT
// Defines the samples and batches of Whisper. A sample has log-mel frames and the ids of its text. A batch
// stacks the frames, which have one length, and pads the ids.
//
// Shapes: B batch, M mel bins, T mel frames, L tokens, S encoder positions, D width of the model.
#pragma once

#include <looptorch/data/batch/batch_empty.hpp>

#include "../model/decoder.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace whisper {

struct Sample {
  at::Tensor mel_MT;                 ///< [S, D] after SpeechDataset::encode_by: a frozen encoder's states.
  std::vector<std::int64_t> tokens;  ///< Prompt, text, end of text.
  std::string text;
  std::string language{};
  std::int64_t given = 0;  ///< Tokens of the previous text, which precede the prompt and are not learnt.
  std::int64_t index = 0;  ///< The sample's number in its dataset.
};

struct Batch {
  at::Tensor mel_BMT;            ///< [B, S, D] if `encoded`.
  at::Tensor tokens_BL;          ///< The decoder's input, padded after the end.
  at::Tensor labels_BL;          ///< Its expected output; kIgnored for the previous text and after the end.
  std::int64_t label_count = 0;  ///< Labels that are not ignored.
  std::vector<std::string> texts, languages;
  bool encoded = false;                    ///< The encoder has run.
  std::vector<std::int64_t> indices = {};  ///< Numbers of the samples in their dataset.

  /// Returns samples [begin, end), with the number of their own labels. Waits for labels on a device.
  [[nodiscard]] Batch slice(std::int64_t begin, std::int64_t end) const {
    const auto rows = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, end - begin); };
    const auto items = [&](const auto& list) {
      return std::decay_t<decltype(list)>(list.begin() + (list.empty() ? 0 : begin),
                                          list.begin() + (list.empty() ? 0 : end));
    };
    const auto labels = rows(labels_BL);
    return {.mel_BMT = rows(mel_BMT),
            .tokens_BL = rows(tokens_BL),
            .labels_BL = labels,
            .label_count = labels.ne(kIgnored).sum().item<std::int64_t>(),
            .texts = items(texts),
            .languages = items(languages),
            .encoded = encoded,
            .indices = items(indices)};
  }
};

/// Pads the samples' tokens, by each sample's length and not by the padding id: that id is also the end of
/// text, which must be learnt. In a loader all tensors lie in the loader's reused memory.
///
/// With a `multiple` above 1, pads tokens to a multiple of it, at most `longest_allowed`: batches then have
/// few shapes, for CaptureGraphs.
inline Batch collate(std::span<Sample> samples, std::int64_t padding, std::int64_t multiple = 1,
                     std::int64_t longest_allowed = std::numeric_limits<std::int64_t>::max()) {
  const auto longest = std::max_element(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
                         return a.tokens.size() < b.tokens.size();
                       })->tokens.size();
  const auto needed = static_cast<std::int64_t>(longest) - 1;
  const auto rows = static_cast<std::int64_t>(samples.size()),
             length =
                 std::max(needed, std::min(longest_allowed, (needed + multiple - 1) / multiple * multiple));
  const auto& mel_MT = samples.front().mel_MT;
  Batch batch{.mel_BMT = looptorch::batch_empty({rows, mel_MT.size(0), mel_MT.size(1)}, mel_MT.options()),
              .tokens_BL = looptorch::batch_empty({rows, length}, at::kLong).fill_(padding),
              .labels_BL = looptorch::batch_empty({rows, length}, at::kLong).fill_(kIgnored),
              .texts = {},
              .languages = {},
              .encoded = false};
  for (std::int64_t row = 0; row < rows; ++row) {
    auto& sample = samples[static_cast<std::size_t>(row)];
    batch.mel_BMT[row].copy_(sample.mel_MT);
    const auto count = static_cast<std::int64_t>(sample.tokens.size()) - 1;
    const auto* ids = sample.tokens.data();
    std::copy_n(ids, count, batch.tokens_BL.mutable_data_ptr<std::int64_t>() + row * length);
    std::copy_n(ids + 1 + sample.given, count - sample.given,
                batch.labels_BL.mutable_data_ptr<std::int64_t>() + row * length + sample.given);
    batch.label_count += count - sample.given;
    batch.indices.push_back(sample.index);
    batch.texts.push_back(std::move(sample.text));
    batch.languages.push_back(std::move(sample.language));
  }
  return batch;
}

}  // namespace whisper
