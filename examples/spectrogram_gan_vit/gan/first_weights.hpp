// SPDX-License-Identifier: MIT
// Loads initial weights of generator and discriminator: from a folder of gan_train, from one file with the
// prefixes "generator." and "discriminator.", or from a checkpoint with a dictionary for each network. Also
// reads layers that PyTorch saved with its spectral norm.
#pragma once

#include <looptorch/app/weights/first_weights.hpp>
#include <looptorch/state/weights/module_state.hpp>

#include "model.hpp"
#include "spectral_norm.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace spectrogram_gan {

/// Suffixes of tensor names: in PyTorch's two spectral norms, and in this example.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kSpectralNames{
    {{".parametrizations.weight.original", ".weight"},
     {".parametrizations.weight.0._u", ".norm.u"},
     {".parametrizations.weight.0._v", ".norm.v"},
     {".weight_orig", ".weight"},
     {".weight_u", ".norm.u"},
     {".weight_v", ".norm.v"}}};

/// Returns this example's name for a tensor of PyTorch's spectral norm; returns other names unchanged.
[[nodiscard]] inline std::string name_from_spectral_norm(std::string_view name) {
  for (const auto& [theirs, ours] : kSpectralNames)
    if (name.ends_with(theirs)) return std::string(name.substr(0, name.size() - theirs.size())).append(ours);
  return std::string(name);
}

/// Translates names. Adds singular vectors to weights that lack them, since those of `gan` would not fit;
/// draws them from LibTorch's generator.
inline void translate_players(const Gan& gan, looptorch::TensorMap& tensors) {
  looptorch::TensorMap ours;
  for (const auto& [name, tensor] : tensors) ours.insert_or_assign(name_from_spectral_norm(name), tensor);
  for (const auto& [name, own] : looptorch::state_dict(gan)) {
    constexpr std::string_view kVector = ".norm.u";
    if (!name.ends_with(kVector) || ours.contains(name)) continue;
    const auto layer = name.substr(0, name.size() - kVector.size());
    const auto weight = ours.find(layer + ".weight");
    if (weight == ours.end() || weight->second.dim() < 2) continue;
    const SpectralNorm norm(weight->second.to(own.scalar_type()));
    ours.insert_or_assign(name, norm->u);
    ours.insert_or_assign(layer + ".norm.v", norm->v);
  }
  tensors = std::move(ours);
}

/// Returns gan_train's options for looptorch::app::begin_from_weights.
[[nodiscard]] inline looptorch::app::FirstWeightsOptions players_of(const Gan& gan) {
  return {.parts = {"generator", "discriminator"},
          .translate =
              [gan](looptorch::TensorMap& tensors) {
                translate_players(gan, tensors);
                return std::string();
              },
          .advise = {}};
}

}  // namespace spectrogram_gan
