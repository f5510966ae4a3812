// SPDX-License-Identifier: MIT
// Several Trainers on one model: windows that would disturb each other are refused.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <string>
#include <thread>
#include <utility>

namespace lt = looptorch;

TEST_CASE("a Trainer does not begin in the middle of another's window on the same parameters") {
  const auto data = toy::batches(4);
  auto net = toy::net(), plain = toy::net();
  torch::optim::SGD a(net->parameters(), 0.5), b(net->parameters(), 0.5), c(plain->parameters(), 0.5);
  lt::Trainer one(net, a, toy::objective, lt::Accumulate<2>{});
  lt::Trainer two(net, b, toy::objective);
  lt::Trainer by_itself(plain, c, toy::objective, lt::Accumulate<2>{});
  one.step(data[0]), by_itself.step(data[0]);
  CHECK_THROWS_WITH(two.step(data[1]), Catch::Contains("call its finish_window() first"));
  CHECK_THROWS_WITH(two.fit(data), Catch::Contains("another Trainer has a window open"));
  one.step(data[1]), by_itself.step(data[1]);
  CHECK(toy::distance(net, plain) == 0.0);
  two.step(data[2]);  // begun between the windows of the other
  one.step(data[2]);
  CHECK_THROWS_AS(two.step(data[3]), lt::UsageError);
  one.finish_window();
  CHECK(two.step(data[3]).window_ended);
}

TEST_CASE("a window that is left open ends with its Trainer") {
  const auto data = toy::batches(2);
  auto net = toy::net();
  torch::optim::SGD a(net->parameters(), 0.5), b(net->parameters(), 0.5);
  {
    lt::Trainer one(net, a, toy::objective, lt::Accumulate<2>{});
    one.step(data[0]);
    lt::Trainer moved(std::move(one));
  }
  lt::Trainer two(net, b, toy::objective);
  CHECK(two.fit(data).steps == 2);
}

TEST_CASE("Trainers of different parameters of one model may take turns in mid-window on one thread") {
  const auto data = toy::batches(4);
  auto net = toy::net();
  torch::optim::SGD a(net->first->parameters(), 0.5), b(net->second->parameters(), 0.5);
  lt::Trainer one(net, a, toy::objective, lt::Accumulate<2>{}),
      two(net, b, toy::objective, lt::Accumulate<2>{});
  for (const auto& batch : data) one.step(batch), two.step(batch);
  CHECK(two.progress().step == 2);
}

TEST_CASE("on two threads Trainers of one model are refused, and flags stay as they were") {
  const auto data = toy::batches(4);
  auto net = toy::net();
  torch::optim::SGD a(net->first->parameters(), 0.5), b(net->second->parameters(), 0.5);
  std::string error;
  const auto other = [&] {
    lt::Trainer two(net, b, toy::objective);
    try {
      two.fit(data);
    } catch (const lt::UsageError& thrown) {
      error = thrown.what();
    }
  };
  lt::Trainer one(net, a, [&](toy::Net& net, const toy::Batch& batch) {
    if (error.empty()) std::thread(other).join();
    return toy::objective(net, batch);
  });
  CHECK(one.fit(data).steps == 4);
  CHECK_THAT(error, Catch::Contains("on another thread"));
  for (const auto& parameter : net->parameters()) CHECK(parameter.requires_grad());
}
