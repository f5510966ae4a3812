// SPDX-License-Identifier: MIT
// The parameters that groups listed, compared with what they list now.
#include "support/precompiled.hpp"

#include <looptorch/optim/state/listed_parameters.hpp>

#include <cstddef>
#include <ctime>
#include <optional>
#include <vector>

using looptorch::detail::ListedParameters;
using Groups = ListedParameters::Groups;
using Indices = std::vector<std::optional<std::size_t>>;

namespace {

const at::Tensor a = torch::zeros({2}), b = torch::zeros({2}), c = torch::zeros({2}), d = torch::zeros({2});

Groups groups(const std::vector<std::vector<at::Tensor>>& parameters) {
  Groups groups;
  for (const auto& each : parameters) groups.emplace_back(each);
  return groups;
}

}  // namespace

TEST_CASE("listed parameters match the same tensors in the same positions, and nothing else") {
  ListedParameters listed;
  CHECK_FALSE(listed.match(groups({{a}})));
  listed.refresh(groups({{a, b}, {c}}));
  CHECK(listed.match(groups({{a, b}, {c}})));
  CHECK_FALSE(listed.match(groups({{b, a}, {c}})));
  CHECK_FALSE(listed.match(groups({{a, b}, {c}, {d}})));
  CHECK_FALSE(listed.match(groups({{a}, {c}})));
  CHECK_FALSE(listed.match(groups({{a, d}, {c}})));
}

TEST_CASE("listed parameters tell where a group was before") {
  ListedParameters listed;
  CHECK(listed.former(groups({{a}, {b}})) == Indices{0, 1});  // never refreshed
  listed.refresh(groups({{a}, {b}}));
  CHECK(listed.former(groups({{b}, {a, c}})) == Indices{1, 0});
  CHECK(listed.former(groups({{a}, {b}, {c}})) == Indices{0, 1, std::nullopt});
  CHECK(listed.former(groups({{c}, {b}})) == Indices{0, 1});  // all of its parameters were replaced
  CHECK(listed.former(groups({{c}, {a}})) == Indices{std::nullopt, 0});
}

TEST_CASE("listed parameters find the first position of a tensor") {
  ListedParameters listed;
  listed.refresh(groups({{a, b}, {c, a}}));
  REQUIRE(listed.find(c));
  CHECK(listed.find(c)->group == 1);
  CHECK(listed.find(c)->index == 0);
  CHECK_FALSE(listed.find(d));
  CHECK(listed.find(a)->group == 0);
}

TEST_CASE("many listed parameters are found in linear time") {
  std::vector<at::Tensor> many;
  while (many.size() < 50'000) many.push_back(torch::zeros({1}));
  ListedParameters listed;
  listed.refresh(groups({many}));
  const std::clock_t start = std::clock();  // of the processor: other tests run beside this one
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < many.size(); ++i) wrong += listed.find(many[i])->index != i;
  CHECK(wrong == 0);
  CHECK(std::clock() - start < 2 * CLOCKS_PER_SEC);
}
