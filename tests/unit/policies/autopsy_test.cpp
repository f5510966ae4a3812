// SPDX-License-Identifier: MIT
// Autopsy: thirty injected faults, each named by its operator, place and sample; a hundred clean runs without
// an alarm.
//
// Tests autopsy: facts_of, finding, operator_call, operator_log, operator_watch, origin, recorded_inputs, tensor_facts
// Tests autopsy: call_stack, module_search
// Tests loop: examine_context
// Tests loop/step: examine, put_aside, watched_share
// Tests optim: finite_gradients
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace looptorch;

namespace {

using Cause = Finding::Cause;

struct Batch {
  at::Tensor x;        // [B, 4]
  at::Tensor y;        // [B]
  at::Tensor weights;  // [B]
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("embedding", embedding);
    register_module("first", first);
    register_module("second", second);
    register_module("norm", norm);
    mean = register_buffer("mean", torch::zeros({8}));
    variance = register_buffer("variance", torch::ones({8}));
  }
  torch::nn::Embedding embedding{10, 4};
  torch::nn::Linear first{4, 8};
  torch::nn::Linear second{8, 3};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
  at::Tensor mean, variance;
};
TORCH_MODULE(Net);

constexpr std::int64_t kRows = 5;

Batch batch_of(std::uint64_t seed) {
  torch::manual_seed(seed);
  return {torch::randn({kRows, 4}), torch::randint(0, 3, {kRows}, torch::kLong), torch::ones({kRows})};
}

at::Tensor hidden(Net& net, const Batch& batch) { return torch::tanh(net->first(batch.x)); }
at::Tensor mean_loss(Net& net, const at::Tensor& hidden, const Batch& batch) {
  return torch::nn::functional::cross_entropy(net->second(hidden), batch.y);
}

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

/// A fault: what the objective computes, what is broken before, and what the finding must say.
struct Fault {
  std::string name;
  std::function<at::Tensor(Net&, const Batch&)> loss;
  std::function<void(Net&, std::vector<Batch>&)> damage = [](Net&, std::vector<Batch>&) {};
  Cause cause = Cause::operation;
  std::string op;  // of the operator
  bool backward = false;
  std::string at;                       // parameter that it worked on, or behind which it ran
  std::vector<std::int64_t> rows = {};  // samples in the micro-batch
  std::string node = {};                // a part of the node's name
};

void poison(std::vector<Batch>& batches, std::int64_t row, double value) {
  batches[4].x.index_put_({row}, value);  // the second micro-batch of window 1
}

/// Sets features of a row of the fifth batch, so that only there something is wrong.
std::function<void(Net&, std::vector<Batch>&)> row_of(std::int64_t row, double value) {
  return [=](Net&, std::vector<Batch>& batches) { poison(batches, row, value); };
}
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

void check(const Fault& fault, const NonFiniteWindow& error) {
  INFO(fault.name << ": " << error.what());
  REQUIRE(error.finding);
  const Finding& found = *error.finding;
  CHECK(found.cause == fault.cause);
  if (!fault.op.empty()) CHECK(found.op == fault.op);
  CHECK(found.backward == fault.backward);
  const std::string& at = found.parameter.empty() ? found.behind : found.parameter;
  CHECK(at.find(fault.at) != std::string::npos);
  CHECK(found.rows == fault.rows);
  CHECK(found.node.find(fault.node) != std::string::npos);
  CHECK(std::string(error.what()).find(found.text()) != std::string::npos);
}

}  // namespace

TEST_CASE("Autopsy: injected faults are named") {
  const std::vector<Fault> all = faults();
  CHECK(all.size() == 28);  // and the others below
  for (const Fault& fault : all) check(fault, error_of(fault));
}

namespace {

/// A module of the program's own without parameters.
struct UnitNormImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x / x.norm(2, 1, true); }
};
TORCH_MODULE(UnitNorm);
struct UnitRootImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return torch::sqrt(x.pow(2).sum(1, true)); }
};
TORCH_MODULE(UnitRoot);

