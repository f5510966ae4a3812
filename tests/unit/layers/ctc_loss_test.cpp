// SPDX-License-Identifier: MIT
// ctc_loss beside at::ctc_loss in fp64: LibTorch's own on a CPU, the kernels emulated on CPU threads, and the
// tensor operations of other devices.
// Tests layers: ctc_loss, ctc_code
#include "support/precompiled.hpp"

#include <looptorch/layers/ctc_loss.hpp>

#include "support/kernels/emulated_kernels.hpp"

#include <cmath>
#include <limits>
#include <vector>

namespace lt = looptorch;
using namespace lt::testing;

namespace {

struct Case {
  at::Tensor scores_TNC;  // fp64
  at::Tensor targets_NL, input_lengths_N, target_lengths_N;
  lt::CtcOptions options;
};

at::Tensor ids(const std::vector<std::int64_t>& values) { return torch::tensor(values, at::kLong); }

struct Result {
  at::Tensor losses, gradient;  // of the scores
};

/// Differentiates a weighted sum of the clips' losses.
template <class Loss>
Result result_of(const Case& given, at::ScalarType type, const Loss& loss) {
  const at::Tensor scores = given.scores_TNC.detach().clone().to(type).requires_grad_(true);
  const at::Tensor losses = loss(at::log_softmax(scores, -1));
  const at::Tensor weights = at::arange(1, losses.numel() + 1, losses.options()) / 4;
  (losses * weights).sum().backward();
  return {losses.detach().to(at::kDouble), scores.grad().to(at::kDouble)};
}

Result reference_of(const Case& given) {
  return result_of(given, at::kDouble, [&](const at::Tensor& log_probs) {
    return at::ctc_loss(log_probs, given.targets_NL, given.input_lengths_N, given.target_lengths_N,
                        given.options.blank, at::Reduction::None, given.options.zero_infinity);
  });
}

Result ours(const Case& given, at::ScalarType type = at::kFloat) {
  return result_of(given, type, [&](const at::Tensor& log_probs) {
    return lt::ctc_loss(log_probs, given.targets_NL, given.input_lengths_N, given.target_lengths_N,
                        given.options);
  });
}

Result by_operations(const Case& given, at::ScalarType type = at::kFloat) {
  return result_of(given, type, [&](const at::Tensor& log_probs) {
    return lt::detail::CtcFunction::apply(log_probs, given.targets_NL, given.input_lengths_N,
                                          given.target_lengths_N, given.options.blank,
                                          given.options.zero_infinity);
  });
}

void check_close(const Result& found, const Result& expected, double tolerance) {
  CAPTURE(found.losses, expected.losses);
  CHECK(at::allclose(found.losses, expected.losses, tolerance, tolerance));
  // Without zero_infinity the gradient of a clip that no path fits is NaN, wherever a label is.
  const at::Tensor finite = expected.losses.isfinite().nonzero().squeeze(1);
  const at::Tensor apart = (found.gradient - expected.gradient).index_select(1, finite);
  CHECK(apart.abs().le(tolerance).all().item<bool>());
}

/// Clips of any length, with or without frames and text, too short ones, and few classes, so that labels
/// repeat.
Case random_case(std::int64_t seed, std::int64_t most_frames = 24) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  const auto number = [](std::int64_t low, std::int64_t high) {
    return at::randint(low, high + 1, {1}, at::kLong).item<std::int64_t>();
  };
  const std::int64_t T = number(1, most_frames), N = number(1, 5), L = number(1, 8), C = number(2, 6);
  const std::int64_t blank = number(0, C - 1);
  at::Tensor targets = at::randint(C - 1, {N, L}, at::kLong);
  targets += targets >= blank;
  return {.scores_TNC = 3 * at::randn({T, N, C}, at::kDouble),
          .targets_NL = targets,
          .input_lengths_N = at::randint(0, T + 1, {N}, at::kLong),
          .target_lengths_N = at::randint(0, L + 1, {N}, at::kLong),
          .options = {.blank = blank, .zero_infinity = seed % 3 != 0}};
}

}  // namespace

