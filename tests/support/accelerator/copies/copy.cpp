// SPDX-License-Identifier: MIT
// Implements Tensor::copy_ to, from and between simulated devices. Follows the steps of CUDA's implementation
// (ATen/native/cuda/Copy.cu), so that it waits and allocates where CUDA's does.
#include "support/accelerator/dispatch/launch.hpp"
#include "support/accelerator/dispatch/values.hpp"
#include "support/accelerator/driver.hpp"
#include "support/accelerator/graph/recording.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cstring>
#include <memory>
#include <vector>

namespace looptorch_test::accelerator {

namespace {

/// One copy of bytes between host and device that is about to be issued.
struct Transfer {
  Transfer(const at::Tensor& from, const at::Tensor& to)
      : is_upload(from.is_cpu()),
        host(is_upload ? from : to),
        there(is_upload ? to : from),
        bytes(to.nbytes()),
        device(there.device().index()),
        stream(current_stream(device)),
        block(driver().pinned.find(host.const_data_ptr())) {
    refuse_in_recording(device, is_upload ? "copy to the device" : "copy to the host");
    const std::string* const name =
        driver().ledger.ran(is_upload ? "copy to the device" : "copy to the host");
    driver().begin_launch(device, *name);
    time = driver().tick(stream);
    driver().access(stream, time, data_of(there), bytes, is_upload, name);
  }

  /// For asynchronous copies. CUDA's allocator of pinned memory knows a block by its context, or by its first
  /// byte.
  void record_stream() const {
    driver().count_copy(stream, time);
    if (host.storage().data_ptr().get_context() == block || host.const_data_ptr() == block->data)
      block->recorded.set(static_cast<std::size_t>(stream));
  }
  void wait(Wait kind, const char* what) const {
    driver().wait(kind, what, device, driver().timeline.stream(stream));
  }

