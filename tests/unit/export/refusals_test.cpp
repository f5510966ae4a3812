// SPDX-License-Identifier: MIT
// What export_model refuses, each with its sentence: no file appears, and the model is as before.
//
// Tests export: export_model
#include <looptorch/base/files/file.hpp>
#include <looptorch/export/export_model.hpp>

#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "unit/export/models.hpp"

#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lt = looptorch;
using export_tests::Net;
using Forward = std::function<at::Tensor(Net&, const at::Tensor&)>;

namespace {

const std::vector<lt::DynamicDim> kBatch{{.name = "batch", .places = {{0, 0}}}};

/// Returns docs/export_refusals.md, which lists what errors say.
const std::string& page() {
  static const std::string text =
      looptorch::read_file(std::filesystem::path(LOOPTORCH_SOURCE_DIR) / "docs/export_refusals.md");
  return text;
}

/// Returns the error of an export; `folder` must stay empty.
lt::ExportError refused(const Forward& forward, lt::ExportOptions options = {.dynamic = kBatch},
                        const at::Tensor& x = torch::randn({3, 4})) {
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  const auto before = net->fc->weight.detach().clone();
  std::optional<lt::ExportError> error;
  try {
    lt::export_model(net, forward, x, folder / "net.pt2", options);
  } catch (const lt::ExportError& thrown) {
    error = thrown;
  }
  CHECK(folder.entries() == 0);
  CHECK(net->is_training());
  CHECK(torch::equal(net->fc->weight, before));
  REQUIRE(error);
  CHECK_THAT(page(),
             Catch::Contains(std::string(error->what()).substr(std::string("export_model: ").size()) + '\n'));
  return *error;
}

void expect(const lt::ExportError& error, const std::string& op, const std::string& argument,
            const std::string& sentence) {
  INFO(error.what());
  CHECK(error.operator_name == op);
  CHECK(error.argument == argument);
  CHECK_THAT(std::string(error.what()), Catch::Contains(sentence));
}

void exports(const Forward& forward, lt::ExportOptions options = {.dynamic = kBatch},
             const at::Tensor& x = torch::randn({3, 4})) {
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  lt::export_model(net, forward, x, folder / "net.pt2", options);
  CHECK(folder.entries() == 1);
}

}  // namespace

TEST_CASE("reads of values are refused unless they are trusted") {
  const Forward reads = [](Net& net, const at::Tensor& x) {
    const auto y = net(x);
    return y.sum().item<float>() > 0 ? y : -y;
  };
  expect(refused(reads), "aten::item", "self",
         "reads values of a tensor, and what it does with them would be frozen");
  expect(refused([](Net& net, const at::Tensor& x) { return x.equal(x) ? net(x) : x; }), "aten::equal",
         "self", "reads values of a tensor");
  expect(refused([](Net& net, const at::Tensor& x) { return x.isnan().any().is_nonzero() ? net(x) : x; }),
         "aten::is_nonzero", "self", "reads values of a tensor");
  const Forward checks = [](Net& net, const at::Tensor& x) {
    TORCH_CHECK(x.abs().max().item<float>() < 100, "too large");
    return net(x);
  };
  expect(refused(checks), "aten::item", "self", "set trust_value_reads if it only checks them");
  exports(checks, {.dynamic = kBatch, .trust_value_reads = true});
}

TEST_CASE("operators that read values within themselves are exported") {
  exports([](Net& net, const at::Tensor& x) { return (net(x) - x.mean()) / x.std(); });
  exports([](Net& net, const at::Tensor& x) { return net(x) * x.var(); });
  exports([](Net& net, const at::Tensor& x) { return net(x).matmul(torch::inverse(x)); }, {},
          torch::eye(4) + 0.1 * torch::rand({4, 4}));
}

TEST_CASE("a trusted read that changes the result is found by the check") {
  const Forward reads = [](Net& net, const at::Tensor& x) { return net(x) * x.abs().max().item<float>(); };
  expect(refused(reads, {.dynamic = kBatch, .trust_value_reads = true}, torch::arange(12.F).view({3, 4})),
         "aten::mul.Scalar", "other",
         "for the sizes and values tried: a number that is no integer cannot follow them");
  const Forward rare = [](Net& net, const at::Tensor& x) {
    const float first = *x.const_data_ptr<float>();  // no operator, and the same path for most values
    return first > 1000 ? net(x) : net(x) + net(x) * (x.size(0) == 1 ? 1.0 : 0.0);
  };
  expect(refused(rare), "", "", "output 0 of the program differs from the forward's at batch 1");
}

