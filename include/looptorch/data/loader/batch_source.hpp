// SPDX-License-Identifier: MIT
// Makes the batches of a dataset in the order of a sampler, for PinnedPrefetchLoader. The loader's worker
// threads share one source without a lock, since making a batch changes nothing in it.
#pragma once

#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/batch/batch_empty.hpp>
#include <looptorch/data/datasets/dataset.hpp>
#include <looptorch/data/loader/batch_cut.hpp>
#include <looptorch/data/loader/batch_maker.hpp>
#include <looptorch/data/loader/data_fingerprint.hpp>
#include <looptorch/data/loader/in_flight_samples.hpp>
#include <looptorch/data/loader/loader_options.hpp>
#include <looptorch/data/loader/regrouping.hpp>
#include <looptorch/data/samplers/sampler.hpp>
#include <looptorch/data/samplers/sampler_identity.hpp>

#include <c10/core/GradMode.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

namespace looptorch::detail {

/// One epoch's visit of the dataset.
struct EpochOrder {
  std::int64_t epoch;
  BatchPlan plan;
  InFlightSamples in_flight{};
};

template <class Set, class Order, class Collate>
class BatchSource final : public Regroupable {
 public:
  using Sample = sample_t<std::remove_cvref_t<Set>>;
  using Batch = batch_t<std::remove_cvref_t<Set>, Collate>;
  using Visit = EpochOrder;
  using Made = MadeBatch<Batch>;
  static constexpr bool kSized = true;
  static constexpr bool kRepeatable = true;

  BatchSource(Set&& dataset, const LoaderOptions& options, Order sampler, Collate collate)
      : dataset_(std::forward<Set>(dataset)),
        options_(options),
        sampler_(std::move(sampler)),
        collate_(std::move(collate)) {
    check_cut<Order>(cut());
    check_options(options_);
  }

  const LoaderOptions& options() const { return options_; }

  /// Returns the memory into which batches are collated.
  BatchMemoryPool& pool() const { return *pool_; }

  /// Returns the number of batches in an epoch.
  std::int64_t size() const {
    return regrouping_ ? *size_with(*regrouping_) : planned_count(sampler_, dataset_size(), cut());
  }

  /// Opens an epoch without its first `skip` batches.
  std::unique_ptr<Visit> open(std::int64_t epoch, std::int64_t /*skip*/, const StateDict* /*saved*/) const {
    return std::unique_ptr<Visit>(new Visit{epoch, plan(epoch)});
  }

  std::int64_t end_of(const Visit& visit) const { return visit.plan.size(); }

  std::span<const std::int64_t> indices_of(const Visit& visit, std::int64_t number, const Made& made) const {
    return made.as_planned ? visit.plan.batch(number) : std::span(made.indices);
  }

  /// Makes batch `number` of the epoch. Throws LoaderError that names the sample that failed. Stops between
  /// samples if requested.
  Made make(Visit& visit, std::int64_t number, const std::stop_token& stop) const {
    const c10::NoGradGuard no_grad;
    const std::span<const std::int64_t> indices = visit.plan.batch(number);
    BatchMaker<Sample, Batch> maker(options_, *pool_, visit.epoch, number);
    maker.reserve(indices.size());
    for (const std::int64_t index : indices) {
      throw_if_stopped(stop);
      if (options_.timeout > 0) visit.in_flight.begin(number, index);
      maker.add(
          index,
          [&] { return get_sample(dataset_, index, sample_context(options_.seed, visit.epoch, index)); },
          [&] { return path_of(dataset_, index); });
    }
    throw_if_stopped(stop);
    if (options_.timeout > 0) visit.in_flight.end(number);
    return maker.finish(
        [this](std::span<Sample> samples) { return collate_samples(dataset_, collate_, samples); },
        [this](std::int64_t index) { return path_of(dataset_, index); });
  }

  /// Returns the dataset's path of a sample, or an empty one.
  std::string path(std::int64_t index) const { return path_of(dataset_, index); }

  /// Returns "25 samples".
  std::string description() const { return message(dataset_size(), " samples"); }

  /// Returns the values that determine the batches: another loader with equal values makes the same ones.
  StateDict identity() const {
    return with_batches_of(
        regrouping_ ? regrouping_->planned.batch_size : batch_size(),
        [this](const Order& sampler, const BatchCut& cut) { return identity_of(sampler, cut.batch_size); });
  }

  std::int64_t batch_size() const override {
    if constexpr (ResizableSampler<Order>) return sampler_.batch_size();
    return BatchSampler<Order> ? 0 : options_.batch_size;
  }

  std::optional<StateDict> identity_with(std::int64_t batch_size) const override {
    if (batch_size < 1 && batch_size != this->batch_size()) return std::nullopt;
    if (kFixed && batch_size != 0) return std::nullopt;
    return with_batches_of(batch_size, [this](const Order& sampler, const BatchCut& cut) {
      StateDict identity = identity_of(sampler, cut.batch_size);
      identity.set("batches", planned_count(sampler, dataset_size(), cut));
      return identity;
    });
  }

  std::string different_data([[maybe_unused]] const std::string& saved,
                             [[maybe_unused]] const char* there) const override {
    if constexpr (FingerprintedDataset<std::remove_cvref_t<Set>>)
      return fingerprint().difference(saved, there, [this](std::int64_t index) { return path(index); });
    return {};
  }

