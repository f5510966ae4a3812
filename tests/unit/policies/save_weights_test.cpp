// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/policies/save_weights.hpp>
#include <looptorch/state/weights/safetensors.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace fs = std::filesystem;
namespace lt = looptorch;
using Catch::Contains;

namespace {

at::Tensor first_weight(toy::Net& net) { return net->parameters()[0].detach().clone(); }

at::Tensor first_saved(const fs::path& file, toy::Net& net) {
  return lt::load_safetensors(file).tensors.at(net->named_parameters()[0].key());
}

}  // namespace

TEST_CASE("SaveWeights: the file has each epoch's weights, and at the end those that RestoreBest put back") {
  const lt::testing::TemporaryFolder folder;
  const auto file = folder / "new/model.safetensors";
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.05});
  std::vector<at::Tensor> last, saved;
  int count = 0;
  const auto worse = [&](toy::Net&, const toy::Batch&) { return double(++count); };  // the first is best
  lt::Trainer trainer(net, adam, toy::objective, lt::SaveWeights{.file = file, .out = nullptr},
                      lt::Validate{toy::batches(1), worse}, lt::RestoreBest{},
                      lt::On{lt::kPrepare, [&](lt::UpdateContext&) {
                               if (fs::exists(file))
                                 saved.push_back(first_saved(file, net)), last.push_back(first_weight(net));
                             }});
  trainer.fit(toy::batches(1), {.epochs = 3});
  REQUIRE(saved.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) CHECK(torch::equal(saved[i], last[i]));
  CHECK(torch::equal(first_saved(file, net), first_weight(net)));
  CHECK(torch::equal(first_saved(file, net), saved[0]));
}

TEST_CASE("SaveWeights: a fit that fails leaves what was saved before") {
  const lt::testing::TemporaryFolder folder;
  const auto file = folder / "model.safetensors";
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.05});
  at::Tensor after_first;
  lt::Trainer trainer(net, adam, toy::objective, lt::SaveWeights{.file = file, .out = nullptr},
                      lt::On{lt::kObserve, [&](lt::WindowContext& window) {
                               if (window.run.progress().step == 1) after_first = first_weight(net);
                               if (window.run.progress().step == 2) throw std::runtime_error("power cut");
                             }});
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1), {.epochs = 3}), "power cut");
  CHECK(torch::equal(first_saved(file, net), after_first));

  lt::Trainer nameless(net, adam, toy::objective, lt::SaveWeights{.file = ""});
  CHECK_THROWS_WITH(nameless.fit(toy::batches(1)), Contains("the name of a file"));
}
