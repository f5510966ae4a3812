// SPDX-License-Identifier: MIT
// Implements `launch`: runs a kernel at once and, if the device is behind the host, again when its turn
// comes. While a graph is captured, records the kernel instead.
#include "support/accelerator/dispatch/launch.hpp"

#include "support/accelerator/dispatch/aliases.hpp"
#include "support/accelerator/dispatch/values.hpp"
#include "support/accelerator/driver.hpp"
#include "support/accelerator/graph/recording.hpp"
#include "support/accelerator/memory/arena.hpp"

#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>

#include <cstring>
#include <memory>
#include <utility>

namespace looptorch_test::accelerator {

namespace {

/// Names the operator at hand in the record of waits.
class Running {
 public:
  explicit Running(const std::string* name) : before_(std::exchange(driver().ledger.running, name)) {}
  ~Running() { driver().ledger.running = before_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const std::string* before_;
};

void copy_extent(const at::Tensor& tensor, Copy from, Copy to) {
  if (!is_here(tensor)) return;
  if (const std::size_t bytes = extent_of(tensor))
    std::memcpy(driver().in(to, data_of(tensor)), driver().in(from, data_of(tensor)), bytes);
}

void store(const at::Tensor& result, const at::Tensor& target) {
  if (!result.defined() || result.numel() == 0) return;
  if (result.sizes() == target.sizes() && result.strides() == target.strides())
    std::memcpy(data_of(target), data_of(result), extent_of(result));
  else
    target.copy_(result);
}

class Launch {
 public:
  Launch(const Kernel& kernel, const std::vector<Operand>& operands)
      : kernel_(kernel),
        operands_(operands),
        stream_(current_stream(kernel.device.index())),
        name_(driver().ledger.ran(kernel.name)),
        running_(name_) {
    driver().begin_launch(kernel.device.index(), kernel.name, kernel.launches_on_cuda);
    fails_ = driver().next_kernel_fails();
    time_ = driver().tick(stream_);
    driver().count_kernel(stream_, time_);
  }

  torch::jit::Stack run(const Compute& compute) {
    for (const Operand& operand : operands_) access(operand.tensor, operand.writes);
    before_it();
    torch::jit::Stack results = compute_now(compute);
    const bool is_late = driver().options.behind_host && !kernel_.host_needs_result;
    if (is_late)
      compute_late(compute, results);
    else if (driver().options.behind_host)
      show_late();
    if (fails_ && !is_late) driver().fail(kernel_.device.index(), kernel_.name);
    return results;
  }

 private:
  void access(const at::Tensor& tensor, bool writes) {
    if (!is_here(tensor)) return;
    if (const char* const data = data_of(tensor))
      driver().access(stream_, time_, data, extent_of(tensor), writes, name_);
  }

  void before_it() {
    if (!kernel_.host_needs_result) return driver().settle(stream_);
    driver().wait(Wait::dynamic_result, "dynamic result", kernel_.device.index(),
                  driver().timeline.stream(stream_));
    if (driver().options.behind_host)
      for (const Operand& operand : operands_) copy_extent(operand.tensor, Copy::late, Copy::issued);
  }

  torch::jit::Stack compute_now(const Compute& compute) {
    Aliases aliases(Copy::issued);
    std::vector<at::Tensor> here;
    here.reserve(operands_.size());
    for (const Operand& operand : operands_) here.push_back(aliases.of(operand.tensor));
    torch::jit::Stack results = compute(here);
    for (std::size_t i = 0; i < here.size(); ++i)
      if (operands_[i].writes) aliases.follow(operands_[i].tensor, here[i]);
    for (c10::IValue& result : results)
      result = with_tensors(result, [&](const at::Tensor& tensor) {
        bool is_new = false;
        at::Tensor there = aliases.back(tensor, kernel_.device, is_new);
        access(there, true);
        if (is_new) new_results_.push_back(there);
        is_new_.push_back(is_new);
        return there;
      });
    return results;
  }

