// SPDX-License-Identifier: MIT
// Policies on an exported model, as on a module in C++.
//
// Tests exported: exported_model
#include <looptorch/adapters/lora.hpp>
#include <looptorch/exported/exported_model.hpp>
#include <looptorch/optim/parameter_groups.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "programs.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

namespace lt = looptorch;
using namespace exported_programs;

namespace {

struct Batch {
  at::Tensor image;
};

at::Tensor objective(lt::ExportedModel& model, const Batch& batch) {
  return loss_of(model->forward(batch.image));
}

std::vector<Batch> batches() {
  std::vector<Batch> all;
  for (int i = 0; i < 4; ++i) all.push_back({reference::wave({2 + i % 2, 3, 6, 6}, i, at::kFloat)});
  return all;
}

/// A run of the CNN with dropout and BatchNorm.
template <class... Policies>
struct Run {
  explicit Run(Policies... policies) : trainer(model, optimizer, objective, policies...) {
    torch::manual_seed(11);
  }
  lt::ExportedModel model = load("cnn");
  lt::FusedAdamW optimizer{model->parameters(), {.lr = 1e-2}};
  std::vector<Batch> data = batches();
  decltype(lt::Trainer(std::declval<lt::ExportedModel&>(), std::declval<lt::FusedAdamW&>(), objective,
                       std::declval<Policies&>()...)) trainer;
};

void check_same(const lt::ExportedModel& a, const lt::ExportedModel& b) {
  for (const auto& item : a->named_parameters())
    CHECK(at::equal(item.value(), b->named_parameters()[item.key()]));
  for (const auto& item : a->named_buffers()) CHECK(at::equal(item.value(), b->named_buffers()[item.key()]));
}

}  // namespace

TEST_CASE("A run of an exported model that is resumed has the bits of one that was not stopped") {
  const lt::testing::TemporaryFolder folder;
  Run whole;
  whole.trainer.fit(whole.data, {.epochs = 4});
  Run first(lt::SnapshotEvery{.folder = folder.path(), .steps = 3});
  first.trainer.fit(first.data, {.epochs = 4, .max_steps = 7});
  Run second(lt::SnapshotEvery{.folder = folder.path(), .steps = 3});
  const auto result = second.trainer.fit(second.data, {.epochs = 4, .resume = folder.path()});
  REQUIRE(result.resumed);
  check_same(whole.model, second.model);
}

TEST_CASE("UpdateInBackward, recomputation and both have the bits of a plain run") {
  Run plain;
  plain.trainer.fit(plain.data, {.epochs = 3});
  Run in_backward(lt::UpdateInBackward{});
  in_backward.trainer.fit(in_backward.data, {.epochs = 3});
  check_same(plain.model, in_backward.model);
  Run recomputed(lt::ClipGradNorm{1e9});
  recomputed.model->checkpoint_blocks();
  recomputed.trainer.fit(recomputed.data, {.epochs = 3});
  check_same(plain.model, recomputed.model);
  Run both(lt::UpdateInBackward{});
  both.model->checkpoint_blocks();
  both.trainer.fit(both.data, {.epochs = 3});
  check_same(plain.model, both.model);
}

TEST_CASE("Autocast acts on an exported model as in Python") {
  for (const std::string name : {"cnn", "encoder", "scoped"}) {
    CAPTURE(name);
    auto model = load(name);
    const at::NoGradGuard no_gradients;
    torch::manual_seed(7);
    std::vector<at::Tensor> outputs;
    {
      const lt::AutocastScope autocast(at::kCPU, at::kBFloat16);
      outputs = model->forward(inputs_of(recorded(name)));
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const auto& wanted = recorded(name).at("autocast." + std::to_string(i));
      CHECK(outputs[i].scalar_type() == wanted.scalar_type());
      CHECK(reference::difference(outputs[i], wanted) <= (wanted.scalar_type() == at::kFloat ? 1e-6 : 4e-3));
    }
  }
  Run run(lt::Autocast<lt::bf16>{});
  run.model->checkpoint_blocks();
  Run plain(lt::Autocast<lt::bf16>{});
  run.trainer.fit(run.data, {.epochs = 2});
  torch::manual_seed(11);
  plain.trainer.fit(plain.data, {.epochs = 2});
  check_same(run.model, plain.model);
  CHECK(run.model->named_parameters()["fc.weight"].scalar_type() == at::kFloat);
}

TEST_CASE("Freeze and groups select an exported model's weights by their Python names") {
  Run run(lt::Freeze{"blocks.*"});
  const auto before = run.model->named_parameters()["blocks.0.conv.weight"].clone();
  run.trainer.fit(run.data, {.epochs = 1});
  CHECK(at::equal(before, run.model->named_parameters()["blocks.0.conv.weight"]));
  const auto groups = lt::parameter_groups<lt::FusedAdamW>(*run.model, lt::FusedAdamW::Options{.lr = 1e-3},
                                                           {{{"fc.*"}, {.lr = 1e-2}}});
  CHECK(groups.size() == 2);
}

TEST_CASE("Adapters on an exported model's linear layers") {
  auto model = load("encoder"), plain = load("encoder");
  const auto inputs = inputs_of(recorded("encoder"));
  CHECK(lt::add_lora(*model, {.rank = 2, .alpha = 4, .patterns = {"encoder.layers.*.linear?"}}) == 4);
  for (const auto& parameter : plain->parameters())
    parameter.set_requires_grad(false);  // matmul asks for that
  model->eval(), plain->eval();
  CHECK(at::equal(model->forward(inputs)[0], plain->forward(inputs)[0]));  // B begins with zeros
  model->train();
  std::set<std::string> trained;
  for (const auto& item : model->named_parameters())
    if (item.value().requires_grad()) trained.insert(item.key());
  CHECK(trained.size() == 8);
  CHECK(trained.contains("encoder.layers.1.linear2.lora_A.weight"));
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  model->checkpoint_blocks();
  std::vector<double> losses;
  for (int i = 0; i < 5; ++i) {
    torch::manual_seed(1);
    optimizer.zero_grad();
    const auto loss = loss_of(model->forward(inputs));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  CHECK(losses.back() < losses.front());
  CHECK(at::equal(model->named_parameters()["embed.weight"], plain->named_parameters()["embed.weight"]));
  model->eval();
  const auto adapted = model->forward(inputs);
  CHECK(reference::difference(adapted[0], plain->forward(inputs)[0]) > 1e-5);
  lt::merge_lora(*model);
  CHECK(reference::difference(adapted[0], model->forward(inputs)[0]) < 1e-5);
  lt::fold_lora(*model);
  CHECK(reference::difference(adapted[0], model->forward(inputs)[0]) < 1e-5);
}

TEST_CASE("A NaN in an exported model's weights is found by its Python name") {
  Run run(lt::Autopsy{});
  {
    const at::NoGradGuard no_gradients;
    run.model->named_parameters()["blocks.1.conv.weight"][0][0][0][0] = NAN;
  }
  try {
    run.trainer.fit(run.data, {.epochs = 1});
    FAIL("no error");
  } catch (const lt::NonFiniteLoss& error) {
    REQUIRE(error.finding);
    CHECK(error.finding->parameter == "blocks.1.conv.weight");
  }
}
