// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/objective/loss.hpp>

namespace lt = looptorch;

TEST_CASE("a quantity is any number, or a tensor of one element; a CPU tensor is read at once") {
  CHECK(lt::Quantity(3).number() == 3.0);
  CHECK(lt::Quantity(2.5f).number() == 2.5);
  CHECK(lt::Quantity(true).number() == 1.0);
  CHECK(lt::Quantity(torch::tensor(7, torch::kLong)).is_known());
  CHECK(lt::Quantity(torch::tensor({7.0})).number() == 7.0);
  CHECK_THROWS_WITH(
      lt::Quantity(torch::ones({2, 3})),
      "a metric's value or a weight must be a number or a tensor of one element, got shape [2, 3]; reduce "
      "it, for example by mean()");
  CHECK_THROWS_WITH(lt::Quantity(at::Tensor()), Catch::Contains("undefined"));
}

TEST_CASE("an unread quantity stays a detached 0-dim tensor") {
  const auto tensor = torch::ones({1}, torch::requires_grad());
  const auto quantity = lt::Quantity::unread(tensor);
  CHECK_FALSE(quantity.is_known());
  CHECK(quantity.tensor().dim() == 0);
  CHECK_FALSE(quantity.tensor().requires_grad());
  CHECK(lt::Quantity(torch::ones({}, at::TensorOptions().device(at::kMeta))).is_known() == false);
}

TEST_CASE("a loss is written by name or in order") {
  const auto value = torch::ones({});
  const lt::Loss by_name{.value = value, .weight = 4};
  const lt::Loss in_order{value, 4, {{"accuracy", 0.5}}};
  CHECK(by_name.weight.number() == in_order.weight.number());
  CHECK(in_order.metrics.front().name == "accuracy");
  CHECK(lt::Loss{.value = value}.weight.number() == 1.0);
  CHECK(lt::detail::as_loss(value).value.is_same(value));
  const lt::Loss sum{.weight = value * 3, .sum = value};
  CHECK(lt::detail::as_loss(sum).weight.number() == 3.0);
}

TEST_CASE("a metric that is called as the loss is refused") {
  const lt::Loss loss{.value = torch::ones({}), .metrics = {{"accuracy", 0.5}, {"loss", 1.0}}};
  CHECK_THROWS_AS(lt::detail::as_loss(loss), lt::UsageError);
  CHECK_THROWS_WITH(lt::detail::as_loss(loss), Catch::Contains("'loss', as the loss itself is"));
}

TEST_CASE("two metrics of one name are refused, which would be averaged") {
  const lt::Loss loss{.value = torch::ones({}), .metrics = {{"top1", 0.5}, {"top5", 0.9}, {"top1", 0.7}}};
  CHECK_THROWS_AS(lt::detail::as_loss(loss), lt::UsageError);
  CHECK_THROWS_WITH(lt::detail::as_loss(loss), Catch::Contains("two metrics called 'top1'"));
}
