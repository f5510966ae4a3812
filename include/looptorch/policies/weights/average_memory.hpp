// SPDX-License-Identifier: MIT
// Allocates the averages of AverageWeights, updates them, and puts them into the model. They lie beside their
// weights or, to save the device's memory, in pinned host memory. Averages of 16-bit weights are fp32, since
// an average moves by steps too small for 16 bits. To update an average on the host, copies it to the device
// and back, piece by piece: the device needs room for one piece only, and the host does not wait.
#pragma once

#include <looptorch/policies/weights/exchange_memory.hpp>
#include <looptorch/policies/weights/host_copies.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace looptorch::detail {

inline constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;  ///< elements: 4 MB in fp32

/// True if two tensors of one shape can be cut into pieces, which are ranges of their memory.
inline bool has_pieces(const at::Tensor& a, const at::Tensor& b) {
  return a.is_non_overlapping_and_dense() && a.strides() == b.strides();
}

/// Calls `use(a, b)` for pieces of two tensors of one shape, in order. Tensors without pieces are one piece.
template <class Use>
void for_each_piece(const at::Tensor& a, const at::Tensor& b, const Use& use) {
  if (!has_pieces(a, b)) return use(a, b);
  const auto flat = [](const at::Tensor& tensor) {
    return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
  };
  const at::Tensor flat_a = flat(a), flat_b = flat(b);
  for (std::int64_t begin = 0; begin < a.numel(); begin += kPieceElements) {
    const std::int64_t size = std::min(kPieceElements, a.numel() - begin);
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

  /// Allocates a block of host memory unless the current one has `bytes` bytes left.
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
    Lerp beside(share), widened(share);
    for (std::size_t i = 0; i < averages.size(); ++i) {
      const at::Tensor &average = averages[i], &weight = weights[i];
      if (average.device() != weight.device()) {
        lerp_on_host(average, weight, share);
      } else if (average.scalar_type() == weight.scalar_type()) {
        beside.add(average, weight);
      } else {
        for_each_piece(average, weight, [&](const at::Tensor& piece, const at::Tensor& narrow) {
          if (widened.elements() + piece.numel() > kPieceElements) widened.run();
          widened.add(piece, narrow.to(piece.scalar_type()));
        });
      }
    }
    widened.run();
    beside.run();
    pending_->record();
  }

  /// A weight that its average has replaced.
  struct Replaced {
    at::Tensor weight = {};  ///< its own numbers, where its average has another type
    std::int64_t version = 0;
  };

  /// Exchanges the numbers of a weight and its average, without a copy if both are on one device. A 16-bit
  /// weight gets a rounded copy instead, and the average stays. Changes nothing if it throws.
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

  /// Puts the weight's numbers back. What the program wrote to the weight meanwhile stays in the average.
  void take_out(const at::Tensor& weight, at::Tensor& average, const Replaced& replaced) {
    if (!replaced.weight.defined()) return exchange(weight, average);
    const at::NoGradGuard no_gradients;
    if (weight._version() != replaced.version) {
      average.copy_(weight, /*non_blocking=*/true);
      note_copies_from(weight.device());
    }
    weight.variable_data().copy_(replaced.weight);
  }

  /// Frees the memory for pieces on devices. `put_in` allocates it and `take_out` uses it, so weights can be
  /// put back when no memory is left.
  void free_pieces() { pieces_.clear(); }

  /// Waits for copies to the host that are under way. Call it before the host reads averages.
  void wait() const { pending_->wait(); }

  /// Returns the type of a weight's average.
  [[nodiscard]] static at::ScalarType average_type(const at::Tensor& weight) {
    const at::ScalarType type = weight.scalar_type();
    return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
  }

 private:
  /// Averages that are moved in one call.
  class Lerp {
   public:
    explicit Lerp(double share) : share_(share) {}
    void add(const at::Tensor& average, const at::Tensor& weight) {
      averages_.push_back(average);
      weights_.push_back(weight);
      elements_ += average.numel();
    }
    [[nodiscard]] std::int64_t elements() const { return elements_; }
    void run() {
      if (!averages_.empty()) at::_foreach_lerp_(averages_, weights_, share_);
      averages_.clear(), weights_.clear(), elements_ = 0;
    }

   private:
    double share_;
    std::vector<at::Tensor> averages_, weights_;
    std::int64_t elements_ = 0;
  };

  void lerp_on_host(const at::Tensor& host, const at::Tensor& weight, double share) {
    for_each_piece(host, weight, [&](const at::Tensor& average, const at::Tensor& target) {
      const at::Tensor moved = average.to(target.device(), /*non_blocking=*/true);
      at::_foreach_lerp_({moved}, {target.to(moved.scalar_type())}, share);
      average.copy_(moved, /*non_blocking=*/true);
    });
    pending_->add(weight.device());
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
    const at::Tensor data = weight.variable_data();  // the weight's version stays, as in exchange_memory
    const at::Tensor room = room_for(average, data);
    for_each_piece(average, data, [&](const at::Tensor& outgoing, const at::Tensor& target) {
      const at::Tensor incoming = room.narrow(0, 0, outgoing.numel()).view(outgoing.sizes());
      incoming.copy_(outgoing, /*non_blocking=*/true);
      begin_copy_to_host(outgoing, target);
      target.copy_(incoming);
    });
    note_copies_from(weight.device());
  }

  /// Returns room on the weight's device for each piece of an average, of the weight's type.
  [[nodiscard]] at::Tensor room_for(const at::Tensor& average, const at::Tensor& weight) {
    const std::int64_t numel =
        has_pieces(average, weight) ? std::min(kPieceElements, weight.numel()) : weight.numel();
    const auto bytes = numel * static_cast<std::int64_t>(weight.element_size());
    auto room = std::ranges::find(pieces_, weight.device(), &at::Tensor::device);
    if (room == pieces_.end() || room->numel() < bytes) {
      const at::Tensor made = at::empty({bytes}, at::TensorOptions(at::kByte).device(weight.device()));
      if (room == pieces_.end())
        room = pieces_.insert(room, made);
      else
        *room = made;
    }
    return room->narrow(0, 0, bytes).view(weight.scalar_type());
  }

  void note_copies_from(at::Device device) {
    if (device.is_cpu()) return;
    pending_->add(device);
    pending_->record();
  }

  bool offload_ = false;
  std::shared_ptr<HostBlock> block_;
  std::vector<at::Tensor> pieces_;  // room on each device, while averages are in place
  std::shared_ptr<PendingCopies> pending_ = std::make_shared<PendingCopies>();
};

}  // namespace looptorch::detail