/// Attention over the features of a sample, with what it is made of registered out of the order of its use.
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(double masked_from) : masked_from_(masked_from) {
    register_module("softmax", softmax);
    register_module("query", query);
    register_module("out", out);
    register_module("norm", norm);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = torch::tanh(query(x));
    const at::Tensor scores =
        (h.unsqueeze(2) * h.unsqueeze(1)).masked_fill(h.unsqueeze(1) > masked_from_, -HUGE_VAL);
    return norm(out(torch::matmul(softmax(scores), h.unsqueeze(2)).squeeze(2)));
  }
  torch::nn::Softmax softmax{-1};
  torch::nn::Linear query{4, 4}, out{4, 4};
  UnitNorm norm;
  double masked_from_;
};
TORCH_MODULE(Block);

/// Two such blocks, of which the second is at fault, and a head.
struct BlocksImpl : torch::nn::Module {
  explicit BlocksImpl(double masked_from) : blocks(Block(2), Block(masked_from)) {
    register_module("blocks", blocks);
    register_module("head", head);
    register_module("cosine", cosine);
    register_module("root", root);
    register_module("pools", pools);
  }
  at::Tensor encoded(const at::Tensor& x) {
    return blocks[1]->as<Block>()->forward(blocks[0]->as<Block>()->forward(x));
  }
  torch::nn::ModuleList blocks;
  torch::nn::Linear head{4, 3};
  torch::nn::CosineSimilarity cosine{torch::nn::CosineSimilarityOptions().dim(1).eps(0)};
  UnitRoot root;
  torch::nn::Sequential pools{torch::nn::Linear(4, 4), torch::nn::LPPool1d(torch::nn::LPPool1dOptions(2, 1)),
                              torch::nn::Linear(4, 4), torch::nn::LPPool1d(torch::nn::LPPool1dOptions(2, 1)),
                              torch::nn::Linear(4, 1)};
};
TORCH_MODULE(Blocks);

/// Ends with the finding of a fault in one batch.
Finding found_in(
    double masked_from, const std::function<at::Tensor(Blocks&, const Batch&)>& loss,
    const std::function<void(Blocks&)>& damage = [](Blocks&) {}) {
  torch::manual_seed(5);
  Blocks net(masked_from);
  {
    at::NoGradGuard no_gradients;
    damage(net);
  }
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  Trainer trainer(net, optimizer, loss, Autopsy{});
  try {
    trainer.fit(std::vector{batch_of(1)});
  } catch (const NonFiniteWindow& error) {
    if (error.finding) return *error.finding;
  }
  return {};
}

}  // namespace

