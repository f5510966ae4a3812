// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/hash/stable_hash.hpp>

#include <string>

using looptorch::stable_hash;

static_assert(stable_hash("a") == 0xaf63dc4c8601ec8cU);

TEST_CASE("stable_hash gives FNV-1a's published numbers") {
  CHECK(stable_hash("") == 0xcbf29ce484222325U);
  CHECK(stable_hash("foobar") == 0x85944171f73967e8U);
}

TEST_CASE("stable_hash takes all bytes, as bytes without a sign") {
  CHECK(stable_hash("\xff") == 0xaf64724c8602eb6eU);
  CHECK(stable_hash(std::string("a\0", 2)) != stable_hash("a"));
  CHECK(stable_hash("ab") != stable_hash("ba"));
}
