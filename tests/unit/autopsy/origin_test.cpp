// SPDX-License-Identifier: MIT
// Autopsy names faults that are injected into an objective: operator, place and sample. Two more faults, of a
// rate and of fp16, are in policies/autopsy_test.
//
// Tests autopsy: facts_of, finding, operator_call, operator_log, operator_watch
// Tests base: recorded_inputs
// Tests autopsy: tensor_facts
// Tests loop: examine_context
// Tests redo: judge_window, traced_rerun
#include "support/precompiled.hpp"

#include <looptorch/autopsy/origin.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "unit/autopsy/faulty_net.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace looptorch;
using namespace faulty_net;

namespace {

/// Divides by zero in backward, by no operator of LibTorch.
struct RawInfinity : torch::autograd::Function<RawInfinity> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    at::Tensor made = gradients[0].clone();
    made.data_ptr<float>()[0] = HUGE_VALF;
    return {made};
  }
};
/// Divides by zero in backward, by operators.
struct DivideByZero : torch::autograd::Function<DivideByZero> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] / at::zeros_like(gradients[0])};
  }
};

std::function<void(Net&, std::vector<Batch>&)> weight(const std::string& name, double value) {
  return [=](Net& net, std::vector<Batch>&) {
    at::NoGradGuard no_gradients;
    net->named_parameters()[name].flatten()[0].fill_(value);
  };
}

/// Attention of a batch's rows over their features, written out.
at::Tensor attention(Net& net, const Batch& batch, double scale, const at::Tensor& mask = {}) {
  const at::Tensor h = hidden(net, batch).view({kRows, 2, 4});
  at::Tensor scores = torch::matmul(h, h.transpose(1, 2)) * scale;
  if (mask.defined()) scores = scores.masked_fill(mask, -HUGE_VAL);
  return torch::matmul(torch::softmax(scores, -1), h).flatten(1);
}

