// SPDX-License-Identifier: MIT
// Lets a run resume with another batch size: each window keeps its samples, so one batch of 8 becomes 8
// batches of 1, for example. A resumed `fit` cuts the epoch's batches anew, and converts positions in the
// epoch between the two sizes. Costs one pass over the epoch's list of batches.
#pragma once

#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/loader/loader_position.hpp>
#include <looptorch/data/samplers/sampler.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace looptorch::detail {

/// The micro-batches of a window, each of up to `batch_size` samples.
struct WindowShape {
  std::int64_t micro_batches = 1;
  std::int64_t batch_size = 0;  ///< 0: not known

  bool operator==(const WindowShape&) const = default;
};

/// Returns "8 micro-batches of 1 sample".
[[nodiscard]] inline std::string describe(const WindowShape& shape) {
  const auto counted = [](std::int64_t count, const char* what) {
    return message(count, " ", what, count == 1 ? "" : "s");
  };
  const std::string of = shape.batch_size == 0 ? "" : " of " + counted(shape.batch_size, "sample");
  return (shape.micro_batches == 1 ? "1 micro-batch" : message(shape.micro_batches, " micro-batches")) + of;
}

/// The shapes of windows in the run's first process, whose batches are what snapshots count, and in this
/// process. Both kinds of window hold the same samples.
///
/// For example, a run that began with 1 micro-batch of 8 samples continues with 8 of 1. A snapshot after 3
/// windows says 3 batches; this process has then read 24: from_planned(3) = 24, to_planned(24) = 3.
struct Regrouping {
  WindowShape planned;  ///< of the first process
  WindowShape read;     ///< of this process

  bool operator==(const Regrouping&) const = default;

  /// Returns how many batches of the epoch this process has read when the first process would have read
  /// `batch`. `planned_size` and `size` are the epoch's numbers of batches in the first process and in this
  /// one. If they are not known, treats an incomplete window as the epoch's last. Empty in the middle of a
  /// window.
  [[nodiscard]] std::optional<std::int64_t> from_planned(std::int64_t batch,
                                                         std::optional<std::int64_t> planned_size,
                                                         std::optional<std::int64_t> size) const {
    if (planned_size && batch == *planned_size) return size;
    const bool in_window = batch % planned.micro_batches != 0;
    if (planned_size && in_window) return std::nullopt;
    return (batch / planned.micro_batches + in_window) * read.micro_batches;
  }

  /// Returns how many batches the first process would have read at the end of the window in which this
  /// process has read `batch`.
  [[nodiscard]] std::int64_t to_planned(std::int64_t batch, std::optional<std::int64_t> planned_size) const {
    const std::int64_t windows = batch / read.micro_batches + (batch % read.micro_batches != 0);
    const std::int64_t position = windows * planned.micro_batches;
    return planned_size ? std::min(position, *planned_size) : position;
  }
};

/// How the first process's batches are cut: every `taken` of them become `given` with the same samples.
struct Pieces {
  std::int64_t taken = 1, given = 1;

  /// Returns how many batches are made of `planned` batches of the first process.
  [[nodiscard]] std::int64_t count(std::int64_t planned) const {
    return (planned / taken + (planned % taken != 0)) * given;
  }
};

/// Returns the first process's epoch with each `taken` batches cut into `given`, of up to `batch_size`
/// samples. If there are too few samples, the last of these `given` are empty, so that every window has the
/// same number of batches.
[[nodiscard]] inline BatchPlan cut_again(BatchPlan plan, const Pieces& pieces, std::int64_t batch_size) {
  BatchPlan cut{.indices = std::move(plan.indices), .ends = {}};
  std::int64_t position = 0;
  for (std::int64_t first = 0; first < plan.size(); first += pieces.taken) {
    const std::int64_t last = std::min(first + pieces.taken, plan.size()) - 1;
    const std::int64_t end = plan.ends[static_cast<std::size_t>(last)];
    for (std::int64_t piece = 0; piece < pieces.given; ++piece)
      cut.ends.push_back(position = std::min(position + batch_size, end));
  }
  return cut;
}

/// The interface by which a resumed fit makes a loader cut its epochs into batches of another size.
class Regroupable {
 public:
  /// Returns the largest number of samples in a batch; 0 if the sampler does not tell.
  [[nodiscard]] virtual std::int64_t batch_size() const = 0;
  /// Returns the identity, with the number of batches, that the source would have with another batch size.
  /// Empty if the sampler cannot make such batches. `identity_with(batch_size())` is the source's own.
  [[nodiscard]] virtual std::optional<StateDict> identity_with(std::int64_t batch_size) const = 0;
  /// Says which data differ from those of the fingerprint `saved`, which the text calls `there`. Empty if
  /// this loader has no fingerprint.
  [[nodiscard]] virtual std::string different_data(const std::string& saved, const char* there) const = 0;
  /// True if batches are cut from an order of samples. False if a sampler decides which samples share a
  /// batch.
  [[nodiscard]] virtual bool cuts_an_order() const = 0;
  /// Returns why windows cannot be regrouped this way; empty if they can. Both shapes hold the same number of
  /// samples.
  [[nodiscard]] virtual std::string refusal(const Regrouping& how) const = 0;
  /// Returns the number of batches in an epoch that is regrouped this way; empty for a stream.
  [[nodiscard]] virtual std::optional<std::int64_t> size_with(const Regrouping& how) const = 0;
  /// Regroups the epochs that are opened from now on; empty: reads the sampler's own batches.
  virtual void regroup(std::optional<Regrouping> how) = 0;
  /// Makes epochs that are opened at this place or later continue from the stream's saved state, instead of
  /// reading the stream up to there. Empty: each epoch is read from its beginning.
  virtual void continue_from(std::optional<StreamPlace> /*place*/) {}
  [[nodiscard]] virtual const std::optional<Regrouping>& regrouping() const = 0;

  /// Returns the identity of the first process's batches with their number, by which snapshots recognise the
  /// data.
  [[nodiscard]] StateDict planned_identity() const {
    const auto& how = regrouping();
    return identity_with(how ? how->planned.batch_size : batch_size()).value();
  }

 protected:
  ~Regroupable() = default;
};

}  // namespace looptorch::detail
