// SPDX-License-Identifier: MIT
// Loads the model of a fine-tuning run and applies the options that change it: adapters, types of weights,
// frozen parts.
#pragma once

#include <looptorch/shapes_only/shapes_only.hpp>
#include <looptorch/state/weights/finite_weights.hpp>

#include "../decoding/recognizer.hpp"
#include "../model/adapters.hpp"
#include "options.hpp"

#include <ATen/core/Tensor.h>

namespace whisper {

/// Returns the model as the run trains it. Converts and extends it on the host first, so that the device
/// never holds wider weights than the run's.
[[nodiscard]] inline Recognizer load_model(const FinetuneOptions& options, at::Device device) {
  auto recognizer = load_recognizer(options.model, at::kCPU, options.language, options.memory.dtype());
  looptorch::require_finite_weights(*recognizer.model, options.model.string());
  options.apply(recognizer);
  options.memory.apply(recognizer.model);
  recognizer.model->to(device);
  return recognizer;
}

/// Returns the model's tokenizer, settings and sizes; its weights take no memory and have no values.
[[nodiscard]] inline Recognizer load_sizes(const FinetuneOptions& options) {
  const looptorch::ShapesOnly shapes_only;
  auto recognizer = load_recognizer(options.model, at::kCPU, options.language, at::kBFloat16);
  options.apply(recognizer);
  return recognizer;
}

}  // namespace whisper
