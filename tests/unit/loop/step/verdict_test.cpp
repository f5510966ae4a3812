// SPDX-License-Identifier: MIT
// The outcome of an update is read once, and its errors name the window.
#include "support/precompiled.hpp"

#include <looptorch/loop/step/verdict.hpp>

#include <cmath>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace lt = looptorch;
using lt::detail::Verdict;
using lt::detail::WindowOrigin;

namespace {

WindowOrigin origin() {
  WindowOrigin origin;
  origin.begin(7, 1);
  origin.add(2, std::vector<std::int64_t>{4, 5});
  return origin;
}

const auto kFinite = [] { return true; };

}  // namespace

TEST_CASE("a verdict says once whether the update was made, and when") {
  for (const bool made : {true, false}) {
    Verdict verdict;
    lt::Progress then;
    then.step = 3;
    verdict.await_update(torch::tensor(made ? 0 : 1), then);
    int calls = 0;
    for (int i = 0; i < 2; ++i)
      verdict.read_update([&](bool was_made, const lt::Progress& progress) {
        ++calls;
        CHECK(was_made == made);
        CHECK(progress.step == 3);
      });
    CHECK(calls == 1);
    CHECK(verdict.step() == 3);
  }
}

TEST_CASE("a verdict's error of a loss names step, batch and samples, and is reported once") {
  Verdict verdict;
  verdict.await_losses({.known = true}, origin());
  CHECK(verdict.knows_error());
  const std::exception_ptr error = verdict.take_error("critic", kFinite);
  REQUIRE(error);
  CHECK_THROWS_AS(std::rethrow_exception(error), lt::NonFiniteLoss);
  CHECK_THROWS_WITH(std::rethrow_exception(error),
                    Catch::Contains("the loss of critic is NaN or infinite in step 7, batch 2 of epoch 1 "
                                    "(samples 4, 5). The update was skipped. Look at these samples"));
  CHECK_FALSE(verdict.knows_error());
  CHECK_FALSE(verdict.take_error("critic", kFinite));
}

TEST_CASE(
    "a verdict blames earlier gradients where parameters are not finite, else the gradients' own window") {
  Verdict verdict;
  verdict.await_losses({.known = true}, origin());
  CHECK_THROWS_WITH(std::rethrow_exception(verdict.take_error("update", [] { return false; })),
                    Catch::Contains("these samples are not at fault"));
  verdict.await_losses({}, origin());
  verdict.await_gradients({.known = true}, origin());
  bool asked = false;
  const auto error = verdict.take_error("update", [&] { return asked = true; });
  REQUIRE(error);
  CHECK_THROWS_AS(std::rethrow_exception(error), lt::NonFiniteGradient);
  CHECK_FALSE(asked);
}

TEST_CASE("a verdict that is dropped, or of finite numbers, holds no error") {
  Verdict verdict;
  verdict.await_losses({.known = true}, origin());
  verdict.drop_errors();
  CHECK_FALSE(verdict.take_error("update", kFinite));
  verdict.await_losses({}, origin());
  verdict.await_gradients({}, origin());
  CHECK_FALSE(verdict.knows_error());
  CHECK_FALSE(verdict.take_error("update", kFinite));
}

TEST_CASE(
    "what only the device knows of losses and gradients counts if the update was skipped, unless it was vetoed before") {
  const auto has_error = [](double skipped, lt::detail::NonFiniteFlag loss,
                            lt::detail::NonFiniteFlag gradient) {
    Verdict verdict;
    verdict.await_update(skipped, lt::Progress());
    verdict.await_losses(std::move(loss), origin());
    verdict.await_gradients(std::move(gradient), origin());
    CHECK_FALSE(verdict.knows_error());
    verdict.read_update([](bool, const lt::Progress&) {});
    return verdict.take_error("update", kFinite) != nullptr;
  };
  const auto nan = torch::full({}, NAN), zero = torch::zeros({}), one = torch::ones({});
  CHECK(has_error(1.0, {.non_finite = nan}, {}));
  CHECK_FALSE(has_error(1.0, {.non_finite = zero}, {}));
  CHECK(has_error(1.0, {.non_finite = zero}, {.non_finite = nan}));
  CHECK(has_error(1.0, {}, {.non_finite = nan, .vetoed_before = zero}));
  CHECK_FALSE(has_error(1.0, {}, {.non_finite = nan, .vetoed_before = one}));
  CHECK_FALSE(has_error(0.0, {.non_finite = nan}, {}));
}
