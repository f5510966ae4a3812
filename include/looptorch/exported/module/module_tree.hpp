// SPDX-License-Identifier: MIT
// Builds the torch::nn modules of an exported model, with the names that they have in Python. The modules
// hold the weights; the program computes. Linear layers can take adapters.
#pragma once

#include <looptorch/adapters/lora_layer.hpp>
#include <looptorch/exported/archive/exported_error.hpp>
#include <looptorch/layers/linear.hpp>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace looptorch::detail::exported {

/// A module of the exported model. It holds weights and has no forward.
struct PartImpl : torch::nn::Module {
  PartImpl() : torch::nn::Module("ExportedPart") {}
};

/// A linear layer of the exported model. Its forward is called where it has an adapter.
class LinearPartImpl final : public LoraImpl<Linear> {
 public:
  /// Takes the tensors as its own. `bias_N` may be undefined.
  LinearPartImpl(const at::Tensor& weight_NK, const at::Tensor& bias_N)
      : LoraImpl<Linear>(torch::nn::LinearOptions(1, 0).bias(bias_N.defined())) {  // draws no random numbers
    options.in_features(weight_NK.size(1)).out_features(weight_NK.size(0));
    parameters_["weight"] = weight = weight_NK;
    if (bias_N.defined()) parameters_["bias"] = bias = bias_N;
  }
};

/// Registers modules and tensors by their paths below a root.
class ModuleTree {
 public:
  explicit ModuleTree(torch::nn::Module& root) : parts_{{"", &root}} {}

  /// Returns the module at a path; makes it if it is missing. Throws ExportedModelError.
  torch::nn::Module& part(const std::string& path) {
    constexpr std::ptrdiff_t kDeepest = 64;
    if (const auto known = parts_.find(path); known != parts_.end()) return *known->second;
    if (std::ranges::count(path, '.') > kDeepest) throw ExportedModelError("has modules more than 64 deep");
    return add(path, std::make_shared<PartImpl>());
  }
  /// Adds a module at a free path.
  template <class Module>
  Module& add(const std::string& path, std::shared_ptr<Module> module) {
    const auto [parent, name] = split(path);
    torch::nn::Module& holder = part(parent);
    check_free(holder, name, path);
    holder.register_module(name, module);
    parts_.emplace(path, module.get());
    return *module;
  }
  [[nodiscard]] bool has(const std::string& path) const { return parts_.contains(path); }

  void add_parameter(const std::string& path, const at::Tensor& tensor) {
    const auto [parent, name] = split(path);
    torch::nn::Module& holder = part(parent);
    check_free(holder, name, path);
    holder.register_parameter(name, tensor, tensor.requires_grad());
  }
  void add_buffer(const std::string& path, const at::Tensor& tensor) {
    const auto [parent, name] = split(path);
    torch::nn::Module& holder = part(parent);
    check_free(holder, name, path);
    holder.register_buffer(name, tensor);
  }

  /// Returns "encoder.layers.0" and "weight".
  static std::pair<std::string, std::string> split(const std::string& path) {
    const auto dot = path.rfind('.');
    if (dot == std::string::npos) return {"", path};
    return {path.substr(0, dot), path.substr(dot + 1)};
  }

 private:
  static void check_free(const torch::nn::Module& holder, const std::string& name, const std::string& path) {
    if (name.empty()) throw ExportedModelError("\"" + path + "\" is no name of a weight or a module");
    if (holder.named_parameters(false).contains(name) || holder.named_buffers(false).contains(name) ||
        holder.named_children().contains(name))
      throw ExportedModelError("two weights or modules are called \"" + path + '"');
  }

  std::map<std::string, torch::nn::Module*> parts_;
};

}  // namespace looptorch::detail::exported
