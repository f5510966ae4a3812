// SPDX-License-Identifier: MIT
// Models as training leaves them: in bf16, with Checkpointed layers, adapters merged or not, averages
// copied in, traced under autocast; and what a report says of them.
//
// Tests export: export_model
#include <looptorch/adapters/lora.hpp>
#include <looptorch/export/export_model.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "unit/export/models.hpp"

#include <ATen/autocast_mode.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <tuple>
#include <utility>
#include <vector>

namespace lt = looptorch;
using export_tests::Net;

namespace {

const std::vector<lt::DynamicDim> kBatch{{.name = "batch", .places = {{0, 0}}}};

/// Exports to both formats and returns what TorchScript gives for x.
template <class Model>
at::Tensor exported(Model& model, const at::Tensor& x, lt::ExportOptions options = {.dynamic = kBatch}) {
  const looptorch::testing::TemporaryFolder folder;
  lt::export_model(model, torch::randn({3, 4}).to(x.scalar_type()), folder / "net.pt2", options);
  lt::export_model(model, torch::randn({3, 4}).to(x.scalar_type()), folder / "net.ts", options);
  const torch::NoGradGuard no_grad;
  return torch::jit::load(folder / "net.ts").forward({x}).toTensor();
}

struct BlocksImpl : torch::nn::Module {
  using Linear = lt::Lora<torch::nn::Linear>;
  BlocksImpl() : fc(register_module("fc", Linear(4, 4))) {
    blocks->push_back(lt::Checkpointed<torch::nn::Linear>(4, 4));
    blocks->push_back(lt::Checkpointed<torch::nn::Linear>(4, 4));
    register_module("blocks", blocks);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks) x = block->as<lt::Checkpointed<torch::nn::Linear>>()->forward(x);
    return fc(x);
  }
  torch::nn::ModuleList blocks;
  Linear fc;
};
TORCH_MODULE(Blocks);

/// As in an export: oneDNN and TorchScript's fuser round products of 16 bits elsewhere.
struct PlainKernels {
  PlainKernels() {
    at::globalContext().setUserEnabledMkldnn(false);
    torch::jit::setGraphExecutorOptimize(false);
  }
  ~PlainKernels() {
    at::globalContext().setUserEnabledMkldnn(onednn);
    torch::jit::setGraphExecutorOptimize(optimized);
  }
  bool onednn = at::globalContext().userEnabledMkldnn(), optimized = torch::jit::getGraphExecutorOptimize();
};

}  // namespace

TEST_CASE("a model in bf16 is exported as it is") {
  Net net;
  net->to(torch::kBFloat16);
  const PlainKernels plain;
  const auto x = torch::randn({5, 4}).to(torch::kBFloat16);
  const torch::NoGradGuard no_grad;
  CHECK(torch::equal(exported(net, x), net(x)));
}

TEST_CASE("Checkpointed layers and adapters, merged or not, leave no trace but their weights") {
  Blocks net;
  const auto x = torch::randn({5, 4});
  const auto value = [&] {
    const torch::NoGradGuard no_grad;
    net->eval();
    const auto y = net(x);
    net->train();
    return y;
  };
  CHECK(torch::equal(exported(net, x), value()));
  lt::add_lora(*net, {.rank = 2, .dropout = 0.5});
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : net->named_parameters())
      if (item.key().find("lora") != std::string::npos) item.value().normal_();
  }
  const auto adapted = value();
  CHECK(torch::equal(exported(net, x), adapted));
  lt::merge_lora(*net);
  CHECK(torch::equal(exported(net, x), value()));
  lt::unmerge_lora(*net);
  lt::fold_lora(*net);
  CHECK(torch::equal(exported(net, x), value()));
  CHECK(torch::allclose(value(), adapted, 1e-4, 1e-5));
}

