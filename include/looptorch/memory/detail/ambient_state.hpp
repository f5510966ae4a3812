// SPDX-License-Identifier: MIT
// What a block reads besides its arguments: random generators, autocast, its modules' buffers, modes and
// parameters. Captured when it runs, put back while it runs again, and afterwards as if it had not.
#pragma once

#include <looptorch/memory/detail/saved_tensors.hpp>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The devices of a block, the CPU among them.
class DeviceSet {
 public:
  void add(at::Device device) {
    for (const at::Device& known : devices_)
      if (known == device) return;
    devices_.push_back(device);
  }
  [[nodiscard]] auto begin() const { return devices_.begin(); }
  [[nodiscard]] auto end() const { return devices_.end(); }

 private:
  std::vector<at::Device> devices_{at::Device(at::kCPU)};
};

/// The states of the default random generators of some devices.
class RandomState {
 public:
  RandomState() = default;
  explicit RandomState(const DeviceSet& devices) {
    for (const at::Device& device : devices) {
      if (!device.is_cpu() && !device.is_cuda()) continue;
      const at::Generator& generator = at::globalContext().defaultGenerator(device);
      states_.emplace_back(generator, state_of(generator));
    }
  }

  /// Forgets the generators that are at the same state in `other`, which is of the same devices.
  void forget_equal(const RandomState& other) {
    std::size_t i = 0;
    std::erase_if(states_, [&](const auto& entry) { return same(entry.second, other.states_[i++].second); });
  }

  /// Puts the generators to these states.
  void apply() const {
    for (const auto& [generator, state] : states_) set(generator, state);
  }

  /// Puts the generators to these states while it lives.
  class Scope {
   public:
    explicit Scope(const RandomState& state) {
      for (const auto& [generator, then] : state.states_) {
        met_.emplace_back(generator, state_of(generator));
        set(generator, then);
      }
    }
    ~Scope() {
      for (const auto& [generator, state] : met_) set(generator, state);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::vector<std::pair<at::Generator, at::Tensor>> met_;
  };

