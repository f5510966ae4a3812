// SPDX-License-Identifier: MIT
// Copies a snapshot's tensors to host memory, so that training continues while SnapshotWriter writes them.
// The memory is kept and reused, so that only the first snapshot pays for its allocation. Costs as much host
// memory as the tensors take.
//
// Device tensors go into pinned blocks of at most 1 GiB, since LibTorch rounds a block's size up to a power
// of two. CPU tensors, and single tensors beyond 1 GiB, go into one pageable block.
#pragma once

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/base/device/device_event.hpp>
#include <looptorch/base/device/nontemporal_copy.hpp>
#include <looptorch/base/libtorch_version.hpp>
#include <looptorch/state/snapshot/block_plan.hpp>
#include <looptorch/state/snapshot/snapshot_contents.hpp>
#include <looptorch/state/snapshot/staging_memory.hpp>
#include <looptorch/state/snapshot/state_json.hpp>
#include <looptorch/state/weights/tied_tensors.hpp>

#include <ATen/Parallel.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// A copy of tensors in host memory.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  /// Returns pinned memory to the system, which LibTorch would keep.
  ~Staging();

  /// Reserves the memory that `copy` needs for such contents.
  void reserve(const SnapshotContents& contents);

  /// Returns the contents as contiguous CPU tensors in this memory, which the next `copy` overwrites.
  /// Device tensors have arrived only after `wait_for_devices`. Throws c10::Error for layouts without values;
  /// no copy is under way then.
  SnapshotContents copy(const SnapshotContents& contents);

  /// Blocks until the copies from devices have arrived. Any thread may call it, once.
  void wait_for_devices();

 private:
  struct Piece {
    char* to;
    const char* from;
    std::size_t bytes;
  };

  /// The memory of one tensor: a range of the pageable block or of a pinned one.
  struct Allocation {
    bool pinned;
    BlockPlan::Allocation at;
  };

  /// The allocations of all tensors; names that share a tensor share one.
  struct Layout {
    std::vector<Allocation> distinct;
    std::vector<std::size_t> of;  // index in `distinct` of each visited tensor
    std::size_t pageable_bytes = 0;
    BlockPlan pinned{std::size_t{1} << 30};

    Allocation add(const at::Tensor& tensor);
  };

  template <class Visit>
  static void visit_tensors(const SnapshotContents& contents, Visit visit);
  template <class Replace>
  static void replace_tensors(SnapshotContents& contents, Replace replace);
  static Layout plan_layout(const SnapshotContents& contents);
  static std::size_t bytes_of(const at::Tensor& tensor);
  void reserve(const Layout& layout);
  at::Tensor memory_for(const at::Tensor& tensor, const Allocation& allocation) const;
  void enqueue(const at::Tensor& to, const at::Tensor& from, std::vector<Piece>& pieces);
  static void copy_pieces(const std::vector<Piece>& pieces);
  void record_devices();

  StagingMemory pageable_;
  std::deque<StagingMemory> pinned_;  // a deque, since blocks cannot be moved
  std::set<at::Device, bool (*)(at::Device, at::Device)> devices_{[](at::Device a, at::Device b) {
    return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
  }};
  std::vector<DeviceEvent> arrived_;
  std::optional<at::DeviceType> device_type_;  // its allocator gave the pinned memory
};

template <class Visit>
void Staging::visit_tensors(const SnapshotContents& contents, Visit visit) {
  for (const auto* tensors : {&contents.model, &contents.averaged}) {
    for (const auto& [name, tensor] : *tensors) visit(tensor);
  }
  for (const auto* state : {&contents.optimizer, &contents.state}) {
    for (const auto& [key, value] : state->values()) {
      if (const auto* tensor = value.template get_if<at::Tensor>(); tensor && tensor->defined())
        visit(*tensor);
    }
  }
}

/// Replaces the tensors in the order of visit_tensors.
template <class Replace>
void Staging::replace_tensors(SnapshotContents& contents, Replace replace) {
  for (auto* tensors : {&contents.model, &contents.averaged}) {
    for (auto& [name, tensor] : *tensors) tensor = replace(tensor);
  }
  for (auto* state : {&contents.optimizer, &contents.state}) {
    for (const auto& [key, tensor] : tensors_of(*state)) state->set(key, replace(tensor));
  }
}

/// Returns the tensor's bytes, rounded up to whole cache lines.
inline std::size_t Staging::bytes_of(const at::Tensor& tensor) {
  constexpr std::size_t kLine = 64;
  return (tensor.nbytes() + kLine - 1) / kLine * kLine;
}

