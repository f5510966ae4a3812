// SPDX-License-Identifier: MIT
// Saved tensors wait in host memory instead of on the device: pinned, so that the host does not wait for the
// copies. They are made in the order of the computation, and take their time. On a CPU the tensors are where
// they should be already.
#pragma once

#include <looptorch/memory/detail/saved_slot.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/nn/module.h>

#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A copy on the host of what a device holds, in the same order of its elements.
[[nodiscard]] inline at::Tensor to_host(const at::Tensor& tensor) {
  const auto options = tensor.options().device(at::kCPU).pinned_memory(tensor.is_cuda());
  at::Tensor host = tensor.is_non_overlapping_and_dense()
                        ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                        : at::empty(tensor.sizes(), options);
  return host.copy_(tensor, /*non_blocking=*/true);
}

class Offload final : public SavedTensorKeeper {
 public:
  /// What the module owns stays where it is.
  explicit Offload(const torch::nn::Module* module) {
    if (!module) return;
    for (const at::Tensor& parameter : module->parameters()) own(parameter);
    for (const at::Tensor& buffer : module->buffers()) own(buffer);
  }

  std::unique_ptr<SavedVariableHooks> hooks() override { return std::make_unique<Hooks>(*this); }

 private:
  class Hooks final : public SavedVariableHooks {
   public:
    explicit Hooks(Offload& of) : of_(&of) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      Offload& of = *std::exchange(of_, nullptr);
      device_ = tensor.device();
      if (tensor.is_cpu() || of.stays(tensor))
        here_ = SavedAs(tensor);
      else
        host_ = of.host_copy(tensor);
    }
    at::Tensor call_unpack_hook() override {
      return host_.defined() ? host_.to(device_, /*non_blocking=*/true)
                             : here_.unchanged("an offloaded block");
    }

   private:
    Offload* of_;
    at::Device device_ = at::kCPU;
    SavedAs here_;
    at::Tensor host_;
  };

  void own(const at::Tensor& tensor) {
    if (tensor.has_storage()) owned_.insert(tensor.storage().unsafeGetStorageImpl());
  }
  /// Parameters, and views of them: to copy them would save nothing.
  [[nodiscard]] bool stays(const at::Tensor& tensor) const {
    const at::TensorBase& base = tensor.is_view() ? tensor._base() : tensor;
    return !tensor.has_storage() || (base.is_leaf() && base.requires_grad()) ||
           owned_.contains(tensor.storage().unsafeGetStorageImpl());
  }

  /// A tensor that several nodes save is copied once.
  struct Copy {
    c10::weak_intrusive_ptr<c10::StorageImpl> of;
    std::int64_t version;
    Geometry geometry;
    at::Tensor host;
  };

  at::Tensor host_copy(const at::Tensor& tensor) {
    const Geometry geometry(tensor);
    for (const Copy& copy : copies_)
      if (const auto storage = copy.of.lock(); storage.get() == tensor.storage().unsafeGetStorageImpl() &&
                                               copy.version == tensor._version() && copy.geometry == geometry)
        return copy.host;
    copies_.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()),
                       tensor._version(), geometry, to_host(tensor)});
    return copies_.back().host;
  }

  std::vector<Copy> copies_;
  std::unordered_set<const c10::StorageImpl*> owned_;
};

}  // namespace looptorch::detail