TEST_CASE("shapes that depend on data are refused") {
  expect(refused([](Net& net, const at::Tensor& x) {
           const auto y = net(x);
           return y.index({y > 0});
         }),
         "aten::nonzero", "self", "the shape of the result depends on values");
  expect(refused([](Net& net, const at::Tensor& x) { return std::get<0>(at::_unique2(net(x))); }),
         "aten::_unique2", "self", "the shape of the result depends on values");
  expect(refused([](Net& net, const at::Tensor& x) { return net(x).masked_select(x > 0); },
                 {.dynamic = kBatch, .trust_value_reads = true}),
         "aten::masked_select", "self", "Compute with masks (torch::where)");
  exports(
      [](Net& net, const at::Tensor& x) {
        return net(x).index({torch::tensor({0, 1, 0}), torch::tensor({2, 3, 0})});
      },
      {});
}

TEST_CASE("writes to inputs, parameters and buffers are refused by name") {
  expect(refused([](Net& net, const at::Tensor& x) { return net(x.add_(1)); }), "", "",
         "the forward writes to the input \"input_0\", which a file cannot do");
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  net->register_buffer("steps", torch::zeros({1}));
  const auto counts = [](Net& model, const at::Tensor& x) {
    model->named_buffers()["steps"].add_(1);
    return model(x);
  };
  CHECK_THROWS_WITH(lt::export_model(net, counts, torch::randn({3, 4}), folder / "net.ts"),
                    Catch::Contains("writes to the buffer \"steps\""));
  const auto trains = [](Net& model, const at::Tensor& x) {
    model->fc->bias.mul_(1);
    return model(x);
  };
  CHECK_THROWS_WITH(lt::export_model(net, trains, torch::randn({3, 4}), folder / "net.ts"),
                    Catch::Contains("writes to the parameter \"fc.bias\""));
  CHECK(folder.entries() == 0);
}

TEST_CASE("unregistered aliases of weights and inputs are refused") {
  expect(refused([](Net& net, const at::Tensor& x) { return torch::linear(x, net->fc->weight.data()); }),
         "aten::linear", "weight",
         "\"fc.weight\" is used other than as the registered tensor, such as by data()");
  expect(refused([](Net& net, const at::Tensor& x) { return net(x) + x.data(); }), "aten::add.Tensor",
         "other", "the input \"input_0\" is used by data() or by its memory, and its values would be frozen");
  const auto loose = torch::randn({4}).requires_grad_();
  expect(refused([&](Net& net, const at::Tensor& x) { return net(x) + loose; }), "", "",
         "uses a tensor that requires gradients and is neither registered nor made of registered ones");
}

TEST_CASE("memory that is filled after the tracer is refused") {
  expect(refused([](Net& net, const at::Tensor& x) {
           return net(x) * at::tensor({1.F, 2.F, 3.F, 4.F});
         }),
         "aten::mul.Tensor", "other",
         "is memory that the forward filled by a pointer or an accessor, as at::tensor does");
  expect(refused([](Net& net, const at::Tensor& x) {
           return net(x) * at::tensor({1.F, 2.F, 3.F, 4.F}).view({1, 4});
         }),
         "aten::mul.Tensor", "other", "Make it by torch::tensor or by operators");
  const Forward copies = [](Net& net, const at::Tensor& x) {
    auto y = at::empty_like(x);
    std::copy_n(x.const_data_ptr<float>(), x.numel(), y.mutable_data_ptr<float>());
    return net(y);
  };
  CHECK_THAT(std::string(refused(copies).what()), Catch::Contains("filled by a pointer"));
  expect(refused([](Net&, const at::Tensor&) { return at::tensor({1.F}); }, {}), "", "",
         "an output is memory that the forward filled");
  const auto table = torch::ones({3});
  expect(refused([&](Net&, const at::Tensor&) { return table; }, {}), "", "",
         "an output is a tensor that no operator of the forward makes and that is not registered");
  exports([&](Net&, const at::Tensor&) { return table.clone(); }, {});
  expect(refused([](Net&, const at::Tensor&) { return at::Tensor(); }, {}), "", "output",
         "export_model: output: is NoneType where a tensor is needed");
  exports([](Net& net, const at::Tensor& x) {
    auto y = at::empty({x.size(0), 4});
    y.slice(1, 0, 4).copy_(x);
    return net(at::zeros_like(at::empty({x.size(0), 4})) + y) * torch::tensor({1.F, 2.F, 3.F, 4.F});
  });
}

