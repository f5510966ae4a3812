// SPDX-License-Identifier: MIT
// Streams, events, pinned memory: what a correct program reads, and which mistakes are violations.
#include "support/precompiled.hpp"

#include "support/accelerator/accelerator.hpp"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <string>

namespace sim = looptorch_test::accelerator;

namespace {

const at::Device kDevice = sim::device(0);
const at::TensorOptions kHere = at::TensorOptions().device(kDevice).dtype(at::kFloat);

c10::impl::VirtualGuardImpl guard() { return c10::impl::VirtualGuardImpl(sim::kDeviceType); }
c10::Stream side_stream() { return guard().getStreamFromGlobalPool(kDevice); }
c10::Stream stream_now() { return guard().getStream(kDevice); }

void wait_for(c10::Stream earlier, c10::Stream later) {
  c10::Event event(sim::kDeviceType);
  event.record(earlier);
  event.block(later);
}

/// Returns how many violations contain `part`, and forgets all.
int violations_with(const std::string& part) {
  int count = 0;
  for (const std::string& sentence : sim::take_violations()) count += sentence.find(part) != sentence.npos;
  return count;
}

at::Tensor pinned(double value) { return at::full({4}, value, at::kFloat).pin_memory(); }

/// A copy on a stream of its own.
at::Tensor copy_on(c10::Stream stream, const at::Tensor& host) {
  const c10::StreamGuard on(stream);
  return host.to(kDevice, /*non_blocking=*/true);
}

TEST_CASE("sim: pinned memory is LibTorch's") {
  CHECK(pinned(1).is_pinned());
  CHECK_FALSE(at::empty({4}).is_pinned());
  CHECK(at::empty({4}, at::TensorOptions().pinned_memory(true)).is_pinned());
  CHECK(at::ones({3}, kHere).to(at::kCPU, /*non_blocking=*/true).is_pinned());
}

TEST_CASE("sim: a copy to pinned memory is there after the event, not before") {
  const at::Tensor a = at::full({4}, 3, kHere), host = pinned(0);
  host.copy_(a, /*non_blocking=*/true);
  c10::Event event(sim::kDeviceType);
  event.record(stream_now());
  CHECK(std::isnan(host[0].item<float>()));
  CHECK(violations_with("the host touched pinned memory") == 1);
  a.fill_(7);  // after the copy
  event.synchronize();
  CHECK(host[0].item<float>() == 3);

  host.copy_(a, /*non_blocking=*/true);
  host.fill_(1);
  sim::synchronize(kDevice);
  CHECK(violations_with("the host wrote to pinned memory") == 1);
}

TEST_CASE("sim: a copy from pinned memory reads late, and a slot that is refilled too early is a violation") {
  const at::Tensor host = pinned(3);
  const c10::Stream copies = side_stream();
  const at::Tensor a = copy_on(copies, host);
  host.fill_(9);
  wait_for(copies, stream_now());
  a.record_stream(stream_now());
  CHECK((a + 1)[0].item<float>() == 10);
  CHECK(violations_with("was written while it was being copied") == 1);
}

TEST_CASE("sim: a stream that does not wait for a copy reads poison, which is a violation") {
  const at::Tensor host = pinned(3);
  const c10::Stream copies = side_stream();
  const at::Tensor a = copy_on(copies, host);
  CHECK(std::isnan((a + 1)[0].item<float>()));
  CHECK(violations_with("does not wait for it") >= 1);
  wait_for(copies, stream_now());
  a.record_stream(stream_now());
  CHECK((a + 1)[0].item<float>() == 4);
}

TEST_CASE("sim: kernels on two streams in no order are a violation") {
  const at::Tensor a = at::ones({4}, kHere);
  const c10::Stream other = side_stream();
  at::Tensor b;
  {
    const c10::StreamGuard on(other);
    b = a + 1;
  }
  CHECK(violations_with("reads what aten::fill_.Scalar on sim:0 stream 0 writes, and does not wait") == 1);
  (void)(b + 1);
  CHECK(violations_with("does not wait") == 1);
  a.record_stream(other), b.record_stream(stream_now());
}

TEST_CASE("sim: memory that is freed under another stream is a violation without record_stream") {
  const c10::Stream other = side_stream();
  for (const bool records : {false, true}) {
    at::Tensor a = at::ones({4}, kHere);
    wait_for(stream_now(), other);
    {
      const c10::StreamGuard on(other);
      (void)(a + 1);
    }
    if (records) a.record_stream(other);
    a.reset();
    CHECK(violations_with("record_stream is missing") == (records ? 0 : 1));
  }
}

TEST_CASE("sim: pinned memory is given out again when the copies that its allocator knows are over") {
  at::Tensor host = pinned(3);
  const void* const where = host.const_data_ptr();
  const at::Tensor a = host.to(kDevice, /*non_blocking=*/true);
  host.reset();
  host = pinned(5);
  CHECK(host.const_data_ptr() != where);
  CHECK((a + 0)[0].item<float>() == 3);

  const at::Tensor part = pinned(3).slice(0, 1, 3);  // a view of another storage that starts within the block
  at::Tensor alias = at::from_blob(
      part.data_ptr(), {2}, [part](void*) {}, at::kFloat);
  (void)alias.to(kDevice, /*non_blocking=*/true);
  const_cast<at::Tensor&>(part).reset();
  alias.reset();
  CHECK(violations_with("which its allocator does not know of") == 1);
}

TEST_CASE("sim: a tensor goes to pinned memory and back without a wait") {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const sim::With with({.behind_host = seed > 0, .seed = seed});
    const at::Tensor host = at::empty({3000}, at::TensorOptions(at::kFloat).pinned_memory(true));
    std::vector<at::Tensor> back;
    {
      const sim::NoWaits none(sim::NoWaits::Events::refused);
      for (int i = 0; i < 3; ++i) {
        const at::Tensor a = at::full({3000}, i, kHere) * 2;
        host.copy_(a, /*non_blocking=*/true);
        back.push_back(host.to(kDevice, /*non_blocking=*/true));  // after the first copy, on the same stream
      }
    }
    for (int i = 0; i < 3; ++i) CHECK(back[static_cast<std::size_t>(i)].mean().item<float>() == 2 * i);
    CHECK(host[2999].item<float>() == 4);
  }
}

