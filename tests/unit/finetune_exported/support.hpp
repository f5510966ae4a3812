// SPDX-License-Identifier: MIT
// Data and models for the tests of finetune_exported.
#pragma once

#include "support/precompiled.hpp"

#include <looptorch/export/export_model.hpp>
#include <looptorch/exported/exported_model.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace exported_data {

inline std::filesystem::path write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

/// Writes a float64 array as np.save does.
inline void save_npy(const std::filesystem::path& file, const at::Tensor& array) {
  std::string shape;
  for (const auto size : array.sizes()) shape += std::to_string(size) + ", ";
  std::string text = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + shape + "), }";
  text.resize(117, ' ');
  const auto values = array.to(at::kDouble).contiguous();
  std::ofstream out(file, std::ios::binary);
  out << "\x93NUMPY\x01" << '\0' << '\x76' << '\0' << text << '\n';
  out.write(static_cast<const char*>(values.const_data_ptr()), static_cast<std::streamsize>(values.nbytes()));
}

/// Has one weight, 1.
struct ScaledImpl : torch::nn::Module {
  at::Tensor scale = register_parameter("scale", torch::ones({1}));
};
TORCH_MODULE(Scaled);

/// Writes and reads a model of one input, "x" with the sizes of `example` and an open batch, whose output
/// `name` is x times its weight.
inline looptorch::ExportedModel scores_model(const std::filesystem::path& file, const at::Tensor& example,
                                             const std::string& name = "logits") {
  Scaled net;
  looptorch::export_model(net, [](Scaled& scaled, const at::Tensor& x) { return x * scaled->scale; }, example,
                          file,
                          {.input_names = {"x"},
                           .output_names = {name},
                           .dynamic = {looptorch::DynamicDim{.name = "batch", .places = {{0, 0}}}}});
  return looptorch::ExportedModel(file);
}

/// Writes and reads a model of the inputs "x" `[B, 3]` and "labels" `[B]`, whose outputs are "loss", the mean
/// of x times its weight and of the labels, and "logits", x times the weight.
inline looptorch::ExportedModel loss_model(const std::filesystem::path& file) {
  Scaled net;
  looptorch::export_model(net,
                          [](Scaled& scaled, const at::Tensor& x, const at::Tensor& labels) {
                            const at::Tensor scores = x * scaled->scale;
                            return std::tuple{scores.mean() + labels.to(at::kFloat).mean(), scores};
                          },
                          std::tuple{torch::rand({2, 3}), torch::tensor({0, 1})}, file,
                          {.input_names = {"x", "labels"},
                           .output_names = {"loss", "logits"},
                           .dynamic = {looptorch::DynamicDim{.name = "batch", .places = {{0, 0}, {1, 0}}}}});
  return looptorch::ExportedModel(file);
}

}  // namespace exported_data