TEST_CASE("on a CPU ctc_loss is LibTorch's") {
  for (std::int64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const Case given = random_case(seed);
    const Result found = ours(given, at::kDouble), expected = reference_of(given);
    CHECK(found.losses.equal(expected.losses));
    CHECK(at::allclose(found.gradient, expected.gradient, 0, 0, /*equal_nan=*/true));
  }
}

TEST_CASE("ctc_loss by tensor operations has at::ctc_loss's values and gradients") {
  for (std::int64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    const Case given = random_case(seed);
    const Result expected = reference_of(given);
    check_close(by_operations(given), expected, 1e-5);
    check_close(by_operations(given, at::kDouble), expected, 1e-11);
  }
}

TEST_CASE("ctc_loss by kernels has at::ctc_loss's values and gradients, in any order of threads") {
  for (std::int64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const Case given = random_case(seed);
    const GuardedTensors guarded;
    EmulatedKernels kernels(EmulatedKernels::kLargeTable, static_cast<std::uint64_t>(seed) + 1);
    const KernelsOnCpu on(kernels);
    check_close(ours(given), reference_of(given), 1e-5);
    CHECK(kernels.launches() == 2);
  }
}

TEST_CASE("ctc_loss: texts that fit exactly, repeat, are empty or too long") {
  // Frames needed: 3, 4, 0, 3, 5; the last two clips are too short.
  const Case given{.scores_TNC = 2 * at::randn({4, 5, 5}, at::kDouble),
                   .targets_NL = ids({1, 2, 3, 2, 2, 1, 0, 0, 0, 3, 3, 0, 1, 1, 1}).view({5, 3}),
                   .input_lengths_N = ids({3, 4, 2, 2, 4}),
                   .target_lengths_N = ids({3, 3, 0, 2, 3}),
                   .options = {.zero_infinity = GENERATE(true, false)}};
  const Result expected = reference_of(given), operations = by_operations(given);
  CHECK(expected.losses.isinf().sum().item<std::int64_t>() == (given.options.zero_infinity ? 0 : 2));
  check_close(operations, expected, 1e-5);
  EmulatedKernels kernels;
  const KernelsOnCpu on(kernels);
  const Result found = ours(given);
  check_close(found, expected, 1e-5);
  for (const Result& result : {operations, found}) {
    CHECK(result.gradient.select(1, 0).slice(0, 3).eq(0).all().item<bool>());  // after its length
    if (given.options.zero_infinity) CHECK(result.gradient.slice(1, 3).eq(0).all().item<bool>());
  }
}

TEST_CASE("ctc_loss: more states than threads, long clips, and batches that lie otherwise in memory") {
  Case given = random_case(5);
  torch::manual_seed(3);
  given.scores_TNC = at::randn({2, 400, 9}, at::kDouble).transpose(0, 1);
  given.targets_NL = at::randint(1, 9, {150, 2}, at::kLong).t();
  given.input_lengths_N = ids({400, 377}), given.target_lengths_N = ids({150, 140});
  given.options = {};
  const Result expected = reference_of(given);
  const Result theirs = ours(given);  // in fp32, whose rounding grows with a clip's length
  const double rounded = (theirs.gradient - expected.gradient).abs().max().item<double>();
  check_close(by_operations(given), expected, 1e-5 + 2 * rounded);
  EmulatedKernels kernels;
  const KernelsOnCpu on(kernels);
  check_close(ours(given), expected, 1e-5 + 2 * rounded);
}

