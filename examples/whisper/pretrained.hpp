// SPDX-License-Identifier: MIT
// Loads and saves Whisper models as Hugging Face folders, compatible with `transformers` in both directions.
#pragma once

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include "model.hpp"

#include <array>
#include <filesystem>
#include <memory>
#include <string>

namespace whisper {

/// Builds the model that `folder`/config.json describes, with the weights of `folder`/model.safetensors, or
/// of the files that `folder`/model.safetensors.index.json names, in fp32, on the CPU. Throws a
/// looptorch::Error that names file or folder for one that is missing, damaged, or of another model.
[[nodiscard]] inline Whisper load_pretrained(const std::filesystem::path& folder);

namespace detail {

/// Returns the model with the second name that transformers has for the token embedding, since some tools
/// save it twice. The two must then agree.
inline torch::nn::Module with_output_name(Whisper& model) {
  torch::nn::Module named;
  for (const auto& child : model->named_children()) named.register_module(child.key(), child.value());
  const auto output = named.register_module("proj_out", std::make_shared<torch::nn::Module>());
  output->register_parameter("weight", model->named_parameters()["model.decoder.embed_tokens.weight"]);
  return named;
}

/// Further files of a folder, which training does not change.
inline constexpr std::array kCopiedFiles{"tokenizer.json",
                                         "generation_config.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "normalizer.json",
                                         "added_tokens.json",
                                         "tokenizer_config.json",
                                         "special_tokens_map.json",
                                         "preprocessor_config.json"};

inline void copy_atomically(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (!std::filesystem::exists(from)) return;
  looptorch::write_file_atomically(to, looptorch::read_file(from));
}

/// Returns the source's config.json unchanged, except that the weights are now fp32.
inline std::string fp32_config(const std::filesystem::path& source) {
  auto json = looptorch::load_json(source);
  json.set(json.contains("dtype") ? "dtype" : "torch_dtype", "float32");
  return json.dump(2) + "\n";
}

}  // namespace detail

inline Whisper load_pretrained(const std::filesystem::path& folder) {
  Whisper model(load_config(folder / "config.json"));
  looptorch::load_weights(detail::with_output_name(model), folder);
  return model;
}

/// Writes `model` to `output`, with tokenizer and settings of the folder `source` that it was loaded from.
/// Each file is replaced in one step and the weights come last. Throws looptorch::FileError.
inline void save_pretrained(const Whisper& model, const std::filesystem::path& source,
                            const std::filesystem::path& output) {
  std::filesystem::create_directories(output);
  for (const auto* name : detail::kCopiedFiles) detail::copy_atomically(source / name, output / name);
  looptorch::write_file_atomically(output / "config.json", detail::fp32_config(source / "config.json"));
  looptorch::save_weights(model, output / "model.safetensors");
}

}  // namespace whisper