TEST_CASE("Autopsy: a fault where there are no parameters is placed by the modules around it") {
  const auto mean = [](Blocks& net, const Batch& b) { return net->head(net->encoded(b.x)).mean(); };
  const auto check = [](const Finding& found, const std::string& op, const std::string& behind,
                        const std::string& before, const std::string& text) {
    INFO(found.text());
    CHECK((found.op == op && found.behind == behind && found.before == before));
    CHECK(found.before_loss == before.empty());
    CHECK(found.text().find(text) != std::string::npos);
  };
  const bool stacks = looptorch::detail::CallStack::kIsKnown;
  // A module of LibTorch, which is on the stack; of two, the one that lies in the same block as its
  // neighbours.
  check(
      found_in(-2, mean), "aten::_softmax", "blocks.1.query.bias", "blocks.1.out.bias",
      stacks
          ? "between 'blocks.1.query.bias' and 'blocks.1.out.bias', in 'blocks.1.softmax' (torch::nn::SoftmaxImpl)."
          : "between 'blocks.1.query.bias' and 'blocks.1.out.bias'");
  // A module of the program's, which is not; of what is registered between its neighbours.
  check(found_in(2, mean,
                 [](Blocks& net) {
                   for (const at::Tensor& each : net->blocks[0]->as<Block>()->out->parameters()) each.zero_();
                 }),
        "aten::div", "blocks.0.out.bias", "blocks.1.query.bias",
        "between 'blocks.0.out.bias' and 'blocks.1.query.bias', perhaps in 'blocks.0.norm'.");
  // A function that the objective calls itself.
  check(found_in(2, [](Blocks& net, const Batch& b) { return torch::log(net->head(b.x) * 0).mean(); }),
        "aten::log", "head.bias", "", "between 'head.bias' and the loss");
  check(found_in(2, [](Blocks& net, const Batch& b) { return net->head(torch::log(b.x * 0)).mean(); }),
        "aten::log", "", "head.bias", "in forward of micro-batch 0, before 'head.bias'.");
  // The only one of its type.
  const Finding cosine = found_in(
      2, [](Blocks& net, const Batch& b) { return net->cosine(net->head(b.x), net->head(b.x) * 0).mean(); });
  check(cosine, "aten::div", "head.bias", "", "between 'head.bias' and the loss");
  if (stacks) {
    CHECK(cosine.module_type == "torch::nn::CosineSimilarityImpl");
    CHECK(cosine.modules == std::vector<std::string>{"cosine"});
    // One that is not registered, and of two in a row, the one between its neighbours.
    CHECK(found_in(2,
                   [](Blocks& net, const Batch& b) {
                     return torch::nn::PairwiseDistance()(net->head(b.x) * 1e30, net->head(b.x)).mean();
                   })
              .text()
              .find("the loss, in torch::nn::PairwiseDistanceImpl.") != std::string::npos);
    const Finding pools = found_in(
        2, [](Blocks& net, const Batch& b) { return net->pools->forward(b.x.unsqueeze(1)).mean(); },
        [](Blocks& net) { net->pools[2]->as<torch::nn::Linear>()->weight.mul_(1e25); });
    check(pools, "aten::pow", "pools.2.bias", "pools.4.weight", "in 'pools.3' (torch::nn::LPPool1dImpl)");
  }
  // In backward: the operator's forward.
  const Finding root =
      found_in(2, [](Blocks& net, const Batch& b) { return net->root(net->head(b.x) * 0).mean(); });
  check(root, "aten::div", "head.bias", "", "perhaps in 'root'.");
}

TEST_CASE("ModuleSearch: types on the stack first, then neighbours") {
  const looptorch::detail::ModuleSearch search({{"", "Net", true},
                                                {"a", "Block", true},
                                                {"a.act", "torch::nn::GELUImpl"},
                                                {"a.fc", "torch::nn::LinearImpl", true},
                                                {"b", "Block", true},
                                                {"b.act", "torch::nn::GELUImpl"},
                                                {"b.fc", "torch::nn::LinearImpl", true},
                                                {"b.own", "Own"},
                                                {"c", "Other", true},
                                                {"c.act", "torch::nn::GELUImpl"},
                                                {"c.fc", "torch::nn::LinearImpl", true}});
  using Paths = std::vector<std::string>;
  const std::string gelu = "torch::nn::GELUImpl";
  CHECK(search.find({gelu, "Other"}, "a.fc.bias", "b.fc.weight").paths == Paths{"c.act"});
  CHECK(search.find({gelu, "Block"}, "", "").paths == Paths{"a.act", "b.act"});
  CHECK(search.find({gelu, "Net"}, "b.fc.bias", "c.fc.weight").paths == Paths{"c.act"});
  CHECK(search.find({"Block"}, "b.fc.weight", "").paths == Paths{"b"});
  CHECK(search.find({"Net"}, "", "").paths == Paths{"the model itself"});
  CHECK(search.find({"torch::nn::GLUImpl"}, "", "").type == "torch::nn::GLUImpl");
  CHECK(search.find({"torch::nn::AnyModuleHolder<T>", "Foreign"}, "", "").type.empty());
  CHECK(search.find({}, "b.fc.bias", "c.fc.weight").paths == Paths{"b.own"});
  CHECK(search.find({}, "a.fc.bias", "b.fc.weight").paths.empty());
  CHECK(search.find({}, "b.fc.bias", "").paths == Paths{"b.own"});
  CHECK(search.find({}, "elsewhere.weight", "").paths.empty());
  CHECK(search.find({}, "", "").paths.empty());
  CHECK(search.find({}, "a.fc.bias", "").paths.empty());    // of b.fc nothing was seen
  CHECK(search.find({}, "", "c.fc.weight").paths.empty());  // nor here
}

