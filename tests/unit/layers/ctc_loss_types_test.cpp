// SPDX-License-Identifier: MIT
// Runs on every device.
// ctc_loss of log-probabilities in 16 bits, as autocast leaves them, beside at::ctc_loss in fp64.
// Tests layers: ctc_loss
#include "support/precompiled.hpp"

#include <looptorch/layers/ctc_loss.hpp>
#include <looptorch/policies/autocast.hpp>

#include "support/place.hpp"

namespace lt = looptorch;
using namespace lt::testing;

namespace {

constexpr std::int64_t kFrames = 200, kClips = 4, kClasses = 40, kLabels = 30;

struct Texts {
  at::Tensor targets_NL = at::randint(1, kClasses, {kClips, kLabels}, at::kLong);
  at::Tensor input_lengths_N = at::full({kClips}, kFrames, at::kLong);
  at::Tensor target_lengths_N = at::full({kClips}, kLabels, at::kLong);

  [[nodiscard]] at::Tensor losses_of(const at::Tensor& log_probs_TNC) const {
    return lt::ctc_loss(log_probs_TNC, placed(targets_NL), placed(input_lengths_N), placed(target_lengths_N));
  }
  [[nodiscard]] at::Tensor exact_losses_of(const at::Tensor& log_probs_TNC) const {
    return at::ctc_loss(log_probs_TNC, targets_NL, input_lengths_N, target_lengths_N, /*blank=*/0,
                        at::Reduction::None);
  }
};

}  // namespace

TEST_CASE("ctc_loss adds up log-probabilities of 16 bits in fp32") {
  const at::ScalarType type = GENERATE(at::kBFloat16, at::kHalf);
  torch::manual_seed(0);
  const Texts texts;
  const at::Tensor values = at::log_softmax(at::randn({kFrames, kClips, kClasses}) * 2, 2).to(type);
  const at::Tensor narrow = placed(values).detach().requires_grad_(true);
  const at::Tensor exact = values.to(at::kDouble).requires_grad_(true);
  const at::Tensor losses = texts.losses_of(narrow), expected = texts.exact_losses_of(exact);
  losses.sum().backward(), expected.sum().backward();
  CHECK(losses.scalar_type() == at::kFloat);
  CHECK(losses.device() == place());
  CHECK(at::allclose(losses.detach().cpu().to(at::kDouble), expected, 1e-5));
  CHECK(narrow.grad().scalar_type() == type);
  CHECK(at::allclose(narrow.grad().cpu().to(at::kDouble), exact.grad(), 1e-2, 1e-3));
}

TEST_CASE("ctc_loss takes what log_softmax returns under autocast") {
  torch::manual_seed(1);
  const Texts texts;
  const at::Tensor hidden = placed(at::randn({kFrames, kClips, 8})),
                   weight = placed(at::randn({kClasses, 8}));
  const lt::AutocastScope autocast(place().type(), at::kBFloat16);
  const at::Tensor log_probs = at::log_softmax(at::linear(hidden, weight), 2);
  const at::Tensor losses = texts.losses_of(log_probs);
  CHECK(losses.scalar_type() == at::kFloat);
  CHECK(at::allclose(losses.cpu().to(at::kDouble), texts.exact_losses_of(log_probs.cpu().to(at::kDouble)),
                     1e-5));
}
