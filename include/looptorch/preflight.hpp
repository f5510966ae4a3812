// SPDX-License-Identifier: MIT
// Checks before a run whether it fits into memory, by dry steps that leave no trace. Give it the batches that
// need most (hard_batches finds them): it runs whole steps, moments, averages and an evaluation included, and
// restores everything. If the run does not fit, it tries changes that save memory, and reports which help.
//
//   const auto report = preflight(trainer, hardest_batches);
//   if (!report.fits) std::fputs(report.text().c_str(), stderr);
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/what_of.hpp>
#include <looptorch/loop.hpp>
#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/memory/measure/memory_counter.hpp>
#include <looptorch/optim/frozen_scope.hpp>
#include <looptorch/policies/accumulate.hpp>
#include <looptorch/policies/autocast.hpp>
#include <looptorch/preflight/dry_run.hpp>
#include <looptorch/preflight/hard_batches.hpp>
#include <looptorch/preflight/preflight_report.hpp>
#include <looptorch/preflight/recompute_scope.hpp>
#include <looptorch/preflight/remedies.hpp>
#include <looptorch/preflight/run_backup.hpp>
#include <looptorch/preflight/sample_batches.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// Limits the memory of CPU tensors while it lives.
class HostLimit {
 public:
  HostLimit(bool on, std::int64_t bytes) : on_(on), was_(on ? HostMemory::counted().limit() : 0) {
    if (on_) HostMemory::counted().set_limit(std::min(bytes, was_));
  }
  ~HostLimit() {
    if (on_) HostMemory::counted().set_limit(was_);
  }
  HostLimit(const HostLimit&) = delete;
  HostLimit& operator=(const HostLimit&) = delete;

 private:
  bool on_;
  std::int64_t was_;
};

/// The dry steps of one Trainer.
template <class Engine, class Source>
class Preflight {
 public:
  using Batch = typename decltype(std::declval<const Source&>().of_at_most(1))::value_type;
  using Change = typename DryRun<Engine, Batch>::Change;

  Preflight(Engine& engine, Source source, const PreflightOptions& options)
      : engine_(engine), source_(std::move(source)), options_(options), counter_(device_of(engine)) {
    if (!(options.margin >= 0 && options.margin < 1))
      throw UsageError(
          message("PreflightOptions::margin is a share from 0 to below 1, got ", options.margin));
    if (options.cap < 0) throw UsageError(message("PreflightOptions::cap is in bytes, got ", options.cap));
    size_ = source_.size();
    if (size_ < 1) throw UsageError("preflight was given no batches, or batches without samples");
    window_samples_ = size_ * engine.window_length();
    counter_.add_uncounted(held_memory(engine).uncounted);
    expected_ = expected_memory(engine);
    if (HostMemory::device()) expected_.copies = expected_.snapshot = 0;  // they lie on the host
    empty_cache(counter_.device());
    cap_ = options.cap > 0 ? options.cap : free_and_held();
  }

  [[nodiscard]] PreflightReport run() {
    const DryMemory dry = measure(size_, [this] {
      look_for_remedies();
      return nullptr;
    });
    PreflightReport report;
    report.device = counter_.device();
    report.fits = fits(dry);
    report.out_of_memory = dry.out_of_memory;
    report.needed = dry.needed;
    report.cap = cap_;
    report.margin = options_.margin;
    report.phases = dry.phases;
    report.parts = divide(dry.phases.peak(), dry.held);
    report.snapshot = snapshot_on_device();
    if (!report.fits && options_.try_remedies) report.tried = try_remedies();
    return report;
  }

