// SPDX-License-Identifier: MIT
// Lists each weight of Whisper with its name in transformers, in CTranslate2, and in OpenAI's files, whose
// names whisper.cpp uses too. All imports and exports translate by this table.
#pragma once

#include "../model/config.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace whisper {

/// One tensor of a model.
struct WeightName {
  /// As in WhisperForConditionalGeneration. Empty for the bias of keys, which Whisper lacks and CTranslate2
  /// stores as zeros.
  std::string huggingface;
  std::string ctranslate2;  ///< The variable that holds it, perhaps with other tensors.
  std::string openai;
  std::vector<std::int64_t> shape;
};

/// Returns the names of all tensors of a model of this size. Tensors that one variable of CTranslate2 stacks
/// are adjacent, in the order of its rows, and have the same shape.
[[nodiscard]] std::vector<WeightName> weight_names(const WhisperConfig& config);

/// Returns the tensors of each of CTranslate2's variables; `names` must outlive the result.
[[nodiscard]] inline std::vector<std::span<const WeightName>> by_variable(
    const std::vector<WeightName>& names) {
  std::vector<std::span<const WeightName>> variables;
  for (auto first = names.begin(); first != names.end();) {
    const auto last = std::find_if(
        first, names.end(), [&](const WeightName& name) { return name.ctranslate2 != first->ctranslate2; });
    variables.emplace_back(first, last);
    first = last;
  }
  return variables;
}

namespace detail {

enum class PartKind { linear, key, widening, narrowing, norm };

/// A part of a layer that has a weight and, unless it is a key projection, a bias.
struct LayerPart {
  const char *huggingface, *ctranslate2, *openai;
  PartKind kind = PartKind::linear;
};

inline constexpr std::array kLayerParts{
    LayerPart{"self_attn.q_proj", "self_attention/linear_0", "attn.query"},
    LayerPart{"self_attn.k_proj", "self_attention/linear_0", "attn.key", PartKind::key},
    LayerPart{"self_attn.v_proj", "self_attention/linear_0", "attn.value"},
    LayerPart{"self_attn.out_proj", "self_attention/linear_1", "attn.out"},
    LayerPart{"self_attn_layer_norm", "self_attention/layer_norm", "attn_ln", PartKind::norm},
    LayerPart{"encoder_attn.q_proj", "attention/linear_0", "cross_attn.query"},
    LayerPart{"encoder_attn.k_proj", "attention/linear_1", "cross_attn.key", PartKind::key},
    LayerPart{"encoder_attn.v_proj", "attention/linear_1", "cross_attn.value"},
    LayerPart{"encoder_attn.out_proj", "attention/linear_2", "cross_attn.out"},
    LayerPart{"encoder_attn_layer_norm", "attention/layer_norm", "cross_attn_ln", PartKind::norm},
    LayerPart{"fc1", "ffn/linear_0", "mlp.0", PartKind::widening},
    LayerPart{"fc2", "ffn/linear_1", "mlp.2", PartKind::narrowing},
    LayerPart{"final_layer_norm", "ffn/layer_norm", "mlp_ln", PartKind::norm}};

/// Lists the names of one side, "encoder" or "decoder".
class WeightLister {
 public:
  WeightLister(const WhisperConfig& config, std::string side, std::vector<WeightName>& out)
      : width_(config.d_model), side_(std::move(side)), is_decoder_(side_ == "decoder"), out_(out) {
    inner_ = is_decoder_ ? config.decoder_ffn_dim : config.encoder_ffn_dim;
  }

  void add_layer(std::int64_t layer) {
    const auto number = std::to_string(layer);
    for (const bool weights : {true, false}) {
      for (const auto& part : kLayerParts) {
        if (!is_decoder_ && std::string_view(part.huggingface).starts_with("encoder_attn")) continue;
        const auto shape = weights ? weight_shape(part.kind) : bias_shape(part.kind);
        const bool exists = weights || part.kind != PartKind::key;
        out_.push_back(
            {exists ? message("model.", side_, ".layers.", number, ".", part.huggingface,
                              weights ? ".weight" : ".bias")
                    : std::string(),
             message(side_, "/layer_", number, "/", part.ctranslate2, "/",
                     ctranslate2_leaf(part.kind == PartKind::norm, weights)),
             exists ? message(side_, ".blocks.", number, ".", part.openai, weights ? ".weight" : ".bias")
                    : std::string(),
             shape});
      }
    }
  }

  void add_norm(const std::string& openai) {
    for (const bool weights : {true, false}) {
      const auto* leaf = weights ? ".weight" : ".bias";
      out_.push_back({message("model.", side_, ".layer_norm", leaf),
                      message(side_, "/layer_norm/", ctranslate2_leaf(true, weights)),
                      message(side_, ".", openai, leaf),
                      {width_}});
    }
  }

  void add_positions(std::int64_t count) {
    out_.push_back({message("model.", side_, ".embed_positions.weight"),
                    message(side_, "/position_encodings/encodings"),
                    message(side_, ".positional_embedding"),
                    {count, width_}});
  }

  void add_convolution(const std::string& name, std::int64_t inputs) {
    out_.push_back({message("model.", side_, ".", name, ".weight"),
                    message(side_, "/", name, "/weight"),
                    message(side_, ".", name, ".weight"),
                    {width_, inputs, 3}});
    out_.push_back({message("model.", side_, ".", name, ".bias"),
                    message(side_, "/", name, "/bias"),
                    message(side_, ".", name, ".bias"),
                    {width_}});
  }

 private:
  template <class... Parts>
  static std::string message(const Parts&... parts) {
    return looptorch::message(parts...);
  }

  static const char* ctranslate2_leaf(bool is_norm, bool weights) {
    if (is_norm) return weights ? "gamma" : "beta";
    return weights ? "weight" : "bias";
  }

  [[nodiscard]] std::vector<std::int64_t> weight_shape(PartKind kind) const {
    if (kind == PartKind::norm) return {width_};
    if (kind == PartKind::widening) return {inner_, width_};
    if (kind == PartKind::narrowing) return {width_, inner_};
    return {width_, width_};
  }

  [[nodiscard]] std::vector<std::int64_t> bias_shape(PartKind kind) const {
    return {kind == PartKind::widening ? inner_ : width_};
  }

  std::int64_t width_, inner_ = 0;
  std::string side_;
  bool is_decoder_;
  std::vector<WeightName>& out_;
};

}  // namespace detail

inline std::vector<WeightName> weight_names(const WhisperConfig& config) {
  std::vector<WeightName> names;
  detail::WeightLister encoder(config, "encoder", names), decoder(config, "decoder", names);
  encoder.add_convolution("conv1", config.num_mel_bins);
  encoder.add_convolution("conv2", config.d_model);
  encoder.add_positions(config.max_source_positions);
  for (std::int64_t layer = 0; layer < config.encoder_layers; ++layer) encoder.add_layer(layer);
  encoder.add_norm("ln_post");
  names.push_back({"model.decoder.embed_tokens.weight",
                   "decoder/embeddings/weight",
                   "decoder.token_embedding.weight",
                   {config.vocab_size, config.d_model}});
  decoder.add_positions(config.max_target_positions);
  for (std::int64_t layer = 0; layer < config.decoder_layers; ++layer) decoder.add_layer(layer);
  decoder.add_norm("ln");
  return names;
}

}  // namespace whisper
