// SPDX-License-Identifier: MIT
// Saves and loads adapters as a folder that Python's peft reads and writes: adapter_config.json, and
// adapter_model.safetensors with A and B of each layer. Layers must have the names that they have in the
// Python model.
#pragma once

#include <looptorch/adapters/lora.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/files/atomic_file.hpp>
#include <looptorch/base/files/file.hpp>
#include <looptorch/base/json/json.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch {

/// Thrown for an unusable folder of adapters: the message names the file, and the key or tensor at fault. The
/// model is unchanged.
struct LoraError : Error {
  using Error::Error;
};

/// Writes the adapters, merged or not, to `folder`, and creates it if needed. Writes the configuration last,
/// after it has removed one of other adapters, so that an interrupted save does not look complete. `base` is
/// the name or folder of the adapted model, for programs that load both; empty: none. Throws UsageError if
/// the model has no adapters, FileError and SafetensorsError.
void save_lora(const torch::nn::Module& model, const std::filesystem::path& folder,
               const std::string& base = {});

/// Loads adapters that `save_lora` or peft wrote. If the model has no adapters, adds them to the layers that
/// the file names, as `add_lora` does. Otherwise the model's adapters must be on the same layers, with the
/// same options, and get the file's values. Throws UsageError for a model with merged adapters. Throws
/// LoraError for files that hold no LoRA adapters, an unsupported variant (DoRA, trained biases, ranks or
/// alphas by layer, ...), layers that the model does not have as Lora layers, and other shapes. Throws
/// FileError and SafetensorsError. After any error the model is unchanged.
void load_lora(torch::nn::Module& model, const std::filesystem::path& folder);

namespace detail {

inline constexpr const char* kLoraConfigFile = "adapter_config.json";
inline constexpr const char* kLoraWeightsFile = "adapter_model.safetensors";
inline constexpr std::string_view kLoraPrefix = "base_model.model.";

/// Returns the layers' names for peft: a list, or a regular expression if another module's name ends in one
/// of them, since peft matches the names of a list as endings, too.
inline Json target_modules(const torch::nn::Module& model, const std::vector<NamedLora>& layers) {
  std::vector<std::string> names;
  for (const NamedLora& layer : layers) names.push_back(layer.name);
  const auto is_named = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto ends_so = [&](const std::string& name) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& target) { return name.ends_with("." + target); });
  };
  const auto modules = model.named_modules("", false);
  if (std::none_of(modules.begin(), modules.end(),
                   [&](const auto& item) { return ends_so(item.key()) && !is_named(item.key()); }))
    return Json::array(names);
  std::string expression;
  for (const std::string& name : names) {
    expression += expression.empty() ? "(" : "|";
    for (const char c : name) expression += c == '.' ? std::string("\\.") : std::string(1, c);
  }
  return expression + ")";
}

inline Json lora_config(const torch::nn::Module& model, const std::vector<NamedLora>& layers,
                        const std::string& base) {
  const LoraOptions& options = layers.front().layer->adapter_options();
  Json config = Json::object();
  config.set("peft_type", "LORA");
  config.set("base_model_name_or_path", base.empty() ? Json(nullptr) : Json(base));
  config.set("bias", "none");
  config.set("fan_in_fan_out", false);
  config.set("inference_mode", true);
  config.set("lora_alpha", options.alpha);
  config.set("lora_dropout", options.dropout);
  config.set("r", options.rank);
  config.set("target_modules", target_modules(model, layers));
  config.set("task_type", nullptr);
  config.set("use_dora", false);
  config.set("use_rslora", options.rank_stabilized);
  return config;
}

/// True for null, false, an empty list and an empty object: an option of peft that is not used.
inline bool is_unset(const Json& value) {
  return value.is_null() || (value.is_bool() && !value.as_bool()) ||
         (value.is_array() && value.as_array().empty()) || (value.is_object() && value.as_object().empty());
}

inline LoraOptions read_lora_config(const std::filesystem::path& path) {
  try {
    const Json config = load_json(path);
    if (config.at("peft_type") != Json("LORA"))
      throw LoraError(path.string() + ": peft_type is not \"LORA\"");
    for (const char* key :
         {"use_dora", "fan_in_fan_out", "lora_bias", "modules_to_save", "rank_pattern", "alpha_pattern",
          "layer_replication", "trainable_token_indices", "target_parameters", "use_qalora", "use_bdlora",
          "alora_invocation_tokens", "kasa_config", "monteclora_config", "velora_config"})
      if (!is_unset(config.get(key, nullptr)))
        throw LoraError(message(path.string(), ": ", key, " is set, which Lora does not compute"));
    if (config.get("bias", "none") != Json("none"))
      throw LoraError(path.string() + ": bias is not \"none\", and Lora trains no biases");
    const Json start = config.get("init_lora_weights", true);
    if (!start.is_bool() && start != Json("gaussian") && start != Json("orthogonal") && start != Json("eva"))
      throw LoraError(
          message(path.string(), ": init_lora_weights is ", start.dump(),
                  ", which changed the weights that the adapters stand on; have peft convert them"));
    LoraOptions options;
    options.rank = config.at("r").as_int();
    options.alpha = config.at("lora_alpha").as_number();
    options.dropout = config.get("lora_dropout", 0.0).as_number();
    options.rank_stabilized = config.get("use_rslora", false).as_bool();
    check_lora(options);
    return options;
  } catch (const JsonError& error) {
    const std::string what = error.what();
    throw LoraError(what.find(path.string()) == std::string::npos ? message(path.string(), ": ", what)
                                                                  : what);
  } catch (const UsageError& error) {
    throw LoraError(message(path.string(), ": ", error.what()));
  }
}