  /// Returns the largest micro-batch that fits, among divisors of a window's samples. `is_too_large` if the
  /// given batches are known not to fit.
  [[nodiscard]] std::optional<std::int64_t> largest_micro_batch(std::vector<PreflightTrial>& tried,
                                                                const Change& change = {},
                                                                bool is_too_large = false) {
    const std::vector<std::int64_t> sizes = micro_batch_sizes();
    // sizes[fitting - 1] fits, sizes[failing - 1] does not
    std::size_t fitting = 0, failing = sizes.size() + (is_too_large ? 0 : 1);
    while (failing - fitting > 1) {
      const std::size_t middle = failing > sizes.size() ? sizes.size() : (fitting + failing) / 2;
      tried.push_back(attempt(window_text(sizes[middle - 1]), sizes[middle - 1], change));
      (tried.back().fits ? fitting : failing) = middle;
      if (fitting == sizes.size()) break;
    }
    if (fitting == 0) return std::nullopt;
    return sizes[fitting - 1];
  }

  /// Returns the samples of a whole window.
  [[nodiscard]] std::int64_t window_samples() const { return window_samples_; }

 private:
  static at::Device device_of(Engine& engine) {
    engine.prepare();
    return engine.run().device();
  }

  [[nodiscard]] std::int64_t free_and_held() const {
    const auto capacity = memory_capacity(counter_.device());
    if (!capacity)
      throw UsageError(message("preflight cannot tell what ", counter_.device(),
                               " has: give PreflightOptions::cap in bytes"));
    return capacity->available + counter_.read().reserved;
  }

  [[nodiscard]] bool fits(const DryMemory& dry) const {
    return !dry.out_of_memory && dry.needed <= PreflightReport::allowed(cap_, options_.margin);
  }
  /// Tries a change, which the model or the objective may refuse.
  [[nodiscard]] PreflightTrial attempt(std::string text, std::int64_t samples, const Change& change) {
    try {
      const DryMemory dry = measure(samples, change);
      return {std::move(text), dry.needed, dry.out_of_memory, fits(dry)};
    } catch (const c10::Error& error) {
      return {.change = std::move(text), .error = first_line(error.what_without_backtrace())};
    } catch (const Error& error) {
      return {.change = std::move(text), .error = first_line(error.what())};
    }
  }

  /// Measures with the first `samples` samples of each batch, with enough of these to keep a window's
  /// samples, and restores the run.
  DryMemory measure(std::int64_t samples, const Change& change = {}) {
    const bool on_cpu = counter_.device().is_cpu() && !HostMemory::device();
    const std::vector<Batch> some = source_.of_at_most(samples);
    const std::int64_t before = counter_.read().allocated;
    auto backup = [&] {
      const HostMemory::PlaceScope on_host(HostMemory::Place::host);
      return RunBackup<Engine>(engine_);
    }();
    const std::int64_t copies = on_cpu ? counter_.read().allocated - before : 0;
    DryMemory dry;
    std::exception_ptr thrown;
    {
      const HostLimit limit(on_cpu, cap_ + copies - counter_.uncounted());
      engine_.stack().mute(true);
      try {
        dry = DryRun<Engine, Batch>(engine_, counter_, window_samples() / samples, change)
                  .measure(some, options_.evaluate);
      } catch (...) {
        thrown = std::current_exception();
      }
      engine_.stack().mute(false);
    }
    backup.put_back();
    if (thrown) std::rethrow_exception(thrown);
    dry.phases.subtract(copies);
    dry.needed -= copies;
    if (!dry.out_of_memory) add_later(dry);
    return dry;
  }

  /// Adds what dry steps miss: averages that begin later, copies kept by policies, a snapshot's copy.
  void add_later(DryMemory& dry) const {
    const std::int64_t averages = std::max<std::int64_t>(expected_.averages - dry.held.averages, 0);
    dry.held.averages += averages;
    dry.phases.subtract(-(averages + expected_.copies));
    dry.needed += averages + expected_.copies + snapshot_on_device();
  }
  [[nodiscard]] std::int64_t snapshot_on_device() const {
    return counter_.device().is_cpu() ? expected_.snapshot : 0;
  }

  [[nodiscard]] std::vector<std::int64_t> micro_batch_sizes() {
    std::vector<std::int64_t> sizes;
    const std::int64_t all = window_samples();
    for (std::int64_t size = std::max<std::int64_t>(options_.remedies.least_batch, 1); size <= size_; ++size)
      if (all % size == 0) sizes.push_back(size);
    return sizes;
  }
  [[nodiscard]] std::string window_text(std::int64_t size) {
    const auto& batches = options_.remedies.batches;
    return batches ? batches(size, window_samples() / size) : std::to_string(size);
  }

