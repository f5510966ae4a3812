// SPDX-License-Identifier: MIT
// ExportedModel: reads a .pt2, written by torch.export.save or by export_model, as a module that can be
// trained. All policies work as on a module written in C++. Read this header before the others of this
// folder. Its ProgramFile holds what was read; its ModelRunner runs the program through LibTorch's
// dispatcher.
#pragma once

#include <looptorch/base/tensors/tensor_map.hpp>
#include <looptorch/base/text/first_few.hpp>
#include <looptorch/exported/archive/exported_error.hpp>
#include <looptorch/exported/graph/signature.hpp>
#include <looptorch/exported/module/model_runner.hpp>
#include <looptorch/exported/module/program_file.hpp>
#include <looptorch/exported/module/training_modes.hpp>
#include <looptorch/memory/recompute/checkpointed_call.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {

/// The module behind ExportedModel. Its parameters, buffers and modules have Python's names.
class ExportedModelImpl : public torch::nn::Module {
 public:
  /// Reads the file. Its tensors are mapped: do not change the file in place while the model lives. Weights
  /// are on the CPU, and require gradients as they did when they were exported. Throws FileError, and
  /// ExportedModelError for a file that is damaged or needs unsupported features.
  explicit ExportedModelImpl(const std::filesystem::path& path)
      : torch::nn::Module("ExportedModel"), program_(path, *this), runner_(program_, *this) {}

  /// Takes all inputs in the order of `inputs()`, and returns the outputs in the order of `output_names()`.
  /// Throws UsageError for inputs of a wrong number, type or size.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& inputs) {
    warn_once_of_modes();
    return runner_.run(inputs);
  }
  template <std::convertible_to<at::Tensor>... More>
  std::vector<at::Tensor> forward(const at::Tensor& first, const More&... more) {
    return forward(std::vector<at::Tensor>{first, more...});
  }
  /// Takes the inputs by their names. Also throws UsageError for a missing or an unknown name.
  std::vector<at::Tensor> forward_by_name(const TensorMap& inputs) {
    return forward(runner_.in_order(inputs));
  }

  /// Returns the names, types and sizes of the inputs.
  [[nodiscard]] const std::vector<ExportedInput>& inputs() const { return program_.signature.inputs; }
  /// Returns the names of the outputs that are tensors: keys of a dictionary, "0", "1", ... of a tuple,
  /// "output" of a tensor.
  [[nodiscard]] const std::vector<std::string>& output_names() const {
    return program_.signature.output_names;
  }
  /// Returns the position of an output. Throws UsageError for an unknown name.
  [[nodiscard]] std::size_t output(const std::string& name) const { return runner_.output(name); }

  /// Returns the training behaviour that this export lacks, such as "dropout of encoder.drop". A model that
  /// was exported in eval mode computes the same in both modes; its first forward in training warns of that.
  /// Empty for a model exported in training mode: its modes switch as in Python.
  [[nodiscard]] const std::vector<std::string>& lacks() const { return program_.modes.lacks; }

  /// Returns the operators that draw random numbers in eval mode, too, such as "bernoulli of drop": they have
  /// no flag for the mode. run_decompositions() turns dropout of channels and AlphaDropout into such
  /// operators. The first forward in eval mode warns of them.
  [[nodiscard]] const std::vector<std::string>& random_in_eval() const {
    return program_.modes.random_in_eval;
  }

  /// Recomputes each module with a matching path, as "encoder.layers.*" (`*`, `?`, `[abc]`), in backward, and
  /// returns their number. Without a pattern, matches modules whose name is a number, as in an
  /// nn.ModuleList or an nn.Sequential. Results keep their bits, as with checkpoint(). Throws UsageError if
  /// no module matches, or if the modules do not run one after the other.
  std::size_t checkpoint_blocks(const std::string& pattern = {}, const CheckpointOptions& options = {}) {
    return runner_.recompute_blocks(pattern, options);
  }
  /// Recomputes the nodes from `first` to `last`, inclusive, which are names in Python. Throws UsageError.
  void checkpoint_between(const std::string& first, const std::string& last,
                          const CheckpointOptions& options = {}) {
    runner_.recompute_between(first, last, options);
  }
  /// Recomputes nothing from now on.
  void checkpoint_nothing() { runner_.recompute_nothing(); }

  /// Returns the program and where it came from, for save_exported.hpp.
  [[nodiscard]] const detail::exported::ProgramFile& program() const { return program_; }

 private:
  void warn_once_of_modes() {
    if (is_training())
      warn_once_if_lacking();
    else
      warn_once_if_random();
  }
  void warn_once_if_lacking() {
    if (lacks().empty() || !at::GradMode::is_enabled() || std::exchange(warned_of_training_, true)) return;
    TORCH_WARN("looptorch: ", program_.path.string(),
               " was exported in eval mode: ", detail::first_few(lacks()),
               " stay as they are while it trains. Call model.train() before torch.export.export for more");
  }
  void warn_once_if_random() {
    if (random_in_eval().empty() || std::exchange(warned_of_eval_, true)) return;
    TORCH_WARN("looptorch: ", program_.path.string(),
               " draws random numbers in eval mode, too: ", detail::first_few(random_in_eval()),
               ". If it does not in Python, export it without run_decompositions(), or in eval mode");
  }

  detail::exported::ProgramFile program_;
  detail::exported::ModelRunner runner_;
  bool warned_of_training_ = false, warned_of_eval_ = false;
};
TORCH_MODULE(ExportedModel);

}  // namespace looptorch
