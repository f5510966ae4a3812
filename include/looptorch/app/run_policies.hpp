// SPDX-License-Identifier: MIT
// Returns the policies behind the standard flags, as one bundle. A training program lists the bundle beside
// its own policies:
//
//   lt::Trainer trainer(model, optimizer, objective,
//                       app::run_policies(training, options.output, *model).without<lt::SnapshotEvery>(),
//                       ...);
#pragma once

#include <looptorch/app/flags/memory_flags.hpp>
#include <looptorch/app/memory_check.hpp>
#include <looptorch/app/ranks.hpp>
#include <looptorch/app/run/run_settings.hpp>
#include <looptorch/app/run_log.hpp>
#include <looptorch/app/training_options.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/process/rank_environment.hpp>
#include <looptorch/base/text/type_name.hpp>
#include <looptorch/loop/compose/bundle.hpp>
#include <looptorch/loop/compose/policy_stack.hpp>
#include <looptorch/policies/accumulate.hpp>
#include <looptorch/policies/autopsy.hpp>
#include <looptorch/policies/backend_flags.hpp>
#include <looptorch/policies/cache_flush_every.hpp>
#include <looptorch/policies/capture_graphs.hpp>
#include <looptorch/policies/retry_on_oom.hpp>
#include <looptorch/policies/show_progress.hpp>
#include <looptorch/policies/snapshot_every.hpp>
#include <looptorch/policies/watch_memory.hpp>

#include <torch/nn/module.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace looptorch::app {

/// Settings of a program's standard policies for which there is no standard flag.
struct RunDetails {
  /// For RunSettings: the program's own flags that affect what is learnt, and the samples_of its validation
  /// data. A run resumes with the same ones only.
  std::map<std::string, std::string> settings = {}, data = {};
  report::Facts facts = {};         ///< Further lines of the report.
  MemoryFlags memory_flags = {};    ///< The program's flags that save memory, for WatchMemory.
  RankOptions ranks = {};           ///< How several processes train together.
  bool flush_at_epoch_end = false;  ///< With --flush-every, empties the cache at epochs' ends too.
};

/// Returns the folder of a run's snapshots.
[[nodiscard]] inline std::filesystem::path snapshots_in(const std::filesystem::path& output) {
  return output / "snapshots";
}

/// Returns the policies of a program that writes to `output`, a bundle. Accumulate, BackendFlags and
/// ShowProgress are always on, and LogMetrics unless --no-report is given; each other one is switched off
/// unless its flag is given.
///
///   DataParallel      several processes
///   Accumulate        --gradient-accumulation
///   Autocast<>        --bf16, --fp16, --mixed-precision
///   BackendFlags      --tf32, --cudnn-benchmark
///   CacheFlushEvery   --flush-every
///   CaptureGraphs     --capture
///   RetryOnOom        --retry-on-oom
///   Autopsy           --autopsy, windows in bad-windows
///   Profile           --profile, in trace.json
///   RunSettings       the program's own settings, if there are any, and --quick
///   SnapshotEvery     --snapshot-every, --resume, in snapshots
///   WatchMemory       --memory
///   LogMetrics        --[no-]report (the default: on), --histograms
///   ShowProgress      always
[[nodiscard]] inline auto run_policies(const TrainingOptions& training, const std::filesystem::path& output,
                                       const torch::nn::Module& model, const RunDetails& details = {}) {
  const auto memory_flags = beside_given(details.memory_flags, training);
  const bool has_settings = training.quick || !details.settings.empty() || !details.data.empty();
  auto data = details.data;
  data.emplace("--quick", setting(training.quick));  // no run resumes a rehearsal, whose epoch was cut short
  return Policies{When{rank_environment().size > 1, data_parallel(details.ranks)},
                  Accumulate<>{training.gradient_accumulation},
                  When{training.mixed_precision(), Autocast<>{.type = training.autocast_type()}},
                  BackendFlags{.tf32 = training.tf32, .cudnn_benchmark = training.cudnn_benchmark},
                  When{training.flush_every > 0, CacheFlushEvery<>{.at_epoch_end = details.flush_at_epoch_end,
                                                                   .batches = training.flush_every}},
                  When{training.capture, CaptureGraphs{}},
                  When{training.retry_on_oom, RetryOnOom{}},
                  training.autopsy_policy(output),
                  profile_policy(training, output),
                  When{has_settings, RunSettings(details.settings, data)},
                  When{training.takes_snapshots(),
                       SnapshotEvery{.folder = snapshots_in(output), .steps = training.snapshot_every}},
                  When{training.memory, WatchMemory{.remedies = memory_flags.of_parts()}},
                  run_log(training, output, model, details.facts),
                  ShowProgress{}};
}

namespace detail {

/// Takes the place of DataParallel in a program without code for several processes.
inline constexpr std::string_view kOneProcess = "OneProcess";

template <class... Listed>
[[nodiscard]] std::string names_of(std::type_identity<Policies<Listed...>>) {
  std::string text;
  const auto add = [&text](std::string_view name) {
    if (name != kOneProcess) text += message(text.empty() ? "" : ", ", name);
  };
  (add(looptorch::detail::short_name(looptorch::detail::type_name<looptorch::detail::unwrapped_t<Listed>>())),
   ...);
  return text;
}

}  // namespace detail

/// Returns the names of the policies of run_policies: "DataParallel, Accumulate, ...".
[[nodiscard]] inline std::string names_of_run_policies() {
  using Bundle = decltype(run_policies(std::declval<const TrainingOptions&>(), std::filesystem::path(),
                                       std::declval<const torch::nn::Module&>()));
  return detail::names_of(std::type_identity<Bundle>());
}

}  // namespace looptorch::app
