// SPDX-License-Identifier: MIT
// Loads the weights given by `--weights`: weights of this example, or of the public KonkaniVani project,
// which is written in PyTorch. The project's tensors are renamed and converted: the project has one tensor
// for an attention's three projections, its pointwise convolutions are Conv1d, and its encoder does not
// multiply its input by the root of the width. The project also computes frames with another logarithm, so
// the first layers have to adapt in training.
#pragma once

#include <looptorch/app/weights/first_weights.hpp>
#include <looptorch/base/error.hpp>

#include "../model/config.hpp"
#include "../model/model.hpp"
#include "../text/vocabulary.hpp"

#include <torch/torch.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace konkanivani {

/// A prefix of the public project's names, and this example's prefix. The first pair that matches is applied.
using NamePair = std::pair<std::string_view, std::string_view>;
inline constexpr std::array<NamePair, 4> kPublicNames{{{"encoder.input_proj.", "encoder.linear."},
                                                       {"encoder.layers.", "encoder.blocks."},
                                                       {"decoder.decoder.layers.", "decoder.layers."},
                                                       {"decoder.output_proj.", "decoder.output."}}};
inline constexpr std::array<NamePair, 14> kPublicBlockNames{{{"ff1.0.", "first_half.norm."},
                                                             {"ff1.1.", "first_half.up."},
                                                             {"ff1.4.", "first_half.down."},
                                                             {"self_attn_norm.", "attention_norm."},
                                                             {"self_attn.", "attention."},
                                                             {"conv_norm.", "convolution.norm."},
                                                             {"conv.0.", "convolution.pointwise_in."},
                                                             {"conv.2.", "convolution.depthwise."},
                                                             {"conv.3.", "convolution.batch_norm."},
                                                             {"conv.5.", "convolution.pointwise_out."},
                                                             {"ff2.0.", "second_half.norm."},
                                                             {"ff2.1.", "second_half.up."},
                                                             {"ff2.4.", "second_half.down."},
                                                             {"final_norm.", "norm."}}};
inline constexpr std::array<NamePair, 7> kPublicLayerNames{{{"self_attn.", "self_attention."},
                                                            {"multihead_attn.", "cross_attention."},
                                                            {"linear1.", "up."},
                                                            {"linear2.", "down."},
                                                            {"norm1.", "self_norm."},
                                                            {"norm2.", "cross_norm."},
                                                            {"norm3.", "norm."}}};

/// The flags that drop the weights whose sizes depend on the characters.
inline constexpr std::string_view kWithoutCharacters =
    "--rename 'ctc_head.*=' --rename 'decoder.embedding.*=' --rename 'decoder.output*='";

namespace detail {

template <class Pairs>
[[nodiscard]] std::string with_beginning(std::string_view name, const Pairs& pairs) {
  for (const auto& [theirs, ours] : pairs)
    if (name.starts_with(theirs)) return std::string(ours).append(name.substr(theirs.size()));
  return std::string(name);
}

/// Translates, by `pairs`, the part of a name after its layer: with `layers` "encoder.blocks.", that is
/// "ff1.0.weight" in "encoder.blocks.3.ff1.0.weight".
template <class Pairs>
[[nodiscard]] std::string with_layer(const std::string& name, std::string_view layers, const Pairs& pairs) {
  if (!name.starts_with(layers)) return name;
  const auto dot = name.find('.', layers.size());
  return dot == name.npos ? name : name.substr(0, dot + 1) + with_beginning(name.substr(dot + 1), pairs);
}

/// Adds a tensor of the public project under this example's names.
inline void add_public(const std::string& name, at::Tensor tensor, looptorch::TensorMap& to) {
  constexpr std::string_view kInProjection = "in_proj_";
  if (name.starts_with("encoder.linear.") && tensor.dim() > 0)
    tensor =
        tensor.to(at::kFloat) / std::sqrt(static_cast<double>(tensor.size(0)));  // our encoder multiplies
  if (name.find(".pointwise_") != name.npos && tensor.dim() == 3 && tensor.size(2) == 1)
    tensor = tensor.squeeze(2);
  const auto joined = name.rfind(kInProjection);
  if (joined == name.npos || tensor.dim() == 0 || tensor.size(0) % 3 != 0) {
    to.insert_or_assign(name, tensor);
    return;
  }
  const auto thirds = tensor.chunk(3);
  constexpr std::array<const char*, 3> kProjections{"q_proj.", "k_proj.", "v_proj."};
  for (std::size_t i = 0; i < 3; ++i)
    to.insert_or_assign(name.substr(0, joined) + kProjections[i] + name.substr(joined + kInProjection.size()),
                        thirds[i]);
}

/// Returns the number of layers whose names begin with `layers`, such as "encoder.blocks.".
[[nodiscard]] inline std::int64_t count_layers(const looptorch::TensorMap& tensors,
                                               const std::string& layers) {
  std::int64_t count = 0;
  const auto has = [&] {
    const auto found = tensors.lower_bound(layers + std::to_string(count) + ".");
    return found != tensors.end() && found->first.starts_with(layers + std::to_string(count) + ".");
  };
  while (has()) ++count;
  return count;
}

}  // namespace detail

