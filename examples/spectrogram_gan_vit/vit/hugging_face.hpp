// SPDX-License-Identifier: MIT
// Loads the weights of a Hugging Face ViT folder (config.json, model.safetensors or its shards) as the
// backbone of a new model, and saves models as such folders. Reads the weights of a ViTModel or of a
// ViTForImageClassification, which puts "vit." before its names. Ignores a classifier and a pooler.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/state/weights/finite_weights.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/module_state.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "config.hpp"
#include "model.hpp"

#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spectrogram_vit {

/// Prefixes of names in transformers, and in this example, where they follow "backbone.". The one with which
/// a name begins is replaced by the other.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNamePrefixes{
    {{"embeddings.cls_token", "class_token"},
     {"embeddings.position_embeddings", "positions"},
     {"embeddings.patch_embeddings.projection.", "patches."},
     {"layernorm.", "norm."}}};
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kBlockNames{
    {{"layernorm_before.", "norm_before."},
     {"attention.attention.query.", "query."},
     {"attention.attention.key.", "key."},
     {"attention.attention.value.", "value."},
     {"attention.output.dense.", "out."},
     {"layernorm_after.", "norm_after."},
     {"intermediate.dense.", "up."},
     {"output.dense.", "down."}}};

namespace detail {

inline constexpr std::string_view kTheirBlocks = "encoder.layer.", kOurBlocks = "blocks.";

/// Replaces the prefix of `name` that `from` selects by the one that `to` selects. Returns an unknown name
/// unchanged.
template <class Names, class From, class To>
[[nodiscard]] std::string with_prefix(std::string_view name, const Names& names, From from, To to) {
  for (const auto& pair : names)
    if (name.starts_with(pair.*from)) return std::string(pair.*to).append(name.substr((pair.*from).size()));
  return std::string(name);
}

template <class From, class To>
[[nodiscard]] std::string translated(std::string_view name, std::string_view from_blocks,
                                     std::string_view to_blocks, From from, To to) {
  if (!name.starts_with(from_blocks)) return with_prefix(name, kNamePrefixes, from, to);
  const auto rest = name.substr(from_blocks.size());
  const auto dot = rest.find('.');
  if (dot == std::string_view::npos) return std::string(name);
  return std::string(to_blocks)
      .append(rest.substr(0, dot + 1))
      .append(with_prefix(rest.substr(dot + 1), kBlockNames, from, to));
}

using Names = std::pair<std::string_view, std::string_view>;

}  // namespace detail

/// Returns the backbone's name for one of transformers', which may begin with "vit."; others unchanged.
[[nodiscard]] inline std::string name_from_hugging_face(std::string_view name) {
  if (name.starts_with("vit.")) name.remove_prefix(4);
  return detail::translated(name, detail::kTheirBlocks, detail::kOurBlocks, &detail::Names::first,
                            &detail::Names::second);
}

/// Returns ViT's name for one of ViTForImageClassification's; others unchanged.
[[nodiscard]] inline std::string name_from_classifier(const std::string& name) {
  constexpr std::string_view kTheirHead = "classifier.";
  if (name.starts_with("vit.")) return "backbone." + name_from_hugging_face(name);
  if (name.starts_with(kTheirHead)) return "head." + name.substr(kTheirHead.size());
  return name;
}

/// Renames tensors from ViTForImageClassification's names to ViT's. Returns no remark.
inline std::string translate_from_classifier(looptorch::TensorMap& tensors) {
  looptorch::TensorMap ours;
  for (const auto& [name, tensor] : tensors) ours.insert_or_assign(name_from_classifier(name), tensor);
  tensors = std::move(ours);
  return {};
}

/// Returns ViTForImageClassification's name for one of ViT's. Names of the normalisation, which transformers
/// lacks, are unchanged.
[[nodiscard]] inline std::string name_for_hugging_face(std::string_view name) {
  constexpr std::string_view kBackbone = "backbone.", kHead = "head.";
  if (name.starts_with(kHead)) return std::string("classifier.").append(name.substr(kHead.size()));
  if (!name.starts_with(kBackbone)) return std::string(name);
  return "vit." + detail::translated(name.substr(kBackbone.size()), detail::kOurBlocks, detail::kTheirBlocks,
                                     &detail::Names::second, &detail::Names::first);
}

