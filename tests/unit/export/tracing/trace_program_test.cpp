// SPDX-License-Identifier: MIT
// Tests export/program: equal_values
// Tests export/tracing: read_trace, recorded_graph, merge_sizes, module_weights, value_watch
// Tests export/tracing: export_scope
#include <looptorch/export/program/run_program.hpp>
#include <looptorch/export/tracing/export_scope.hpp>
#include <looptorch/export/tracing/trace_program.hpp>

#include "support/catch.hpp"
#include "unit/export/models.hpp"

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace lt = looptorch;
using export_tests::Mlp;
using export_tests::Net;
using Tensors = std::vector<at::Tensor>;

namespace {

const std::vector<lt::DynamicDim> kBatch{{.name = "batch", .places = {{0, 0}}}};

lt::ExportedProgram traced(torch::nn::Module& module, const lt::detail::TensorFunction& forward,
                           const Tensors& inputs, const std::vector<lt::DynamicDim>& dims = kBatch) {
  const lt::detail::ExportScope scope(module, at::kCPU);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < inputs.size(); ++i) names.push_back("x" + std::to_string(i));
  return lt::detail::trace_program(module, forward, inputs, names, dims, false);
}

std::vector<std::string> operators(const lt::ExportedProgram& program) {
  std::vector<std::string> names;
  for (const auto& node : program.nodes) names.push_back(node.name());
  return names;
}

}  // namespace

TEST_CASE("a forward becomes a program of its weights, whose sizes follow the batch") {
  Mlp net;
  const auto program =
      traced(*net, [&](const Tensors& in) { return Tensors{net(in[0])}; }, {torch::randn({3, 4})});
  CHECK(program.weights.size() == 5);
  CHECK(program.weights[4].name == "scale");
  CHECK_FALSE(program.weights[4].is_parameter);
  CHECK(program.weights[0].tensor.is_same(net->fc1->weight));
  REQUIRE(program.constants.size() == 1);
  const auto& out = program.values[program.outputs.at(0)];
  CHECK((out.sizes == std::vector<lt::Polynomial>{lt::Polynomial::of_dim(0), 2}));
  CHECK(out.dtype == torch::kFloat);
  const auto names = operators(program);
  CHECK(std::count(names.begin(), names.end(), "aten::view") == 2);
  CHECK(std::count(names.begin(), names.end(), "aten::chunk") == 1);
  lt::ProgramRunner run(program);
  net->eval();
  const auto x = torch::randn({7, 4});
  const torch::NoGradGuard no_grad;
  CHECK(torch::equal(run({x})[0], net(x)));
}

TEST_CASE("of several names for one tensor the first is kept") {
  torch::nn::ModuleHolder<export_tests::NetImpl> net;
  net->register_parameter("head", net->fc->weight);
  const auto program = traced(
      *net,
      [&](const Tensors& in) { return Tensors{torch::linear(net(in[0]), net->named_parameters()["head"])}; },
      {torch::randn({3, 4})});
  REQUIRE(program.weights.size() == 2);
  CHECK(program.weights[0].name == "head");
  CHECK(program.weights[1].name == "fc.bias");
}

TEST_CASE("a forward may return a registered weight") {
  Mlp net;
  const auto program = traced(*net,
                              [&](const Tensors& in) {
                                return Tensors{net(in[0]), net->scale, net->fc1->bias};
                              },
                              {torch::randn({3, 4})});
  const auto outputs = lt::ProgramRunner(program)({torch::randn({5, 4})});
  REQUIRE(outputs.size() == 3);
  CHECK(torch::equal(outputs[1], net->scale));
  CHECK(torch::equal(outputs[2], net->fc1->bias));
}

TEST_CASE("a convolution is written without cuDNN's flags, and one number for several is spread") {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(1, 2, 3));
  const auto program =
      traced(*conv, [&](const Tensors& in) { return Tensors{torch::max_pool2d(conv(in[0]), 2)}; },
             {torch::randn({3, 1, 8, 8})});
  CHECK(operators(program) == std::vector<std::string>{"aten::convolution", "aten::max_pool2d"});
  CHECK(program.nodes[0].arguments.size() == 9);
  CHECK(program.nodes[1].arguments[1].constant()->toIntVector() == std::vector<std::int64_t>{2, 2});
}

TEST_CASE("modes, gradients, oneDNN and random generators are as before, after an exception too") {
  Mlp net;
  net->fc1->eval();
  const bool onednn = at::globalContext().userEnabledMkldnn();
  at::globalContext().setUserEnabledMkldnn(true);
  torch::manual_seed(3);
  const auto generator = torch::randn({2});
  torch::manual_seed(3);
  for (const bool fails : {false, true}) {
    const auto run = [&] {
      (void)traced(*net,
                   [&](const Tensors& in) {
                     CHECK_FALSE(net->drop->is_training());
                     CHECK_FALSE(at::GradMode::is_enabled());
                     CHECK_FALSE(at::globalContext().userEnabledMkldnn());
                     (void)torch::randn({5});
                     if (fails) throw std::runtime_error("the forward's own");
                     return Tensors{net(in[0])};
                   },
                   {torch::randn({3, 4}, at::make_generator<at::CPUGeneratorImpl>(7))});
    };
    if (fails)
      CHECK_THROWS_WITH(run(), "the forward's own");
    else
      run();
    CHECK(net->is_training());
    CHECK(net->drop->is_training());
    CHECK_FALSE(net->fc1->is_training());
    CHECK(at::GradMode::is_enabled());
    CHECK(at::globalContext().userEnabledMkldnn());
    CHECK_FALSE(torch::jit::tracer::isTracing());
    CHECK(torch::equal(torch::randn({2}), generator));
    torch::manual_seed(3);
  }
  at::globalContext().setUserEnabledMkldnn(onednn);
}
