// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/hash/tensor_hash.hpp>

#include <string_view>

TEST_CASE("tensor_hash: the hash of the elements' bytes in contiguous order") {
  const at::Tensor letters = torch::tensor({97, 98, 99, 100, 101, 102}, at::kByte).view({2, 3});
  CHECK(looptorch::stable_hash(letters) == looptorch::stable_hash(std::string_view("abcdef")));
  CHECK(looptorch::stable_hash(letters.t()) == looptorch::stable_hash(std::string_view("adbecf")));
  CHECK(looptorch::stable_hash(letters.select(0, 1)) == looptorch::stable_hash(std::string_view("def")));
  CHECK(looptorch::stable_hash(at::empty({0})) == looptorch::stable_hash(std::string_view()));
}