std::vector<Fault> faults() {
  const auto on_row_two = [](const Batch& batch) { return batch.x.select(1, 0).gt(50).to(torch::kFloat); };
  std::vector<Fault> all;
  const auto add = [&](Fault fault) { all.push_back(std::move(fault)); };
  add({.name = "log of zero",
       .loss =
           [=](Net& net, const Batch& b) {
             return mean_loss(net, hidden(net, b), b) +
                    torch::log(1 - on_row_two(b)).mul(net->second->bias.sum()).mean();
           },
       .damage = row_of(2, 100),
       .op = "aten::log",
       .rows = {2}});
  add({.name = "log of a softmax that underflows",
       .loss =
           [](Net& net, const Batch& b) {
             const at::Tensor p =
                 torch::softmax(net->second(hidden(net, b)) * b.x.slice(1, 0, 1).abs() * 1e4, 1);
             return -torch::log(p).mean();
           },
       .op = "aten::log",
       .at = "second"});
  add({.name = "division by a zero norm",
       .loss =
           [=](Net& net, const Batch& b) {
             const at::Tensor h = hidden(net, b) * (1 - on_row_two(b)).unsqueeze(1);
             return mean_loss(net, h / h.norm(2, 1, true), b);
           },
       .damage = row_of(3, 100),
       .op = "aten::div",
       .at = "first",
       .rows = {3}});
  add({.name = "a bad sample: NaN",
       .loss = [](Net& net, const Batch& b) { return mean_loss(net, hidden(net, b), b); },
       .damage = row_of(1, NAN),
       .cause = Cause::batch,
       .rows = {1}});
  add({.name = "a bad sample: infinity",
       .loss = [](Net& net, const Batch& b) { return mean_loss(net, net->norm(net->first(b.x)), b); },
       .damage = row_of(4, HUGE_VAL),
       .cause = Cause::batch,
       .rows = {4}});
  add({.name = "a bad sample, scaled in place",
       .loss =
           [](Net& net, const Batch& b) {
             b.x.mul_(0.5);
             return mean_loss(net, hidden(net, b), b);
           },
       .damage = row_of(1, NAN),
       .cause = Cause::batch,
       .rows = {1}});
  add({.name = "a corrupted weight",
       .loss = [](Net& net, const Batch& b) { return mean_loss(net, hidden(net, b), b); },
       .damage = weight("second.weight", NAN),
       .cause = Cause::parameter,
       .at = "second.weight"});
  add({.name = "a huge weight",
       .loss = [](Net& net, const Batch& b) { return net->second(hidden(net, b)).pow(2).mean(); },
       .damage = weight("second.weight", 1e30),
       .op = "aten::pow",
       .at = "second"});
  add({.name = "an infinite row of an embedding",
       .loss =
           [](Net& net, const Batch& b) {
             return mean_loss(net, torch::tanh(net->first(net->embedding(b.y + 7))), b);
           },
       .damage =
           [](Net& net, std::vector<Batch>& batches) {
             at::NoGradGuard no_gradients;
             net->embedding->weight.select(0, 9).fill_(HUGE_VAL);
             for (std::size_t i = 0; i < 4; ++i) batches[i].y.clamp_max_(1);
             batches[4].y[3] = 2;
           },
       .cause = Cause::parameter,
       .at = "embedding.weight"});
  add({.name = "overflow in attention",
       .loss =
           [](Net& net, const Batch& b) {
             const at::Tensor h = hidden(net, b);
             const at::Tensor e = torch::exp(torch::matmul(h, h.t()) * 1e3);
             return mean_loss(net, torch::matmul(e / e.sum(1, true), h), b);
           },
       .op = "aten::exp",
       .at = "first"});
  add({.name = "attention with a row that is masked whole",
       .loss =
           [](Net& net, const Batch& b) {
             const at::Tensor mask = b.x.select(1, 0).gt(50).view({kRows, 1, 1}).expand({kRows, 2, 2});
             return mean_loss(net, attention(net, b, 1, mask), b);
           },
       .damage = row_of(2, 100),
       .op = "aten::_softmax",
       .at = "first",
       .rows = {2}});
  add({.name = "a mask that reaches the loss",
       .loss =
           [](Net& net, const Batch& b) {
             const at::Tensor logits =
                 net->second(hidden(net, b)).masked_fill(b.x.slice(1, 0, 1).gt(50), -HUGE_VAL);
             return -logits.mean();
           },
       .damage = row_of(0, 100),
       .op = "aten::neg"});
  add({.name = "the variance of one element",
       .loss =
           [](Net& net, const Batch& b) {
             const at::Tensor one = net->first(b.x.slice(0, 0, 1));
             return mean_loss(net, ((one - one.mean(0)) / one.std(0)).expand({kRows, 8}), b);
           },
       .op = "aten::std",
       .at = "first"});
  add({.name = "BatchNorm with one element, whose variance is then used",
       .loss =
           [](Net& net, const Batch& b) {
             const auto normed = [&](const at::Tensor& x, bool training) {
               return at::batch_norm(x, {}, {}, net->mean, net->variance, training, 0.1, 1e-5, false);
             };
             (void)normed(net->first(b.x.slice(0, 0, 1)), true);
             return mean_loss(net, normed(net->first(b.x), false), b);
           },
       .op = "aten::native_batch_norm",
       .at = "mean"});
  add({.name = "an infinite label weight",
       .loss =
           [](Net& net, const Batch& b) {
             const at::Tensor each = torch::nn::functional::cross_entropy(
                 net->second(hidden(net, b)), b.y,
                 torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
             return (each * b.weights).sum() / b.weights.sum();
           },
       .damage = [](Net&, std::vector<Batch>& batches) { batches[4].weights[3] = HUGE_VAL; },
       .cause = Cause::batch,
       .rows = {3}});
  add({.name = "label weights that sum to zero",
       .loss =
           [](Net& net, const Batch& b) {
             const at::Tensor each = torch::nn::functional::cross_entropy(
                 net->second(hidden(net, b)), b.y,
                 torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
             return (each * b.weights).sum() / b.weights.sum();
           },
       .damage = [](Net&, std::vector<Batch>& batches) { batches[4].weights.zero_(); },
       .op = "aten::div",
       .at = "second"});
  add({.name = "all labels ignored",
       .loss = [](Net& net, const Batch& b) { return mean_loss(net, hidden(net, b), b); },
       .damage = [](Net&, std::vector<Batch>& batches) { batches[4].y.fill_(-100); },
       .op = "aten::nll_loss_forward",
       .at = "second"});
  add({.name = "exp of a large number",
       .loss =
           [](Net& net, const Batch& b) {
             return torch::exp(net->second(hidden(net, b)) + b.x.slice(1, 0, 1)).mean();
           },
       .damage = row_of(1, 100),
       .op = "aten::exp",
       .at = "second",
       .rows = {1}});
  add({.name = "sqrt of a negative number",
       .loss =
           [](Net& net, const Batch& b) {
             return torch::sqrt(net->second(hidden(net, b)).pow(2) - b.x.slice(1, 0, 1).clamp_min(10) + 10)
                 .mean();
           },
       .damage = row_of(4, 1000),
       .op = "aten::sqrt",
       .at = "second",
       .rows = {4}});
  add({.name = "a power of a negative number",
       .loss = [](Net& net, const Batch& b) { return torch::pow(net->second(hidden(net, b)), 0.5).mean(); },
       .op = "aten::pow",
       .at = "second"});
  add({.name = "inverse of a singular matrix",
       .loss =
           [](Net& net, const Batch& b) {
             const at::Tensor h = hidden(net, b).slice(1, 0, 2);
             return torch::acos(h.pow(2).sum(1) + 2).mean();
           },
       .op = "aten::acos",
       .at = "first"});
  // ---- In backward only ----
  add({.name = "sqrt at zero",
       .loss =
           [=](Net& net, const Batch& b) {
             return torch::sqrt(hidden(net, b).pow(2).sum(1) * (1 - on_row_two(b))).mean();
           },
       .damage = row_of(2, 100),
       .op = "aten::div",
       .backward = true,
       .at = "first",
       .rows = {2},
       .node = "SqrtBackward"});
  add({.name = "a norm at zero, written out",
       .loss =
           [=](Net& net, const Batch& b) {
             const at::Tensor h = net->second(hidden(net, b)) * (1 - on_row_two(b)).unsqueeze(1);
             return h.pow(2).sum(1).pow(0.5).mean();
           },
       .damage = row_of(1, 100),
       .op = "aten::pow",
       .backward = true,
       .at = "second",
       .rows = {1},
       .node = "PowBackward"});
  add({.name = "a logarithm behind where",
       .loss =
           [=](Net& net, const Batch& b) {
             const at::Tensor h = net->second(hidden(net, b)) * (1 - on_row_two(b)).unsqueeze(1);
             return torch::where(h != 0, torch::log(h.abs()), at::zeros_like(h)).mean();
           },
       .damage = row_of(2, 100),
       .op = "aten::div",
       .backward = true,
       .at = "second",
       .rows = {2},
       .node = "LogBackward"});
  add({.name = "an operator of LibTorch in a custom backward",
       .loss = [](Net& net,
                  const Batch& b) { return mean_loss(net, DivideByZero::apply(hidden(net, b)), b); },
       .op = "aten::div",
       .backward = true,
       .node = "DivideByZero"});
  add({.name = "plain code in a custom backward",
       .loss = [](Net& net, const Batch& b) { return mean_loss(net, RawInfinity::apply(hidden(net, b)), b); },
       .cause = Cause::outside,
       .backward = true,
       .node = "RawInfinity"});
  add({.name = "a division behind where",
       .loss =
           [=](Net& net, const Batch& b) {
             const at::Tensor h = net->second(hidden(net, b)) * (1 - on_row_two(b)).unsqueeze(1);
             return torch::where(h != 0, torch::ones_like(h) / h.abs(), h).mean();
           },
       .damage = row_of(0, 100),
       .op = "aten::div",
       .backward = true,
       .at = "second",
       .rows = {0},
       .node = "DivBackward"});
  add({.name = "a reciprocal that overflows in backward",
       .loss =
           [](Net& net, const Batch& b) {
             return torch::reciprocal(net->second(hidden(net, b)).abs() * 1e-25 + 1e-25).mean() * 1e-25;
           },
       .op = "aten::mul",
       .backward = true,
       .at = "second",
       .node = "ReciprocalBackward"});
  add({.name = "exp overflows behind where",
       .loss =
           [](Net& net, const Batch& b) {
             const at::Tensor h = net->second(hidden(net, b)) + b.x.slice(1, 0, 1);
             return torch::where(h > 50, h, torch::exp(h)).mean();
           },
       .damage = row_of(3, 1000),
       .op = "aten::exp",
       .at = "second",
       .rows = {3}});
  return all;
}

/// Runs four windows of three micro-batches; returns the finding of the error that ends the second.
template <class... Policies>
NonFiniteWindow error_of(const Fault& fault, Policies... policies) {
  torch::manual_seed(3);
  Net net;
  std::vector<Batch> batches;
  for (int i = 0; i < 12; ++i) batches.push_back(batch_of(i));
  fault.damage(net, batches);
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  Trainer trainer(net, optimizer, fault.loss, Accumulate<3>{}, Autopsy{}, policies...);
  try {
    trainer.fit(batches);
  } catch (const NonFiniteWindow& error) {
    return error;
  }
  return {"no error", -1, -1, -1, -1, {}};
}

}  // namespace

TEST_CASE("facts of a sparse tensor are those of the sums of its rows") {
  const auto facts_of = [](double value) {
    return looptorch::detail::facts_of(
        torch::sparse_coo_tensor(torch::tensor({{1, 1}}), torch::full({2, 3}, value), {4, 3}));
  };
  CHECK(facts_of(1.5).most == 3);
  CHECK(facts_of(3e38).infinities == 3);
  CHECK(looptorch::detail::facts_of(torch::zeros({4, 3}).to_sparse(1)).is_finite());
}

TEST_CASE("facts of unsigned integers, which LibTorch does not compare, have their range") {
  for (const at::ScalarType type : {at::kByte, at::kUInt16, at::kUInt32, at::kUInt64})
    CHECK_THAT(looptorch::detail::facts_of(torch::tensor({7, 250, 9}).to(type)).text(),
               Catch::EndsWith(" [3] from 7 to 250"));
}

TEST_CASE("Autopsy: injected faults are named") {
  const std::vector<Fault> all = faults();
  CHECK(all.size() == 29);  // and the others below
  for (const Fault& fault : all) check(fault, error_of(fault));
}
