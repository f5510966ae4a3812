// SPDX-License-Identifier: MIT
// Loads a folder of low-rank adapters, as Python's peft saves it, and the model that they adapt:
// adapter_config.json names the model, and adapter_model.safetensors holds a few MB of adapters. A program
// for inference merges the adapters into the weights as it loads the model, and then runs as fast as without
// adapters.
#pragma once

#include <looptorch/adapters/lora_files.hpp>
#include <looptorch/app/weights/hub_model.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/json/json.hpp>

#include "model.hpp"

#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace whisper {

namespace detail {

inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterWeights = "adapter_model.safetensors";
inline constexpr int kMostAdapters = 16;  // most adapters in a chain down to a model

}  // namespace detail

/// True if the folder holds adapters, and not a model's weights.
[[nodiscard]] inline bool holds_adapters(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / detail::kAdapterConfig);
}

/// Returns the folder of the model that the adapters of `folder` name: relative to `folder`, relative to the
/// current folder, or in the download cache. Throws LoraError if there is none.
[[nodiscard]] inline std::filesystem::path adapted_folder(const std::filesystem::path& folder) {
  const auto file = folder / detail::kAdapterConfig;
  const auto named = looptorch::load_json(file).get("base_model_name_or_path", nullptr);
  if (!named.is_string() || named.as_string().empty())
    throw looptorch::LoraError(looptorch::message(
        file.string(),
        ": names no model that the adapters are for: set \"base_model_name_or_path\" to its folder"));
  bool is_itself = false;
  for (const auto& path : {folder / named.as_string(), std::filesystem::path(named.as_string())}) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) continue;
    if (!std::filesystem::equivalent(path, folder, error)) return path;
    is_itself = true;
    break;
  }
  if (is_itself)
    throw looptorch::LoraError(looptorch::message(
        file.string(), ": the adapters are for ", named.as_string(),
        ", which is this folder itself: set \"base_model_name_or_path\" to the folder of the model that they adapt"));
  try {
    const auto downloaded = looptorch::app::model_folder(named.as_string());
    if (downloaded != named.as_string()) return downloaded;
  } catch (const looptorch::UsageError& error) {
    throw looptorch::LoraError(looptorch::message(file.string(), ": the adapters are for ", error.what()));
  }
  throw looptorch::LoraError(looptorch::message(
      file.string(), ": the adapters are for ", named.as_string(),
      ", which is no folder here: set \"base_model_name_or_path\" to the folder of that model"));
}

/// Returns the folder with the tokenizer and settings of the model in `folder`. With adapters that is the
/// adapted model's folder, since peft writes neither. Throws LoraError for adapters that adapt each other.
[[nodiscard]] inline std::filesystem::path described_by(std::filesystem::path folder) {
  for (int i = 0; i < detail::kMostAdapters; ++i) {
    if (!holds_adapters(folder) || std::filesystem::exists(folder / "config.json")) return folder;
    folder = adapted_folder(folder);
  }
  throw looptorch::LoraError(
      looptorch::message((folder / detail::kAdapterConfig).string(),
                         ": these adapters are for others, and those for others still: no model in ",
                         detail::kMostAdapters, " folders"));
}

/// Returns the folders from which a model is read: `folder` and, if it holds adapters, the folders of what
/// they adapt, down to a model. Throws what adapted_folder throws.
[[nodiscard]] inline std::vector<std::filesystem::path> folders_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> all{folder};
  while (holds_adapters(all.back()) && std::ssize(all) <= detail::kMostAdapters)
    all.push_back(adapted_folder(all.back()));
  return all;
}

/// Adds the adapters of `folder` to the weights. Throws what load_lora throws.
inline void merge_adapters(Whisper& model, const std::filesystem::path& folder) {
  std::vector<std::pair<at::Tensor, bool>> trained;
  for (const auto& parameter : model->parameters())
    trained.emplace_back(parameter, parameter.requires_grad());
  looptorch::load_lora(*model, folder);
  looptorch::fold_lora(*model);
  for (const auto& [parameter, is_trained] : trained) parameter.set_requires_grad(is_trained);
}

/// Throws UsageError if `output` is the model's folder or one that its adapters adapt: the run would replace
/// weights that it begins with. Throws what adapted_folder throws.
inline void require_other_folder(const std::filesystem::path& output, const std::filesystem::path& model) {
  std::error_code none;
  for (const auto& folder : folders_of(model))
    if (std::filesystem::equivalent(output, folder, none))
      throw looptorch::UsageError(
          looptorch::message("--output ", output.string(), " is the folder of ",
                             folder == model ? "--model" : "the model that the adapters of --model are for",
                             ", whose weights the run would replace: choose another folder"));
}

/// Throws UsageError if adapters written to `output` would replace a whole model.
inline void require_room_for_adapters(const std::filesystem::path& output) {
  std::error_code none;
  if (std::filesystem::exists(output / "model.safetensors", none))
    throw looptorch::UsageError(looptorch::message(
        "--output ", output.string(),
        " holds a whole model, model.safetensors, whose place adapters would take: choose another folder"));
}

/// Removes adapters from a folder that gets a model of its own.
inline void remove_adapters(const std::filesystem::path& folder) {
  for (const auto* name : {detail::kAdapterConfig, detail::kAdapterWeights})
    std::filesystem::remove(folder / name);
}

}  // namespace whisper
