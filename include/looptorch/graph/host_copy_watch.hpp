// SPDX-License-Identifier: MIT
// Refuses to capture copies between host and device. A graph would keep the copy's address in host memory,
// and each replay would read or overwrite whatever lies there by then. capture_graph.hpp applies this check
// to all that it records.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/recorded_inputs.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <string_view>

namespace looptorch::detail {

/// Watches this thread's copies and those of its backward on other threads; a process has one at most.
class HostCopyWatch {
 public:
  HostCopyWatch()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&start).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {
    found() = kNone;
  }
  ~HostCopyWatch() { at::removeCallback(handle_); }
  HostCopyWatch(const HostCopyWatch&) = delete;
  HostCopyWatch& operator=(const HostCopyWatch&) = delete;

  /// Throws Error if something was copied between host and device. A callback cannot throw: LibTorch would
  /// catch the exception.
  void check() const {
    if (found() == kNone) return;
    throw Error(message("copy_ copies ", found() == kUpload ? "from the host to the device" : "to the host",
                        " without a wait, and a replay would use the host's memory again"));
  }

 private:
  enum Copy { kNone, kUpload, kDownload };
  static std::atomic<Copy>& found() {
    static std::atomic<Copy> found = kNone;
    return found;
  }

  static std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) {
    if (std::string_view(function.name()) != "aten::copy_") return nullptr;
    const auto inputs = recorded_inputs(function);
    if (inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isTensor()) return nullptr;
    const at::Tensor &to = inputs[0].toTensor(), &from = inputs[1].toTensor();
    if (to.numel() > 0 && to.is_cpu() != from.is_cpu()) found() = from.is_cpu() ? kUpload : kDownload;
    return nullptr;
  }

  at::CallbackHandle handle_;
};

}  // namespace looptorch::detail