/// A pretrained model with a new head, and how the file's tensors were used.
struct Pretrained {
  ViT model{nullptr};
  std::vector<std::string> loaded;   ///< names in the model
  std::vector<std::string> created;  ///< names in the model that got new weights
  std::vector<std::string> left;     ///< names in the file that the model lacks
  looptorch::LoadReport report;      ///< how the file's names were read

  /// Returns one line: "198 tensors loaded; new: head.weight, head.bias; left aside: classifier.bias". It
  /// also counts names that wrappers of Python changed: "renamed: 198 with "module." in front".
  [[nodiscard]] std::string text() const;
};

/// Loads `folder`/config.json and all of the backbone's weights, for spectrograms of `n_mels` bins. Draws the
/// head from LibTorch's generator. Throws ConfigError for another kind of model or an unsupported setting,
/// looptorch::ModuleStateError for tensors that are missing or of another shape, and what
/// looptorch::load_weights throws for the files.
[[nodiscard]] Pretrained load_hugging_face(const std::filesystem::path& folder, std::int64_t n_mels = 128);

/// Writes config.json and model.safetensors into `folder`, which must exist. transformers loads them as a
/// ViTForImageClassification and ignores the normalisation. Throws looptorch::FileError.
void save_vit(const ViT& model, const std::filesystem::path& folder);

/// Loads what save_vit wrote, in eval mode. Throws ConfigError, looptorch::ModuleStateError, which names each
/// tensor that is missing, surplus or of another shape, and what looptorch::load_weights and
/// require_finite_weights throw.
[[nodiscard]] ViT load_vit(const std::filesystem::path& folder);

// ---- Implementation ----

namespace detail {

[[nodiscard]] inline std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 6;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kShown) text += looptorch::message(" and ", names.size() - kShown, " more");
  return text.empty() ? "none" : text;
}

}  // namespace detail

inline std::string Pretrained::text() const {
  return looptorch::message(loaded.size(), " tensors loaded; new: ", detail::listed(created),
                            "; left aside: ", detail::listed(left), report.renamed_text());
}

inline Pretrained load_hugging_face(const std::filesystem::path& folder, std::int64_t n_mels) {
  auto config = load_config(folder / "config.json");
  config.n_mels = n_mels;
  ViTBackbone backbone(config);
  std::map<std::string, std::string> theirs;
  auto report = looptorch::load_weights(backbone, folder,
                                        {.allow_surplus = true, .rename = [&](const std::string& name) {
                                           auto ours = name_from_hugging_face(name);
                                           theirs.emplace(ours, name);
                                           return ours;
                                         }});
  Pretrained result;
  result.model = ViT(std::move(backbone));
  for (const auto& name : report.loaded) result.loaded.push_back("backbone." + name);
  for (const auto& item : result.model->head->named_parameters())
    result.created.push_back("head." + item.key());
  for (const auto& name : report.surplus) result.left.push_back(theirs.at(name));
  result.report = std::move(report);
  return result;
}

inline void save_vit(const ViT& model, const std::filesystem::path& folder) {
  std::filesystem::remove(folder / "config.json");  // which comes last: without it nothing can be loaded
  looptorch::TensorMap renamed;
  for (const auto& [name, tensor] : looptorch::state_dict(model))
    renamed.emplace(name_for_hugging_face(name), tensor);
  looptorch::save_safetensors(folder / "model.safetensors", renamed, {{"format", "pt"}});
  save_config(folder / "config.json", model->config());
}

inline ViT load_vit(const std::filesystem::path& folder) {
  ViT model(load_config(folder / "config.json"));
  const auto file = folder / "model.safetensors";
  looptorch::load_weights(model, file, {.rename = name_from_classifier});
  looptorch::require_finite_weights(model, file.string());
  model->eval();
  return model;
}

}  // namespace spectrogram_vit