TEST_CASE("sim: events are counted, and stall where the device has nothing else to do") {
  const at::Tensor a = at::ones({4}, kHere);
  sim::CountWaits count;
  c10::Event event(sim::kDeviceType), later(sim::kDeviceType);
  event.record(stream_now());
  (void)(a + 1);
  event.synchronize();
  later.record(stream_now());
  later.synchronize();
  CHECK(count.counts().event_waits == 2);
  CHECK(count.counts().stall_waits == 1);
  CHECK(count.counts().host_waits == 0);
  c10::Event queried(sim::kDeviceType);
  queried.record(stream_now());
  CHECK_FALSE(queried.query());
  CHECK(queried.query());
  CHECK(count.counts().event_queries == 2);
  CHECK_THROWS_AS(queried.record(guard().getStream(sim::device(1))), c10::Error);  // another device's
  const sim::NoWaits none(sim::NoWaits::Events::refused);
  CHECK_THROWS_WITH(queried.synchronize(), Catch::Contains("synchronizeEvent"));
}

TEST_CASE("sim: copies that may run beside kernels are counted") {
  const at::Tensor host = pinned(3);
  const c10::Stream copies = side_stream();
  sim::finish_all();
  sim::CountWaits count;
  (void)copy_on(copies, host);  // no kernel to run beside
  CHECK(count.counts().copies_beside == 0);
  const at::Tensor a = at::ones({4}, kHere);
  (void)host.to(kDevice, /*non_blocking=*/true);  // after the kernel
  CHECK(count.counts().copies_beside == 0);
  (void)copy_on(copies, host);
  CHECK(count.counts().copies_beside == 1);
  wait_for(stream_now(), copies);
  (void)copy_on(copies, host);
  CHECK(count.counts().copies_beside == 1);
  const sim::CountWaits next;
  (void)(a + 1);  // after none of the last two copies
  CHECK(next.counts().copies_passed == 2);
  (void)copy_on(copies, host);
  wait_for(copies, stream_now());
  (void)(a + 1);
  CHECK(next.counts().copies_passed == 2);
  sim::synchronize(kDevice);
}

TEST_CASE("sim: a backward runs each part on the stream of its forward") {
  const at::Tensor x = at::randn({4, 4}, kHere).requires_grad_();
  const c10::Stream other = side_stream();
  wait_for(stream_now(), other);
  at::Tensor y;
  {
    const c10::StreamGuard on(other);
    y = x.exp();
  }
  wait_for(other, stream_now());
  y.sum().backward();
  CHECK(at::equal(x.grad().cpu(), x.detach().cpu().exp()));
  y.record_stream(stream_now()), x.record_stream(other);
}

}  // namespace
