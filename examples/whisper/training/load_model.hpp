// SPDX-License-Identifier: MIT
// Loads the model of a fine-tuning run and applies the options that change it: adapters, types of weights,
// frozen parts. Also computes a model's identity, by which a resumed run notices that it was given other
// weights.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/hash/tensor_hash.hpp>
#include <looptorch/shapes_only/shapes_only.hpp>
#include <looptorch/state/weights/finite_weights.hpp>

#include "../decoding/recognizer.hpp"
#include "../model/adapters.hpp"
#include "../model/model.hpp"
#include "options.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace whisper {

/// Returns the model as the run trains it. Converts it and adds adapters on the host, so that the device
/// never holds wider weights than the run's.
[[nodiscard]] inline Recognizer load_model(const FinetuneOptions& options, at::Device device) {
  auto recognizer = load_recognizer(options.model, at::kCPU, options.language, options.memory.dtype());
  looptorch::require_finite_weights(*recognizer.model, options.model.string());
  options.apply(recognizer);
  options.memory.apply(recognizer.model);
  recognizer.model->to(device);
  return recognizer;
}

/// Returns the model's tokenizer, settings and sizes. Its weights take no memory and have no values.
[[nodiscard]] inline Recognizer load_sizes(const FinetuneOptions& options) {
  const looptorch::ShapesOnly shapes_only;
  auto recognizer = load_recognizer(options.model, at::kCPU, options.language, at::kBFloat16);
  options.apply(recognizer);
  return recognizer;
}

/// Returns a text that identifies the weights: a hash of the beginning of each parameter, adapters left out.
[[nodiscard]] inline std::string weights_identity(const Whisper& model) {
  constexpr std::int64_t kElements = 4096;
  std::string hashes;
  for (const auto& item : model->named_parameters()) {
    if (item.key().find("lora_") != std::string::npos) continue;
    const auto elements = item.value().detach().flatten();
    hashes +=
        std::to_string(looptorch::stable_hash(elements.narrow(0, 0, std::min(kElements, elements.numel()))));
  }
  return looptorch::message("weights ", looptorch::stable_hash(hashes));
}

}  // namespace whisper
