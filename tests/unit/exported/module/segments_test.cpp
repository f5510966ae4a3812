// SPDX-License-Identifier: MIT
// Parts of an exported model are recomputed, to the bit.
#include <looptorch/exported/exported_model.hpp>
#include <looptorch/exported/module/segments.hpp>

#include "../programs.hpp"
#include "support/catch.hpp"

namespace lt = looptorch;
using namespace exported_programs;

namespace {

/// Returns the loss, all gradients, and all buffers after a step.
std::vector<at::Tensor> step(lt::ExportedModel& model, const std::string& name) {
  torch::manual_seed(3);
  auto loss = loss_of(model->forward(inputs_of(recorded(name))));
  loss.backward();
  std::vector<at::Tensor> all{loss.detach()};
  for (const auto& parameter : model->parameters())
    if (parameter.grad().defined()) all.push_back(parameter.grad());
  for (const auto& buffer : model->buffers()) all.push_back(buffer);
  return all;
}

void check_same(lt::ExportedModel& model, const std::string& name) {
  auto plain = load(name);
  const auto wanted = step(plain, name), found = step(model, name);
  REQUIRE(wanted.size() == found.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK(at::equal(wanted[i], found[i]));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const lt::UsageError& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("Blocks that are recomputed have the same bits") {
  auto cnn = load("cnn"), encoder = load("encoder"), by_pattern = load("encoder");
  CHECK(cnn->checkpoint_blocks() == 2);
  check_same(cnn, "cnn");
  CHECK(encoder->checkpoint_blocks() == 2);
  check_same(encoder, "encoder");
  CHECK(by_pattern->checkpoint_blocks("encoder.layers.1") == 1);
  check_same(by_pattern, "encoder");
  by_pattern->checkpoint_nothing();
  CHECK(by_pattern->checkpoint_blocks("encoder.layers.*") == 2);
  CHECK(refusal([&] { by_pattern->checkpoint_blocks(); }).find("overlap another part") != std::string::npos);
}

TEST_CASE("Recomputation runs operators twice, and offers keep and light") {
  auto model = load("encoder");
  model->checkpoint_blocks("", {.mode = lt::CheckpointMode::light});
  check_same(model, "encoder");
  auto offloaded = load("encoder");
  offloaded->checkpoint_blocks("", {.mode = lt::CheckpointMode::offload});
  check_same(offloaded, "encoder");
}

TEST_CASE("Nodes between two names are recomputed") {
  auto model = load("scoped");
  CHECK(refusal([&] { model->checkpoint_between("no", "mul"); }) ==
        "the model has no node \"no\": print(program) in Python lists them");
  auto whole = load("recurrent");
  whole->checkpoint_between("gru", "lstm");
  check_same(whole, "recurrent");
  CHECK(refusal([&] { whole->checkpoint_between("lstm", "gru"); }) ==
        "the node \"gru\" runs before \"lstm\"");
}

TEST_CASE("A model without blocks says so") {
  auto model = load("scoped");
  CHECK(refusal([&] { model->checkpoint_blocks(); }) == "the model has no list of modules that run in turn");
  CHECK(refusal([&] { model->checkpoint_blocks("layers.*"); }) ==
        "the model has no module that matches \"layers.*\"");
}

TEST_CASE("The module of a list that a path lies in") {
  using lt::detail::exported::numbered_part, lt::detail::exported::matching_part;
  CHECK(numbered_part("encoder.layers.12.norm") == "encoder.layers.12");
  CHECK(numbered_part("encoder.layers.1") == "encoder.layers.1");
  CHECK(numbered_part("encoder.layer1.norm").empty());
  CHECK(numbered_part("").empty());
  CHECK(matching_part("a.b.c", "a.*") == "a.b");
  CHECK(matching_part("a.b.c", "*.c") == "a.b.c");
  CHECK(matching_part("a.b.c", "b").empty());
}
