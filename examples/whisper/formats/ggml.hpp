// SPDX-License-Identifier: MIT
// Writes a Whisper model in the format of whisper.cpp ("ggml-*.bin"): sizes, mel filters, vocabulary, then a
// header and data for each tensor. Dimensions are listed from last to first; numbers are little-endian.
#pragma once

#include <looptorch/audio/log_mel.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "../model/config.hpp"
#include "../text/tokenizer_file.hpp"
#include "ctranslate2_export.hpp"
#include "weight_names.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// Thrown for a model that the format cannot hold; names the weight or token.
struct GgmlError : looptorch::Error {
  using Error::Error;
};

/// Writes fp32 weights, named as in transformers, in one step. ExportType::fp16 rounds matrices to 16 bits,
/// as in the published files; int8 stores blocks of 32 8-bit numbers with a common scale ("q8_0"), and
/// convolutions in 16 bits. `tokenizer` is a tokenizer.json. Throws looptorch::FileError, what in_fp16
/// throws, and GgmlError, also for ExportType::fp32: whisper.cpp 1.8 aborts on 32-bit convolutions.
void save_ggml(const std::filesystem::path& path, const WhisperConfig& config,
               const looptorch::TensorMap& weights, const looptorch::Json& tokenizer, ExportType type);

/// Returns q8_0 blocks, `[numel / 32, 34]` bytes: a scale in fp16, which is the largest absolute value / 127,
/// and 32 numbers.
[[nodiscard]] inline at::Tensor q8_blocks(const at::Tensor& values) {
  const auto blocks = values.to(at::kFloat).reshape({-1, 32});
  const auto scales = blocks.abs().amax(1, /*keepdim=*/true) / 127.0F;
  const auto inverse = at::where(scales == 0, scales, 1.0F / scales);
  const auto scaled = blocks * inverse;
  const auto rounded = at::where(scaled < 0, (scaled - 0.5F).ceil(), (scaled + 0.5F).floor());  // as roundf
  return at::cat({scales.to(at::kHalf).view(at::kByte), rounded.to(at::kChar).view(at::kByte)}, 1);
}

namespace detail {

class GgmlWriter {
 public:
  GgmlWriter(const std::filesystem::path& path, ExportType type) : file_(path), type_(type) {}

  void write(const WhisperConfig& config, const looptorch::TensorMap& weights,
             const looptorch::Json& tokenizer) {
    if (type_ == ExportType::fp32)
      throw GgmlError("whisper.cpp cannot compute with convolutions of 32 bits: write 16 bits or 8");
    write_sizes(config);
    write_filters(config.num_mel_bins);
    write_vocabulary(tokenizer, config.eos_token_id);
    for (const auto& name : weight_names(config)) {
      if (name.huggingface.empty()) continue;
      const auto weight = weights.find(name.huggingface);
      if (weight == weights.end())
        throw GgmlError(looptorch::message("the weights lack \"", name.huggingface, "\""));
      if (weight->second.sizes() != at::IntArrayRef(name.shape))
        throw GgmlError(looptorch::message("the weight \"", name.huggingface, "\" has shape ",
                                           weight->second.sizes(), " instead of ",
                                           at::IntArrayRef(name.shape)));
      write_tensor(name.openai, weight->second.detach().cpu().to(at::kFloat).contiguous());
    }
    file_.commit();
  }

 private:
  /// ggml's numbers for types.
  enum TensorType : std::int32_t { kFloat32 = 0, kFloat16 = 1, kQ8 = 8 };

  void put(std::int64_t number) {
    const auto value = static_cast<std::int32_t>(number);
    file_.write(&value, sizeof value);
  }

  void put(const at::Tensor& values) { file_.write(values.const_data_ptr(), values.nbytes()); }

  void write_sizes(const WhisperConfig& config) {
    constexpr std::int32_t kMagic = 0x67676d6c;
    // Type of most matrices. Quantised files add 1000 x the version of the quantisation.
    const std::int32_t file_type = type_ == ExportType::fp16 ? 1 : 2007;
    for (const auto number : {std::int64_t{kMagic}, config.vocab_size, config.max_source_positions,
                              config.d_model, config.encoder_attention_heads, config.encoder_layers,
                              config.max_target_positions, config.d_model, config.decoder_attention_heads,
                              config.decoder_layers, config.num_mel_bins, std::int64_t{file_type}})
      put(number);
  }

  void write_filters(std::int64_t mel_bins) {
    const auto filters = looptorch::audio::LogMel::filters(mel_bins);
    put(filters.size(0)), put(filters.size(1)), put(filters);
  }

  /// Writes the bytes of the learnt tokens, those before the end of text. The reader knows the rest.
  void write_vocabulary(const looptorch::Json& tokenizer, std::int64_t end_of_text) {
    std::map<std::int64_t, std::string> tokens;
    for (const auto& [token, id] : tokenizer.at("model").at("vocab").as_object())
      if (id.as_int() < end_of_text) tokens.emplace(id.as_int(), spelled_bytes(token));
    if (std::ssize(tokens) != end_of_text || (!tokens.empty() && tokens.begin()->first != 0))
      throw GgmlError(looptorch::message("the vocabulary has ", tokens.size(),
                                         " tokens before the end of text, ", end_of_text));
    put(std::ssize(tokens));
    for (const auto& [id, bytes] : tokens) put(std::ssize(bytes)), file_.write(bytes);
  }

  void write_tensor(const std::string& name, at::Tensor values) {
    // The reader adds a convolution's bias to [width, frames].
    if (name.ends_with(".bias") && name.starts_with("encoder.conv")) values = values.unsqueeze(1);
    const auto type = type_of(name, values);
    put(values.dim()), put(std::ssize(name)), put(type);
    for (auto dim = values.dim(); dim > 0; --dim) put(values.size(dim - 1));
    file_.write(name);
    if (type == kQ8 && values.size(-1) % 32 != 0)
      throw GgmlError(looptorch::message("\"", name, "\" of shape ", values.sizes(),
                                         " cannot have 8 bits: its rows are not multiples of 32"));
    put(type == kQ8 ? q8_blocks(values) : type == kFloat16 ? in_fp16(name, values) : values);
  }

  [[nodiscard]] TensorType type_of(const std::string& name, const at::Tensor& values) const {
    const bool is_matrix =
        values.dim() > 1 && !name.ends_with(".bias") && !name.ends_with("positional_embedding");
    if (!is_matrix) return kFloat32;
    return type_ == ExportType::int8 && values.dim() == 2 ? kQ8 : kFloat16;
  }

  looptorch::AtomicFile file_;
  ExportType type_;
};

}  // namespace detail

inline void save_ggml(const std::filesystem::path& path, const WhisperConfig& config,
                      const looptorch::TensorMap& weights, const looptorch::Json& tokenizer,
                      ExportType type) {
  detail::GgmlWriter(path, type).write(config, weights, tokenizer);
}

}  // namespace whisper
