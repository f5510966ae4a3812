// SPDX-License-Identifier: MIT
// Saves a run before dry steps and restores it bit for bit. Costs host memory for weights, buffers, moments
// and averages.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/loop/run.hpp>
#include <looptorch/memory/recompute/bypass.hpp>
#include <looptorch/resume/resume.hpp>
#include <looptorch/resume/take_snapshot.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns a separate copy in host memory.
[[nodiscard]] inline at::Tensor copied_to_host(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::Tensor plain = tensor.detach();
  return plain.is_cpu() ? plain.clone() : plain.to(at::kCPU);
}
[[nodiscard]] inline TensorMap copied_to_host(const TensorMap& tensors) {
  TensorMap copy;
  for (const auto& [name, tensor] : tensors) copy.emplace(name, copied_to_host(tensor));
  return copy;
}
[[nodiscard]] inline StateDict copied_to_host(const StateDict& state) {
  return copied(state, [](const at::Tensor& tensor) { return copied_to_host(tensor); });
}

/// The state of a run when this was made.
template <class Engine>
class RunBackup {
 public:
  explicit RunBackup(Engine& engine) : engine_(engine), progress_(engine.progress()) {
    at::NoGradGuard no_gradients;
    const SnapshotContents now = take_snapshot(engine, {});
    was_ = {.step = now.step,
            .model = copied_to_host(now.model),
            .averaged = copied_to_host(now.averaged),
            .optimizer = copied_to_host(now.optimizer),
            .state = copied_to_host(now.state)};
    for (const at::Tensor& parameter : engine.parameters().all())
      trained_.emplace_back(parameter, parameter.requires_grad());
    for (const auto& module : (*engine.model()).modules())
      if (auto* const layer = dynamic_cast<Bypassable*>(module.get()))
        options_.push_back(layer->keep_options());
    stopped_ = engine.run().stop_reason();
    interrupted_ = engine.run().interruption(), signal_ = engine.run().signal();
  }
  RunBackup(const RunBackup&) = delete;
  RunBackup& operator=(const RunBackup&) = delete;

  /// Restores everything, except buffers that forward has registered or resized since.
  void restore() {
    for (const auto& restore : options_) restore();
    for (const auto& [parameter, trained] : trained_) parameter.set_requires_grad(trained);
    engine_.prepare();
    load_contents(engine_, was_, {}, ResumeMode::all, "the copy from before the dry steps").random().apply();
    RunAccess::progress(engine_.run()) = progress_;  // with the last fit's plan, which no snapshot holds
    RunAccess::forget_stop(engine_.run());
    if (stopped_) engine_.run().stop(*stopped_);
    if (interrupted_) engine_.run().interrupt(*interrupted_, signal_);
  }

 private:
  Engine& engine_;
  const Progress progress_;
  SnapshotContents was_;
  std::vector<std::pair<at::Tensor, bool>> trained_;
  std::vector<std::function<void()>> options_;
  std::optional<std::string> stopped_, interrupted_;
  int signal_ = 0;
};

}  // namespace looptorch::detail
