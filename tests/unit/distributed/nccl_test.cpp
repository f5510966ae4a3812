// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/distributed/nccl.hpp>
#include <looptorch/distributed/process_group.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <array>
#include <atomic>
#include <future>
#include <new>
#include <stdexcept>

namespace lt = looptorch;

namespace nccl_test {

/// A collective as NCCL's are: a wait with a limit aborts it.
class DeviceWork final : public c10d::Work {
 public:
  explicit DeviceWork(int asks_until_end, bool fails = false) : left_(asks_until_end), fails_(fails) {}
  bool isCompleted() override { return left_ == 0 || --left_ == 0; }
  bool isSuccess() const override { return left_ == 0 && !fails_; }
  bool wait(std::chrono::milliseconds limit) override {
    if (limit != kNoTimeout) throw std::logic_error("aborted by a limit");
    if (left_ > 0) throw std::logic_error("blocked");
    if (fails_) throw std::runtime_error("a connection broke");
    ++streams_behind;
    return true;
  }
  int streams_behind = 0;

 private:
  int left_;
  bool fails_;
};

TEST_CASE("A collective of a device is polled, and never given a limit") {
  using std::chrono::milliseconds;
  DeviceWork soon(3);
  CHECK(lt::detail::ends_within(soon, std::chrono::seconds(10), /*polls=*/true));
  CHECK(soon.streams_behind == 1);
  DeviceWork late(1 << 30);
  CHECK_FALSE(lt::detail::ends_within(late, milliseconds(5), /*polls=*/true));
  CHECK(late.streams_behind == 0);
  DeviceWork broken(1, /*fails=*/true);
  CHECK_THROWS_WITH(lt::detail::ends_within(broken, milliseconds(5), /*polls=*/true), "a connection broke");
  DeviceWork limited(1);
  CHECK_THROWS_WITH(lt::detail::ends_within(limited, milliseconds(5), /*polls=*/false), "aborted by a limit");
}

TEST_CASE("Tensors of CUDA devices travel by NCCL where it is compiled in, all others by Gloo") {
  CHECK_FALSE(lt::detail::travels_by_nccl(at::kCPU));
  CHECK_FALSE(lt::detail::travels_by_nccl(at::Device(at::kPrivateUse1, 0)));
  CHECK(lt::detail::travels_by_nccl(at::Device(at::kCUDA, 0)) == (LOOPTORCH_HAS_NCCL != 0));
  DeviceWork other(1);
  CHECK_FALSE(lt::detail::must_be_polled(other));
}

/// A backend of two ranks whose calls do what a test gives.
class DeviceBackend final : public c10d::Backend {
 public:
  explicit DeviceBackend(std::function<void()> call)
      : Backend(/*rank=*/1, /*size=*/2), call_(std::move(call)) {}
  ~DeviceBackend() override = default;
  void eagerConnectSingleDevice(at::Device) override { call_(); }
  void abort() override { call_(); }

 private:
  std::function<void()> call_;
};

TEST_CASE("Devices connect while the other ranks are watched, since NCCL has no limit") {
  std::atomic<int> checks{0};
  const auto connect = [&](std::function<void()> call, const std::function<void()>& check) {
    lt::detail::connect_device(c10::make_intrusive<DeviceBackend>(std::move(call)), at::Device(at::kCUDA, 1),
                               check);
  };
  connect([] {}, [] { FAIL("checked although it was connected"); });
  connect(
      [&] {
        while (checks == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      },
      [&] { ++checks; });
  CHECK(checks > 0);

  std::promise<void> never;
  auto blocked = never.get_future().share();
  CHECK_THROWS_WITH(
      connect([blocked] { blocked.wait(); }, [] { throw lt::RanksDiffer("rank 0 ended in step 1: ..."); }),
      "rank 0 ended in step 1: ...");
  never.set_value();

  CHECK_THROWS_WITH(
      connect([] { TORCH_CHECK(false, "NCCL error in: NCCLUtils.cpp:77\nDuplicate GPU detected"); }, [] {}),
      "rank 1 could not connect cuda:1 with the other ranks' devices: NCCL error in: NCCLUtils.cpp:77 "
      "Duplicate GPU detected");
}

TEST_CASE("An abort of a device's collectives that blocks holds nobody up") {
  std::atomic<bool> aborted{false};
  lt::detail::abort_within(std::chrono::seconds(10),
                           c10::make_intrusive<DeviceBackend>([&] { aborted = true; }));
  CHECK(aborted);
  std::promise<void> never;
  auto blocked = never.get_future().share();
  lt::detail::abort_within(std::chrono::milliseconds(5),
                           c10::make_intrusive<DeviceBackend>([blocked] { blocked.wait(); }));
  never.set_value();
  lt::detail::abort_within(std::chrono::seconds(10), c10::make_intrusive<DeviceBackend>([] {
                             throw std::runtime_error("it cannot be aborted");
                           }));
}

#if LOOPTORCH_HAS_NCCL
TEST_CASE("LibTorch's constructor of NCCL's options writes to nothing behind them") {
  alignas(lt::detail::NcclOptions) std::array<unsigned char, 2 * sizeof(lt::detail::NcclOptions)> memory;
  memory.fill(0xab);
  new (memory.data()) lt::detail::NcclOptions();
  for (std::size_t i = sizeof(lt::detail::NcclOptions); i < memory.size(); ++i) CHECK(memory[i] == 0xab);
}

/// A collective of NCCL's own type, which has broken.
class BrokenWork final : public c10d::ProcessGroupNCCL::WorkNCCL {
 public:
  explicit BrokenWork(at::Device device = at::Device(at::kCUDA, 0))
      : WorkNCCL("group", "", device, /*rank=*/0, c10d::OpType::ALLREDUCE, /*seq=*/1) {}
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { throw std::runtime_error("remote process exited"); }
};

TEST_CASE("A broken collective of NCCL is explained: its isSuccess is not implemented") {
  BrokenWork broken;
  CHECK_THROWS_AS(broken.isSuccess(), c10::Error);
  lt::ProcessGroup group({.address = "127.0.0.1", .port = ranks::free_port()});
  group.watch().begin_fit();
  CHECK_THROWS_WITH(group.wait(broken, "the end of step 3"),
                    "the connection to another rank broke while rank 0 was at the end of step 3: remote "
                    "process exited");
  CHECK(group.is_lost());
  group.watch().end_fit();
}
#endif

}  // namespace nccl_test