TEST_CASE("constants that depend on sizes or values are refused") {
  const Forward positions = [](Net& net, const at::Tensor& x) {
    std::vector<float> numbers(static_cast<std::size_t>(x.size(0)) * 4, static_cast<float>(x.size(0)));
    return net(x) + torch::tensor(numbers).view({x.size(0), 4});
  };
  expect(refused(positions), "aten::view", "self", "depends on the sizes or the values of its inputs");
  const Forward first = [](Net& net, const at::Tensor& x) {
    return net(x) + torch::tensor({*x.const_data_ptr<float>()});
  };
  expect(refused(first, {}), "aten::add.Tensor", "other", "Make it by operators");
}

TEST_CASE("constants that are NaN are the same at all sizes") {
  exports([](Net& net, const at::Tensor& x) { return net(x).masked_fill(x > 0, NAN); });
  exports([](Net& net, const at::Tensor& x) { return net(x) + torch::tensor({1.0F, NAN, 2.0F, 3.0F}); });
}

TEST_CASE("numbers that follow no polynomial are refused with what was seen") {
  expect(
      refused([](Net& net, const at::Tensor& x) { return net(x).slice(0, 0, x.size(0) / 2); }),
      "aten::slice.Tensor", "end",
      "is [1, 2, 2, 3] at the sizes tried, which is no polynomial of the dynamic sizes. Make the dimension "
      "a multiple");
  expect(refused([](Net& net, const at::Tensor& x) {
           return net(x) / std::sqrt(static_cast<double>(x.size(0)));
         }),
         "aten::div.Scalar", "other", "is 1.7320508075688772 and 2. for the sizes");
  expect(refused([](Net& net, const at::Tensor& x) {
           return torch::leaky_relu(net(x), static_cast<double>(x.size(0)) * 0.5);
         }),
         "aten::leaky_relu", "negative_slope", "a number that is no integer cannot follow them");
  torch::nn::Conv1d conv(torch::nn::Conv1dOptions(4, 4, 3).stride(2).padding(1));
  const looptorch::testing::TemporaryFolder folder;
  const auto x = torch::randn({3, 4, 8});
  const auto strided = [&](const std::vector<lt::DynamicDim>& dims) {
    return lt::export_model(conv, x, folder / "conv.pt2", {.dynamic = dims});
  };
  CHECK_THROWS_WITH(
      strided({{.name = "frames", .places = {{0, 2}}}}),
      Catch::Contains("aten::convolution, argument the size of the result's dimension 2: is [4, 5, 5, 6]"));
  strided({{.name = "frames", .places = {{0, 2, 2}}}});
}

TEST_CASE("other operations at other sizes are refused") {
  expect(refused([](Net& net, const at::Tensor& x) {
           auto y = net(x);
           for (int i = 0; i < x.size(0); ++i) y = y + 1;
           return y;
         }),
         "aten::add.Scalar", "",
         "makes 5 to 8 operations at the sizes tried, and calls this one at some of them only");
  expect(refused([](Net& net, const at::Tensor& x) { return x.size(0) > 3 ? net(x).sin() : net(x).cos(); }),
         "aten::cos", "", "at other sizes the forward calls aten::sin in its place");
  expect(refused([](Net& net, const at::Tensor& x) { return net(x).chunk(x.size(0))[0]; }), "aten::chunk", "",
         "at other sizes the forward calls aten::chunk for another number of results");
  expect(refused([](Net& net, const at::Tensor& x) {
           return net(x) + (x.size(0) > 3 ? net->fc->bias : net->fc->weight[0]);
         }),
         "aten::select.int", "", "at other sizes the forward calls aten::add.Tensor in its place");
  expect(refused([](Net& net, const at::Tensor& x) {
           const auto a = net(x), b = a + 1, c = a * b;
           return c * (x.size(0) > 3 ? a : b);
         }),
         "aten::mul.Tensor", "other", "is another tensor at other sizes");
}

TEST_CASE("generators are refused, and random operators draw what the forward draws") {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  expect(refused([&](Net& net, const at::Tensor& x) {
           return net(x) + at::rand({x.size(0), 4}, std::optional<at::Generator>(generator));
         }),
         "aten::rand", "generator", "draws from a generator of its own, which no file can hold");
  exports([](Net& net, const at::Tensor& x) { return net(x) + at::randn({x.size(0), 4}); });
}

