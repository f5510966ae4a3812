// SPDX-License-Identifier: MIT
// The modules in which Autopsy places an operator that works on no parameter.
//
// Tests autopsy: call_stack
#include "support/precompiled.hpp"

#include <looptorch/autopsy/call_stack.hpp>
#include <looptorch/autopsy/module_search.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "unit/autopsy/faulty_net.hpp"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

using namespace looptorch;
using faulty_net::Batch;
using faulty_net::batch_of;

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
    CHECK((found.op == op && found.after_parameter == behind && found.before_parameter == before));
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
