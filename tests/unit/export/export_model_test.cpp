// SPDX-License-Identifier: MIT
// Tests export: export_check
// Tests export/files: torchscript_file, script_module, archive_file
// Tests export/program: python_names
#include <looptorch/export/export_model.hpp>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "unit/export/models.hpp"

#include <torch/script.h>
#include <torch/torch.h>

#include <tuple>

namespace lt = looptorch;
using export_tests::Mlp;
using export_tests::Net;

namespace {

const std::vector<lt::DynamicDim> kBatch{{.name = "batch", .places = {{0, 0}}}};

}  // namespace

TEST_CASE("TorchScript gives the model's bits at other sizes, by names, in eval mode") {
  torch::manual_seed(0);
  const looptorch::testing::TemporaryFolder folder;
  Mlp net;
  const auto report = lt::export_model(net, torch::randn({3, 4}), folder / "mlp.ts",
                                       {.input_names = {"x"}, .dynamic = kBatch});
  CHECK(net->is_training());
  CHECK(net->drop->is_training());
  CHECK(report.weights == 5);
  CHECK(report.constants == 1);
  CHECK(report.constant_bytes == 8);
  CHECK(folder.entries() == 1);
  auto script = torch::jit::load(folder / "mlp.ts");
  net->eval();
  const torch::NoGradGuard no_grad;
  for (const std::int64_t batch : {1, 3, 17}) {
    const auto x = torch::randn({batch, 4});
    CHECK(torch::equal(script.forward({x}).toTensor(), net(x)));
  }
  std::vector<std::string> names;
  for (const auto& each : script.named_parameters()) names.push_back(each.name);
  CHECK(names == std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"});
}

TEST_CASE("parts of names that are Python's keywords get an underscore, which is told") {
  const looptorch::testing::TemporaryFolder folder;
  export_tests::Keywords net;
  const auto report = lt::export_model(net, torch::randn({3, 4}), folder / "net.ts", {.dynamic = kBatch});
  CHECK(report.notes.size() == 4);
  CHECK(report.notes.front() ==
        "\"in.weight\" is \"in_.weight\" in the file, since Python has such a keyword");
  auto script = torch::jit::load(folder / "net.ts");
  CHECK(script.named_parameters().size() == 4);
  const torch::NoGradGuard no_grad;
  const auto x = torch::randn({7, 4});
  CHECK(torch::equal(script.forward({x}).toTensor(), net(x)));
  CHECK(lt::detail::for_python("0.class.in_.inner.None") == "0.class_.in_.inner.None_");

  struct TwiceImpl : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) { return b(a(x)); }
    torch::nn::Linear a = register_module("in", torch::nn::Linear(4, 4));
    torch::nn::Linear b = register_module("in_", torch::nn::Linear(4, 4));
  };
  torch::nn::ModuleHolder<TwiceImpl> twice;
  CHECK_THROWS_WITH(lt::export_model(twice, torch::randn({3, 4}), folder / "twice.ts"),
                    Catch::Contains("two weights would be called \"in_.weight\""));
  CHECK_THROWS_WITH(lt::export_model(net, torch::randn({3, 4}), folder / "net.ts", {.input_names = {"from"}}),
                    Catch::Contains("the input name \"from\" is no identifier"));
}

TEST_CASE("named outputs are a dictionary") {
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  const auto two = [](Net& model, const at::Tensor& x) { return std::tuple{model(x), x}; };
  const auto x = torch::randn({3, 4});
  lt::export_model(net, two, x, folder / "net.ts", {.output_names = {"scores", "x"}, .dynamic = kBatch});
  const torch::NoGradGuard no_grad;
  const auto found = torch::jit::load(folder / "net.ts").forward({x}).toGenericDict();
  CHECK(found.size() == 2);
  CHECK(torch::equal(found.at("scores").toTensor(), net(x)));
  CHECK(torch::equal(found.at("x").toTensor(), x));
  CHECK_THROWS_WITH(lt::export_model(net, two, x, folder / "net.ts", {.output_names = {"scores"}}),
                    Catch::Contains("1 output names for 2 outputs"));
  CHECK_THROWS_WITH(lt::export_model(net, two, x, folder / "net.ts", {.output_names = {"x", "x"}}),
                    Catch::Contains("each of which needs its own"));
}
