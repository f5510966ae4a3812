// SPDX-License-Identifier: MIT
// Converts CTranslate2's Whisper to Hugging Face's: sizes from shapes, names by rule, fused projections
// split. It is strict in both directions: a variable that is missing, of another shape, quantised or left
// over is an error.
#pragma once

#include <looptorch/state/weights/safetensors.hpp>

#include "config.hpp"
#include "ctranslate2.hpp"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// Sizes and fp32 weights, named as in transformers' WhisperForConditionalGeneration.
struct ConvertedWhisper {
  WhisperConfig config;  ///< Its token ids are not in model.bin: the caller sets them.
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
    for (const std::string side : {"encoder", "decoder"}) convert_side(side);
    convert_ends();
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

  /// Checks the settings that CTranslate2 can vary and Whisper does not: they must be absent or Whisper's.
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

  /// Returns a variable in fp32 and removes it from those left over.
  at::Tensor take(const std::string& name, at::IntArrayRef shape) {
    const auto tensor = find(name);
    if (tensor.sizes() != shape) {
      fail("variable \"", name, "\" has shape ", tensor.sizes(), " instead of ", shape);
    }
    if (!tensor.is_floating_point()) {
      fail("variable \"", name, "\" is quantised (", tensor.scalar_type(),
           "): convert the model to float16 or float32");
    }
    left_.erase(name);
    return tensor.to(at::kFloat);
  }

  void put(const std::string& name, const at::Tensor& tensor) {
    out_.weights.emplace(name, tensor.contiguous());
  }

  void copy(const std::string& from, const std::string& to, at::IntArrayRef shape) {
    put(to, take(from, shape));
  }

  void copy_linear(const std::string& from, const std::string& to, std::int64_t outputs,
                   std::int64_t inputs) {
    copy(from + "/weight", to + ".weight", {outputs, inputs});
    copy(from + "/bias", to + ".bias", {outputs});
  }

  void copy_norm(const std::string& from, const std::string& to) {
    copy(from + "/gamma", to + ".weight", {out_.config.d_model});
    copy(from + "/beta", to + ".bias", {out_.config.d_model});
  }

  /// Splits projections that CTranslate2 keeps as one. Whisper's keys have no bias; the fused bias must be
  /// zero there.
  void split_linear(const std::string& from, const std::string& to, const std::vector<std::string>& parts) {
    const auto width = out_.config.d_model, count = static_cast<std::int64_t>(parts.size());
    const auto weights = take(from + "/weight", {count * width, width}).chunk(count);
    const auto biases = take(from + "/bias", {count * width}).chunk(count);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      put(to + parts[i] + ".weight", weights[i]);
      if (parts[i] != "k_proj") {
        put(to + parts[i] + ".bias", biases[i]);
      } else if (biases[i].count_nonzero().item().toLong() != 0) {
        fail("variable \"", from, "/bias\" has a bias of the keys, which Whisper lacks");
      }
    }
  }

  void convert_layer(const std::string& from, const std::string& to, bool is_decoder) {
    const auto width = out_.config.d_model;
    const auto inner = is_decoder ? out_.config.decoder_ffn_dim : out_.config.encoder_ffn_dim;
    split_linear(from + "self_attention/linear_0", to + "self_attn.", {"q_proj", "k_proj", "v_proj"});
    copy_linear(from + "self_attention/linear_1", to + "self_attn.out_proj", width, width);
    copy_norm(from + "self_attention/layer_norm", to + "self_attn_layer_norm");
    if (is_decoder) {
      copy_linear(from + "attention/linear_0", to + "encoder_attn.q_proj", width, width);
      split_linear(from + "attention/linear_1", to + "encoder_attn.", {"k_proj", "v_proj"});
      copy_linear(from + "attention/linear_2", to + "encoder_attn.out_proj", width, width);
      copy_norm(from + "attention/layer_norm", to + "encoder_attn_layer_norm");
    }
    copy_linear(from + "ffn/linear_0", to + "fc1", inner, width);
    copy_linear(from + "ffn/linear_1", to + "fc2", width, inner);
    copy_norm(from + "ffn/layer_norm", to + "final_layer_norm");
  }

  void convert_side(const std::string& side) {
    const bool is_decoder = side == "decoder";
    const auto layers = is_decoder ? out_.config.decoder_layers : out_.config.encoder_layers;
    for (std::int64_t i = 0; i < layers; ++i) {
      using looptorch::message;
      convert_layer(message(side, "/layer_", i, "/"), message("model.", side, ".layers.", i, "."),
                    is_decoder);
    }
    copy_norm(side + "/layer_norm", "model." + side + ".layer_norm");
    const auto positions = is_decoder ? out_.config.max_target_positions : out_.config.max_source_positions;
    copy(side + "/position_encodings/encodings", "model." + side + ".embed_positions.weight",
         {positions, out_.config.d_model});
  }

  void convert_ends() {
    const auto width = out_.config.d_model;
    copy("encoder/conv1/weight", "model.encoder.conv1.weight", {width, out_.config.num_mel_bins, 3});
    copy("encoder/conv1/bias", "model.encoder.conv1.bias", {width});
    copy("encoder/conv2/weight", "model.encoder.conv2.weight", {width, width, 3});
    copy("encoder/conv2/bias", "model.encoder.conv2.bias", {width});
    copy("decoder/embeddings/weight", "model.decoder.embed_tokens.weight", {out_.config.vocab_size, width});
  }

  std::string name_;
  looptorch::TensorMap left_;  ///< Variables that are not converted yet.
  ConvertedWhisper out_;
};

}  // namespace detail

inline ConvertedWhisper convert_ctranslate2(const CTranslate2Model& model, const std::string& name) {
  return detail::CTranslate2Converter(model, name).convert();
}

}  // namespace whisper
