// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/standard.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/trainer.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <filesystem>

namespace lt = looptorch;
using Catch::Contains;

TEST_CASE("standard: progress, a report, and the weights, and it says where they are") {
  const lt::testing::TemporaryFolder folder;
  lt::testing::CapturedStderr said;
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
  lt::Trainer trainer(net, adam, toy::objective, lt::app::standard(folder / "run"));
  trainer.fit(toy::batches(3));
  CHECK_THAT(said.text(), Contains("step 3") &&
                              Contains("the weights are in " + (folder / "run/model.safetensors").string()));
  CHECK(std::filesystem::exists(folder / "run" / "report.html"));
  const auto saved = lt::load_safetensors(folder / "run" / "model.safetensors").tensors;
  for (const auto& weight : net->named_parameters())
    CHECK(torch::equal(saved.at(weight.key()), weight.value()));
}

TEST_CASE("standard: held-out batches are validated after each epoch, and tried before the first step") {
  const lt::testing::TemporaryFolder folder;
  lt::testing::CapturedStderr said;
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
  auto held_out = toy::batches(3);
  const auto run = [&] {
    lt::Trainer trainer(net, adam, toy::objective, lt::app::standard(folder / "run", held_out));
    trainer.fit(toy::batches(3), {.epochs = 2});
    return trainer.metrics().publications("validation.loss");
  };
  CHECK(run() == 2);
  held_out[1].features = torch::ones({1, 5}, torch::kDouble);
  held_out.front() = held_out[1];
  const auto before = net->first->weight.clone();
  CHECK_THROWS(run());
  CHECK(torch::equal(net->first->weight, before));
}