TEST_CASE("a size at which the forward fails is named") {
  const Forward fails = [](Net& net, const at::Tensor& x) {
    TORCH_CHECK(x.size(0) > 1, "one is too few");
    return net(x);
  };
  expect(refused(fails), "", "",
         "the forward fails at batch 1, which its DynamicDim allows: limit it by min and max. "
         "LibTorch says: one is too few");
  exports(fails, {.dynamic = {{.name = "batch", .places = {{0, 0}}, .min = 2}}});
}

TEST_CASE("a weight that holds NaN is refused by name, and one that holds infinity is not") {
  const looptorch::testing::TemporaryFolder folder;
  Net net;
  const auto write = [&](double value) {
    const torch::NoGradGuard no_grad;
    net->fc->weight[1][2] = value;
    lt::export_model(net, torch::randn({3, 4}), folder / "net.pt2");
  };
  CHECK_THROWS_WITH(
      write(NAN),
      "export_model: the weight fc.weight holds NaN: export one that was saved before training diverged");
  CHECK_THAT(page(),
             Catch::Contains(
                 "the weight fc.weight holds NaN: export one that was saved before training diverged\n"));
  CHECK(folder.entries() == 0);
  CHECK_NOTHROW(write(-INFINITY));

  torch::nn::BatchNorm1d norm(4);  // one batch that was not finite; its update was skipped
  norm->running_mean[1] = NAN;
  CHECK_THROWS_WITH(lt::export_model(norm, torch::randn({3, 4}), folder / "norm.pt2"),
                    Catch::Contains("the weight running_mean holds NaN"));
}

TEST_CASE("names of weights that a file cannot have, or Python cannot read, are refused") {
  const looptorch::testing::TemporaryFolder folder;
  struct NamedImpl : torch::nn::Module {
    explicit NamedImpl(const std::string& name) : weight(register_buffer(name, torch::ones({4}))) {}
    at::Tensor forward(const at::Tensor& x) { return x * weight; }
    at::Tensor weight;
  };
  const auto refuse = [&](const std::string& name, const char* file) {
    torch::nn::ModuleHolder<NamedImpl> net(std::make_shared<NamedImpl>(name));
    std::string text = "none";
    try {
      lt::export_model(
          net, [](auto& m, const at::Tensor& x) { return m->forward(x); }, torch::randn({3, 4}),
          folder / file);
    } catch (const lt::ExportError& error) {
      text = std::string(error.what()).substr(std::string("export_model: ").size());
      CHECK_THAT(page(), Catch::Contains(text + '\n'));
    }
    return text;
  };
  const std::string quote =
      "the name of the weight t\"q has a quote, a backslash or a line end, with which Python cannot read the "
      "file: rename it";
  CHECK(refuse("t\"q", "net.pt2") == quote);
  CHECK(refuse("t\"q", "net.ts") == quote);
  CHECK(
      refuse("j\u00fc", "net.ts") ==
      "the name of the weight j\u00fc is not ASCII, with which Python cannot read TorchScript: rename it, or write a "
      ".pt2");
  for (const char* file : {"net.pt2", "net.ts"})
    CHECK(
        refuse("training", file) ==
        "the name of the weight training has a part \"training\", as every module calls its mode: rename it");
  CHECK(folder.entries() == 0);
  CHECK(refuse("j\u00fc", "net.pt2") == "none");
}

TEST_CASE("inputs, names and paths that cannot be are refused") {
  const Forward plain = [](Net& net, const at::Tensor& x) { return net(x); };
  expect(refused(plain, {.input_names = {"a", "b"}}), "", "", "2 input names for 1 inputs");
  expect(refused(plain, {.input_names = {"1st"}}), "", "", "the input name \"1st\" is no identifier");
  expect(refused(plain, {}, at::Tensor()), "", "", "the input \"input_0\" is no dense tensor");
  expect(refused([](Net& net, const at::Tensor& x) { return net(x.to_dense()); }, {},
                 torch::randn({3, 4}).to_sparse()),
         "", "", "the input \"input_0\" is no dense tensor");
  Net net;
  CHECK_THROWS_WITH(lt::export_model(net, torch::randn({3, 4}), "net.onnx"),
                    Catch::Contains("net.onnx: the suffix must be .pt2, or .ts or .pt for TorchScript"));
}
