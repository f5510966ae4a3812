// SPDX-License-Identifier: MIT
// What is known of one saved tensor while nobody holds it, and what holds it once the block has run again.
#pragma once

#include <looptorch/memory/detail/random_state.hpp>
#include <looptorch/memory/detail/saved_tensors.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A tensor and the version that was saved of it, without its history: what is saved must not hold the graph
/// that it is saved in.
class SavedAs {
 public:
  SavedAs() = default;
  explicit SavedAs(const at::Tensor& tensor) : tensor_(tensor.detach()), version_(tensor._version()) {}

  /// Throws CheckpointError if it was changed in place since.
  [[nodiscard]] const at::Tensor& unchanged(std::string_view block) const {
    if (tensor_._version() != version_)
      throw CheckpointError(message("a tensor of shape ", tensor_.sizes(), " that backward through ", block,
                                    " needs has been modified by an inplace operation: it is at version ",
                                    tensor_._version(), ", and was saved at version ", version_));
    return tensor_;
  }

 private:
  at::Tensor tensor_;
  std::int64_t version_ = 0;
};

/// What must be the same of a saved tensor when the block runs again.
struct TensorKind {
  explicit TensorKind(const at::Tensor& tensor)
      : sizes(tensor.sizes()), type(tensor.scalar_type()), device(tensor.device()) {}
  bool operator==(const TensorKind& other) const {
    return sizes == other.sizes && type == other.type && device == other.device;
  }
  [[nodiscard]] std::string text() const {
    return message(type, " ", at::IntArrayRef(sizes), " on ", device);
  }

  c10::SmallVector<std::int64_t, 5> sizes;
  at::ScalarType type;
  at::Device device;
};

/// Where in its storage a tensor lies.
struct Geometry {
  Geometry() = default;
  explicit Geometry(const at::Tensor& tensor)
      : sizes(tensor.sizes()),
        strides(tensor.strides()),
        offset(tensor.storage_offset()),
        type(tensor.scalar_type()) {}
  bool operator==(const Geometry&) const = default;

  c10::SmallVector<std::int64_t, 5> sizes, strides;
  std::int64_t offset = 0;
  at::ScalarType type = at::kFloat;
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

  /// Whether `tensor` is the one that was saved, such as a mask that the block only reads, and has changed.
  [[nodiscard]] bool changed_since(const at::Tensor& tensor) const {
    return leaf_.lock().get() == tensor.unsafeGetTensorImpl() && tensor._version() != version_;
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
