// SPDX-License-Identifier: MIT
// Files for tests/export: models in both formats, with inputs and the outputs that C++ computes for them.
#pragma once

#include <looptorch/export/export_model.hpp>

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace export_tests {

/// Writes `NAME.cases`: how many inputs and outputs a case has, then the inputs and outputs of each.
class Exports {
 public:
  using Tensors = std::vector<at::Tensor>;

  explicit Exports(std::filesystem::path folder) : folder_(std::move(folder)) {}

  [[nodiscard]] std::filesystem::path path(const std::string& file) const { return folder_ / file; }

  /// Exports a model twice, and writes its cases.
  template <class Model, class Forward, class Example>
  void add(const std::string& name, Model& model, Forward forward, const Example& example,
           const looptorch::ExportOptions& options, const std::vector<Example>& cases) {
    for (const char* suffix : {".pt2", ".ts"})
      looptorch::export_model(model, forward, example, path(name + suffix), options);
    add_cases(name, model, forward, cases);
  }

  template <class Model, class Forward, class Example>
  void add_cases(const std::string& name, Model& model, Forward forward, const std::vector<Example>& cases) {
    model->eval();
    const torch::NoGradGuard no_grad;
    Tensors all;
    for (const auto& each : cases) {
      const auto in = looptorch::detail::tensors_of(each);
      const auto out = looptorch::detail::tensors_of(
          std::apply([&](const auto&... x) { return forward(model, x...); }, as_tuple(each)));
      if (all.empty())
        all.push_back(
            torch::tensor({static_cast<std::int64_t>(in.size()), static_cast<std::int64_t>(out.size())}));
      all.insert(all.end(), in.begin(), in.end());
      all.insert(all.end(), out.begin(), out.end());
    }
    torch::save(all, path(name + ".cases").string());
  }

 private:
  static std::tuple<at::Tensor> as_tuple(const at::Tensor& one) { return {one}; }
  template <class... Each>
  static const std::tuple<Each...>& as_tuple(const std::tuple<Each...>& several) {
    return several;
  }

  std::filesystem::path folder_;
};

}  // namespace export_tests
