// SPDX-License-Identifier: MIT
// What the tests of the Whisper example share: a tiny random model, the real weights if there are any, and
// the values that tests/parity/whisper_model.py recorded from transformers.
#pragma once

#include <looptorch/state/weights/safetensors.hpp>

#include <whisper/model/pretrained.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace whisper_test {

inline const std::filesystem::path kParity =
    std::filesystem::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data";

/// Two layers a side, width 16, 40 tokens; every run gets the same weights.
inline whisper::Whisper tiny_model() {
  torch::manual_seed(7);
  whisper::Whisper model(whisper::WhisperConfig{.vocab_size = 40,
                                                .d_model = 16,
                                                .encoder_layers = 2,
                                                .decoder_layers = 2,
                                                .encoder_attention_heads = 2,
                                                .decoder_attention_heads = 4,
                                                .encoder_ffn_dim = 32,
                                                .decoder_ffn_dim = 24,
                                                .num_mel_bins = 6,
                                                .max_source_positions = 20,
                                                .max_target_positions = 12,
                                                .pad_token_id = 0,
                                                .bos_token_id = 0,
                                                .eos_token_id = 0,
                                                .decoder_start_token_id = 1});
  return model;
}

/// The cross-entropy of `logits_BLV` against `labels_BL`, the mean over the labels that are not kIgnored,
/// from all scores at once.
inline at::Tensor token_mean_loss(const at::Tensor& logits_BLV, const at::Tensor& labels_BL) {
  return torch::nn::functional::cross_entropy(
      logits_BLV.flatten(0, 1), labels_BL.flatten(),
      torch::nn::functional::CrossEntropyFuncOptions().ignore_index(whisper::kIgnored));
}

/// The folder of tiny.en's weights; without it a test says so and passes.
inline std::optional<std::filesystem::path> real_model_folder() {
  if (const char* folder = std::getenv("LOOPTORCH_WHISPER_MODEL")) return folder;
  WARN("skipped: LOOPTORCH_WHISPER_MODEL does not name a Hugging Face folder of Whisper tiny.en");
  return std::nullopt;
}

inline const looptorch::TensorMap& recorded() {
  static const auto tensors = looptorch::load_safetensors(kParity / "whisper_model.safetensors").tensors;
  return tensors;
}

inline at::Tensor recorded(const std::string& name) { return recorded().at(name); }

inline std::vector<std::string> recorded_names() {
  std::ifstream file(kParity / "whisper_parameter_names.txt");
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) names.push_back(line);
  return names;
}

/// The script's `wave_mel`: [2, 80, frames] by a closed formula.
inline at::Tensor wave_mel(int64_t frames) {
  const auto axis = [](int64_t size, at::IntArrayRef shape) {
    return at::arange(size, at::kDouble).view(shape);
  };
  const auto b = axis(2, {2, 1, 1}), m = axis(80, {1, 80, 1}), t = axis(frames, {1, 1, frames});
  return (0.5 * at::sin(0.37 * m + 0.011 * t + 1.7 * b) + 0.3 * at::sin(0.003 * m * t + b) - 0.2)
      .to(at::kFloat);
}

/// The recorded speech, 4 s a row, padded to `frames` with its quietest value.
inline at::Tensor speech_mel(int64_t frames) {
  const auto speech = recorded("speech_mel").to(at::kFloat);
  auto padded = at::full({2, 80, frames}, speech.min().item<float>());
  padded.narrow(2, 0, speech.size(2)).copy_(speech);
  return padded;
}

inline double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

inline double relative_error(const at::Tensor& value, double expected) {
  return std::abs(value.item<double>() - expected) / std::abs(expected);
}

}  // namespace whisper_test