struct LoraPair {
  at::Tensor a, b;
};

/// Returns the two tensors of each layer by its name.
inline std::map<std::string, LoraPair> read_lora_pairs(const std::filesystem::path& path) {
  constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
  std::map<std::string, LoraPair> pairs;
  const auto file = load_safetensors(path, {.mapped = false});
  for (const auto& [name, tensor] : file.tensors) {
    const bool is_a = name.ends_with(kA);
    if (!name.starts_with(kLoraPrefix) || (!is_a && !name.ends_with(kB)) ||
        name.size() <= kLoraPrefix.size() + kA.size())
      throw LoraError(message(path.string(), ": tensor \"", name, "\" is no adapter's"));
    LoraPair& pair = pairs[name.substr(kLoraPrefix.size(), name.size() - kLoraPrefix.size() - kA.size())];
    (is_a ? pair.a : pair.b) = tensor;
  }
  if (pairs.empty()) throw LoraError(path.string() + ": has no adapters");
  return pairs;
}

inline void check_lora_tensor(const std::filesystem::path& path, const std::string& name,
                              const at::Tensor& tensor, at::IntArrayRef sizes) {
  if (!tensor.defined()) throw LoraError(message(path.string(), ": tensor \"", name, "\" is missing"));
  if (tensor.sizes() != sizes)
    throw LoraError(
        message(path.string(), ": tensor \"", name, "\" is ", tensor.sizes(), " instead of ", sizes));
  if (!tensor.is_floating_point())
    throw LoraError(message(path.string(), ": tensor \"", name, "\" is ", tensor.scalar_type()));
}

/// Returns the Lora layers that the pairs name, in their order.
inline std::vector<NamedLora> match_lora(const torch::nn::Module& model, const std::filesystem::path& path,
                                         const std::map<std::string, LoraPair>& pairs, std::int64_t rank) {
  const auto layers = lora_layers(model);
  std::vector<NamedLora> matched;
  for (const auto& [name, pair] : pairs) {
    const auto found = std::find_if(layers.begin(), layers.end(),
                                    [&, key = name](const NamedLora& layer) { return layer.name == key; });
    if (found == layers.end())
      throw LoraError(message(path.string(), ": the model has no Lora layer \"", name, "\"; it has ",
                              lora_names(layers)));
    const at::Tensor& weight = found->layer->layer().weight;
    check_lora_tensor(path, name + ".lora_A.weight", pair.a, {rank, weight.size(1)});
    check_lora_tensor(path, name + ".lora_B.weight", pair.b, {weight.size(0), rank});
    matched.push_back(*found);
  }
  return matched;
}

/// Throws unless the model's adapters are those of the files.
inline void compare_lora(const std::filesystem::path& folder, const std::vector<NamedLora>& present,
                         const std::vector<NamedLora>& matched, const LoraOptions& options) {
  const LoraOptions& own = present.front().layer->adapter_options();
  if (own.rank != options.rank || own.alpha != options.alpha ||
      own.rank_stabilized != options.rank_stabilized)
    throw LoraError(message(folder.string(), ": rank ", options.rank, " and alpha ", options.alpha,
                            options.rank_stabilized ? " (rank-stabilised)" : "",
                            ", the model's adapters have ", own.rank, " and ", own.alpha,
                            own.rank_stabilized ? " (rank-stabilised)" : ""));
  for (const NamedLora& layer : present) {
    if (layer.layer->is_merged()) throw UsageError("load_lora: the adapters are merged: call unmerge_lora");
    if (std::none_of(matched.begin(), matched.end(),
                     [&](const NamedLora& other) { return other.layer == layer.layer; }))
      throw LoraError(message(folder.string(), ": has no adapter for the model's \"", layer.name, '"'));
  }
  if (matched.size() != present.size())
    throw LoraError(
        message(folder.string(), ": has ", matched.size(), " adapters, the model ", present.size()));
}

}  // namespace detail

inline void save_lora(const torch::nn::Module& model, const std::filesystem::path& folder,
                      const std::string& base) {
  const auto layers = detail::require_adapters(model, "save_lora");
  TensorMap tensors;
  for (const auto& [name, layer] : layers) {
    const std::string stem = std::string(detail::kLoraPrefix) + name;
    tensors.emplace(stem + ".lora_A.weight", layer->a().detach());
    tensors.emplace(stem + ".lora_B.weight", layer->b().detach());
  }
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw FileError(message(folder.string(), ": cannot be made: ", failed.message()));
  const auto config = folder / detail::kLoraConfigFile;
  const std::string text = detail::lora_config(model, layers, base).dump(2) + "\n";
  if (std::filesystem::exists(config, failed) && read_file(config) != text)
    std::filesystem::remove(config, failed);
  save_safetensors(folder / detail::kLoraWeightsFile, tensors, {{"format", "pt"}});
  write_file_atomically(config, text);
}

inline void load_lora(torch::nn::Module& model, const std::filesystem::path& folder) {
  const LoraOptions options = detail::read_lora_config(folder / detail::kLoraConfigFile);
  const auto weights = folder / detail::kLoraWeightsFile;
  const auto pairs = detail::read_lora_pairs(weights);
  const auto layers = detail::match_lora(model, weights, pairs, options.rank);
  if (const auto present = detail::adapted_layers(model); !present.empty())
    detail::compare_lora(folder, present, layers, options);
  else
    detail::attach_lora(model, layers, options);
  const c10::NoGradGuard no_grad;
  for (const auto& [name, layer] : layers) {
    layer->a().copy_(pairs.at(name).a);
    layer->b().copy_(pairs.at(name).b);
  }
}

}  // namespace looptorch
