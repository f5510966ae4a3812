// SPDX-License-Identifier: MIT
// Broadcasts tensors from rank 0 to all ranks, several at a time: waiting for each would cost one round trip
// per tensor.
#pragma once

#include <looptorch/distributed/process_group.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <vector>

namespace looptorch::detail {

/// Sends rank 0's tensors, and writes them to those of the other ranks.
class TensorBroadcast {
 public:
  explicit TensorBroadcast(ProcessGroup& group) : group_(group) {}

  void begin(const at::Tensor& tensor) {
    const at::Tensor sent = tensor.detach().contiguous();
    const at::Tensor bytes = sent.view({-1}).view(at::kByte);  // backends lack some types
    under_way_.push_back({group_.broadcast(bytes), tensor, sent});
    bytes_ += static_cast<std::int64_t>(sent.nbytes());
  }
  [[nodiscard]] std::int64_t bytes_under_way() const { return bytes_; }

  void finish() {
    for (const Sent& each : under_way_) {
      group_.wait(*each.work, "the broadcast of the model");
      if (group_.rank() == 0) continue;
      if (each.sent.const_data_ptr() != each.tensor.const_data_ptr())
        each.tensor.detach().copy_(each.sent);
      else
        each.tensor.unsafeGetTensorImpl()->bump_version();  // the backend wrote to its memory
    }
    under_way_.clear(), bytes_ = 0;
  }

 private:
  struct Sent {
    ProcessGroup::Work work;
    at::Tensor tensor, sent;  // the same, or a contiguous copy
  };

  ProcessGroup& group_;
  std::vector<Sent> under_way_;
  std::int64_t bytes_ = 0;
};

/// Gives all ranks the tensors of rank 0. Waits whenever `most_bytes` are under way. All ranks call it.
inline void broadcast_tensors(ProcessGroup& group, const std::vector<at::Tensor>& tensors,
                              std::int64_t most_bytes) {
  at::NoGradGuard no_gradients;
  TensorBroadcast broadcast(group);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    broadcast.begin(tensor);
    if (broadcast.bytes_under_way() >= most_bytes) broadcast.finish();
  }
  broadcast.finish();
}

}  // namespace looptorch::detail
