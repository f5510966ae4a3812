// SPDX-License-Identifier: MIT
// Captures what a checkpointed block reads of its module: modes, buffers, and which parameters are trained.
// When the block runs again, copies replace the buffers. If the block writes to a buffer, the copy has the
// values from before the block's first run. On a CPU, buffers that the block only reads stay in place, since
// another thread may be reading them.
#pragma once

#include <looptorch/memory/recompute/saved_tensors.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace looptorch::detail {

/// The modes, buffers and parameters of a module and its descendants.
class CapturedModule {
  struct Mode {
    torch::nn::Module* module;
    bool training;
  };
  using Modes = std::vector<Mode>;

 public:
  /// Captures `module`, which may be null, and the further buffers `more`.
  CapturedModule(torch::nn::Module* module, const std::vector<at::Tensor>& more) {
    for (const at::Tensor& buffer : more) add_buffer(buffer, module);
    if (!module) return;
    module_ = module->shared_from_this();
    add_module(*module);
  }

  [[nodiscard]] bool has_trained_parameters() const {
    for (const Parameter& parameter : parameters_)
      if (parameter.trained) return true;
    return false;
  }

  template <class Visit>
  void for_each_parameter(Visit&& visit) const {
    for (const Parameter& parameter : parameters_) visit(parameter.tensor);
  }

  /// Ends the first run: keeps copies only of buffers that the block has written to.
  void forget_unchanged() {
    for (auto first = buffers_.begin(); first != buffers_.end();) {
      auto last = first;
      bool changed = false;
      // batch_norm writes to running statistics without raising their version, but raises that of its
      // counter.
      for (; last != buffers_.end() && last->of == first->of; ++last) changed |= last->is_changed();
      for (; first != last; ++first)
        if (!changed) first->before = at::Tensor();
    }
  }

  /// Throws CheckpointError if a parameter has changed since; `how` ends the sentence.
  void check_parameters(std::string_view block, std::string_view how) const {
    for (const Parameter& parameter : parameters_)
      if (parameter.tensor._version() != parameter.version)
        throw CheckpointError(message(block, " cannot be recomputed: its parameter ",
                                      name_of(parameter.tensor), "of shape ", parameter.tensor.sizes(), how));
  }

  /// Throws CheckpointError if a buffer that the block only reads has changed since.
  void check_buffers(std::string_view block) const {
    for (const Buffer& buffer : buffers_)
      if (!buffer.before.defined() && buffer.is_changed())
        throw CheckpointError(message(block, " cannot be recomputed: a buffer of shape ",
                                      buffer.tensor.sizes(),
                                      " that it reads has been changed in place since the forward pass"));
  }

  /// Restores the module to the block's initial state, on copies of its buffers, while it lives.
  class Scope;

 private:
  struct Buffer {
    at::Tensor tensor;
    const torch::nn::Module* of;
    std::int64_t version;
    at::Tensor before;  ///< Its former values; undefined if the block does not write to it.

    [[nodiscard]] bool is_changed() const { return tensor._version() != version; }
  };
  struct Parameter {
    at::Tensor tensor;
    std::int64_t version;
    bool trained;
  };

  /// Reads a module's own parameters; Module::parameters copies their names, which takes ten times as long.
  struct OwnParameters : torch::nn::Module {
    static const auto& of(const torch::nn::Module& module) { return module.*(&OwnParameters::parameters_); }
  };

  /// Adds a module and its descendants, parents first.
  void add_module(torch::nn::Module& module) {
    modes_.push_back({&module, module.is_training()});
    for (const at::Tensor& buffer : module.buffers(/*recurse=*/false)) add_buffer(buffer, &module);
    for (const auto& item : OwnParameters::of(module))
      if (const at::Tensor& parameter = item.value(); parameter.defined())
        parameters_.push_back({parameter, parameter._version(), parameter.requires_grad()});
    for (const auto& child : module.children()) add_module(*child);
  }
  void add_buffer(const at::Tensor& buffer, const torch::nn::Module* of) {
    if (buffer.defined()) buffers_.push_back({buffer, of, buffer._version(), buffer.detach().clone()});
  }

  [[nodiscard]] std::string name_of(const at::Tensor& parameter) const {
    for (const auto& item : module_->named_parameters())
      if (item.value().is_same(parameter)) return message("'", item.key(), "' ");
    return "";
  }

  std::shared_ptr<torch::nn::Module> module_;
  Modes modes_;
  std::vector<Buffer> buffers_;
  std::vector<Parameter> parameters_;
};

class CapturedModule::Scope {
 public:
  explicit Scope(const CapturedModule& state) : Scope() {  // so that a throw below is undone
    for (const Mode& mode : state.modes_) modes_.push_back({mode.module, mode.module->is_training()});
    set(state.modes_);
    for (const Parameter& parameter : state.parameters_) set_trained(parameter);
    replaced_.reserve(state.buffers_.size());
    guarded_.reserve(state.buffers_.size());
    for (const Buffer& buffer : state.buffers_) take(buffer);
  }
  ~Scope() {
    for (const Guarded& each : guarded_) each.restore();
    for (auto each = replaced_.rbegin(); each != replaced_.rend(); ++each) each->restore();
    for (const at::Tensor& parameter : flipped_) parameter.set_requires_grad(!parameter.requires_grad());
    set(modes_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  struct Replaced {
    at::Tensor buffer;
    at::Tensor data;
    c10::VariableVersion version;

    void restore() const {
      buffer.set_data(data);
      torch::autograd::impl::set_version_counter(buffer, version);
    }
  };
  /// Restores a buffer's bytes. Its version does not show a change, since batch_norm writes to running
  /// statistics without raising it.
  struct Guarded {
    at::Tensor buffer;
    at::Tensor copy;

    void restore() const {
      void* const data = buffer.mutable_data_ptr();
      if (std::memcmp(data, copy.const_data_ptr(), copy.nbytes()) != 0)
        std::memcpy(data, copy.const_data_ptr(), copy.nbytes());
    }
  };

  // Sets parents before their children, so that a child's own mode wins.
  static void set(const Modes& modes) {
    for (const Mode& mode : modes)
      if (mode.module->is_training() != mode.training) mode.module->train(mode.training);
  }

  void set_trained(const Parameter& parameter) {
    if (parameter.tensor.requires_grad() == parameter.trained) return;
    flipped_.push_back(parameter.tensor);
    parameter.tensor.set_requires_grad(parameter.trained);
  }

  void take(const Buffer& of) {
    const at::Tensor& buffer = of.tensor;
    if (of.before.defined())
      replace(of, of.before.clone());
    else if (buffer.is_cpu() && buffer.has_storage() && buffer.is_contiguous() && buffer.numel() > 0)
      guarded_.push_back({buffer, buffer.detach().clone()});
    else
      replace(of, buffer.detach().clone());
  }
  /// Replaces the buffer's data and version counter, so that writes to the copy do not count as changes of
  /// the buffer.
  void replace(const Buffer& of, const at::Tensor& copy) {
    const at::Tensor& buffer = of.tensor;
    replaced_.push_back({buffer, buffer.variable_data(), torch::autograd::impl::version_counter(buffer)});
    buffer.set_data(copy);
    torch::autograd::impl::set_version_counter(buffer,
                                               c10::VariableVersion(static_cast<std::uint32_t>(of.version)));
  }

  Scope() = default;

  Modes modes_;
  std::vector<at::Tensor> flipped_;
  std::vector<Replaced> replaced_;
  std::vector<Guarded> guarded_;
};

}  // namespace looptorch::detail
