// SPDX-License-Identifier: MIT
// Host memory that tensors are copied to so that they can be written while training goes on. It is kept from
// one snapshot to the next: after the first there are no page faults. Costs a second copy of all tensors.
#pragma once

#include <looptorch/state/detail/staging_memory.hpp>
#include <looptorch/state/detail/state_json.hpp>
#include <looptorch/state/detail/stream_copy.hpp>
#include <looptorch/state/snapshot_contents.hpp>
#include <looptorch/state/tied_tensors.hpp>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <variant>
#include <vector>

namespace looptorch::detail {

/// A copy of tensors in host memory.
class Staging {
 public:
  /// Makes room for such contents, which `copy` then finds.
  void reserve(const SnapshotContents& contents);

  /// The same contents, of contiguous CPU tensors in this memory, which the next `copy` overwrites. Tensors
  /// of devices are still on their way until `wait_for_devices`. Throws c10::Error for layouts without
  /// values.
  SnapshotContents copy(const SnapshotContents& contents);

  /// Any thread may wait, once.
  void wait_for_devices();

 private:
  struct Piece {
    char* to;
    const char* from;
    std::size_t bytes;
  };

  /// Where each tensor goes; one place for the names of one tensor.
  struct Places {
    std::map<TensorIdentity, std::size_t> offsets;
    std::size_t bytes = 0;
    bool on_devices = false;
  };

  template <class Visit>
  static void visit_tensors(const SnapshotContents& contents, Visit visit);
  template <class Replace>
  static void replace_tensors(SnapshotContents& contents, Replace replace);
  static Places find_places(const SnapshotContents& contents);
  static std::size_t bytes_of(const at::Tensor& tensor);
  at::Tensor place(const at::Tensor& tensor, std::size_t offset) const;
  void enqueue(const at::Tensor& to, const at::Tensor& from, std::vector<Piece>& pieces);
  static void copy_pieces(const std::vector<Piece>& pieces);
  void record_devices();

  StagingMemory memory_;
  std::set<at::Device, bool (*)(at::Device, at::Device)> devices_{[](at::Device a, at::Device b) {
    return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
  }};
  std::vector<c10::Event> arrived_;
};

template <class Visit>
void Staging::visit_tensors(const SnapshotContents& contents, Visit visit) {
  for (const auto* tensors : {&contents.model, &contents.averaged}) {
    for (const auto& [name, tensor] : *tensors) visit(tensor);
  }
  for (const auto* state : {&contents.optimizer, &contents.state}) {
    for (const auto& [key, tensor] : tensors_of(*state)) visit(tensor);
  }
}

template <class Replace>
void Staging::replace_tensors(SnapshotContents& contents, Replace replace) {
  for (auto* tensors : {&contents.model, &contents.averaged}) {
    for (auto& [name, tensor] : *tensors) tensor = replace(tensor);
  }
  for (auto* state : {&contents.optimizer, &contents.state}) {
    for (const auto& [key, tensor] : tensors_of(*state)) state->set(key, replace(tensor));
  }
}

/// In whole cache lines.
inline std::size_t Staging::bytes_of(const at::Tensor& tensor) {
  constexpr std::size_t kLine = 64;
  return (tensor.nbytes() + kLine - 1) / kLine * kLine;
}

inline at::Tensor Staging::place(const at::Tensor& tensor, std::size_t offset) const {
  const auto options = tensor.options().device(at::kCPU).requires_grad(false).memory_format(std::nullopt);
  if (tensor.numel() == 0) return at::empty(tensor.sizes(), options);
  return at::from_blob(memory_.data() + offset, tensor.sizes(), options);
}

inline Staging::Places Staging::find_places(const SnapshotContents& contents) {
  Places places;
  visit_tensors(contents, [&](const at::Tensor& tensor) {
    if (places.offsets.emplace(identity_of(tensor), places.bytes).second) places.bytes += bytes_of(tensor);
    places.on_devices |= !tensor.is_cpu();
  });
  return places;
}

inline void Staging::reserve(const SnapshotContents& contents) {
  const auto places = find_places(contents);
  memory_.reserve(places.bytes, places.on_devices);
  memory_.touch();
}

inline SnapshotContents Staging::copy(const SnapshotContents& contents) {
  const c10::NoGradGuard no_grad;
  const auto places = find_places(contents);
  memory_.reserve(places.bytes, places.on_devices);
  auto staged = contents;
  std::map<TensorIdentity, at::Tensor> copies;
  std::vector<Piece> pieces;
  replace_tensors(staged, [&](const at::Tensor& tensor) {
    const auto identity = identity_of(tensor);
    auto& to = copies[identity];
    if (!to.defined()) {
      to = place(tensor, places.offsets.at(identity));
      enqueue(to, tensor, pieces);
    }
    return to;
  });
  copy_pieces(pieces);
  record_devices();
  return staged;
}

/// In pieces of a size that keeps all threads busy to the end.
inline void Staging::enqueue(const at::Tensor& to, const at::Tensor& from, std::vector<Piece>& pieces) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  if (!from.is_cpu()) devices_.insert(from.device());
  if (!from.is_cpu() || !from.is_contiguous() || from.is_conj() || from.is_neg()) {
    to.copy_(from, /*non_blocking=*/true);
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
      stream_copy(pieces[i].to, pieces[i].from, pieces[i].bytes);
    }
  });
}

/// Later work of the devices waits for the copies in their streams' order; only the writer waits here.
inline void Staging::record_devices() {
  arrived_.clear();
  for (const auto device : devices_) {
    arrived_.emplace_back(device.type());
    arrived_.back().record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  devices_.clear();
}

inline void Staging::wait_for_devices() {
  for (const auto& event : arrived_) event.synchronize();
}

}  // namespace looptorch::detail
