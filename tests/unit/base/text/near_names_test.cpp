// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/text/near_names.hpp>

#include <string>
#include <vector>

using looptorch::edit_distance;
using looptorch::near_names;
using Names = std::vector<std::string>;

TEST_CASE("near names: the edit distance counts insertions, removals and replacements") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("sitting", "kitten") == 3);
  CHECK(edit_distance("flaw", "lawn") == 2);
  CHECK(edit_distance("weight", "weight") == 0);
}

TEST_CASE("near names: the nearest come first, and only near ones") {
  const Names names{"layers.1.weight", "layer.0.weigth", "layers.0.weight", "bias"};
  CHECK(near_names("layer.0.weight", names) == Names{"layers.0.weight", "layer.0.weigth"});
  CHECK(near_names("layer.0.weight", names, 1) == Names{"layers.0.weight"});
  CHECK(near_names("something.else", names).empty());
}

TEST_CASE("near names: a prefix more or less is near, however long") {
  CHECK(near_names("fc.bias", {"model.decoder.fc.bias"}) == Names{"model.decoder.fc.bias"});
  CHECK(near_names("model.decoder.fc.bias", {"fc.bias"}) == Names{"fc.bias"});
  CHECK(near_names("bias", {"something_bias"}).empty());
}

TEST_CASE("near names: names of absurd length are passed over") {
  CHECK(near_names(std::string(600, 'a'), {std::string(600, 'a')}).empty());
}