  /// Notes the remedies available to the run, once its policies have set theirs.
  void look_for_remedies() {
    recomputing_ = recomputing_policies(*engine_.model());
    const auto type = counter_.device().type();
    computes_in_16_bits_ = engine_.stack().template in_scopes<forward_scope_hook>(
        ForwardContext{engine_.run(), /*training=*/true},
        [type] { return at::autocast::is_autocast_enabled(type); });
    engine_.stack().template each_with<on_fit_begin_hook>([this](auto& slot) {
      using Policy = typename std::remove_reference_t<decltype(slot)>::Policy;
      if constexpr (exclusion_between<Policy, Accumulate<2>>()) accumulates_ = false;
    });
    for (const at::Tensor& parameter : engine_.parameters().all())
      computes_in_16_bits_ |= parameter.is_floating_point() && parameter.element_size() == 2;
  }

  /// Tries remedies that cost time, then precision, then both, each with smaller micro-batches if needed;
  /// last those that cost learning.
  [[nodiscard]] std::vector<PreflightTrial> try_remedies() {
    const PreflightRemedies& words = options_.remedies;
    const auto& model = *engine_.model();
    std::vector<PreflightTrial> tried;
    try_smaller_batches({}, "", tried);
    std::string recomputation;
    if (words.recomputation && !recomputing_.empty()) recomputation = words.recomputation(recomputing_);
    const Change recompute = [&model] { return std::make_shared<RecomputeScope>(model); };
    if (!recomputation.empty()) try_with_batches(recompute, recomputation, tried);
    if (!words.bf16.empty() && !computes_in_16_bits_) {
      const Change cast = [type = counter_.device().type()] {
        return std::make_shared<AutocastScope>(type, bf16::kType);
      };
      try_with_batches(cast, words.bf16, tried);
      if (!recomputation.empty() && !any_fits(tried))
        try_with_batches(
            [&] {
              return std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(recompute(),
                                                                                               cast());
            },
            recomputation + words.separator + words.bf16, tried);
    }
    if (words.frozen)
      for (const auto& child : model.named_children())
        if (const auto parameters = child.value()->parameters(); can_freeze(parameters))
          tried.push_back(attempt(words.frozen(child.key()), size_,
                                  [&] { return std::make_shared<FrozenScope>(parameters); }));
    return tried;
  }

  [[nodiscard]] static bool any_fits(const std::vector<PreflightTrial>& tried) {
    return std::any_of(tried.begin(), tried.end(), [](const auto& trial) { return trial.fits; });
  }

  /// Tries a change alone, then with smaller micro-batches if it does not fit.
  void try_with_batches(const Change& change, const std::string& words, std::vector<PreflightTrial>& tried) {
    tried.push_back(attempt(words, size_, change));
    if (!tried.back().fits) try_smaller_batches(change, words + options_.remedies.separator, tried);
  }

  /// Records the largest smaller micro-batch that fits, or the smallest if none does.
  void try_smaller_batches(const Change& change, const std::string& with,
                           std::vector<PreflightTrial>& tried) {
    const std::vector<std::int64_t> sizes = micro_batch_sizes();
    if (!accumulates_ || !options_.remedies.batches || sizes.empty() || sizes.front() >= size_) return;
    std::vector<PreflightTrial> trials;
    const auto largest = largest_micro_batch(trials, change, /*is_too_large=*/true);
    const std::string wanted = window_text(largest.value_or(sizes.front()));
    for (PreflightTrial& each : trials)
      if (each.change == wanted) {
        each.change = with + wanted;
        tried.push_back(std::move(each));
        return;
      }
  }