inline at::Tensor Staging::memory_for(const at::Tensor& tensor, const Allocation& allocation) const {
  const auto options = tensor.options().device(at::kCPU).requires_grad(false).memory_format(std::nullopt);
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), options);
  const auto& memory = allocation.pinned ? pinned_[allocation.at.block] : pageable_;
  return at::from_blob(memory.data() + allocation.at.offset, tensor.sizes(), options);
}

inline Staging::Allocation Staging::Layout::add(const at::Tensor& tensor) {
  const std::size_t bytes = bytes_of(tensor);
  if (!tensor.is_cpu() && pinned.fits(bytes)) return {true, pinned.add(bytes)};
  return {false, {0, std::exchange(pageable_bytes, pageable_bytes + bytes)}};
}

inline Staging::Layout Staging::plan_layout(const SnapshotContents& contents) {
  Layout layout;
  std::map<TensorIdentity, std::size_t> known;
  visit_tensors(contents, [&](const at::Tensor& tensor) {
    const auto [found, is_new] = known.try_emplace(identity_of(tensor), layout.distinct.size());
    if (is_new) layout.distinct.push_back(layout.add(tensor));
    layout.of.push_back(found->second);
  });
  return layout;
}

inline void Staging::reserve(const Layout& layout) {
  pageable_.reserve(layout.pageable_bytes);
  const auto& sizes = layout.pinned.sizes();
  while (pinned_.size() < sizes.size()) pinned_.emplace_back();
  for (std::size_t i = 0; i < sizes.size(); ++i) pinned_[i].reserve_pinned(sizes[i]);
}

inline void Staging::reserve(const SnapshotContents& contents) {
  reserve(plan_layout(contents));
  pageable_.touch();
  for (const auto& block : pinned_) block.touch();
}

inline SnapshotContents Staging::copy(const SnapshotContents& contents) {
  const c10::NoGradGuard no_grad;
  const auto layout = plan_layout(contents);
  reserve(layout);
  auto staged = contents;
  std::vector<at::Tensor> copies(layout.distinct.size());
  std::vector<Piece> pieces;
  auto index = layout.of.begin();
  try {
    replace_tensors(staged, [&](const at::Tensor& tensor) {
      auto& to = copies[*index];
      if (!to.defined()) {
        to = memory_for(tensor, layout.distinct[*index]);
        enqueue(to, tensor, pieces);
      }
      ++index;
      return to;
    });
    copy_pieces(pieces);
    record_devices();
  } catch (...) {  // the memory must outlive the copies that have begun
    record_devices();
    wait_for_devices();
    throw;
  }
  return staged;
}

/// Begins the copy of one tensor. Contiguous CPU tensors are cut into pieces small enough to keep all threads
/// busy to the end.
inline void Staging::enqueue(const at::Tensor& to, const at::Tensor& from, std::vector<Piece>& pieces) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  if (!from.is_cpu()) devices_.insert(from.device());
  if (!from.is_cpu() || !from.is_contiguous() || from.is_conj() || from.is_neg()) {
    begin_copy_to_host(to, from);
    return;
  }
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  for (std::size_t done = 0; done < from.nbytes(); done += kPiece) {
    pieces.push_back({target + done, source + done, std::min(kPiece, from.nbytes() - done)});
  }
}

inline void Staging::copy_pieces(const std::vector<Piece>& pieces) {
  at::parallel_for(0, static_cast<std::int64_t>(pieces.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      nontemporal_copy(pieces[i].to, pieces[i].from, pieces[i].bytes);
    }
  });
}

/// Records an event after each device's copies. Later work on the devices follows the copies in its stream;
/// only the writer waits on the host.
inline void Staging::record_devices() {
  arrived_.clear();
  for (const auto device : devices_) {
    device_type_ = device.type();
    arrived_.emplace_back(device.type());
    arrived_.back().record(stream_of(device));
  }
  devices_.clear();
}

inline Staging::~Staging() {
  const bool any_pinned =
      std::any_of(pinned_.begin(), pinned_.end(), [](const auto& block) { return block.is_pinned(); });
  pinned_.clear();
  if (!any_pinned || !device_type_) return;
#if LOOPTORCH_LIBTORCH_2_9
  try {  // a device whose pinned memory has no cache has no such allocator
    if (auto* allocator = at::getHostAllocator(*device_type_)) allocator->empty_cache();
  } catch (...) {  // a device that has failed, and whose failure was reported
  }
#endif
}

inline void Staging::wait_for_devices() {
  for (const auto& event : arrived_) event.synchronize();
}

}  // namespace looptorch::detail