 private:
  static at::Tensor state_of(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    return generator.get_state();
  }
  static bool same(const at::Tensor& a, const at::Tensor& b) {
    return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
  }
  static void set(at::Generator generator, const at::Tensor& state) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }

  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// Autocast as it stood on this thread. It is a thread's own, and backward may run on another one.
class AutocastState {
 public:
  explicit AutocastState(const DeviceSet& devices) : cached_(at::autocast::is_autocast_cache_enabled()) {
    for (const at::Device& device : devices) {
      const at::DeviceType type = device.type();
      if (!at::autocast::is_autocast_available(type)) continue;
      types_.push_back(
          {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
    }
  }

  class Scope;

 private:
  struct OfDevice {
    at::DeviceType device;
    bool enabled;
    at::ScalarType type;
  };

  void apply() const {
    for (const OfDevice& of : types_) {
      at::autocast::set_autocast_enabled(of.device, of.enabled);
      at::autocast::set_autocast_dtype(of.device, of.type);
    }
    at::autocast::set_autocast_cache_enabled(cached_);
  }

  std::vector<OfDevice> types_;
  bool cached_;
};

/// The thread's autocast is as it was then while it lives.
class AutocastState::Scope {
 public:
  Scope(const AutocastState& state, const DeviceSet& devices) : met_(devices) {
    state.apply();
    at::autocast::increment_nesting();
  }
  ~Scope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    met_.apply();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  AutocastState met_;
};

/// The modes, buffers and parameters of a module and its descendants.
class ModuleState {
  using Modes = std::vector<std::pair<torch::nn::Module*, bool>>;

 public:
  ModuleState() = default;
  /// Of no module where `module` is null; `more` are further buffers.
  ModuleState(torch::nn::Module* module, const std::vector<at::Tensor>& more) {
    for (const at::Tensor& buffer : more) add_buffer(buffer);
    if (!module) return;
    module_ = module->shared_from_this();
    modes_ = modes_of(*module_);
    for (const at::Tensor& buffer : module_->buffers()) add_buffer(buffer);
    for (const at::Tensor& parameter : module_->parameters())
      parameters_.emplace_back(parameter, parameter._version());
  }

  /// Each with its version then.
  [[nodiscard]] const std::vector<std::pair<at::Tensor, std::uint32_t>>& parameters() const {
    return parameters_;
  }

  /// Call when the block has run: keeps copies of those buffers only that it has written to.
  void forget_unchanged() {
    for (Buffer& buffer : buffers_)
      if (buffer.tensor._version() == buffer.version) buffer.before = at::Tensor();
  }

  /// Throws CheckpointError where a parameter has been changed since.
  void check_parameters(const std::string& block) const {
    for (const auto& [parameter, version] : parameters_)
      if (parameter._version() != version)
        throw CheckpointError(message(block, " cannot be recomputed: its parameter ", name_of(parameter),
                                      "of shape ", parameter.sizes(),
                                      " has been changed in place since the forward pass"));
  }

  /// While it lives the module is as it was when the block began, on copies of its buffers.
  class Scope {
   public:
    explicit Scope(const ModuleState& state) {
      if (state.module_) met_ = modes_of(*state.module_);
      set(state.modes_);
      for (const Buffer& buffer : state.buffers_) {
        buffers_.emplace_back(buffer.tensor, buffer.tensor.variable_data());
        buffer.tensor.set_data((buffer.before.defined() ? buffer.before : buffers_.back().second).clone());
      }
    }
    ~Scope() {
      for (const auto& [buffer, data] : buffers_) buffer.set_data(data);
      set(met_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Modes met_;
    std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;
  };

 private:
  struct Buffer {
    at::Tensor tensor;
    std::uint32_t version;
    at::Tensor before;  ///< What it held; undefined where the block does not write to it.
  };

  static Modes modes_of(const torch::nn::Module& module) {
    Modes modes;
    for (const auto& each : module.modules()) modes.emplace_back(each.get(), each->is_training());
    return modes;
  }
  // Parents come before their children, so that a child's own mode has the last word.
  static void set(const Modes& modes) {
    for (const auto& [module, training] : modes)
      if (module->is_training() != training) module->train(training);
  }

  void add_buffer(const at::Tensor& buffer) {
    if (buffer.defined())
      buffers_.push_back({buffer, static_cast<std::uint32_t>(buffer._version()), buffer.detach().clone()});
  }

  [[nodiscard]] std::string name_of(const at::Tensor& parameter) const {
    for (const auto& item : module_->named_parameters())
      if (item.value().is_same(parameter)) return "'" + item.key() + "' ";
    return "";
  }

  std::shared_ptr<torch::nn::Module> module_;
  Modes modes_;
  std::vector<Buffer> buffers_;
  std::vector<std::pair<at::Tensor, std::uint32_t>> parameters_;
};

/// All that a block reads besides its arguments.
class AmbientState {
 public:
  AmbientState(DeviceSet devices, bool with_random, ModuleState module)
      : devices_(std::move(devices)),
        with_random_(with_random),
        random_(random_now()),
        autocast_(devices_),
        module_(std::move(module)) {}

  /// The states of the generators that the block may use.
  [[nodiscard]] RandomState random_now() const {
    return with_random_ ? RandomState(devices_) : RandomState();
  }

  /// Call when the block has run: keeps what it used.
  void settle() {
    random_.forget_equal(random_now());
    module_.forget_unchanged();
  }

  /// Everything is as it was then, with gradients, while it lives. Throws CheckpointError where a parameter
  /// has been changed since.
  class Scope {
   public:
    Scope(const AmbientState& state, const std::string& block)
        : module_((state.module_.check_parameters(block), state.module_)),
          random_(state.random_),
          autocast_(state.autocast_, state.devices_) {}

   private:
    at::AutoGradMode with_gradients_{true};
    ModuleState::Scope module_;
    RandomState::Scope random_;
    AutocastState::Scope autocast_;
  };

 private:
  DeviceSet devices_;
  bool with_random_;
  RandomState random_;
  AutocastState autocast_;
  ModuleState module_;
};

}  // namespace looptorch::detail