  bool cuts_an_order() const override { return !BatchSampler<Order>; }

  std::string refusal(const Regrouping& how) const override {
    if (cuts_an_order() || how.planned.batch_size % how.read.batch_size == 0) return {};
    return message("the sampler decides which samples share a batch of up to ", how.planned.batch_size,
                   ", and such batches cannot be cut into batches of ", how.read.batch_size);
  }

  std::optional<std::int64_t> size_with(const Regrouping& how) const override {
    return with_batches_of(how.planned.batch_size, [&](const Order& sampler, const BatchCut& cut) {
      return pieces(how).count(planned_count(sampler, dataset_size(), cut));
    });
  }

  void regroup(std::optional<Regrouping> how) override {
    regrouping_ = std::move(how);
    planned_.reset();
    if constexpr (ResizableSampler<Order>)
      if (regrouping_)
        planned_ = std::make_shared<const Order>(sampler_.with_batch_size(regrouping_->planned.batch_size));
  }
  const std::optional<Regrouping>& regrouping() const override { return regrouping_; }

 private:
  /// True if the sampler decides the batches, and cannot make others.
  static constexpr bool kFixed = BatchSampler<Order> && !ResizableSampler<Order>;

  std::int64_t dataset_size() const { return static_cast<std::int64_t>(dataset_.size()); }

  BatchCut cut() const { return {options_.batch_size, options_.drop_last}; }

  /// Calls `use(sampler, cut)` with the sampler and the cut that make batches of this size.
  template <class Use>
  auto with_batches_of(std::int64_t batch_size, const Use& use) const {
    if constexpr (ResizableSampler<Order>) {
      if (planned_ && batch_size == planned_->batch_size()) return use(*planned_, cut());
      if (batch_size != sampler_.batch_size()) return use(sampler_.with_batch_size(batch_size), cut());
    }
    return use(sampler_, BatchSampler<Order> ? cut() : BatchCut{batch_size, options_.drop_last});
  }

  const DataFingerprint& fingerprint() const {
    if (!fingerprint_)
      fingerprint_.emplace(dataset_size(),
                           [this](std::int64_t index) { return dataset_.fingerprint(index); });
    return *fingerprint_;
  }

  StateDict identity_of(const Order& sampler, std::int64_t batch_size) const {
    StateDict identity;
    identity.set("dataset", description());
    if constexpr (FingerprintedDataset<std::remove_cvref_t<Set>>)
      identity.set(kFingerprint, fingerprint().text());
    identity.set("batch_size", batch_size);
    identity.set("drop_last", options_.drop_last);
    identity.set("seed", options_.seed);
    identity.set("sampler", sampler_identity(sampler));
    return identity;
  }

  /// Returns how many planned batches are cut into how many new ones. An order is cut window by window.
  /// Batches that a sampler decided are cut one by one, so that no new batch mixes samples of two.
  Pieces pieces(const Regrouping& how) const {
    if (cuts_an_order()) return {how.planned.micro_batches, how.read.micro_batches};
    return {1, how.planned.batch_size / how.read.batch_size};
  }

  BatchPlan plan(std::int64_t epoch) const {
    if (!regrouping_) return plan_epoch(sampler_, epoch, dataset_size(), cut());
    return with_batches_of(regrouping_->planned.batch_size, [&](const Order& sampler, const BatchCut& cut) {
      return cut_again(plan_epoch(sampler, epoch, dataset_size(), cut), pieces(*regrouping_),
                       regrouping_->read.batch_size);
    });
  }

  const Set dataset_;  // a reference where the loader was given an lvalue
  const LoaderOptions options_;
  const Order sampler_;
  const Collate collate_;
  const std::shared_ptr<BatchMemoryPool> pool_ = make_batch_memory_pool();
  std::optional<Regrouping> regrouping_;                // the consumer's thread alone reads and writes it
  mutable std::optional<DataFingerprint> fingerprint_;  // made by that thread when first needed
  std::shared_ptr<const Order> planned_;  // sampler of the planned batches, if it is not sampler_
};

/// Takes the place of a source after a failed check, so that no further errors follow. Its members have no
/// definitions.
struct RefusedBatchSource {
  using Batch = int;
  using Visit = EpochOrder;
  using Made = MadeBatch<int>;
  static constexpr bool kSized = true;
  static constexpr bool kRepeatable = true;
  template <class... Arguments>
  explicit RefusedBatchSource(Arguments&&...);
  const LoaderOptions& options() const;
  BatchMemoryPool& pool() const;
  std::int64_t size() const;
  std::unique_ptr<Visit> open(std::int64_t epoch, std::int64_t skip, const StateDict* saved) const;
  std::int64_t end_of(const Visit& visit) const;
  std::span<const std::int64_t> indices_of(const Visit& visit, std::int64_t number, const Made& made) const;
  Made make(Visit& visit, std::int64_t number, const std::stop_token& stop) const;
  std::string path(std::int64_t index) const;
  std::string description() const;
  StateDict identity() const;
  const std::optional<Regrouping>& regrouping() const;
  operator Regroupable&() const;
};

}  // namespace looptorch::detail