TEST_CASE("ctc_loss: a batch of empty texts has no column of labels") {
  const Case given{.scores_TNC = at::randn({6, 3, 4}, at::kDouble),
                   .targets_NL = at::zeros({3, 0}, at::kLong),
                   .input_lengths_N = ids({6, 4, 5}),
                   .target_lengths_N = ids({0, 0, 0}),
                   .options = {}};
  const at::Tensor log_probs = at::log_softmax(given.scores_TNC, -1).select(2, 0);  // blanks alone
  const Result found = by_operations(given, at::kDouble);
  for (std::int64_t i = 0; i < 3; ++i) {
    const auto frames = given.input_lengths_N[i].item<std::int64_t>();
    CHECK(std::abs(found.losses[i].item<double>() +
                   log_probs.select(1, i).slice(0, 0, frames).sum().item<double>()) < 1e-9);
  }
  CHECK(found.gradient.isfinite().all().item<bool>());
}

TEST_CASE("ctc_loss repeats its bits, and a NaN stays one") {
  Case given = random_case(7);
  given.options.zero_infinity = true;
  given.input_lengths_N.fill_(given.scores_TNC.size(0)), given.target_lengths_N.fill_(1);
  {
    EmulatedKernels one(EmulatedKernels::kLargeTable, 1), other(EmulatedKernels::kLargeTable, 2);
    const auto run = [&](EmulatedKernels& kernels) {
      const KernelsOnCpu on(kernels);
      return ours(given);
    };
    const Result first = run(one), second = run(other);
    CHECK(first.losses.equal(second.losses));
    CHECK(first.gradient.equal(second.gradient));
  }
  given.scores_TNC.select(0, 0).fill_(std::nan(""));
  CHECK(by_operations(given).losses.isnan().all().item<bool>());
  EmulatedKernels kernels;
  const KernelsOnCpu on(kernels);
  CHECK(ours(given).losses.isnan().all().item<bool>());
}

TEST_CASE("ctc_loss: lengths beyond the tensors count as all on a device") {
  Case given = random_case(11);
  given.input_lengths_N.fill_(given.scores_TNC.size(0)),
      given.target_lengths_N.fill_(given.targets_NL.size(1));
  const Result expected = reference_of(given);
  given.input_lengths_N += 1000, given.target_lengths_N += 1000;
  check_close(by_operations(given), expected, 1e-5);
  const GuardedTensors guarded;
  EmulatedKernels kernels;
  const KernelsOnCpu on(kernels);
  check_close(ours(given), expected, 1e-5);
}

TEST_CASE("ctc_loss says what is wrong with its arguments, and has no second derivative") {
  using Catch::Contains;
  const at::Tensor scores = at::log_softmax(at::randn({4, 2, 5}), -1),
                   targets = ids({1, 2, 3, 4}).view({2, 2}), frames = ids({4, 4}), lengths = ids({2, 1});
  CHECK_THROWS_WITH(lt::ctc_loss(scores[0], targets, frames, lengths), Contains("[T, N, C]"));
  CHECK_THROWS_WITH(lt::ctc_loss(scores, targets.flatten(), frames, lengths), Contains("[N, L], got [4]"));
  CHECK_THROWS_WITH(lt::ctc_loss(scores, targets, frames.slice(0, 1), lengths), Contains("2 clips, got [1]"));
  CHECK_THROWS_WITH(lt::ctc_loss(scores, targets, frames, lengths.to(at::kInt)), Contains("int64"));
  CHECK_THROWS_WITH(lt::ctc_loss(scores, targets, frames, lengths, {.blank = 5}),
                    Contains("blank is 5, and there are 5 classes"));
  CHECK_THROWS_WITH(lt::ctc_loss(scores, ids({1, 2, 5, 4}).view({2, 2}), frames, lengths),
                    Contains("label 0 of clip 1 is 5, and there are 5 classes"));
  CHECK_NOTHROW(
      lt::ctc_loss(scores, ids({1, 2, 3, -100}).view({2, 2}), frames, lengths));  // beyond its length
  const at::Tensor leaf = scores.clone().requires_grad_(true);
  const at::Tensor loss = lt::detail::CtcFunction::apply(leaf, targets, frames, lengths, 0, false).sum();
  CHECK_THROWS_WITH(torch::autograd::grad({loss}, {leaf}, {}, true, true), Contains("no second derivative"));
}
