// SPDX-License-Identifier: MIT
// Tests export/program: exported_program, dynamic_dims, sized_inputs, export_error
#include <looptorch/export/program/run_program.hpp>
#include <looptorch/export/program/sized_inputs.hpp>

#include "support/catch.hpp"

#include <torch/torch.h>

#include <vector>

namespace lt = looptorch;

namespace {

c10::OperatorHandle op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

/// x [B, 2] -> (2 w x).view({2 B}), chunked in two halves whose sum is the output.
lt::ExportedProgram small_program(const at::Tensor& weight) {
  lt::ExportedProgram program;
  for (int i = 0; i < 7; ++i) program.add_value({});
  program.weights = {{"w", weight, true, 0}};
  program.inputs = {{"x", torch::ones({3, 2}), 1}};
  program.dims = {{.name = "batch", .places = {{0, 0}}}};
  program.example_dims = {3};
  const auto size = lt::Polynomial::of_dim(0) * lt::Polynomial(2);
  program.nodes.push_back({op("aten::mul", "Tensor"), {{lt::ValueId{1}}, {lt::ValueId{0}}}, {{{2}, false}}});
  program.nodes.push_back(
      {op("aten::add_", "Tensor"), {{lt::ValueId{2}}, {lt::ValueId{2}}, {c10::IValue(1)}}, {{{3}, false}}});
  program.nodes.push_back(
      {op("aten::view"), {{lt::ValueId{3}}, {lt::ProgramArgument::List{{size}}}}, {{{4}, false}}});
  program.nodes.push_back(
      {op("aten::chunk"), {{lt::ValueId{4}}, {c10::IValue(2)}, {c10::IValue(0)}}, {{{5, 6}, true}}});
  program.outputs = {5, 6};
  return program;
}

}  // namespace

TEST_CASE("a program runs at any size, writes in place and unpacks lists") {
  const auto weight = torch::tensor({3.F});
  const auto program = small_program(weight);
  lt::ProgramRunner run(program);
  for (const int batch : {3, 1, 8}) {
    const auto x = torch::randn({batch, 2});
    const auto outputs = run({x});
    REQUIRE(outputs.size() == 2);
    CHECK(torch::equal(torch::cat({outputs[0], outputs[1]}), (6 * x).view({2 * batch})));
  }
  weight.fill_(1);  // the program holds the model's own tensor
  CHECK(torch::equal(run({torch::ones({1, 2})})[0], torch::full({1}, 2.F)));
}

TEST_CASE("a program has gradients where they are enabled") {
  const auto weight = torch::tensor({3.F}).requires_grad_();
  const auto program = small_program(weight);
  lt::ProgramRunner run(program);
  run({torch::ones({3, 2})})[0].sum().backward();
  CHECK(weight.grad().item<float>() == 6.F);
  const torch::NoGradGuard no_grad;
  CHECK_FALSE(run({torch::ones({3, 2})})[0].requires_grad());
}

TEST_CASE("inputs that do not fit a program are refused") {
  auto program = small_program(torch::tensor({3.F}));
  program.inputs.push_back({"y", torch::ones({6}), 1});
  program.dims[0].places.push_back({1, 0, 2});
  lt::ProgramRunner run(program);
  CHECK_THROWS_WITH(run({torch::ones({3, 2})}), "the program takes 2 inputs, not 1");
  CHECK_THROWS_WITH(run({torch::ones({3, 2}), torch::ones({5})}),
                    "input \"y\" has 5 in dimension 0, not 2 times the 3 of batch");
}

TEST_CASE("inputs at other sizes repeat or cut the example") {
  const std::vector<lt::DynamicDim> dims{{.name = "b", .places = {{0, 0}, {1, 1, 2}}}};
  const auto inputs = lt::detail::inputs_at({torch::arange(3), torch::arange(6).view({1, 6})}, dims, {2});
  CHECK(torch::equal(inputs[0], torch::arange(2)));
  CHECK(torch::equal(inputs[1], torch::arange(4).view({1, 4})));
  CHECK(torch::equal(lt::detail::inputs_at({torch::arange(3), torch::arange(6).view({1, 6})}, dims, {4})[0],
                     torch::tensor({0, 1, 2, 0})));
  const auto others = lt::detail::with_other_values({torch::tensor({1, 2}), torch::tensor({1.F, 2.F})});
  CHECK(torch::equal(others[0], torch::tensor({2, 1})));
  CHECK(torch::equal(others[1], torch::tensor({1.F, 0.5F})));
}

TEST_CASE("dynamic sizes that an example cannot have are refused") {
  const auto x = torch::ones({3, 8});
  const auto dims = [&](lt::DynamicDim dim) { return lt::detail::example_dims({x, x}, {std::move(dim)}); };
  CHECK(dims({.name = "n", .places = {{0, 1, 2}, {1, 1, 2}}}) == lt::DimValues{4});
  CHECK_THROWS_WITH(dims({.name = "n", .places = {}}),
                    Catch::Contains("the dynamic size \"n\" has no places"));
  CHECK_THROWS_WITH(dims({.name = "n", .places = {{2, 0}}}),
                    Catch::Contains("\"n\" is to be dimension 0 of input 2, which does not exist"));
  CHECK_THROWS_WITH(dims({.name = "n", .places = {{0, 0}, {1, 1}}}),
                    Catch::Contains("\"n\" is 3, and input 1 has 8 in dimension 1, not 1 times as many"));
  CHECK_THROWS_WITH(dims({.name = "n", .places = {{0, 0, 3}}}), Catch::Contains("it must be 2 or more"));
  CHECK_THROWS_WITH(dims({.name = "n", .places = {{0, 0}}, .min = 3, .max = 2}),
                    Catch::Contains("the dynamic size \"n\" has max 2, below its min 3"));
  CHECK_THROWS_WITH(dims({.name = "n", .places = {{0, 0}}, .min = 0}),
                    Catch::Contains("\"n\" has min 0, which must be at least 1"));
  CHECK_THROWS_WITH(dims({.name = "n", .places = {{0, 0, 0}}}),
                    Catch::Contains("\"n\" has a place with multiple 0, which must be at least 1"));
  const auto reach = [](std::size_t) { return std::int64_t{3}; };
  using Directions = std::vector<std::int64_t>;
  CHECK(lt::detail::directions({{.name = "n", .places = {}, .max = 10}}, {7}, reach) == Directions{1});
  CHECK(lt::detail::directions({{.name = "n", .places = {}, .max = 10}}, {8}, reach) == Directions{-1});
  CHECK_THROWS_WITH(lt::detail::directions({{.name = "n", .places = {}, .max = 5}}, {4}, reach),
                    Catch::Contains("\"n\" has no room for 3 other sizes beside the example's 4"));
}