namespace {

/// The same fault in the second micro-batch of window 1: a NaN in row 2 that sqrt makes in backward.
at::Tensor sqrt_at_zero(Net& net, const Batch& b) {
  return torch::sqrt(hidden(net, b).pow(2).sum(1) * (1 - b.x.select(1, 0).gt(50).to(torch::kFloat))).mean();
}
const Fault kSqrt{.name = "sqrt",
                  .loss = sqrt_at_zero,
                  .damage = row_of(2, 100),
                  .op = "aten::div",
                  .backward = true,
                  .at = "first",
                  .rows = {2},
                  .node = "SqrtBackward"};

std::vector<Batch> batches_of(int count) {
  std::vector<Batch> batches;
  for (int i = 0; i < count; ++i) batches.push_back(batch_of(static_cast<std::uint64_t>(i)));
  return batches;
}

}  // namespace

TEST_CASE("Autopsy: a learning rate that explodes") {
  Net net;
  torch::optim::SGD optimizer(net->parameters(), 1e25);
  Trainer trainer(
      net, optimizer, [](Net& net, const Batch& b) { return net->second(hidden(net, b)).pow(2).mean(); },
      Autopsy{});
  try {
    trainer.fit(batches_of(4));
    FAIL("no error");
  } catch (const NonFiniteLoss& error) {
    REQUIRE(error.finding);
    INFO(error.what());
    CHECK((error.step == 1 && error.finding->cause == Cause::operation && error.finding->op == "aten::pow"));
    CHECK(error.finding->behind.starts_with("second"));
    CHECK(error.finding->inputs.at(0).most > 1e20);
  }
}

TEST_CASE(
    "Autopsy: under fp16, one layer that overflows in forward; gradients that overflow are the scale's") {
  const auto train = [](double weight, double factor, std::int64_t patience) {
    torch::manual_seed(0);
    Net net;
    at::NoGradGuard no_gradients;
    net->second->weight.fill_(weight);
    torch::optim::SGD optimizer(net->parameters(), 1e-9);
    const auto loss = [=](Net& net, const Batch& b) {
      return net->second(hidden(net, b)).to(torch::kFloat).abs().mean() * factor;
    };
    Trainer trainer(net, optimizer, loss, Autocast<fp16>{.initial_scale = 1 << 20},
                    Autopsy{.overflows = patience});
    return trainer.fit(batches_of(12)).skipped;
  };
  CHECK(train(0.5, 1, 16) > 0);  // the scale falls, and nothing is found
  try {
    train(60000, 1, 16);
    FAIL("no error");
  } catch (const NonFiniteLoss& error) {
    REQUIRE(error.finding);
    INFO(error.what());
    CHECK((error.step == 0 && error.finding->op == "aten::addmm" && !error.finding->backward));
    CHECK(error.finding->parameter.starts_with("second"));
    CHECK(error.finding->output.type == at::kHalf);
  }
  try {
    train(0.5, 1e12, 5);  // whatever the scale
    FAIL("no error");
  } catch (const NonFiniteGradient& error) {
    REQUIRE(error.finding);
    INFO(error.what());
    CHECK((error.step == 4 && error.finding->backward && error.finding->op == "aten::copy_"));
    CHECK(error.finding->node.starts_with("ToCopyBackward"));
  }
}

namespace {

/// A block whose root is recomputed in backward.
struct RootImpl : torch::nn::Module {
  explicit RootImpl(std::int64_t width) : in(width, width) { register_module("in", in); }
  at::Tensor forward(const at::Tensor& x) {
    return torch::sqrt((in(x)*x.gt(-50).to(torch::kFloat)).pow(2).sum(1));
  }
  torch::nn::Linear in;
};
TORCH_MODULE(Root);
struct RecomputedImpl : torch::nn::Module {
  RecomputedImpl() { register_module("root", root); }
  Checkpointed<Root> root{4};
};
TORCH_MODULE(Recomputed);

}  // namespace

TEST_CASE("Autopsy: a fault in a layer that is recomputed") {
  torch::manual_seed(1);
  Recomputed net;
  auto batches = batches_of(3);
  batches[1].x[3].fill_(-100);
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  Trainer trainer(
      net, optimizer, [](Recomputed& net, const Batch& b) { return net->root(b.x).sum(); },
      Checkpointed<Root>{}, Autopsy{});
  try {
    trainer.fit(batches);
    FAIL("no error");
  } catch (const NonFiniteGradient& error) {
    REQUIRE(error.finding);
    INFO(error.what());
    CHECK((error.finding->op == "aten::div" && error.finding->node.starts_with("SqrtBackward")));
  }
}

