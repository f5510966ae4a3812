// SPDX-License-Identifier: MIT
// Defines the sizes of a Vision Transformer, checks them, and reads and writes config.json. The file has
// Hugging Face's keys, so that transformers and this example can read each other's folders. An unsupported
// variant is refused by an error that names the key.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/json/config_fields.hpp>
#include <looptorch/base/json/json.hpp>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace spectrogram_vit {

using looptorch::ConfigError;

/// The sizes of an image, of a patch, or of a grid of patches.
struct Extent {
  std::int64_t height = 0, width = 0;

  [[nodiscard]] std::int64_t area() const { return height * width; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// The defaults are ViT-B/16-224. The order of the fields is API.
struct ViTConfig {
  std::int64_t hidden_size = 768;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t intermediate_size = 3072;
  double hidden_dropout = 0, attention_dropout = 0;
  double layer_norm_eps = 1e-12;
  bool qkv_bias = true;
  std::int64_t channels = 3;
  std::int64_t n_mels = 128;  ///< mel bins of the spectrograms that become images
  Extent image = {224, 224}, patch = {16, 16};

  /// Returns how many patches an image has in each direction.
  [[nodiscard]] Extent grid() const { return {image.height / patch.height, image.width / patch.width}; }
  /// Returns the number of tokens: one for each patch, and the class token before them.
  [[nodiscard]] std::int64_t tokens() const { return 1 + grid().area(); }

  friend bool operator==(const ViTConfig&, const ViTConfig&) = default;
};

/// The named sizes. `base` is ViT-B/16-224, and `tiny` is DeiT's. `small` learns from scratch on a CPU: its
/// patches span all pitches, so that a token has all the sound of a moment.
inline constexpr std::array kSizes{
    std::pair<std::string_view, ViTConfig>{"base", {}},
    std::pair<std::string_view, ViTConfig>{
        "tiny", {.hidden_size = 192, .layers = 12, .heads = 3, .intermediate_size = 768}},
    std::pair<std::string_view, ViTConfig>{"small",
                                           {.hidden_size = 96,
                                            .layers = 4,
                                            .heads = 4,
                                            .intermediate_size = 192,
                                            .layer_norm_eps = 1e-6,
                                            .channels = 1,
                                            .n_mels = 64,
                                            .image = {64, 256},
                                            .patch = {64, 4}}}};

namespace detail {

using looptorch::ConfigField;
using looptorch::OnlyValue;

inline constexpr std::int64_t kMaxSize = 1 << 16;

/// All fields except the extents, which are a number or a list of two.
inline constexpr auto kConfigFields = looptorch::config_fields<ViTConfig>(
    looptorch::RequiredValue("model_type", "vit"), OnlyValue("hidden_act", "gelu"),
    ConfigField("hidden_size", &ViTConfig::hidden_size, {.min = 1, .max = kMaxSize}),
    ConfigField("num_hidden_layers", &ViTConfig::layers, {.min = 1, .max = 1024}),
    ConfigField("num_attention_heads", &ViTConfig::heads, {.min = 1, .max = 1024}),
    ConfigField("intermediate_size", &ViTConfig::intermediate_size, {.min = 1, .max = kMaxSize}),
    ConfigField("hidden_dropout_prob", &ViTConfig::hidden_dropout, {.min = 0, .below = 1}).optional(),
    ConfigField("attention_probs_dropout_prob", &ViTConfig::attention_dropout, {.min = 0, .below = 1})
        .optional(),
    ConfigField("layer_norm_eps", &ViTConfig::layer_norm_eps, {.min = 0, .below = 1}),
    ConfigField("qkv_bias", &ViTConfig::qkv_bias).optional(),
    ConfigField("num_channels", &ViTConfig::channels, {.min = 1, .max = 1024}).optional(),
    ConfigField("n_mels", &ViTConfig::n_mels, {.min = 1, .max = 1024}).optional());

[[nodiscard]] inline Extent extent_from(const looptorch::Json& json, const char* key,
                                        std::string_view where) {
  const auto* value = json.as_object().find(key);
  const auto fits = [](const looptorch::Json& size) {
    return size.is_int() && size.as_int() >= 1 && size.as_int() <= kMaxSize;
  };
  if (!value) throw ConfigError(looptorch::message(where, ": ", key, " is missing"));
  if (fits(*value)) return {value->as_int(), value->as_int()};
  if (value->is_array() && value->as_array().size() == 2) {
    const auto& sizes = value->as_array();
    if (fits(sizes[0]) && fits(sizes[1])) return {sizes[0].as_int(), sizes[1].as_int()};
  }
  throw ConfigError(looptorch::message(where, ": ", key, " is ", value->dump(),
                                       "; it must be a size or a list of height and width, 1..", kMaxSize));
}

[[nodiscard]] inline looptorch::Json extent_to_json(Extent extent) {
  if (extent.height == extent.width) return extent.height;
  return looptorch::Json::array({extent.height, extent.width});
}

}  // namespace detail

/// Throws ConfigError, which begins with `where` and names the key, for sizes that make no model.
inline void check_config(const ViTConfig& config, std::string_view where) {
  detail::kConfigFields.check(config, where);
  const auto refuse = [&](const auto&... what) {
    throw ConfigError(looptorch::message(where, ": ", what...));
  };
  if (config.hidden_size % config.heads != 0)
    refuse("num_attention_heads is ", config.heads, ", which does not divide hidden_size ",
           config.hidden_size);
  for (const auto& [which, image, patch] : {std::tuple{"height", config.image.height, config.patch.height},
                                            std::tuple{"width", config.image.width, config.patch.width}}) {
    if (patch < 1 || image < patch || image % patch != 0)
      refuse("an image of ", which, " ", image, " cannot be cut into patches of ", patch);
  }
}

/// Reads and checks a configuration; errors call it `where`. Throws ConfigError.
[[nodiscard]] inline ViTConfig config_from_json(const looptorch::Json& json, std::string_view where) {
  auto config = detail::kConfigFields.read(json, where);
  config.image = detail::extent_from(json, "image_size", where);
  config.patch = detail::extent_from(json, "patch_size", where);
  check_config(config, where);
  return config;
}

/// Loads a config.json. Throws FileError, or ConfigError that names the file.
[[nodiscard]] inline ViTConfig load_config(const std::filesystem::path& path) try {
  return config_from_json(looptorch::load_json(path), path.string());
} catch (const looptorch::JsonError& error) {
  throw ConfigError(error.what());
}

/// Returns the config of a ViTForImageClassification with two regressed outputs.
[[nodiscard]] inline looptorch::Json config_to_json(const ViTConfig& config) {
  using looptorch::Json;
  auto json = detail::kConfigFields.write(config);
  json.set("image_size", detail::extent_to_json(config.image));
  json.set("patch_size", detail::extent_to_json(config.patch));
  json.set("architectures", Json::array({"ViTForImageClassification"}));
  auto names = Json::object();
  names.set("0", "valence").set("1", "arousal");
  return json.set("id2label", names).set("problem_type", "regression").set("torch_dtype", "float32");
}

inline void save_config(const std::filesystem::path& path, const ViTConfig& config) {
  looptorch::write_file_atomically(path, config_to_json(config).dump(2) + "\n");
}

/// Returns the size of that name. Throws looptorch::UsageError, which lists the names, for another.
[[nodiscard]] inline ViTConfig size_named(std::string_view name) {
  std::string names;
  for (const auto& [known, config] : kSizes) {
    if (known == name) return config;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  throw looptorch::UsageError(looptorch::message("there is no ViT size \"", name, "\", only ", names));
}

/// Throws ConfigError with each key in which the model that `where` names differs from the requested one.
inline void require_same_model(const ViTConfig& saved, const ViTConfig& asked, std::string_view where) {
  auto differences = detail::kConfigFields.differences(saved, asked);
  for (const auto& [key, found, wanted] : {std::tuple{"image_size", saved.image, asked.image},
                                           std::tuple{"patch_size", saved.patch, asked.patch}}) {
    if (found == wanted) continue;
    differences += looptorch::message(differences.empty() ? "" : ", ", key, ' ', found.height, 'x',
                                      found.width, " instead of ", wanted.height, 'x', wanted.width);
  }
  if (!differences.empty())
    throw ConfigError(
        looptorch::message(where, ": holds another model than the one asked for: ", differences));
}

}  // namespace spectrogram_vit
