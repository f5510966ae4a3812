// SPDX-License-Identifier: MIT
// Where a window's fault lies: in a micro-batch, on another rank, or nowhere in particular.
#include "support/precompiled.hpp"

#include <looptorch/loop/step/window_fault.hpp>

namespace lt = looptorch;
using lt::detail::LossFault, lt::detail::WindowFinding, lt::detail::WindowOrigin;

namespace {

/// A window of two micro-batches of two samples.
WindowOrigin window() {
  WindowOrigin origin;
  origin.begin(/*step=*/3, /*epoch=*/1);
  origin.add(6, std::vector<std::int64_t>{12, 13});
  origin.add(7, std::vector<std::int64_t>{14, 15});
  return origin;
}

/// A finding of several ranks, or of this one alone.
WindowFinding found(lt::Finding::Cause cause, std::int64_t ranks) {
  return {.finding = std::make_shared<lt::Finding>(lt::Finding{.cause = cause, .ranks = ranks}),
          .explanation = "Because.",
          .full_error = {}};
}

}  // namespace

TEST_CASE("a fault lies in the micro-batch that is known, else on another rank, else in the window") {
  CHECK_FALSE(LossFault{}.is_known());
  CHECK(LossFault{}.origin(window()).place().text() ==
        "step 3, batch 6 to 7 of epoch 1 (samples 12, 13, 14, 15)");

  const LossFault other{.micro_batch = {}, .elsewhere = "rank 1: NaN"};
  CHECK(other.is_known());
  CHECK(other.origin(window()).place().elsewhere == "rank 1: NaN");
  CHECK(other.origin(window()).place().samples.empty());

  const LossFault own{.micro_batch = 1, .elsewhere = "rank 1: NaN"};
  CHECK(own.is_known());
  CHECK(own.origin(window()).place().text() == "step 3, batch 7 of epoch 1 (samples 14, 15)");
}

TEST_CASE("a finding of several ranks names this rank's samples only if the fault is here") {
  using Cause = lt::Finding::Cause;
  const auto samples_of = [](const WindowFinding& finding, const LossFault& fault) {
    const WindowOrigin origin = finding.origin(fault, window());
    CHECK(origin.explanation() == "Because.");
    return origin.place().samples;
  };
  const std::vector<std::int64_t> all{12, 13, 14, 15}, none;
  CHECK(samples_of(found(Cause::none, 1), {}) == all);
  CHECK(samples_of(found(Cause::operation, 2), {}) == all);
  CHECK(samples_of(found(Cause::elsewhere, 2), {}) == none);
  CHECK(samples_of(found(Cause::none, 2), {}) == none);
  CHECK(samples_of(found(Cause::none, 2), {.micro_batch = 0}) == std::vector<std::int64_t>{12, 13});

  WindowFinding finding = found(Cause::operation, 2);
  finding.full_error = "One sentence for all ranks.";
  CHECK(std::string(finding.origin({}, window()).error<lt::NonFiniteLoss>("", "").what()) ==
        finding.full_error);
}
