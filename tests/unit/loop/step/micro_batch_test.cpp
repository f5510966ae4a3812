// SPDX-License-Identifier: MIT
// LibTorch's errors say where they happened: in the objective, in its backward pass, on the way to the
// device, in any kind of window.
#include "support/precompiled.hpp"

#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <string>
#include <vector>

namespace lt = looptorch;
using Catch::Contains;

namespace {

/// Returns three batches of which the last has a label that is out of bounds.
std::vector<toy::Batch> with_bad_label() {
  auto batches = toy::batches(3);
  batches[2].labels[0] = 7;
  return batches;
}

template <class... Policies>
std::string error_of(const std::vector<toy::Batch>& batches, Policies... policies) {
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
  lt::Trainer trainer(net, adam, toy::objective, policies...);
  try {
    trainer.fit(batches);
  } catch (const c10::IndexError& error) {  // the type stays
    return error.what_without_backtrace();
  }
  return "none";
}

}  // namespace

TEST_CASE("an error of the objective has step and batch, whichever way the window goes") {
  const std::string alone = "Target 7 is out of bounds. (in step 2, batch 2 of epoch 0)";
  CHECK(error_of(with_bad_label()) == alone);
  CHECK(error_of(with_bad_label(), lt::RetryOnOom{}) == alone);
  CHECK(error_of(with_bad_label(), lt::SkipBadWindows{}) == alone);
  CHECK(error_of(with_bad_label(), lt::Accumulate<2>{}) ==
        "Target 7 is out of bounds. (in step 1, batch 2 of epoch 0)");
  CHECK(error_of(with_bad_label(), lt::Accumulate<3>{}, lt::RetryOnOom{}) ==
        "Target 7 is out of bounds. (in step 0, batch 2 of epoch 0)");
}

TEST_CASE("an error among several updates, and one in a loop of one's own, have their place") {
  auto net = toy::net();
  lt::FusedAdamW first(net->first->parameters(), {.lr = 0.01}),
      second(net->second->parameters(), {.lr = 0.01});
  lt::Trainer two(net, lt::Update{first, toy::objective}, lt::Update{second, toy::objective},
                  lt::Accumulate<3>{});
  CHECK_THROWS_WITH(two.fit(with_bad_label()), Contains("(in step 0, batch 2 of epoch 0)"));

  lt::FusedAdamW all(net->parameters(), {.lr = 0.01});
  lt::Trainer own(net, all, toy::objective);
  const auto batches = with_bad_label();
  own.step(batches[0]);
  CHECK_THROWS_WITH(own.step(batches[2]), Contains("Target 7 is out of bounds. (in step 1)"));
}

TEST_CASE("an error in backward, on the way to the device and in an evaluation have their place") {
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
  const auto spoils = [](toy::Net& net, const toy::Batch& batch) {
    auto hidden = torch::sigmoid(net->first(batch.features));
    const auto loss = hidden.sum() + hidden.pow(2).sum();
    hidden.add_(1);  // which backward needs as it was
    return loss;
  };
  lt::Trainer broken(net, adam, spoils);
  CHECK_THROWS_WITH(broken.fit(toy::batches(1)),
                    Contains("inplace operation") && Contains("(in step 0, batch 0 of epoch 0)"));

  auto ghosts = toy::batches(2);
  ghosts[1].features = torch::empty({2, 4}, torch::TensorOptions(torch::kDouble).device(at::kMeta));
  lt::Trainer trainer(net, adam, toy::objective);
  CHECK_THROWS_WITH(trainer.fit(ghosts), Contains("meta") && Contains("(in step 1, batch 1 of epoch 0)"));

  CHECK_THROWS_WITH(trainer.evaluate(with_bad_label()), Contains("(in batch 2 of an evaluation)"));
}

TEST_CASE("an error has its samples, where the loader knows them") {
  struct Rows {
    std::int64_t size() const { return 6; }
    toy::Batch get(std::int64_t index) const {
      return {torch::ones({4}, torch::kDouble), torch::tensor(index == 3 ? 9 : 0)};
    }
  };
  auto net = toy::net();
  lt::FusedAdamW adam(net->parameters(), {.lr = 0.01});
  lt::Trainer trainer(net, adam, toy::objective);
  CHECK_THROWS_WITH(trainer.fit(lt::PinnedPrefetchLoader(Rows{}, {.batch_size = 2, .workers = 0})),
                    Contains("Target 9 is out of bounds. (in step 1, batch 1 of epoch 0 (samples 2, 3))"));
}

TEST_CASE("a fit in inference mode says that this is why the loss has no gradient") {
  const c10::InferenceMode mode;
  auto net = toy::net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  lt::Trainer trainer(net, optimizer, toy::objective);
  CHECK_THROWS_WITH(trainer.fit(toy::batches(1)),
                    Contains("computed in c10::InferenceMode: end it before training"));
}
