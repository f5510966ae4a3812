// SPDX-License-Identifier: MIT
// Converts an openai-whisper checkpoint (`small.pt`, written by torch.save) to Hugging Face's tensor names.
// Reads the model's sizes from the tensors' shapes. Refuses missing, misshapen and surplus tensors.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/base/tensors/tensor_map.hpp>

#include "../model/config.hpp"
#include "weight_names.hpp"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

namespace whisper {

/// Thrown for tensors that are no openai-whisper model. Names the file and the tensor.
struct OpenAiError : looptorch::Error {
  using Error::Error;
};

/// Returns the model's config, without token ids, and its weights in fp32 under the names of transformers'
/// WhisperForConditionalGeneration. Heads have 64 dimensions, as in all of OpenAI's models. Throws
/// OpenAiError, which begins with `name`.
[[nodiscard]] inline std::pair<WhisperConfig, looptorch::TensorMap> convert_openai(
    looptorch::TensorMap weights, const std::string& name) {
  const auto fail = [&](const auto&... parts) {
    throw OpenAiError(looptorch::message(name, ": ", parts...));
  };
  const auto size_of = [&](const std::string& tensor, std::int64_t dimension) {
    const auto found = weights.find(tensor);
    if (found == weights.end()) fail("\"", tensor, "\" is missing: it is no openai-whisper model");
    if (found->second.dim() <= dimension)
      fail("\"", tensor, "\" of shape ", found->second.sizes(), " has too few dimensions");
    return found->second.size(dimension);
  };
  const auto layers_of = [&](const char* side) {
    std::int64_t count = 0;
    while (weights.contains(looptorch::message(side, ".blocks.", count, ".mlp.0.weight"))) ++count;
    return count;
  };
  WhisperConfig config;
  config.vocab_size = size_of("decoder.token_embedding.weight", 0);
  config.d_model = size_of("decoder.token_embedding.weight", 1);
  config.num_mel_bins = size_of("encoder.conv1.weight", 1);
  config.max_source_positions = size_of("encoder.positional_embedding", 0);
  config.max_target_positions = size_of("decoder.positional_embedding", 0);
  config.encoder_layers = layers_of("encoder"), config.decoder_layers = layers_of("decoder");
  config.encoder_ffn_dim = size_of("encoder.blocks.0.mlp.0.weight", 0);
  config.decoder_ffn_dim = size_of("decoder.blocks.0.mlp.0.weight", 0);
  constexpr std::int64_t kHeadSize = 64;
  if (config.d_model % kHeadSize != 0 || config.d_model == 0)
    fail("a width of ", config.d_model, " is no multiple of ", kHeadSize);
  config.encoder_attention_heads = config.decoder_attention_heads = config.d_model / kHeadSize;

  looptorch::TensorMap converted;
  for (const WeightName& weight : weight_names(config)) {
    if (weight.huggingface.empty()) continue;
    const auto found = weights.find(weight.openai);
    if (found == weights.end()) fail("\"", weight.openai, "\" is missing");
    if (found->second.sizes() != at::IntArrayRef(weight.shape))
      fail("\"", weight.openai, "\" has shape ", found->second.sizes(), " instead of ",
           at::IntArrayRef(weight.shape));
    converted.emplace(weight.huggingface, found->second.to(at::kFloat));
    weights.erase(found);
  }
  if (!weights.empty()) fail("\"", weights.begin()->first, "\" has no place in Whisper");
  return {config, std::move(converted)};
}

/// Returns the generation_config.json of `folder`, from which the tokenizer comes, for a model of `config`.
/// Drops the heads for word times if the folder's model has other numbers of layers or heads. Throws
/// looptorch::FileError and what load_config throws.
[[nodiscard]] inline looptorch::Json settings_for(const WhisperConfig& config,
                                                  const std::filesystem::path& folder) {
  const looptorch::Json given = looptorch::load_json(folder / "generation_config.json");
  if (const auto described = folder / "config.json"; std::filesystem::exists(described)) {
    const WhisperConfig other = load_config(described);
    if (other.decoder_layers == config.decoder_layers &&
        other.decoder_attention_heads == config.decoder_attention_heads)
      return given;
  }
  auto settings = looptorch::Json::object();
  for (const auto& [name, value] : given.as_object())
    if (name != "alignment_heads") settings.set(name, value);
  return settings;
}

}  // namespace whisper
