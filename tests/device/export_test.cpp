// SPDX-License-Identifier: MIT
// A model that was trained on a device is exported for the CPU, or for a device, and stays where it is.
#include "support/precompiled.hpp"

#include <looptorch/export/export_model.hpp>

#include "support/device.hpp"
#include "support/temporary_folder.hpp"

#include <torch/script.h>

#include <vector>

namespace lt = looptorch;
using namespace looptorch::testing;

namespace {

/// Makes a tensor on its input's device, and has a constant there.
struct NetImpl : torch::nn::Module {
  NetImpl() : fc(register_module("fc", torch::nn::Linear(4, 4))) {}
  at::Tensor forward(const at::Tensor& x) {
    const auto positions = torch::arange(x.size(0), x.options()).unsqueeze(1);
    return fc(x + positions).softmax(1);
  }
  torch::nn::Linear fc;
};
TORCH_MODULE(Net);

}  // namespace

TEST_CASE("a model on a device becomes a file for the CPU, and stays on its device") {
  if (!has_device()) return;
  const TemporaryFolder folder;
  torch::manual_seed(0);
  Net net, on_host;
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : on_host->named_parameters()) item.value().copy_(net->named_parameters()[item.key()]);
  }
  net->to(test_device());
  const std::vector<lt::DynamicDim> batch{{.name = "batch", .places = {{0, 0}}}};
  const auto x = torch::randn({3, 4});
  for (const char* name : {"net.ts", "net.pt2"})
    lt::export_model(net, x.to(test_device()), folder / name, {.dynamic = batch});
  CHECK(net->fc->weight.device() == test_device());
  CHECK(net->is_training());
  const torch::NoGradGuard no_grad;
  auto script = torch::jit::load(folder / "net.ts");
  for (const auto& each : script.parameters()) CHECK(each.is_cpu());
  const auto other = torch::randn({5, 4});
  CHECK(torch::allclose(script.forward({other}).toTensor(), on_host(other), 1e-5, tolerance(1e-5) + 1e-7));
}
