// SPDX-License-Identifier: MIT
// Modules of an exported model have their Python paths where operators are looked at: in traces, and where a
// NaN is found.
//
// Tests base: running_module, trace_ranges
#include <looptorch/exported/exported_model.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/policies/autopsy.hpp>
#include <looptorch/policies/profile.hpp>
#include <looptorch/trainer.hpp>

#include "programs.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

namespace lt = looptorch;
using namespace exported_programs;

namespace {

/// A range of a trace, in microseconds.
struct Range {
  double begin = 0, end = 0;
};
using Ranges = std::multimap<std::string, Range>;

/// Returns the ranges that a trace has of modules and of operators, by their names.
Ranges ranges_of(const std::filesystem::path& file, const std::string& category) {
  Ranges ranges;
  const lt::Json trace = lt::Json::parse(lt::read_file(file));
  for (const lt::Json& event : trace.at("traceEvents").as_array()) {
    if (!event.contains("cat") || event.at("cat").as_string() != category) continue;
    const double begin = event.at("ts").as_number();
    ranges.insert({event.at("name").as_string(), {begin, begin + event.at("dur").as_number()}});
  }
  return ranges;
}

bool holds(const Range& outer, const Range& inner) {
  constexpr double kRounding = 0.05;
  return outer.begin <= inner.begin + kRounding && inner.end <= outer.end + kRounding;
}
std::size_t count_within(const Ranges& ranges, const std::string& name, const Range& outer) {
  std::size_t count = 0;
  for (auto [each, end] = ranges.equal_range(name); each != end; ++each) count += holds(outer, each->second);
  return count;
}

at::Tensor objective(lt::ExportedModel& model, const at::Tensor& image) {
  return loss_of(model->forward(image));
}
std::vector<at::Tensor> images(int count) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < count; ++i) all.push_back(reference::wave({2, 3, 6, 6}, i, at::kFloat));
  return all;
}

/// Makes the sum in the block overflow, whose parts are finite.
void let_block_overflow(const lt::ExportedModelImpl& model) {
  const at::NoGradGuard no_gradients;
  const auto parameters = model.named_parameters();
  for (const auto* weight : {"stem.weight", "blocks.0.conv.weight"}) parameters[weight].zero_();
  for (const auto* bias : {"stem.bias", "blocks.0.bn.bias"}) parameters[bias].fill_(3e38);
}

template <class Model, class Objective>
lt::Finding found_in(Model& model, Objective objective) {
  lt::FusedAdamW optimizer(model->parameters(), {});
  lt::Trainer trainer(model, optimizer, objective, lt::Autopsy{});
  try {
    trainer.fit(images(1), {.epochs = 1});
  } catch (const lt::NonFiniteLoss& error) {
    if (error.finding) return *error.finding;
  } catch (const lt::NonFiniteGradient& error) {
    if (error.finding) return *error.finding;
  }
  FAIL("nothing was found");
  return {};
}

/// A model of which the exported one is a part.
struct WholeImpl : torch::nn::Module {
  WholeImpl() { register_module("vision", vision.ptr()); }
  lt::ExportedModel vision = exported_programs::load("cnn");
};
TORCH_MODULE(Whole);

}  // namespace