  bool is_upload;
  const at::Tensor &host, &there;
  std::size_t bytes;
  int device, stream;
  HostBlock* block;
  Time time = 0;
};

void upload(const Transfer& transfer, bool non_blocking) {
  const char* const host = data_of(transfer.host);
  char* const there = data_of(transfer.there);
  if (non_blocking && transfer.block) {
    transfer.record_stream();
    return driver().transfers.upload(transfer.stream, transfer.time, host, there, transfer.bytes);
  }
  if (non_blocking)
    ++driver().ledger.counts.copies, ++driver().ledger.counts.pageable_uploads;
  else
    transfer.wait(Wait::blocking_copy, "blocking copy to the device");
  auto bytes = std::make_shared<const std::vector<char>>(host, host + transfer.bytes);
  driver().issue(transfer.stream, transfer.time, [bytes, there](Copy copy) {
    std::memcpy(driver().in(copy, there), bytes->data(), bytes->size());
  });
  if (!non_blocking) driver().host_waits(Clock(driver().timeline.stream(transfer.stream)));
}

void download(const Transfer& transfer, bool non_blocking) {
  char* const host = data_of(transfer.host);
  const char* const there = data_of(transfer.there);
  if (non_blocking && transfer.block) {
    transfer.record_stream();
    return driver().transfers.download(transfer.stream, transfer.time, there, host, transfer.bytes,
                                       *transfer.block);
  }
  if (non_blocking)
    transfer.wait(Wait::pageable_download, "copy to memory that is not pinned");
  else
    transfer.wait(Wait::blocking_copy, "blocking copy to the host");
  std::memcpy(host, driver().real(there), transfer.bytes);
}

/// Both contiguous in the same way, and of one type.
void copy_bytes(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.nbytes() == 0) return;
  const Lock lock(driver().mutex);
  const Transfer transfer(from, to);
  transfer.is_upload ? upload(transfer, non_blocking) : download(transfer, non_blocking);
}

/// True if both are read as they lie in memory, or conjugated and negated alike.
bool have_same_bits(const at::Tensor& from, const at::Tensor& to) {
  return from.is_conj() == to.is_conj() && from.is_neg() == to.is_neg();
}

bool is_copy_of_bytes(const at::Tensor& from, const at::Tensor& to) {
  return from.scalar_type() == to.scalar_type() && from.sizes() == to.sizes() &&
         ((from.is_contiguous() && to.is_contiguous()) ||
          (from.strides() == to.strides() && from.is_non_overlapping_and_dense()));
}

void copy_on_device(const char* name, c10::Device device, const at::Tensor& from, const at::Tensor& to) {
  launch({.name = name, .device = device}, {{to, true}, {from}}, [](const std::vector<at::Tensor>& operands) {
    operands[0].copy_(operands[1]);
    return torch::jit::Stack();
  });
}

/// What is issued to `later` comes after what was issued to `earlier`.
void order(int earlier, int later) {
  driver().tick(earlier);
  driver().timeline.stream_waits(later, driver().timeline.stream(earlier));
}

/// On the stream of the source, which waits for that of the target before, and the other way round after it.
void copy_between_devices(const at::Tensor& from, const at::Tensor& to) {
  const Lock lock(driver().mutex);
  ++driver().ledger.counts.copies, ++driver().ledger.counts.peer_copies;
  const int source = current_stream(from.device().index()), target = current_stream(to.device().index());
  order(target, source);
  copy_on_device("peer copy", from.device(), from, to);
  order(source, target);
}

/// Converts on the device where the copy must not block, as CUDA does, else on the CPU.
void copy_through_temporaries(const at::Tensor& from, const at::Tensor& to, c10::DeviceType converter,
                              bool non_blocking) {
  const bool same_bits = have_same_bits(from, to);
  at::Tensor to_contiguous, from_contiguous;
  if (from.device().type() == converter) {
    to_contiguous = to.is_contiguous() && same_bits ? to : at::empty_like(to, at::MemoryFormat::Contiguous);
    from_contiguous = from.to(to.scalar_type()).expand_as(to).contiguous();
  } else {
    const bool serves = to.is_contiguous() && from.scalar_type() == to.scalar_type() && same_bits;
    to_contiguous =
        serves ? to
               : at::empty_like(to, to.options().dtype(from.scalar_type()), at::MemoryFormat::Contiguous);
    from_contiguous = from.expand_as(to).contiguous();
  }
  to_contiguous.unsafeGetTensorImpl()->_set_neg(from_contiguous.is_neg());
  if (from_contiguous.is_complex()) to_contiguous.unsafeGetTensorImpl()->_set_conj(from_contiguous.is_conj());
  if (from.is_privateuseone() && to.is_privateuseone())
    copy_between_devices(from_contiguous, to_contiguous);
  else
    copy_bytes(from_contiguous, to_contiguous, non_blocking);
  if (!to_contiguous.is_same(to)) to.copy_(to_contiguous, non_blocking);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  if (from.is_privateuseone() && to.is_privateuseone()) {
    if (from.device() == to.device())
      copy_on_device("copy", to.device(), from, to);
    else if (options().peer_access || (is_copy_of_bytes(from, to) && have_same_bits(from, to)))
      copy_between_devices(from, to);
    else
      copy_through_temporaries(from, to, kDeviceType, non_blocking);
  } else if (is_copy_of_bytes(from, to)) {
    copy_bytes(from, to, non_blocking);
    // On the host too early, as in CUDA: an asynchronous copy has not arrived yet.
    if (from.is_conj() != to.is_conj()) to.conj_physical_();
    if (from.is_neg() != to.is_neg()) to.neg_();
  } else {
    copy_through_temporaries(from, to, non_blocking ? kDeviceType : c10::kCPU, non_blocking);
  }
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());
  to.copy_(from);
  return to;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
}

/// `copy_from` conjugates and negates by itself, as CUDA's copy does.
TORCH_LIBRARY_IMPL(aten, Conjugate, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, library) {
  library.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace looptorch_test::accelerator
