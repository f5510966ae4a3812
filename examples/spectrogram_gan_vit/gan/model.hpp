// SPDX-License-Identifier: MIT
// Generator and discriminator as one model, saved as a folder of config.json, generator.safetensors and
// discriminator.safetensors.
//
// Shapes: B batch, Z latent numbers, M mel bins, F frames.
#pragma once

#include <looptorch/state/snapshot/snapshot_folder.hpp>
#include <looptorch/state/weights/finite_weights.hpp>
#include <looptorch/state/weights/load_weights.hpp>
#include <looptorch/state/weights/save_weights.hpp>

#include "config.hpp"
#include "discriminator.hpp"
#include "generator.hpp"

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <span>

namespace spectrogram_gan {

/// The two networks. Buffers hold what training keeps besides the weights, so that it is in snapshots:
/// `accepted` and `fooled`, the recent shares of real and of generated spectrograms that the discriminator
/// judged real, and `instance_noise`, the deviation of the noise in its input.
class GanImpl : public torch::nn::Module {
 public:
  /// Builds the networks. Throws ConfigError for invalid sizes.
  explicit GanImpl(const GanConfig& config) : config_(config) {
    check_config(config, "Gan");
    generator = register_module("generator", Generator(config));
    discriminator = register_module("discriminator", Discriminator(config));
    accepted = register_buffer("accepted", at::full({}, 0.5));
    fooled = register_buffer("fooled", at::full({}, 0.5));
    instance_noise = register_buffer("instance_noise", at::zeros({}));
  }

  /// Returns noise `[count, Z]` in the type and on the device of the generator's weights.
  [[nodiscard]] at::Tensor draw_latents(std::int64_t count) const {
    return at::randn({count, config_.latent}, generator->seed->weight.options().requires_grad(false));
  }

  /// Returns a spectrogram `[B, 1, M, F]` for each condition `[B, 2]`, from fresh noise.
  [[nodiscard]] at::Tensor generate(const at::Tensor& conditions_B2) {
    return generator(draw_latents(conditions_B2.size(0)), conditions_B2);
  }

  /// Updates `accepted` or `fooled` by the discriminator's logits, as a mean over about the last ten calls.
  static void observe(at::Tensor& share, const at::Tensor& logits_B) {
    const torch::NoGradGuard no_grad;
    share.lerp_((logits_B > 0).to(share.scalar_type()).mean(), 0.1);
  }

  [[nodiscard]] const GanConfig& config() const { return config_; }

  Generator generator{nullptr};
  Discriminator discriminator{nullptr};
  at::Tensor accepted, fooled, instance_noise;

 private:
  GanConfig config_;
};
TORCH_MODULE(Gan);

[[nodiscard]] inline std::int64_t count_parameters(const torch::nn::Module& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

/// Writes both networks and config.json, without which they cannot be loaded, into `folder`, which must
/// exist.
inline void save_model(const Gan& gan, const std::filesystem::path& folder) {
  std::filesystem::remove(folder / "config.json");
  looptorch::save_weights(gan->discriminator, folder / "discriminator.safetensors");
  looptorch::save_weights(gan->generator, folder / "generator.safetensors");
  save_config(folder / "config.json", gan->config());
}

/// Loads the averaged weights of a step from the first snapshot folder that has a snapshot of it. Returns
/// false if none has. Throws SnapshotError for a damaged snapshot.
[[nodiscard]] inline bool load_averages(const Gan& gan, std::int64_t step,
                                        std::span<const std::filesystem::path> folders) {
  for (const auto& folder : folders) {
    for (const auto& [at_step, path] : looptorch::list_snapshots(folder)) {
      if (at_step != step) continue;
      looptorch::verify_snapshot(path);
      looptorch::load_weights(gan, path / "model.averaged.safetensors");
      return true;
    }
  }
  return false;
}

/// Loads the generator of `folder`, in eval mode.
[[nodiscard]] inline Generator load_generator(const std::filesystem::path& folder) {
  Generator generator(load_config(folder / "config.json"));
  const auto file = folder / "generator.safetensors";
  looptorch::load_weights(generator, file);
  looptorch::require_finite_weights(generator, file.string());
  generator->eval();
  return generator;
}

}  // namespace spectrogram_gan