TEST_CASE("Autopsy: the second of several updates") {
  torch::manual_seed(3);
  Net net;
  auto batches = batches_of(6);
  poison(batches, 2, 100);
  torch::optim::SGD one(net->second->parameters(), 1e-3), other(net->first->parameters(), 1e-3);
  const auto plain = [](Net& net, const Batch& b) { return mean_loss(net, hidden(net, b), b); };
  Trainer trainer(net, Update{one, plain, {.name = "head"}}, Update{other, sqrt_at_zero, {.name = "body"}},
                  Accumulate<3>{}, Autopsy{});
  try {
    trainer.fit(batches);
    FAIL("no error");
  } catch (const NonFiniteGradient& error) {
    check(kSqrt, error);
    CHECK(std::string(error.what()).find("body") != std::string::npos);
  }
  CHECK(!toy::has_gradients(net));
}

TEST_CASE("Autopsy: a window in pieces, whose samples keep their numbers") {
  torch::manual_seed(3);
  Net net;
  auto batches = batches_of(6);
  poison(batches, 3, 100);
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  int calls = 0;
  const auto loss = [&](Net& net, const Batch& b) {
    if (++calls == 5) TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory");
    return Loss{
        .value = torch::sqrt(hidden(net, b).pow(2).sum(1) * (1 - b.x.select(1, 0).gt(50).to(torch::kFloat)))
                     .mean(),
        .weight = b.x.size(0)};
  };
  Trainer trainer(net, optimizer, loss, Accumulate<3>{}, RetryOnOom{.report = [](const std::string&) {}},
                  Autopsy{});
  try {
    trainer.fit(batches);
    FAIL("no error");
  } catch (const NonFiniteGradient& error) {
    Fault fault = kSqrt;
    fault.rows = {3};
    check(fault, error);
  }
  CHECK(trainer.policy<RetryOnOom>().windows == 1);
}

TEST_CASE("Autopsy: a window that SkipBadWindows leaves out is reported, and the fit goes on") {
  std::vector<std::string> told;
  torch::manual_seed(3);
  Net net;
  auto batches = batches_of(6);
  poison(batches, 1, NAN);
  torch::optim::SGD optimizer(net->parameters(), 1e-3);
  Trainer trainer(
      net, optimizer, [](Net& net, const Batch& b) { return mean_loss(net, hidden(net, b), b); },
      SkipBadWindows{.report = [](const std::string&) {}},
      Autopsy{.report = [&](const std::string& text) { told.push_back(text); }});
  CHECK(trainer.fit(batches).steps == 6);
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("autopsy of step 4") == 0);
  CHECK(told[0].find("Tensor 0 of micro-batch 0, sample 1 holds it") != std::string::npos);
}

namespace {

struct NoisyImpl : torch::nn::Module {
  NoisyImpl(std::int64_t width, bool norms) {
    register_module("in", in = torch::nn::Linear(4, width));
    register_module("out", out = torch::nn::Linear(width, 3));
    if (norms) register_module("norm", norm = torch::nn::BatchNorm1d(width));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = torch::relu(in(x));
    if (norm) h = norm(h);
    return out(torch::dropout(h, 0.3, is_training()));
  }
  torch::nn::Linear in{nullptr}, out{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Noisy);

/// Trains a seeded net of some kind; counts what Autopsy reports.
template <class... Policies>
std::vector<at::Tensor> trained(std::uint64_t seed, Policies... policies) {
  torch::manual_seed(seed);
  Noisy net(4 + static_cast<std::int64_t>(seed % 5) * 4, seed % 2 == 0);
  std::vector<Batch> batches;
  for (std::uint64_t i = 0; i < 9; ++i) batches.push_back(batch_of(100 * seed + i));
  torch::manual_seed(seed);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  const auto loss = [](Noisy& net, const Batch& b) {
    return torch::nn::functional::cross_entropy(net(b.x).to(torch::kFloat), b.y);
  };
  Trainer trainer(net, optimizer, loss, Accumulate<>{1 + static_cast<std::int64_t>(seed % 3)}, policies...);
  trainer.fit(batches, {.epochs = 2});
  std::vector<at::Tensor> state = net->parameters();
  for (const at::Tensor& buffer : net->buffers()) state.push_back(buffer);
  return state;
}
bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!a[i].equal(b[i])) return false;
  return a.size() == b.size();
}

}  // namespace