TEST_CASE("a trace has an exported model's modules by their Python paths, in one another") {
  const bool recomputes = GENERATE(false, true);
  const lt::testing::TemporaryFolder folder;
  auto model = load("cnn");
  if (recomputes) model->checkpoint_blocks();
  lt::FusedAdamW optimizer(model->parameters(), {});
  lt::Trainer trainer(
      model, optimizer, objective,
      lt::Profile{.folder = folder.path(), .first = 2, .last = 2, .report = [](const std::string&) {}});
  trainer.fit(images(3), {.epochs = 1});
  const auto modules = ranges_of(folder / "trace.json", "user_annotation");
  const auto operators = ranges_of(folder / "trace.json", "cpu_op");
  for (const std::string path : {"stem", "blocks.0.bn", "blocks.1", "drop", "fc"}) {
    CAPTURE(path);
    CHECK(modules.count(path) == (recomputes && path.starts_with("blocks.") ? 2 : 1));
  }
  REQUIRE(modules.contains("forward"));
  const Range& forward = modules.find("forward")->second;
  for (auto [block, end] = modules.equal_range("blocks.0"); block != end; ++block) {
    CHECK(count_within(modules, "blocks.0.conv", block->second) == 1);
    CHECK(count_within(operators, "aten::conv2d", block->second) == 1);
    CHECK(count_within(operators, "aten::batch_norm", block->second) == 1);
    CHECK(count_within(modules, "blocks.1", block->second) == 0);
  }
  CHECK(count_within(modules, "blocks.0", forward) == 1);
  CHECK(count_within(operators, "aten::addmm", modules.find("fc")->second) == 1);
  CHECK(count_within(operators, "aten::mean", modules.find("blocks")->second) == 0);  // of the model itself
  CHECK(lt::detail::running_module == nullptr);
}

TEST_CASE("a NaN that no parameter explains is found in the module of its Python path") {
  const auto check = [](const lt::Finding& finding, const std::string& path) {
    CHECK(finding.op == "aten::add_");
    CHECK(finding.parameter.empty());
    CHECK(finding.module_type == "__main__.Block");
    CHECK(finding.modules == std::vector<std::string>{path});
    CHECK_THAT(finding.text(), Catch::Matchers::Contains(", in '" + path + "' (__main__.Block)"));
  };
  auto model = load("cnn");
  let_block_overflow(*model);
  check(found_in(model, objective), "blocks.0");
  SECTION("recomputed") {
    model->checkpoint_blocks();
    check(found_in(model, objective), "blocks.0");
  }
  SECTION("as a part of a model") {
    Whole whole;
    let_block_overflow(*whole->vision);
    check(found_in(whole, [](Whole& net, const at::Tensor& image) { return objective(net->vision, image); }),
          "vision.blocks.0");
  }
  SECTION("not what the objective computes of the outputs") {
    auto sound = load("cnn");
    const auto finding = found_in(sound, [](lt::ExportedModel& net, const at::Tensor& image) {
      return (objective(net, image) * 0 - 1).log();
    });
    CHECK(finding.op == "aten::log");
    CHECK(finding.module_type.empty());
  }
}

TEST_CASE("what overflows in backward is found in the module of the operator that made the node") {
  auto model = load("cnn");
  {
    const at::NoGradGuard no_gradients;
    const auto parameters = model->named_parameters();
    for (const auto* weight : {"stem.weight", "blocks.0.bn.weight", "blocks.1.bn.weight", "fc.bias"})
      parameters[weight].zero_();
    for (const auto* bias : {"stem.bias", "blocks.0.bn.bias", "blocks.1.bn.bias"})
      parameters[bias].fill_(1e-6);     // the outputs are small
    parameters["fc.weight"].fill_(11);  // dropout's gradients are 4/3 of 3.1e38
  }
  const auto finding = found_in(
      model, [](lt::ExportedModel& net, const at::Tensor& image) { return objective(net, image) * 1e38; });
  CHECK(finding.backward);
  CHECK(finding.parameter.empty());
  CHECK(finding.modules == std::vector<std::string>{"drop"});
  CHECK(finding.module_type == "torch.nn.modules.dropout.Dropout");
}

TEST_CASE("modules' ranges in a trace omit what breaks its JSON") {
  const lt::testing::TemporaryFolder folder;
  {
    lt::detail::TraceRecorder recorder({at::kCPU});
    const std::vector<lt::detail::RunningModule> modules{{""}, {R"(a"b\.c)"}};
    lt::detail::exported::ModuleRanges ranges(modules);
    ranges.enter(1);
    ranges.enter(0);
    recorder.stop(folder / "trace.json");
  }
  CHECK(ranges_of(folder / "trace.json", "user_annotation").contains("a'b'.c"));
}
