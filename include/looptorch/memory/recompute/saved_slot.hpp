// SPDX-License-Identifier: MIT
// What is known of one saved tensor while nobody holds it, and what holds it once the block has run again.
#pragma once

#include <looptorch/memory/ambient/random_state.hpp>
#include <looptorch/memory/recompute/geometry.hpp>
#include <looptorch/memory/recompute/saved_tensors.hpp>

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

/// The block as errors name it: by the name that it was given, or its type's, which outlives it.
struct BlockName {
  std::string given;
  std::string_view type;
  [[nodiscard]] std::string_view view() const { return given.empty() ? type : std::string_view(given); }
};

/// The version of a tensor that was saved, where the tensor itself is not held.
class SavedVersion {
 public:
  explicit SavedVersion(const at::Tensor& tensor)
      : counter_(torch::autograd::impl::version_counter(tensor)), saved_(counter_.current_version()) {}

  [[nodiscard]] bool is_current() const { return counter_.current_version() == saved_; }
  /// The end of a sentence about a tensor that is not.
  [[nodiscard]] std::string text() const {
    return message(" has been modified by an inplace operation: it is at version ",
                   counter_.current_version(), ", and was saved at version ", saved_);
  }

 private:
  c10::VariableVersion counter_;
  std::uint32_t saved_;
};

/// Throws CheckpointError if a saved tensor of these sizes was changed in place since.
inline void check_unchanged(const SavedVersion& version, at::IntArrayRef sizes, std::string_view block) {
  if (!version.is_current())
    throw CheckpointError(
        message("a tensor of shape ", sizes, " that backward through ", block, " needs", version.text()));
}

/// A tensor as it was saved, without its history: what is saved must not hold the graph that it is saved in.
class SavedAs {
 public:
  explicit SavedAs(const at::Tensor& tensor) : tensor_(tensor.detach()), version_(tensor) {}

  /// Throws CheckpointError if it was changed in place since.
  [[nodiscard]] const at::Tensor& unchanged(std::string_view block) const {
    check_unchanged(version_, tensor_.sizes(), block);
    return tensor_;
  }

 private:
  at::Tensor tensor_;
  SavedVersion version_;
};

/// What must be the same of a saved tensor when the block runs again.
struct TensorKind {
  explicit TensorKind(const at::Tensor& tensor)
      : sizes(tensor.sizes()),
        strides(told_strides(tensor)),
        type(tensor.scalar_type()),
        device(tensor.device()) {}
  bool operator==(const TensorKind&) const = default;
  [[nodiscard]] std::string text() const {
    const std::string kind = message(type, " ", at::IntArrayRef(sizes), " on ", device);
    return strides.empty() ? kind : message(kind, " with strides ", at::IntArrayRef(strides));
  }

  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;  ///< None where it is contiguous, or has none.
  at::ScalarType type;
  at::Device device;

 private:
  static at::IntArrayRef told_strides(const at::Tensor& tensor) {
    if (!tensor.has_storage() || tensor.is_contiguous()) return {};
    return tensor.strides();
  }
};

/// A pass of backward, as the engine numbers them; below 0 outside of one.
using Pass = int;

/// The place of a saved tensor, held by the node that saved it: with the node goes what was recorded.
class SavedSlot {
 public:
  explicit SavedSlot(const at::Tensor& tensor, RandomPositions random = {})
      : kind(tensor), random(std::move(random)), version_(tensor._version()) {
    if (tensor.is_leaf()) leaf_ = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
  }

  /// Whether `tensor` is the very one that was saved, such as a mask that the block only reads.
  [[nodiscard]] bool is_leaf(const at::Tensor& tensor) const {
    return leaf_.lock().get() == tensor.unsafeGetTensorImpl();
  }
  [[nodiscard]] bool changed_since(const at::Tensor& tensor) const {
    return is_leaf(tensor) && tensor._version() != version_;
  }

  [[nodiscard]] const SavedAs* find(Pass pass) const {
    for (const auto& [of, saved] : recorded_)
      if (of == pass) return &saved;
    return nullptr;
  }
  void record(Pass pass, SavedAs saved) {
    forget(pass);
    recorded_.emplace_back(pass, std::move(saved));
  }
  void forget(Pass pass) {
    std::erase_if(recorded_, [&](const auto& entry) { return entry.first == pass; });
  }

  TensorKind kind;
  bool asked_once = true;  ///< In a pass; a block within asks for its inputs again and again.
  RandomPositions random;  ///< Of the generators when it was saved; empty where that is not checked.

 private:
  std::vector<std::pair<Pass, SavedAs>> recorded_;
  std::int64_t version_;
  c10::weak_intrusive_ptr<c10::TensorImpl> leaf_{c10::intrusive_ptr<c10::TensorImpl>()};
};

}  // namespace looptorch::detail
