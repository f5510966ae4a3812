// SPDX-License-Identifier: MIT
// A dataset of the states that a frozen encoder computes for clips, in place of their log-mel frames. States
// depend only on the clip, so a cache can hold them, and later epochs skip the encoder. A 30 s clip takes 2.3
// MB with Whisper tiny, and 7.7 MB with large.
//
// Shapes: M mel bins, T mel frames, S encoder positions, D width of the model.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/hash/tensor_hash.hpp>
#include <looptorch/policies/autocast.hpp>

#include "../audio/clip_mels.hpp"
#include "../model/model.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

namespace whisper {

/// A frozen encoder. Safe to call from several threads.
class ClipEncoder {
 public:
  /// `autocast`: the type in which the encoder computes; empty: that of its weights.
  explicit ClipEncoder(Whisper model, std::optional<at::ScalarType> autocast = {})
      : model_(std::move(model)), autocast_(autocast), identity_(describe()) {}

  /// Returns the states `[S, D]` of frames `[M, T]`, on the CPU.
  [[nodiscard]] at::Tensor operator()(const at::Tensor& mel_MT) const {
    const torch::NoGradGuard no_grad;
    auto model = model_;
    const auto device = model->encoder()->parameters().front().device();
    std::optional<looptorch::AutocastScope> scope;
    if (autocast_) scope.emplace(device.type(), *autocast_);
    return model->encoder()(mel_MT.unsqueeze(0).to(device)).squeeze(0).to(at::kCPU);
  }

  /// Returns a text that differs for an encoder with other weights or of another type.
  [[nodiscard]] const std::string& identity() const { return identity_; }

 private:
  [[nodiscard]] std::string describe() {
    std::string hashes;
    at::ScalarType type{};
    for (const auto& parameter : model_->encoder()->parameters()) {
      hashes += std::to_string(looptorch::stable_hash(parameter));
      type = parameter.scalar_type();
    }
    return looptorch::message("encoded by ", looptorch::stable_hash(hashes), " in ",
                              autocast_.value_or(type));
  }

  Whisper model_;
  std::optional<at::ScalarType> autocast_;
  std::string identity_;
};

/// A dataset of the states `[S, D]` of clips.
class EncodedClips {
 public:
  EncodedClips(ClipMels clips, ClipEncoder encoder)
      : clips_(std::move(clips)), encoder_(std::move(encoder)) {}

  [[nodiscard]] std::int64_t size() const { return clips_.size(); }
  /// Throws what LogMelReader throws.
  [[nodiscard]] at::Tensor get(std::int64_t index) const { return encoder_(clips_.get(index)); }
  /// Returns the clip's identity for a cache. Throws FileError.
  [[nodiscard]] std::string identity(std::int64_t index) const { return clips_.identity(index); }
  [[nodiscard]] std::filesystem::path path(std::int64_t index) const { return clips_.path(index); }

 private:
  ClipMels clips_;
  ClipEncoder encoder_;
};

}  // namespace whisper
