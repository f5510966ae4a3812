// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "../support.hpp"

using namespace konkanivani_test;

TEST_CASE("Without padding the batch norm is LibTorch's, in values, gradients and running statistics") {
  konkanivani::MaskedBatchNorm ours(5);
  torch::nn::BatchNorm1d theirs(5);
  for (auto* norm : {&ours->named_parameters()["weight"], &theirs->weight})
    norm->data().copy_(at::tensor({0.5, 1.5, -1.0, 2.0, 0.1}));
  const auto valid_B1T = at::ones({3, 1, 7}, at::kBool);
  for (int step = 0; step < 3; ++step) {
    auto x = (at::randn({3, 5, 7}) * 3 + 2).requires_grad_(), y = x.detach().clone().requires_grad_();
    const auto a = ours(x, valid_B1T), b = theirs(y);
    CHECK(largest_difference(a, b) < 1e-5);
    a.square().sum().backward();
    b.square().sum().backward();
    CHECK(largest_difference(x.grad(), y.grad()) < 1e-4);
    CHECK(largest_difference(ours->named_buffers()["running_mean"], theirs->running_mean) < 1e-6);
    CHECK(largest_difference(ours->named_buffers()["running_var"], theirs->running_var) < 1e-5);
  }
  CHECK(ours->named_buffers()["num_batches_tracked"].item<int64_t>() == 3);
  ours->eval();
  theirs->eval();
  const auto x = at::randn({2, 5, 3});
  CHECK(largest_difference(ours(x, at::ones({2, 1, 3}, at::kBool)), theirs(x)) < 1e-5);
}

TEST_CASE("With padding the batch norm's gradients are those of its formula, once only") {
  konkanivani::MaskedBatchNorm norm(4);
  norm->to(at::kDouble);
  for (auto& parameter : norm->parameters()) torch::nn::init::normal_(parameter);
  const auto parameters = norm->parameters();
  const auto valid_B1T = konkanivani::valid_places(ids({5, 3}), 6).unsqueeze(1);
  const auto x = at::randn({2, 4, 6}, at::kDouble).requires_grad_();
  const auto share = valid_B1T.to(at::kDouble);
  const auto mean = [&](const at::Tensor& of) {
    return (of * share).sum(at::IntArrayRef{0, 2}, /*keepdim=*/true) / share.sum();
  };
  const auto centred = x - mean(x);
  const auto expected = centred * at::rsqrt(mean(centred.square()) + 1e-5) * parameters[0].unsqueeze(1) +
                        parameters[1].unsqueeze(1);
  const auto found = norm(x, valid_B1T);
  CHECK(largest_difference(found, expected) < 1e-12);
  const auto towards = at::randn({2, 4, 6}, at::kDouble);  // padded frames have gradients too
  const auto gradients = [&](const at::Tensor& y, bool again) {
    return torch::autograd::grad({(y * towards).sum()}, {x, parameters[0], parameters[1]}, {},
                                 /*retain_graph=*/true, again);
  };
  const auto ours = gradients(found, false), formula = gradients(expected, false);
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK(largest_difference(ours[i], formula[i]) < 1e-12);
  CHECK_THROWS_AS(gradients(found, true), looptorch::UsageError);
}

TEST_CASE("The batch norm takes no notice of padded frames, in results and in running statistics") {
  const auto lengths = ids({5, 3});
  const auto x = at::randn({2, 4, 5});
  konkanivani::MaskedBatchNorm alone(4), padded(4);
  const auto expected = alone(x, konkanivani::valid_places(lengths, 5).unsqueeze(1));
  auto wide = at::full({2, 4, 9}, 1e4);
  wide.narrow(2, 0, 5).copy_(x);
  wide[1].narrow(1, 3, 2).fill_(-1e4);
  const auto found = padded(wide, konkanivani::valid_places(lengths, 9).unsqueeze(1));
  CHECK(largest_difference(found[0].narrow(1, 0, 5), expected[0]) < 1e-5);
  CHECK(largest_difference(found[1].narrow(1, 0, 3), expected[1].narrow(1, 0, 3)) < 1e-5);
  const auto buffers = alone->named_buffers(), others = padded->named_buffers();
  for (const auto& item : buffers) {
    CAPTURE(item.key());
    CHECK(largest_difference(item.value(), others[item.key()]) < 1e-5);
  }
}

TEST_CASE("A single valid frame is normalised to the bias, and its variance of 0 is finite") {
  konkanivani::MaskedBatchNorm norm(3);
  norm->named_parameters()["bias"].data().copy_(at::tensor({0.5, -1.0, 2.0}));
  const auto found = norm(at::randn({1, 3, 4}), konkanivani::valid_places(ids({1}), 4).unsqueeze(1));
  CHECK(largest_difference(found[0].select(1, 0), at::tensor({0.5F, -1.0F, 2.0F})) < 1e-6);
  CHECK(largest_difference(norm->named_buffers()["running_var"], at::full({3}, 0.9)) < 1e-6);
}