  /// The host has waited: what the kernel wrote is all there.
  void show_late() {
    for (const Operand& operand : operands_)
      if (operand.writes) copy_extent(operand.tensor, Copy::issued, Copy::late);
    for (const at::Tensor& result : new_results_) copy_extent(result, Copy::issued, Copy::late);
  }

  void compute_late(const Compute& compute, const torch::jit::Stack& results) {
    Aliases aliases(Copy::late);
    std::vector<at::Tensor> operands, targets;
    for (const Operand& operand : operands_) {
      const at::Tensor& tensor = operand.tensor;
      if (!is_here(tensor) && tensor.defined()) {  // the host may change it meanwhile
        operands.push_back(tensor.clone());
        if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
          operands.back().unsafeGetTensorImpl()->set_wrapped_number(true);
      } else {
        operands.push_back(aliases.of(tensor));
      }
    }
    for (const c10::IValue& result : results)
      for_each_tensor(result, [&](const at::Tensor& tensor) { targets.push_back(aliases.of(tensor)); });
    auto run = [compute, operands = std::move(operands), targets = std::move(targets), is_new = is_new_,
                name = fails_ ? name_ : nullptr, state = at::ThreadLocalState()] {
      TORCH_CHECK(!name, *name);
      const at::ThreadLocalStateGuard guard(state);
      const at::DisableRecordFunctionGuard unseen;  // the program did not call what stands in for the kernel
      std::size_t i = 0;
      for (const c10::IValue& result : compute(operands))
        for_each_tensor(result, [&](const at::Tensor& tensor) {
          if (i < is_new.size() && is_new[i]) store(tensor, targets[i]);
          ++i;
        });
    };
    driver().run_late(stream_, time_, std::move(run));
  }

  const Kernel& kernel_;
  const std::vector<Operand>& operands_;
  int stream_;
  bool fails_ = false;
  Time time_ = 0;
  const std::string* name_;
  Running running_;
  std::vector<at::Tensor> new_results_;
  std::vector<bool> is_new_;
};

/// Records a kernel. It computes once, for the form of its results alone: what it writes is put
/// back.
class Recorded {
 public:
  Recorded(const Kernel& kernel, const std::vector<Operand>& operands, Recording& recording)
      : kernel_(kernel),
        operands_(operands),
        recording_(recording),
        name_(driver().ledger.ran(kernel.name)),
        running_(name_) {
    if (kernel.host_needs_result) refuse_in_recording(kernel.device.index(), kernel.name.c_str());
  }

  torch::jit::Stack run(const Compute& compute) {
    const std::vector<std::vector<char>> before = contents();
    std::vector<at::Tensor> results;
    std::vector<bool> is_new;
    torch::jit::Stack stack = form(compute, results, is_new);
    put_back(before);
    RecordedKernel recorded{name_, accesses(results), {}};
    for (std::size_t i = 0; i < results.size(); ++i)
      if (is_new[i] && is_here(results[i]))
        poison(driver().in(Copy::issued, data_of(results[i])), extent_of(results[i]));
    const auto issued = std::make_shared<const Operands>(views(Copy::issued, results, is_new));
    const auto late = std::make_shared<const Operands>(views(Copy::late, results, is_new));
    recorded.run = [compute, issued, late](Copy copy) {
      run_on(copy == Copy::issued ? *issued : *late, compute);
    };
    recording_.add(std::move(recorded));
    return stack;
  }

 private:
  struct Operands {
    std::vector<at::Tensor> operands, targets;
    std::vector<bool> is_new;
    at::ThreadLocalState state;
  };

  /// Of all operands: some write to one that the schema does not name, as BatchNorm to its statistics.
  std::vector<std::vector<char>> contents() const {
    std::vector<std::vector<char>> before;
    for (const Operand& operand : operands_) {
      const bool here = is_here(operand.tensor) && data_of(operand.tensor);
      const char* const data = here ? driver().in(Copy::issued, data_of(operand.tensor)) : nullptr;
      before.emplace_back(data, data + (here ? extent_of(operand.tensor) : 0));
    }
    return before;
  }
  void put_back(const std::vector<std::vector<char>>& before) const {
    for (std::size_t i = 0; i < before.size(); ++i)
      if (!before[i].empty())
        std::memcpy(driver().in(Copy::issued, data_of(operands_[i].tensor)), before[i].data(),
                    before[i].size());
  }