  /// True if some of `parameters` are trained, and each update also trains others.
  [[nodiscard]] bool can_freeze(const std::vector<at::Tensor>& parameters) {
    const auto among = [&](const at::Tensor& tensor) {
      return std::any_of(parameters.begin(), parameters.end(),
                         [&](const at::Tensor& each) { return each.is_same(tensor); });
    };
    bool trained = false;
    for (const UpdateView& view : engine_.run().updates()) {
      bool others = false;
      for (const at::Tensor& parameter : view.parameters)
        if (parameter.requires_grad()) (among(parameter) ? trained : others) = true;
      if (!others) return false;
    }
    return trained;
  }

  Engine& engine_;
  Source source_;
  PreflightOptions options_;
  MemoryCounter counter_;
  HeldMemory expected_;
  std::int64_t size_ = 0, cap_ = 0, window_samples_ = 0;
  std::string recomputing_;  ///< Policies of the layers that could recompute and do not.
  bool computes_in_16_bits_ = false;
  bool accumulates_ = true;  ///< No policy that is on excludes Accumulate.
};

/// Returns the Preflight of a trainer on SampleBatches, or on the batches of a range.
template <class Trainer, class Batches>
[[nodiscard]] auto make_preflight(Trainer& trainer, Batches& batches, const PreflightOptions& options) {
  auto& engine = TrainerAccess::engine(trainer);
  using Engine = std::remove_reference_t<decltype(engine)>;
  require_no_open_window(engine, "preflight()");
  resolve_updates(engine);
  TrainerAccess::restart(trainer);
  if constexpr (requires { batches.of_at_most(1); }) {
    using Samples = std::remove_const_t<Batches>;
    return Preflight<Engine, Samples>(engine, batches, options);
  } else {
    using Given = GivenBatches<range_batch_t<Batches>>;
    return Preflight<Engine, Given>(engine, Given(batches), options);
  }
}

}  // namespace detail

/// Checks whether a run of `trainer` fits, by dry steps on `batches`, the greatest that fit will meet: a
/// range of batches like fit's, or SampleBatches of a dataset. Smaller micro-batches are views of a range's
/// batches; a batch type with fields other than tensors needs SampleBatches. Leaves weights, moments,
/// averages, policies, counters, random generators and flags as they are, bit for bit; drops gradients, as
/// fit does. Policies that declare `only_reports` are not called, and no policy's hooks of windows and epochs
/// run. Trains all layers that UnfreezeAt unfreezes in any epoch. Adds averages that begin later,
/// RestoreBest's copy and, on a CPU, a snapshot's. Needs host memory for a copy of the run. Throws UsageError
/// for empty batches or options out of range, and what the objective throws; running out of memory is a
/// result.
template <class Trainer, class Batches>
[[nodiscard]] PreflightReport preflight(Trainer& trainer, Batches&& batches,
                                        const PreflightOptions& options = {}) {
  const auto call = detail::TrainerAccess::call(trainer).begin("preflight()");
  return detail::make_preflight(trainer, batches, options).run();
}

/// The largest micro-batch that fits.
struct MicroBatch {
  std::int64_t size = 0;        ///< Samples; 0 if not even one fits.
  std::int64_t accumulate = 0;  ///< Micro-batches in the given window.
  std::vector<PreflightTrial> tried;
};

/// Finds the largest micro-batch that fits, by dry steps as in `preflight`. Keeps the samples of a window,
/// and so what is learnt: tries only their divisors up to the given batches' size, that size first, then by
/// bisection. Give the whole window as one batch if it may fit: without accumulation no gradients exist
/// during forward, so it can need less than two halves. Returns 0 if not even one sample fits.
template <class Trainer, class Batches>
[[nodiscard]] MicroBatch find_micro_batch(Trainer& trainer, Batches&& batches,
                                          const PreflightOptions& options = {}) {
  const auto call = detail::TrainerAccess::call(trainer).begin("find_micro_batch()");
  auto preflight = detail::make_preflight(trainer, batches, options);
  MicroBatch found;
  found.size = preflight.largest_micro_batch(found.tried).value_or(0);
  if (found.size > 0) found.accumulate = preflight.window_samples() / found.size;
  return found;
}

}  // namespace looptorch
