// SPDX-License-Identifier: MIT
// Connects the processes of a run by a common store, by Gloo, and by NCCL for tensors on CUDA devices. Needs
// Gloo's headers (Debian's libgloo-dev); the library itself is in LibTorch.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/rank_environment.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/distributed/agree_on_run.hpp>
#include <looptorch/distributed/nccl.hpp>
#include <looptorch/distributed/own_address.hpp>
#include <looptorch/distributed/packed_text.hpp>
#include <looptorch/distributed/rank_watch.hpp>

#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO  // as LibTorch's own build of the header's source
#endif
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Device.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace looptorch {

/// All processes of a run. Collectives are called by all ranks in the same order.
class ProcessGroup {
 public:
  /// Connects to the other processes. Throws RanksDiffer if one does not appear within `timeout`, and as soon
  /// as one has failed. Watches the others from then on, as RankWatch::prepare does.
  explicit ProcessGroup(RankEnvironment of, std::chrono::milliseconds timeout = std::chrono::minutes(5))
      : environment_(std::move(of)), connection_limit_(timeout) {
    try {
      store_ = connect(timeout);
      watch_ = std::make_unique<detail::RankWatch>(
          c10::make_intrusive<c10d::PrefixStore>(prefix() + "watch", connect_again()), rank(), size());
      watch_->prepare();
      if (!detail::variable("GLOO_SOCKET_IFNAME"))
        address_ = connecting([store = store_, master = environment_.address, rank = rank(), size = size()] {
          return detail::own_address(*store, master, rank, size);
        });
      reductions_ = gloo(store_, "reductions", /*threads=*/1);
      tensors_ = gloo(store_, "tensors", /*threads=*/2);
    } catch (const RanksDiffer& error) {
      if (watch_) watch_->fail(error.what());
      throw;
    } catch (const std::exception&) {
      const std::string what = detail::first_line(detail::what_of(std::current_exception()));
      const std::string sentence = message("rank ", rank(), " of ", size(), " could not meet the others at ",
                                           environment_.address, ":", environment_.port, ": ", what);
      if (watch_) watch_->fail(sentence);
      throw RanksDiffer(sentence);
    }
  }

  /// Returns the group of the launcher's environment, which lives as long as the process: Gloo's threads may
  /// wait for ranks that have exited.
  static ProcessGroup& of_environment() { return *current(); }
  /// Reconnects the ranks after RanksDiffer has ended a fit on all of them, so that the same processes can
  /// begin another, with new Trainers. All ranks call it. The old connections stay open.
  static ProcessGroup& reconnect() {
    RankEnvironment again = current()->environment_;
    current()->watch().end_fit();
    current()->abandon();
    again.store_runs = true;  // rank 0 still runs it
    current() = new ProcessGroup(std::move(again));
    return *current();
  }

  [[nodiscard]] std::int64_t rank() const { return environment_.rank; }
  [[nodiscard]] std::int64_t size() const { return environment_.size; }
  [[nodiscard]] const RankEnvironment& environment() const { return environment_; }
  [[nodiscard]] detail::RankWatch& watch() { return *watch_; }

  using Work = c10::intrusive_ptr<c10d::Work>;

  /// Begins to sum `tensor` over the ranks, in place.
  [[nodiscard]] Work sum(const at::Tensor& tensor) {
    std::vector<at::Tensor> list{tensor};
    sent_ += static_cast<std::int64_t>(tensor.nbytes());
    return backend_of(tensor).allreduce(list);
  }
  /// Connects the pairs of `sum_of_pair`. All ranks call it; their number is a power of two.
  void connect_pairs() {
    for (auto level = static_cast<std::int64_t>(pairs_.size()); (std::int64_t{1} << level) < size();
         ++level) {
      const std::int64_t bit = std::int64_t{1} << level;
      const std::string name = message("pair ", level, " of ", rank() & ~bit);
      pairs_.push_back(gloo(store_, name, /*threads=*/1, (rank() & bit) != 0 ? 1 : 0, 2));
    }
  }
  /// Begins to sum `tensor`, in place, with the rank whose number differs in bit `level`. After all levels,
  /// in order, every rank has the same total, summed in a binary tree.
  [[nodiscard]] Work sum_of_pair(const at::Tensor& tensor, std::int64_t level) {
    std::vector<at::Tensor> list{tensor};
    sent_ += static_cast<std::int64_t>(tensor.nbytes());
    return pairs_[static_cast<std::size_t>(level)]->allreduce(list);
  }
  /// Begins to sum `tensor` over the ranks for rank `to`; the others lose their values.
  [[nodiscard]] Work sum_for(const at::Tensor& tensor, std::int64_t to) {
    std::vector<at::Tensor> list{tensor};
    if (to != rank()) sent_ += static_cast<std::int64_t>(tensor.nbytes());
    c10d::ReduceOptions options;
    options.rootRank = to;
    return backend_of(tensor).reduce(list, options);
  }
  /// Begins to broadcast `tensor` from rank `from`.
  [[nodiscard]] Work broadcast(const at::Tensor& tensor, std::int64_t from = 0) {
    std::vector<at::Tensor> list{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = from;
    return backend_of(tensor).broadcast(list, options);
  }

  /// Connects the ranks again, for batch statistics, which are exchanged during sums of gradients.
  void connect_statistics() {
    if (!statistics_) statistics_ = gloo(store_, "statistics", /*threads=*/1);
  }
  /// Returns the tensors of all ranks, of one shape, in their order.
  [[nodiscard]] std::vector<at::Tensor> gather_statistics(const at::Tensor& mine, const std::string& point) {
    return gather_by(*statistics_, mine, point);
  }
  [[nodiscard]] Work broadcast_statistics(const at::Tensor& tensor, std::int64_t from) {
    std::vector<at::Tensor> list{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = from;
    return statistics_->broadcast(list, options);
  }

  /// Sets how long this rank waits for the others at one point.
  void set_timeout(std::chrono::seconds timeout) { timeout_ = timeout; }

  /// Waits for a collective. Throws RanksDiffer, naming rank and cause, if it will not end.
  void wait(c10d::Work& work, const std::string& point) {
    auto on_failure = c10::make_scope_exit([this] { is_lost_ = true; });
    const auto begin = std::chrono::steady_clock::now();
    const bool polls = detail::must_be_polled(work);
    while (true) {
      try {
        if (detail::ends_within(work, std::chrono::milliseconds(250), polls)) break;
      } catch (const std::exception& error) {
        if (work.isCompleted()) {
          if (detail::ended_after_limit(work, polls)) break;
          watch_->explain(point, detail::first_line(error.what()));
        }
      }
      check(point, begin);
    }
    on_failure.release();
  }
  /// True once a wait has failed: the ranks have to reconnect.
  [[nodiscard]] bool is_lost() const { return is_lost_; }
  /// Aborts this rank's collectives on CUDA devices, which wait for ranks that will not join them. The group
  /// cannot run more of them. First gives the other ranks time to learn of the failure, since they may
  /// use this rank's memory.
  void abandon() noexcept {
    if (!nccl_) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    detail::ignoring_errors([&] { detail::abort_within(std::chrono::seconds(2), nccl_); });
  }

  /// Waits up to 10 s until all ranks reach this call; correctness does not depend on it.
  void leave_together() {
    at::Tensor here = at::zeros({1}, at::kByte);
    std::vector<at::Tensor> list{here};
    try {
      reductions_->allreduce(list)->wait(std::chrono::seconds(10));
    } catch (const std::exception&) {
    }
  }

  /// Returns the texts of all ranks, in their order.
  [[nodiscard]] std::vector<std::string> gather(const std::string& text, const std::string& point) {
    while (true) {
      const auto all = gather_by(*reductions_, detail::packed_text(text, capacity_), point);
      const std::size_t longest = detail::longest_text(all);
      if (longest <= capacity_) return detail::unpacked_texts(all);
      capacity_ = (longest + 1023) / 1024 * 1024;  // the same on all ranks: a collective call
    }
  }

  /// Returns the bytes of tensors that this rank has added to sums.
  [[nodiscard]] std::int64_t bytes_summed() const { return sent_; }

 private:
  static ProcessGroup*& current() {
    static ProcessGroup* group = new ProcessGroup(rank_environment());
    return group;
  }
  [[nodiscard]] std::string prefix() const { return message("looptorch ", run_, " "); }

  c10::intrusive_ptr<c10d::Store> connect(std::chrono::milliseconds timeout) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(environment_.port);
    options.isServer = rank() == 0 && !environment_.store_runs;
    options.waitWorkers = false;
    options.timeout = timeout;
    server_ = c10::make_intrusive<c10d::TCPStore>(environment_.address, options);
    run_ = detail::agree_on_run(*server_, rank(), size(), timeout);
    return c10::make_intrusive<c10d::PrefixStore>(prefix(), server_);
  }
  c10::intrusive_ptr<c10d::Store> connect_again() const {
    c10d::TCPStoreOptions options;
    options.port = static_cast<std::uint16_t>(environment_.port);
    options.timeout = std::chrono::seconds(5);
    options.waitWorkers = false;
    return c10::make_intrusive<c10d::TCPStore>(environment_.address, options);
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::string& name, int threads) {
    return gloo(store, name, threads, static_cast<int>(rank()), static_cast<int>(size()));
  }
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::string& name, int threads, int rank, int size) {
    auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::hours(24));  // `wait` handles it
    options->threads = threads;
    options->devices.push_back(device());
    return connecting([of = c10::make_intrusive<c10d::PrefixStore>(name, store), options, rank, size] {
      return c10::make_intrusive<c10d::ProcessGroupGloo>(of, rank, size, options);
    });
  }
  /// Returns the interface that GLOO_SOCKET_IFNAME names, else that of `address_`.
  std::shared_ptr<::gloo::transport::Device> device() const {
    if (const auto name = detail::variable("GLOO_SOCKET_IFNAME"))
      return c10d::ProcessGroupGloo::createDeviceForInterface(*name);
    if (address_.empty()) return c10d::ProcessGroupGloo::createDefaultDevice();
    return c10d::ProcessGroupGloo::createDeviceForHostname(address_);
  }
  /// Runs `connect`, which may wait for other ranks without a limit, in a thread, and returns its result.
  /// Throws RanksDiffer, and leaves the thread behind, once a rank has failed or is silent, or the limit is
  /// over.
  template <class Connect>
  std::invoke_result_t<Connect&> connecting(Connect connect) {
    std::packaged_task<std::invoke_result_t<Connect&>()> task(std::move(connect));
    auto done = task.get_future();
    std::thread(std::move(task)).detach();
    const std::string point = "the connection of the ranks";
    const auto begin = std::chrono::steady_clock::now();
    while (done.wait_for(std::chrono::milliseconds(200)) != std::future_status::ready) {
      watch_->check(point);
      if (std::chrono::steady_clock::now() - begin > connection_limit_)
        throw RanksDiffer(
            message("rank ", rank(), " did not connect with the others within ",
                    connection_limit_.count() / 1000, " s, although it reaches the store; it is at ",
                    address_.empty() ? "an unknown address" : address_,
                    ". Does a firewall close the other ports? GLOO_SOCKET_IFNAME names another interface"));
    }
    try {
      return done.get();
    } catch (...) {
      watch_->check(point);  // the failure of another rank may have broken the connection
      throw;
    }
  }

  /// Throws RanksDiffer if a rank that this one waits for has failed, is silent or late.
  void check(const std::string& point, std::chrono::steady_clock::time_point begin) const {
    watch_->check(point);
    if (std::chrono::steady_clock::now() - begin > timeout_) watch_->give_up(point, timeout_);
  }

  /// Returns the backend for a tensor. All ranks pass the same kind of device.
  c10d::Backend& backend_of(const at::Tensor& tensor) {
    if (!detail::travels_by_nccl(tensor.device())) return *tensors_;
    if (!nccl_)
      nccl_ = detail::nccl_backend(c10::make_intrusive<c10d::PrefixStore>("nccl", store_),
                                   static_cast<int>(rank()), static_cast<int>(size()));
    if (connected_.insert(tensor.device()).second)
      detail::connect_device(nccl_, tensor.device(), [&, begin = std::chrono::steady_clock::now()] {
        check("the connection of the devices", begin);
      });
    return *nccl_;
  }

  /// Returns the tensors of all ranks, of one shape, in their order.
  std::vector<at::Tensor> gather_by(c10d::Backend& backend, const at::Tensor& mine,
                                    const std::string& point) {
    std::vector<at::Tensor> in{mine};
    std::vector<std::vector<at::Tensor>> out(1);
    for (std::int64_t i = 0; i < size(); ++i) out[0].push_back(at::empty_like(mine));
    wait(*backend.allgather(out, in), point);
    return std::move(out[0]);
  }

  RankEnvironment environment_;
  std::chrono::milliseconds connection_limit_;
  std::string address_;  // of this rank, for the others; empty: GLOO_SOCKET_IFNAME decides
  std::string run_;      // the name of this start of the ranks
  c10::intrusive_ptr<c10d::Store> server_, store_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> reductions_, tensors_, statistics_;
  c10::intrusive_ptr<c10d::Backend> nccl_;
  std::unordered_set<at::Device> connected_;  // by nccl_
  std::vector<c10::intrusive_ptr<c10d::ProcessGroupGloo>> pairs_;
  std::unique_ptr<detail::RankWatch> watch_;
  std::chrono::seconds timeout_ = std::chrono::minutes(30);
  std::size_t capacity_ = 1024;
  std::int64_t sent_ = 0;
  bool is_lost_ = false;
};

}  // namespace looptorch