  torch::jit::Stack form(const Compute& compute, std::vector<at::Tensor>& results,
                         std::vector<bool>& is_new) {
    Aliases aliases(Copy::issued);
    std::vector<at::Tensor> here;
    for (const Operand& operand : operands_) here.push_back(aliases.of(operand.tensor));
    torch::jit::Stack stack = form_of(compute, here);
    for (std::size_t i = 0; i < here.size(); ++i)
      if (operands_[i].writes) aliases.follow(operands_[i].tensor, here[i]);
    for (c10::IValue& result : stack)
      result = with_tensors(result, [&](const at::Tensor& tensor) {
        bool fresh = false;
        results.push_back(aliases.back(tensor, kernel_.device, fresh));
        is_new.push_back(fresh);
        return results.back();
      });
    return stack;
  }

  /// Computes on what the memory holds, which may be no index where a kernel is to compute one: then on
  /// zeros.
  torch::jit::Stack form_of(const Compute& compute, const std::vector<at::Tensor>& here) const {
    try {
      return compute(here);
    } catch (const c10::Error&) {
      for (std::size_t i = 0; i < here.size(); ++i)
        if (is_here(operands_[i].tensor) && at::isIntegralType(here[i].scalar_type(), /*includeBool=*/false))
          here[i].zero_();
      return compute(here);
    }
  }

  [[nodiscard]] std::vector<RecordedAccess> accesses(const std::vector<at::Tensor>& results) const {
    std::vector<RecordedAccess> accesses;
    const auto add = [&](const at::Tensor& tensor, bool writes) {
      if (is_here(tensor) && data_of(tensor))
        accesses.push_back({data_of(tensor), extent_of(tensor), writes});
    };
    for (const Operand& operand : operands_) add(operand.tensor, operand.writes);
    for (const at::Tensor& result : results) add(result, true);
    return accesses;
  }

  /// CPU tensors on a copy of the memory, which hold none of it. What is on the host is as it was.
  [[nodiscard]] Operands views(Copy copy, const std::vector<at::Tensor>& results,
                               const std::vector<bool>& is_new) {
    Aliases aliases(copy);
    Operands views{{}, {}, is_new, at::ThreadLocalState()};
    for (const Operand& operand : operands_) {
      const at::Tensor& tensor = operand.tensor;
      if (is_here(tensor) || !tensor.defined()) {
        views.operands.push_back(aliases.of(tensor));
        continue;
      }
      views.operands.push_back(tensor.clone());
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
        views.operands.back().unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    for (const at::Tensor& result : results) views.targets.push_back(aliases.of(result));
    return views;
  }

  static void run_on(const Operands& views, const Compute& compute) {
    const at::ThreadLocalStateGuard guard(views.state);
    const at::DisableRecordFunctionGuard unseen;
    std::size_t i = 0;
    for (const c10::IValue& result : compute(views.operands))
      for_each_tensor(result, [&](const at::Tensor& tensor) {
        if (i < views.is_new.size() && views.is_new[i]) store(tensor, views.targets[i]);
        ++i;
      });
  }

  const Kernel& kernel_;
  const std::vector<Operand>& operands_;
  Recording& recording_;
  const std::string* name_;
  Running running_;
};

}  // namespace

torch::jit::Stack launch(const Kernel& kernel, const std::vector<Operand>& operands, const Compute& compute) {
  const Lock lock(driver().mutex);
  if (Recording* const recording = recording_here(kernel.device.index()))
    return Recorded(kernel, operands, *recording).run(compute);
  return Launch(kernel, operands).run(compute);
}

}  // namespace looptorch_test::accelerator
