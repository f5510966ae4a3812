// SPDX-License-Identifier: MIT
// Allocates the averages of AverageWeights, updates them, and puts them into the model. They lie beside their
// weights or, to save the device's memory, in pinned host memory. Averages of 16-bit weights are fp32, since
// the steps of an average are too small for 16 bits. An average on the host is updated on the device, piece
// by piece, by copies on the device's stream: the device needs room for one piece only, and the host does not
// wait.
#pragma once

#include <looptorch/policies/weights/exchange_memory.hpp>
#include <looptorch/policies/weights/host_copies.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace looptorch::detail {

/// Calls `use(a, b)` for pieces of two tensors of one shape and layout, in order. A tensor that is not dense
/// is one piece.
template <class Use>
void for_each_piece(const at::Tensor& a, const at::Tensor& b, const Use& use) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements: 4 MB in fp32
  if (!a.is_non_overlapping_and_dense() || a.strides() != b.strides()) return use(a, b);
  const auto flat = [](const at::Tensor& tensor) {
    return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
  };
  const at::Tensor flat_a = flat(a), flat_b = flat(b);
  for (std::int64_t begin = 0; begin < a.numel(); begin += kPiece) {
    const std::int64_t size = std::min(kPiece, a.numel() - begin);
    use(flat_a.narrow(0, begin, size), flat_b.narrow(0, begin, size));
  }
}

/// The memory of averages. Copies share host memory and the wait for it.
class AverageMemory {
 public:
  /// Sets whether averages of weights on a device lie on the host from now on.
  void set_offload(bool offload) { offload_ = offload; }

  /// True if the average of `weight` belongs on the host, and `weight` lies elsewhere.
  [[nodiscard]] bool offloads(const at::Tensor& weight) const { return offload_ && !weight.is_cpu(); }

  /// Makes host memory for averages of so many bytes in one block, if they are to lie there.
  void reserve(std::int64_t bytes) {
    if (bytes > (block_ ? block_->left() : 0)) block_ = std::make_shared<HostBlock>(bytes);
  }
  /// Returns the bytes to reserve for the average of `weight`; 0 if it lies beside it.
  [[nodiscard]] std::int64_t bytes_for(const at::Tensor& weight) const {
    return offloads(weight) ? HostBlock::size_of(form_of(weight)) : 0;
  }

  /// True if `average` lies where the average of `weight` belongs, with its type and layout. Kernels round
  /// differently for another layout, and views of a weight would not follow when the two exchange memory.
  [[nodiscard]] bool is_placed(const at::Tensor& weight, const at::Tensor& average) const {
    return average.device() == (offloads(weight) ? at::Device(at::kCPU) : weight.device()) &&
           average.scalar_type() == average_type(weight) &&
           (average.strides() == weight.strides() || !weight.is_non_overlapping_and_dense());
  }

  /// Returns a copy of `numbers` as an average of `weight`, where it belongs.
  [[nodiscard]] at::Tensor average_of(const at::Tensor& weight, const at::Tensor& numbers) {
    const at::NoGradGuard no_gradients;
    if (!offloads(weight)) return at::empty_like(weight, options_of(weight)).copy_(numbers);
    const std::int64_t bytes = bytes_for(weight);
    reserve(bytes);
    const at::Tensor average =
        bytes > 0 ? block_->take_like(form_of(weight)) : at::empty_like(weight, options_of(weight, at::kCPU));
    begin_copy_to_host(average, numbers);
    note_copies_from(numbers.device());
    return average;
  }

  /// Moves averages by `share` of the way to their weights.
  void lerp(const std::vector<at::Tensor>& averages, const std::vector<at::Tensor>& weights, double share) {
    const at::NoGradGuard no_gradients;
    std::vector<at::Tensor> beside, targets;
    for (std::size_t i = 0; i < averages.size(); ++i) {
      const bool is_beside = averages[i].device() == weights[i].device();
      if (is_beside && averages[i].scalar_type() == weights[i].scalar_type()) {
        beside.push_back(averages[i]);
        targets.push_back(weights[i]);
        continue;
      }
      for_each_piece(averages[i], weights[i], [&](const at::Tensor& average, const at::Tensor& weight) {
        const at::Tensor moved = average.to(weight.device(), /*non_blocking=*/true);
        at::_foreach_lerp_({moved}, {weight.to(moved.scalar_type())}, share);
        if (!is_beside) average.copy_(moved, /*non_blocking=*/true);
      });
      pending_->add(weights[i].device());
    }
    pending_->record();
    if (!beside.empty()) at::_foreach_lerp_(beside, targets, share);
  }

  /// A weight that its average has replaced.
  struct Replaced {
    at::Tensor weight = {};  ///< its own numbers, where its average has another type
    std::int64_t version = 0;
  };

  /// Puts an average into its weight, whose numbers go to the average's memory; without a copy if they lie
  /// beside each other. Of a 16-bit weight the numbers are copied, and the average stays.
  [[nodiscard]] Replaced put_in(const at::Tensor& weight, at::Tensor& average) {
    if (average.scalar_type() == weight.scalar_type()) {
      exchange(weight, average);
      return {};
    }
    const at::NoGradGuard no_gradients;
    Replaced replaced{.weight = weight.detach().clone(), .version = weight._version()};
    weight.variable_data().copy_(average, /*non_blocking=*/true);
    return replaced;
  }

  /// Puts the weight's numbers back. If the program has written to the weight, its average has them now.
  void take_out(const at::Tensor& weight, at::Tensor& average, const Replaced& replaced) {
    if (!replaced.weight.defined()) return exchange(weight, average);
    const at::NoGradGuard no_gradients;
    if (weight._version() != replaced.version) {
      average.copy_(weight, /*non_blocking=*/true);
      note_copies_from(weight.device());
    }
    weight.variable_data().copy_(replaced.weight);
  }

  /// Waits for copies to the host that are under way. Call it before the host reads averages.
  void wait() const { pending_->wait(); }

 private:
  [[nodiscard]] static at::ScalarType average_type(const at::Tensor& weight) {
    const at::ScalarType type = weight.scalar_type();
    return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
  }
  [[nodiscard]] static at::TensorOptions options_of(const at::Tensor& weight, at::Device device) {
    return at::TensorOptions(average_type(weight)).device(device);
  }
  [[nodiscard]] static at::TensorOptions options_of(const at::Tensor& weight) {
    return options_of(weight, weight.device());
  }
  /// Returns a tensor without memory that has an average's sizes, strides and type.
  [[nodiscard]] static at::Tensor form_of(const at::Tensor& weight) {
    return at::empty_like(weight, options_of(weight, at::kMeta));
  }

  /// Exchanges a weight and its average of the same type.
  void exchange(const at::Tensor& weight, at::Tensor& average) {
    if (average.device() == weight.device()) return exchange_memory(weight, average);
    const at::NoGradGuard no_gradients;
    const at::Tensor data = weight.variable_data();  // the weight's version stays, as the other way
    for_each_piece(average, data, [](const at::Tensor& outgoing, const at::Tensor& target) {
      const at::Tensor incoming = outgoing.to(target.device(), /*non_blocking=*/true);
      begin_copy_to_host(outgoing, target);
      target.copy_(incoming);
    });
    note_copies_from(weight.device());
  }

  void note_copies_from(at::Device device) {
    if (device.is_cpu()) return;
    pending_->add(device);
    pending_->record();
  }

  bool offload_ = false;
  std::shared_ptr<HostBlock> block_;
  std::shared_ptr<PendingCopies> pending_ = std::make_shared<PendingCopies>();
};

}  // namespace looptorch::detail
