// SPDX-License-Identifier: MIT
// Implements CheckpointMode::offload: keeps the tensors that a block saves for backward in host memory
// instead of on the device (host_copy.hpp). Parameters, buffers and CPU tensors stay where they are.
#pragma once

#include <looptorch/memory/recompute/host_copy.hpp>
#include <looptorch/memory/recompute/saved_tensor_holder.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/nn/module.h>

#include <memory>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace looptorch::detail {

class Offload final : public SavedTensorKeeper {
 public:
  /// Leaves the parameters and buffers of `module` where they are.
  Offload(BlockName name, const torch::nn::Module* module)
      : name_(std::make_shared<const BlockName>(std::move(name))) {
    if (!module) return;
    for (const at::Tensor& parameter : module->parameters()) own(parameter);
    for (const at::Tensor& buffer : module->buffers()) own(buffer);
  }

  std::unique_ptr<SavedVariableHooks> hooks() override { return std::make_unique<Hooks>(*this); }

 private:
  using Location = std::variant<std::monostate, SavedTensor, std::shared_ptr<HostCopy>>;

  class Hooks final : public SavedVariableHooks {
   public:
    explicit Hooks(Offload& of) : of_(&of), name_(of.name_) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      location_ = std::exchange(of_, nullptr)->location_of(tensor);
    }
    at::Tensor call_unpack_hook() override {
      if (const auto* const copy = std::get_if<std::shared_ptr<HostCopy>>(&location_))
        return (*copy)->fetch_back(name_->view());
      return std::get<SavedTensor>(location_).unchanged(name_->view());
    }

   private:
    Offload* of_;
    std::shared_ptr<const BlockName> name_;
    Location location_;
  };

  [[nodiscard]] Location location_of(const at::Tensor& tensor) {
    if (tensor.is_cpu() || stays_on_device(tensor)) return SavedTensor(tensor);
    return host_copy(tensor);
  }

  void own(const at::Tensor& tensor) {
    if (tensor.has_storage()) owned_.insert(tensor.storage().unsafeGetStorageImpl());
  }
  /// True for parameters and views of them, whose copies would save nothing, and for tensors without memory.
  [[nodiscard]] bool stays_on_device(const at::Tensor& tensor) const {
    const at::TensorBase& base = tensor.is_view() ? tensor._base() : tensor;
    return tensor.is_meta() || !tensor.has_storage() || (base.is_leaf() && base.requires_grad()) ||
           owned_.contains(tensor.storage().unsafeGetStorageImpl());
  }

  /// The copy of a tensor, shared by all nodes that save it.
  struct Copy {
    c10::weak_intrusive_ptr<c10::StorageImpl> of;
    std::int64_t version;
    Geometry geometry;
    std::shared_ptr<HostCopy> copy;
  };

  std::shared_ptr<HostCopy> host_copy(const at::Tensor& tensor) {
    const Geometry geometry(tensor);
    for (const Copy& known : copies_)
      if (const auto storage = known.of.lock(); storage.get() == tensor.storage().unsafeGetStorageImpl() &&
                                                known.version == tensor._version() &&
                                                known.geometry == geometry)
        return known.copy;
    copies_.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(tensor.storage().getWeakStorageImpl()),
                       tensor._version(), geometry, HostCopy::make(tensor)});
    return copies_.back().copy;
  }

  std::shared_ptr<const BlockName> name_;
  std::vector<Copy> copies_;
  std::unordered_set<const c10::StorageImpl*> owned_;
};

}  // namespace looptorch::detail
