// SPDX-License-Identifier: MIT
// Loads and saves Whisper models as Hugging Face folders, compatible with `transformers` in both directions.
#pragma once

#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include "adapters.hpp"
#include "model.hpp"

#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace whisper {

/// Builds the model that `folder`/config.json describes, with the weights of `folder`/model.safetensors, or
/// of the files that `folder`/model.safetensors.index.json names, on the CPU. If the folder holds adapters,
/// merges them into the model that they name. The model has `dtype` whatever the files have: fp32, or 16 bits
/// to transcribe with. Throws a looptorch::Error that names a file or folder that is missing, damaged, or of
/// another model. Accepts weights that wrappers of Python renamed, and lists them in `report`.
[[nodiscard]] inline Whisper load_pretrained(const std::filesystem::path& folder,
                                             at::ScalarType dtype = at::kFloat,
                                             looptorch::LoadReport* report = nullptr);

/// Returns the type that a flag names: fp32, fp16 or bf16.
[[nodiscard]] inline at::ScalarType dtype_of(std::string_view flag) {
  return flag == "fp16" ? at::kHalf : flag == "bf16" ? at::kBFloat16 : at::kFloat;
}

/// Returns transformers' name of such a type, which config.json has.
[[nodiscard]] inline const char* dtype_name(at::ScalarType dtype) {
  return dtype == at::kHalf ? "float16" : dtype == at::kBFloat16 ? "bfloat16" : "float32";
}

namespace detail {

/// Sets the type of new tensors while it lives, so that a 16-bit model never exists in 32 bits. Process-wide.
class DefaultDtype {
 public:
  explicit DefaultDtype(at::ScalarType type) : before_(c10::get_default_dtype()) {
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(type));
  }
  ~DefaultDtype() { c10::set_default_dtype(before_); }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  caffe2::TypeMeta before_;
};

/// Returns a model of `config` whose parameters all have `dtype`.
inline Whisper make_model(const WhisperConfig& config, at::ScalarType dtype) {
  const DefaultDtype scope(dtype);
  Whisper model(config);
  model->to(dtype);  // converts buffers that were computed in fp32
  return model;
}

/// Returns the model with transformers' second name for the token embedding. Some tools save it under both
/// names; the two must then agree.
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

/// Returns the source's config.json unchanged, except that it names the weights' type.
inline std::string config_with(const std::filesystem::path& source, at::ScalarType dtype) {
  auto json = looptorch::load_json(source);
  json.set(json.contains("dtype") ? "dtype" : "torch_dtype", dtype_name(dtype));
  return json.dump(2) + "\n";
}

}  // namespace detail

inline Whisper load_pretrained(const std::filesystem::path& folder, at::ScalarType dtype,
                               looptorch::LoadReport* report) {
  if (holds_adapters(folder)) {
    (void)described_by(folder);  // throws for adapters that adapt each other
    auto model = load_pretrained(adapted_folder(folder), dtype, report);
    merge_adapters(model, folder);
    return model;
  }
  auto model = detail::make_model(load_config(folder / "config.json"), dtype);
  auto loaded = looptorch::load_weights(detail::with_output_name(model), folder);
  if (report != nullptr) *report = std::move(loaded);
  return model;
}

/// Copies the files that describe the model of `source`, tokenizer and settings, to `output`.
inline void copy_settings(const std::filesystem::path& source, const std::filesystem::path& output,
                          at::ScalarType dtype) {
  std::filesystem::create_directories(output);
  const auto described = described_by(source);
  for (const auto* name : detail::kCopiedFiles) detail::copy_atomically(described / name, output / name);
  looptorch::write_file_atomically(output / "config.json",
                                   detail::config_with(described / "config.json", dtype));
}

/// Writes `model` to `output`, with tokenizer and settings of the folder `source` that it was loaded from,
/// and the weights in `dtype`. Each file is replaced in one step and the weights come last. Throws
/// looptorch::FileError, and looptorch::UsageError for a weight that `dtype` cannot hold.
inline void save_pretrained(const Whisper& model, const std::filesystem::path& source,
                            const std::filesystem::path& output, at::ScalarType dtype = at::kFloat) {
  copy_settings(source, output, dtype);
  remove_adapters(output);
  looptorch::save_weights(model, output / "model.safetensors", {}, dtype);
}

/// Writes the adapters of `model` to `output`, in the layout of Python's peft, with tokenizer and settings of
/// the folder `source` that the model was loaded from. A later load_pretrained needs that folder, too. Throws
/// looptorch::FileError, and looptorch::UsageError for a model without adapters.
inline void save_adapters(const Whisper& model, const std::filesystem::path& source,
                          const std::filesystem::path& output) {
  copy_settings(source, output, at::kFloat);
  std::filesystem::remove(output / "model.safetensors");
  looptorch::save_lora(*model, output, std::filesystem::absolute(source).lexically_normal().string());
}

}  // namespace whisper
