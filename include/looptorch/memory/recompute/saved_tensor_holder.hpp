// SPDX-License-Identifier: MIT
// Defines SavedTensorHolder, which autograd stores in place of a tensor that a checkpointed block recomputes:
// it describes the tensor, and holds it once the block has run again. SavedTensor is a saved tensor that
// stays in memory; it throws if the tensor was changed in place meanwhile.
#pragma once

#include <looptorch/memory/ambient/device_generators.hpp>
#include <looptorch/memory/recompute/geometry.hpp>
#include <looptorch/memory/recompute/saved_tensors.hpp>
#include <looptorch/memory/recompute/without_history.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// The block's name in errors: the given one, or its type's, whose text must outlive this.
struct BlockName {
  std::string given;
  std::string_view type;
  [[nodiscard]] std::string_view view() const { return given.empty() ? type : std::string_view(given); }
};

/// The version of a saved tensor, without the tensor.
class SavedVersion {
 public:
  explicit SavedVersion(const at::Tensor& tensor)
      : counter_(torch::autograd::impl::version_counter(tensor)), saved_(counter_.current_version()) {}

  [[nodiscard]] bool is_current() const { return counter_.current_version() == saved_; }
  /// Returns the end of a sentence about a tensor that has changed.
  [[nodiscard]] std::string text() const {
    return message(" has been modified by an inplace operation: it is at version ",
                   counter_.current_version(), ", and was saved at version ", saved_);
  }

 private:
  c10::VariableVersion counter_;
  std::uint32_t saved_;
};

/// Throws CheckpointError, which states `sizes`, if a saved tensor was changed in place since.
inline void check_unchanged(const SavedVersion& version, at::IntArrayRef sizes, std::string_view block) {
  if (!version.is_current())
    throw CheckpointError(
        message("a tensor of shape ", sizes, " that backward through ", block, " needs", version.text()));
}

/// A saved tensor without its history: a saved tensor must not keep alive the graph that saves it.
class SavedTensor {
 public:
  explicit SavedTensor(const at::Tensor& tensor) : tensor_(without_history(tensor)), version_(tensor) {}

  /// True if the tensor is in the memory that this one holds.
  [[nodiscard]] bool has_memory_of(const at::Tensor& tensor) const {
    return tensor.has_storage() && tensor_.has_storage() && tensor.is_alias_of(tensor_);
  }
  /// Returns the tensor. Throws CheckpointError if it was changed in place since.
  [[nodiscard]] const at::Tensor& unchanged(std::string_view block) const {
    check_unchanged(version_, tensor_.sizes(), block);
    return tensor_;
  }

 private:
  at::Tensor tensor_;
  SavedVersion version_;
};

/// The properties of a saved tensor that must be the same when the block runs again.
struct TensorKind {
  explicit TensorKind(const at::Tensor& tensor)
      : sizes(tensor.sizes()),
        strides(strides_to_compare(tensor)),
        type(tensor.scalar_type()),
        device(tensor.device()) {}
  bool operator==(const TensorKind&) const = default;
  [[nodiscard]] std::string text() const {
    const std::string kind = message(type, " ", at::IntArrayRef(sizes), " on ", device);
    return strides.empty() ? kind : message(kind, " with strides ", at::IntArrayRef(strides));
  }

  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;  ///< Empty if it is contiguous or has none.
  at::ScalarType type;
  at::Device device;

 private:
  static at::IntArrayRef strides_to_compare(const at::Tensor& tensor) {
    if (!tensor.has_storage() || tensor.is_contiguous()) return {};
    return tensor.strides();
  }
};

/// A pass of backward by the engine's number; below 0 outside of a pass.
using Pass = int;

/// Replaces a saved tensor in the node that saved it, and holds the recorded one. Destroyed with the node.
class SavedTensorHolder {
 public:
  explicit SavedTensorHolder(const at::Tensor& tensor, RandomPositions positions = {})
      : kind(tensor), random(std::move(positions)), version_(tensor._version()) {
    if (tensor.is_leaf()) leaf_ = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
  }

  /// True if `tensor` is the very leaf that was saved, such as a mask that the block only reads.
  [[nodiscard]] bool is_leaf(const at::Tensor& tensor) const {
    return leaf_.lock().get() == tensor.unsafeGetTensorImpl();
  }
  [[nodiscard]] bool changed_since(const at::Tensor& tensor) const {
    return is_leaf(tensor) && tensor._version() != version_;
  }

  [[nodiscard]] const SavedTensor* find(Pass pass) const {
    for (const auto& [of, saved] : recorded_)
      if (of == pass) return &saved;
    return nullptr;
  }
  void record(Pass pass, SavedTensor saved) {
    forget(pass);
    recorded_.emplace_back(pass, std::move(saved));
  }
  void forget(Pass pass) {
    std::erase_if(recorded_, [&](const auto& entry) { return entry.first == pass; });
  }

  TensorKind kind;
  bool requested_once = true;  ///< At most once a pass; a nested block requests its inputs repeatedly.
  RandomPositions random;      ///< The generators' positions when it was saved; empty if unchecked.

 private:
  std::vector<std::pair<Pass, SavedTensor>> recorded_;
  std::int64_t version_;
  c10::weak_intrusive_ptr<c10::TensorImpl> leaf_{c10::intrusive_ptr<c10::TensorImpl>()};
};

}  // namespace looptorch::detail