/// Returns this example's name for a name of the public project; returns other names unchanged.
[[nodiscard]] inline std::string name_from_public(std::string_view name) {
  auto ours = detail::with_beginning(name, kPublicNames);
  ours = detail::with_layer(ours, "encoder.blocks.", kPublicBlockNames);
  return detail::with_layer(ours, "decoder.layers.", kPublicLayerNames);
}

/// Translates the public project's tensors, so that the model computes the same from the same frames. Returns
/// a remark about them. Leaves tensors of another origin unchanged, and then returns an empty text.
inline std::string translate_public(looptorch::TensorMap& tensors) {
  if (!tensors.contains("encoder.input_proj.weight") && !tensors.contains("decoder.output_proj.weight"))
    return {};
  looptorch::TensorMap ours;
  for (const auto& [name, tensor] : tensors)
    if (!name.ends_with(".pos_encoding.pe"))  // sinusoids, which this model computes
      detail::add_public(name_from_public(name), tensor, ours);
  tensors = std::move(ours);
  return "names are those of the public KonkaniVani project; it computes frames with another logarithm and not with one "
         "loudness for all clips, so that the first steps adapt";
}

/// Returns the flags that give the model the file's sizes, or that drop weights of other characters.
[[nodiscard]] inline std::string advise_sizes(const looptorch::TensorMap& tensors, const ModelConfig& asked) {
  const auto head = tensors.find("ctc_head.weight");
  if (head == tensors.end() || head->second.dim() != 2) return {};
  const auto characters = head->second.size(0), width = head->second.size(1);
  const auto encoder = detail::count_layers(tensors, "encoder.blocks."),
             decoder = detail::count_layers(tensors, "decoder.layers.");
  if (width != asked.d_model)
    return looptorch::message("The file's model is ", width, " wide with ", encoder, " + ", decoder,
                              " layers: give --d-model ", width, " --encoder-layers ", encoder,
                              " --decoder-layers ", decoder,
                              tensors.contains("encoder.linear.weight") ? " --subsampling 1" : "");
  if (characters == asked.vocabulary) return {};
  return looptorch::message("The file has ", characters, " characters and the training texts ",
                            asked.vocabulary, ": ", kWithoutCharacters, " begins them anew");
}

/// Throws VocabularyError if a vocabulary.json beside the loaded weights exists and has other characters than
/// `vocabulary`.
inline void require_same_characters(const std::filesystem::path& file, const Vocabulary& vocabulary) {
  std::error_code none;
  const auto beside =
      (std::filesystem::is_directory(file, none) ? file : file.parent_path()) / "vocabulary.json";
  if (!std::filesystem::exists(beside, none) || load_vocabulary(beside) == vocabulary) return;
  throw VocabularyError(looptorch::message(beside.string(),
                                           ": the training texts have other characters than the model of ",
                                           file.string(), ": ", kWithoutCharacters, " begins them anew"));
}

/// Loads the weights of --weights into the model, or reports that a resumed run does not read them. Throws
/// what looptorch::app::load_first_weights throws, and VocabularyError.
inline void begin_from_weights(const KonkaniVani& model, const looptorch::app::FirstWeights& weights,
                               const Vocabulary& vocabulary, bool resumes) {
  const auto advise = [&](const looptorch::TensorMap& tensors) {
    return advise_sizes(tensors, model->config());
  };
  const auto report = looptorch::app::begin_from_weights(
      *model, weights, resumes, {.parts = {}, .translate = translate_public, .advise = advise});
  for (const char* const of_characters :
       {"ctc_head.weight", "decoder.embedding.weight", "decoder.output.weight"})
    if (report.has(of_characters)) return require_same_characters(weights.file, vocabulary);
}

}  // namespace konkanivani
