// SPDX-License-Identifier: MIT
// Runs a training program on several processes: connects those that torchrun or Slurm started, gives each its
// shard of the data, and tells which process writes files. The program's own output appears from rank 0
// alone. A run of one process pays nothing. A program that is to run on several must link
// looptorch::distributed.
//
//   lt::PinnedPrefetchLoader batches(data, loading, app::shard_of_rank(lt::RandomSampler{.seed = 1}));
//   lt::Trainer trainer(model, optimizer, objective, app::data_parallel());
//   trainer.fit(batches);
//   if (!app::leads()) return;  // rank 0 writes the model
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/process/rank_environment.hpp>
#include <looptorch/data/samplers/distributed_sampler.hpp>
#include <looptorch/data/samplers/sampler.hpp>
#include <looptorch/loop/context.hpp>
#include <looptorch/loop/resume_rule.hpp>

#ifdef LOOPTORCH_DISTRIBUTED  // set by the target looptorch::distributed
#include <looptorch/distributed/data_parallel.hpp>
#endif

#include <chrono>
#include <exception>
#include <iostream>
#include <streambuf>
#include <string>
#include <utility>

namespace looptorch::app {

/// True in the process that writes files: rank 0, or the only one.
[[nodiscard]] inline bool leads() { return rank_environment().rank == 0; }

/// Returns a sampler of this rank's shard of the samples or batches of `inner`, which must be the same on all
/// ranks. No sample is repeated or left out, so some ranks may get one fewer than others.
template <class Inner = SequentialSampler>
[[nodiscard]] DistributedSampler<Inner> shard_of_rank(Inner inner = {}) {
  const RankEnvironment here = rank_environment();
  return DistributedSampler<Inner>({.rank = here.rank, .world_size = here.size}, std::move(inner));
}

/// Throws UsageError if there are several processes and the program cannot connect them.
inline void require_ranks_connect() {
#ifndef LOOPTORCH_DISTRIBUTED
  if (const std::int64_t size = rank_environment().size; size > 1)
    throw UsageError(message(size,
                             " processes were started, and this program was built without Gloo's headers, so "
                             "that each would train alone: install Debian's libgloo-dev, as "
                             "packaging/setup.sh --distributed does, and build it again"));
#endif
}

/// How a program's ranks train together.
struct RankOptions {
  /// Ranks keep the statistics of their own batches, for models with BatchNorm.
  bool batch_statistics_per_rank = false;
  /// How long a rank waits for a slower one, such as rank 0 while it alone measures the model before the run.
  std::chrono::seconds timeout = std::chrono::hours(6);
};

#ifdef LOOPTORCH_DISTRIBUTED
/// Returns the policy that trains one model on all ranks.
[[nodiscard]] inline DataParallel data_parallel(const RankOptions& options = {}) {
  DataParallel policy;
  policy.timeout = options.timeout;
  if (options.batch_statistics_per_rank) policy.batch_norm = BatchNormMode::per_rank;
  return policy;
}
#else
/// Takes the place of DataParallel in a program built without looptorch::distributed, and refuses several
/// processes.
struct OneProcess {
  static constexpr ResumeRule resume_rule = ResumeRule::always;
  void on_fit_begin(FitContext&) const { require_ranks_connect(); }
};
[[nodiscard]] inline OneProcess data_parallel(const RankOptions& = {}) { return {}; }
#endif

namespace detail {

/// Keeps std::cout and std::cerr silent while it lives, unless this rank leads.
class SilentUnlessLeading {
 public:
  SilentUnlessLeading() {
    if (leads()) return;
    out_ = std::cout.rdbuf(&nowhere_);
    err_ = std::cerr.rdbuf(&nowhere_);
  }
  ~SilentUnlessLeading() {
    if (out_) std::cout.rdbuf(out_);
    if (err_) std::cerr.rdbuf(err_);
  }
  SilentUnlessLeading(const SilentUnlessLeading&) = delete;
  SilentUnlessLeading& operator=(const SilentUnlessLeading&) = delete;

 private:
  struct Nowhere : std::streambuf {
    int_type overflow(int_type c) override { return traits_type::not_eof(c); }
  };
  Nowhere nowhere_;
  std::streambuf *out_ = nullptr, *err_ = nullptr;
};

/// Runs a program's body. On several ranks it connects them first, and an exception before the first fit ends
/// the others, too.
template <class Body>
void run_on_ranks(Body&& body) {
#ifdef LOOPTORCH_DISTRIBUTED
  if (rank_environment().size > 1) {
    ProcessGroup& group = ProcessGroup::of_environment();
    const SilentUnlessLeading silent;
    group.watch().prepare();
    try {
      std::forward<Body>(body)();
    } catch (const std::exception& error) {
      group.watch().fail(message("rank ", group.rank(), " ended outside a fit: ", error.what()));
      throw;
    }
    return;
  }
#endif
  std::forward<Body>(body)();
}

/// Returns " (rank 1)", which follows the program's name in its errors; nothing for rank 0.
[[nodiscard]] inline std::string rank_suffix() noexcept try {
  const std::int64_t rank = rank_environment().rank;
  return rank > 0 ? message(" (rank ", rank, ")") : std::string();
} catch (const std::exception&) {
  return {};
}

}  // namespace detail
}  // namespace looptorch::app