TEST_CASE(
    "Autopsy: a hundred clean runs, fp16 with overflows among them: no alarm, and the bits of runs without it") {
  int alarms = 0, overflows = 0;
  const Autopsy armed{.report = [&](const std::string&) { ++alarms; }};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const When half{seed % 3 == 0, Autocast<fp16>{.initial_scale = 1 << 30}};
    const When clipped{seed % 4 == 0, ClipGradNorm{0.5}};
    const On skipped{kObserve,
                     [&](WindowContext& window) { overflows += window.run.progress().skipped > 0; }};
    CHECK(same(trained(seed, half, clipped, armed, skipped), trained(seed, half, clipped)));
  }
  CHECK(alarms == 0);
  CHECK(overflows > 0);
}

TEST_CASE("Autopsy: windows that are looked into for a spike leave the run as it is, bit for bit") {
  int spikes = 0;
  const Autopsy eager{.spikes = 1e-6, .warm_up = 2, .at_most = 1000, .report = [&](const std::string& text) {
                        ++spikes;
                        CHECK(text.find("standard deviations above the running mean") != std::string::npos);
                      }};
  for (std::uint64_t seed = 0; seed < 6; ++seed) CHECK(same(trained(seed, eager), trained(seed)));
  CHECK(spikes > 10);
}

TEST_CASE("Autopsy: options out of range are refused, and the state is in snapshots") {
  CHECK_THROWS_AS(trained(0, Autopsy{.spikes = -1}), UsageError);
  CHECK_THROWS_AS(trained(0, Autopsy{.warm_up = 1}), UsageError);
  CHECK_THROWS_AS(trained(0, Autopsy{.overflows = 0}), UsageError);
  toy::Net net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.01);
  Trainer trainer(net, optimizer, toy::objective, Autopsy{.spikes = 9});
  trainer.fit(toy::batches(5));
  Trainer other(net, optimizer, toy::objective, Autopsy{.spikes = 9});
  other.load_state_dict(trainer.state_dict());
  const auto& then = trainer.policy<Autopsy>().updates.at(0);
  const auto& now = other.policy<Autopsy>().updates.at(0);
  CHECK((now.losses.count == 5 && now.losses.mean == then.losses.mean &&
         now.norms.variance == then.norms.variance));
}

TEST_CASE("any_non_finite: whatever the type, the place and the layout of a gradient") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
    for (const std::int64_t size : {1, 7, 33, 1023, 1024, 1055, 1056, 5000})
      for (const double bad : {double{NAN}, HUGE_VAL, -HUGE_VAL})
        for (const std::int64_t at : {std::int64_t{0}, size / 2, size - 1}) {
          std::vector<at::Tensor> gradients{torch::full({3}, -1e30), torch::full({size}, 3e4, type)};
          CHECK_FALSE(looptorch::detail::any_non_finite(gradients));
          gradients[1][at] = bad;
          CHECK(looptorch::detail::any_non_finite(gradients));
        }
  const at::Tensor wide = torch::ones({6, 6});
  wide[3][5] = NAN;
  CHECK(looptorch::detail::any_non_finite({wide.t()}));
  CHECK(looptorch::detail::any_non_finite({wide.slice(1, 3)}));  // with gaps
  CHECK_FALSE(looptorch::detail::any_non_finite(
      {wide.slice(1, 0, 5), torch::empty({0}), torch::ones({2}, at::kMeta)}));
  CHECK(looptorch::detail::any_non_finite({wide.to_sparse()}));
  CHECK_FALSE(looptorch::detail::any_non_finite({torch::ones({2, 2}).to_sparse()}));
  CHECK(looptorch::detail::any_non_finite({torch::full({2}, 3e38)}) == false);
}
