// SPDX-License-Identifier: MIT
// Converts Whisper's weights from CTranslate2's layout to Hugging Face's. Derives the model's sizes from the
// shapes, translates names by a table, splits fused projections, and divides 8-bit weights by their scales.
// Throws for a variable that is missing, unknown or of another shape.
#pragma once

#include <looptorch/state/weights/safetensors.hpp>

#include "../model/config.hpp"
#include "ctranslate2.hpp"
#include "weight_names.hpp"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace whisper {

/// Sizes and fp32 weights, named as in transformers' WhisperForConditionalGeneration.
struct ConvertedWhisper {
  WhisperConfig config;  ///< Its token ids are not in model.bin: set by the caller.
  looptorch::TensorMap weights;
};

/// Converts a model. Throws CTranslate2Error, which begins with `name` and names the variable.
[[nodiscard]] ConvertedWhisper convert_ctranslate2(const CTranslate2Model& model, const std::string& name);

namespace detail {

class CTranslate2Converter {
 public:
  CTranslate2Converter(const CTranslate2Model& model, std::string name)
      : name_(std::move(name)), left_(model.variables) {
    if (model.spec != "WhisperSpec") fail("is a ", model.spec, ", not Whisper");
  }

  [[nodiscard]] ConvertedWhisper convert() && {
    check_settings();
    measure();
    const auto names = weight_names(out_.config);
    for (const auto& rows : by_variable(names)) split(rows);
    for (const auto& [name, tensor] : left_) {
      if (tensor.dim() > 0 && tensor.is_floating_point()) {
        fail("variable \"", name, "\" has no place in Whisper");
      }
    }
    return std::move(out_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw CTranslate2Error(looptorch::message(name_, ": ", parts...));
  }

  [[nodiscard]] const at::Tensor& find(const std::string& name) const {
    const auto found = left_.find(name);
    if (found == left_.end()) fail("variable \"", name, "\" is missing");
    return found->second;
  }

  [[nodiscard]] std::int64_t size_of(const std::string& name, std::int64_t dim) const {
    const auto& tensor = find(name);
    if (tensor.dim() <= dim) {
      fail("variable \"", name, "\" of shape ", tensor.sizes(), " has too few dimensions");
    }
    return tensor.size(dim);
  }

  [[nodiscard]] std::int64_t read_integer(const std::string& name) const {
    const auto& number = find(name);
    if (number.numel() != 1 || !at::isIntegralType(number.scalar_type(), /*includeBool=*/false)) {
      fail("variable \"", name, "\" is not one whole number");
    }
    return number.item().toLong();
  }

  /// Checks that settings which vary in CTranslate2 but not in Whisper are absent or have Whisper's values.
  void check_settings() {
    constexpr std::array kSettings{std::pair{"pre_norm", 1}, std::pair{"activation", 3 /* GELU */},
                                   std::pair{"alibi", 0}, std::pair{"scale_embeddings", 0}};
    for (const auto& [setting, value] : kSettings) {
      const auto found = left_.find(std::string("decoder/") + setting);
      if (found == left_.end()) continue;
      if (read_integer(found->first) != value) {
        fail("variable \"", found->first, "\" is not ", value, ", as in Whisper");
      }
    }
    const auto projection = left_.find("decoder/projection/weight");
    if (projection == left_.end()) return;
    const auto& embedding = find("decoder/embeddings/weight");
    if (projection->second.scalar_type() != embedding.scalar_type() || !projection->second.equal(embedding)) {
      fail("the output projection is not the embedding");
    }
    left_.erase(projection);
    left_.erase("decoder/projection/weight_scale");
  }

  [[nodiscard]] std::int64_t count_layers(const std::string& side) const {
    std::int64_t count = 0;
    while (left_.contains(looptorch::message(side, "/layer_", count, "/ffn/linear_0/weight"))) {
      ++count;
    }
    return count;
  }

  void measure() {
    auto& config = out_.config;
    config.vocab_size = size_of("decoder/embeddings/weight", 0);
    config.d_model = size_of("decoder/embeddings/weight", 1);
    config.num_mel_bins = size_of("encoder/conv1/weight", 1);
    config.max_source_positions = size_of("encoder/position_encodings/encodings", 0);
    config.max_target_positions = size_of("decoder/position_encodings/encodings", 0);
    config.encoder_layers = count_layers("encoder");
    config.decoder_layers = count_layers("decoder");
    config.encoder_attention_heads = read_integer("encoder/num_heads");
    config.decoder_attention_heads = read_integer("decoder/num_heads");
    config.encoder_ffn_dim = size_of("encoder/layer_0/ffn/linear_0/weight", 0);
    config.decoder_ffn_dim = size_of("decoder/layer_0/ffn/linear_0/weight", 0);
  }

  /// Returns a variable in fp32 and removes it from the remaining ones.
  at::Tensor take(const std::string& name, at::IntArrayRef shape) {
    const auto tensor = find(name);
    if (tensor.sizes() != shape) {
      fail("variable \"", name, "\" has shape ", tensor.sizes(), " instead of ", shape);
    }
    const auto scale = left_.find(name + "_scale");
    const bool is_scaled = tensor.scalar_type() == at::kChar && scale != left_.end();
    if (!tensor.is_floating_point() && !is_scaled) {
      fail("variable \"", name, "\" is quantised (", tensor.scalar_type(),
           ") without a scale: convert the model to float16, float32 or int8");
    }
    auto values = is_scaled ? dequantised(tensor, scale->first, scale->second) : tensor.to(at::kFloat);
    if (is_scaled) left_.erase(scale);
    left_.erase(name);
    return values;
  }

  /// Returns int8 values divided by the scales of their rows.
  [[nodiscard]] at::Tensor dequantised(const at::Tensor& values, const std::string& name,
                                       const at::Tensor& scales) const {
    if (!scales.is_floating_point() || scales.sizes() != at::IntArrayRef({values.size(0)})) {
      fail("variable \"", name, "\" is not one number for each of ", values.size(0), " rows");
    }
    std::vector<std::int64_t> column(static_cast<std::size_t>(values.dim()), 1);
    column[0] = values.size(0);
    return values.to(at::kFloat).div_(scales.to(at::kFloat).view(column));
  }

  /// Splits a variable. Whisper's keys have no bias: theirs must be zero.
  void split(std::span<const WeightName> rows) {
    const auto& variable = rows.front().ctranslate2;
    auto shape = rows.front().shape;
    shape[0] *= std::ssize(rows);
    const auto parts = take(variable, shape).chunk(std::ssize(rows));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].huggingface.empty()) {
        out_.weights.emplace(rows[i].huggingface, parts[i].contiguous());
      } else if (parts[i].count_nonzero().item().toLong() != 0) {
        fail("variable \"", variable, "\" has a bias of the keys, which Whisper lacks");
      }
    }
  }

  std::string name_;
  looptorch::TensorMap left_;  ///< Variables not yet converted.
  ConvertedWhisper out_;
};

}  // namespace detail

inline ConvertedWhisper convert_ctranslate2(const CTranslate2Model& model, const std::string& name) {
  return detail::CTranslate2Converter(model, name).convert();
}

}  // namespace whisper