TEST_CASE("export writes averages that were copied into the model") {
  Net net;
  lt::FusedSGD optimizer(net->parameters(), {.lr = 0.1});
  const auto objective = [](Net& model, const std::tuple<at::Tensor>& batch) {
    return lt::Loss{.value = model(std::get<0>(batch)).square().mean(), .weight = 1};
  };
  lt::Trainer trainer(net, optimizer, objective, lt::AverageWeights{.rule = lt::Ema{.decay = 0.9}});
  trainer.fit(std::vector<std::tuple<at::Tensor>>(4, {torch::randn({3, 4})}), {.epochs = 2});
  const auto x = torch::randn({5, 4});
  const torch::NoGradGuard no_grad;
  const auto trained = net(x).clone();
  trainer.policy<lt::AverageWeights>().copy_to(*net);
  const auto averaged = exported(net, x);
  CHECK(torch::equal(averaged, net(x)));
  CHECK_FALSE(torch::equal(averaged, trained));
}

TEST_CASE("casts of autocast are in the file, and a stale cast of a weight is not") {
  Net net;
  const auto x = torch::randn({5, 4});
  const auto forward = [](Net& model, const at::Tensor& in) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    auto y = model(in);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    return y.to(torch::kFloat);
  };
  {
    (void)forward(net, x);  // leaves a cast of the weight in autocast's cache
    const torch::NoGradGuard no_grad;
    net->fc->weight.mul_(2);
  }
  const looptorch::testing::TemporaryFolder folder;
  const auto report =
      lt::export_model(net, forward, torch::randn({3, 4}), folder / "net.ts", {.dynamic = kBatch});
  CHECK(report.constants == 0);
  at::autocast::clear_cache();
  const PlainKernels plain;
  const torch::NoGradGuard no_grad;
  CHECK(torch::equal(torch::jit::load(folder / "net.ts").forward({x}).toTensor(), forward(net, x)));
  at::autocast::clear_cache();
}

TEST_CASE("a model is exported within inference mode, and with several inputs and outputs") {
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  const auto two = [](Net& model, const at::Tensor& x, const at::Tensor& ids) {
    return std::tuple{model(x), x, ids.to(torch::kFloat).sum() + 1};
  };
  const auto report = lt::export_model(net, two, std::tuple{torch::randn({3, 4}), torch::arange(6)},
                                       folder / "net.ts", {.input_names = {"x", "ids"}});
  CHECK(report.weights == 2);
  const auto x = torch::randn({3, 4});
  const c10::InferenceMode inference;
  const auto outputs =
      torch::jit::load(folder / "net.ts").forward({x, torch::arange(6)}).toTuple()->elements();
  REQUIRE(outputs.size() == 3);
  CHECK(torch::equal(outputs[0].toTensor(), net(x)));
  CHECK(torch::equal(outputs[1].toTensor(), x));
  CHECK(outputs[2].toTensor().item<float>() == 16);
  lt::export_model(net, torch::randn({3, 4}), folder / "again.pt2", {.dynamic = kBatch});
}

TEST_CASE("large constants and random operators are told") {
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  const auto table = torch::randn({300000});
  const auto forward = [&](Net& model, const at::Tensor& x) {
    return model(x) + table.slice(0, 0, 4) + 0.1 * torch::randn({x.size(0), 4});
  };
  const looptorch::testing::Warnings told;
  const auto report =
      lt::export_model(net, forward, torch::randn({3, 4}), folder / "net.pt2", {.dynamic = kBatch});
  REQUIRE(report.notes.size() == 2);
  CHECK(report.notes[0] ==
        "a tensor [300000] of 1200000 bytes is a constant of the file: register it, if it is a weight");
  CHECK(report.notes[1] == "aten::randn draws random numbers, others in each program that reads the file");
  CHECK(report.constant_bytes == 1200000);
  REQUIRE(told.texts.size() == 2);
  CHECK_THAT(told.texts[1], Catch::Contains("net.pt2: aten::randn draws random numbers"));
  CHECK(lt::export_model(net, torch::randn({3, 4}), folder / "plain.pt2").notes.empty());
  export_tests::Mlp with_dropout;
  CHECK(lt::export_model(with_dropout, torch::randn({3, 4}), folder / "mlp.pt2").notes.empty());
}
