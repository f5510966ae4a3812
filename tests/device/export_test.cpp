// SPDX-License-Identifier: MIT
// A model that was trained on a device is exported for the CPU, or for a device, and stays where it is.
#include "support/precompiled.hpp"

#include <looptorch/export/export_model.hpp>

#include "support/device.hpp"
#include "support/temporary_folder.hpp"

#include <torch/script.h>

#include <caffe2/serialize/inline_container.h>

#include <string>
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

TEST_CASE("a file for a device names it, and no other") {
  if (!has_device()) return;
  const TemporaryFolder folder;
  Net net;
  lt::export_model(net, torch::randn({3, 4}), folder / "net.pt2", {.device = test_device()});
  CHECK(net->fc->weight.is_cpu());
  caffe2::serialize::PyTorchStreamReader file(folder / "net.pt2");
  for (const char* record : {"models/model.json", "data/weights/model_weights_config.json"}) {
    const auto [bytes, size] = file.getRecord(record);
    const std::string text(static_cast<const char*>(bytes.get()), size);
    CHECK_THAT(text, Catch::Contains('"' + c10::DeviceTypeName(test_device().type(), true) + '"'));
    CHECK_THAT(text, !Catch::Contains("\"cpu\""));
  }
}

TEST_CASE("a program may miss the bits that its forward misses itself, on a device and within rounding") {
  if (!has_device()) return;
  torch::manual_seed(0);
  Net net;
  const auto forward = [&](double noise, bool varies) {
    return [&net, noise, varies, calls = 0](const std::vector<at::Tensor>& in) mutable {
      const double factor = 1 + noise * (varies ? 1 + calls++ % 3 : 1);
      return std::vector{noise == 0 ? net(in[0]) : net(in[0]) * factor};
    };
  };
  const auto checks = [&](at::Device device, double noise, bool varies) {
    net->to(device);
    const lt::detail::ExportScope scope(*net, device);
    const std::vector<at::Tensor> x{torch::arange(12, torch::kFloat).view({3, 4}).to(device)};
    const auto program = lt::detail::trace_program(*net, forward(0, false), x, {"x"}, {}, false);
    const lt::detail::TensorFunction noisy = forward(noise, varies);
    lt::detail::check_program(program, noisy, [] {});
  };
  const auto refuses = Catch::Contains("output 0 of the program differs from the forward's");
  CHECK_NOTHROW(checks(test_device(), 0, false));
  CHECK_NOTHROW(checks(test_device(), 1e-6, true));
  CHECK_THROWS_WITH(checks(test_device(), 1e-6, false), refuses);  // repeats itself: another program
  CHECK_THROWS_WITH(checks(test_device(), 1e-2, true), refuses);   // more than rounding
  CHECK_THROWS_WITH(checks(at::kCPU, 1e-6, true), refuses);
}
