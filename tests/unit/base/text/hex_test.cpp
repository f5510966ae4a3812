// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/text/hex.hpp>

#include <cstdint>
#include <string>

using looptorch::bytes_of_hex;
using looptorch::hex_of;
using looptorch::hex_of_bytes;
using looptorch::number_of_hex;

TEST_CASE("a number has 16 digits, lower case, and comes back") {
  CHECK(hex_of(0) == "0000000000000000");
  CHECK(hex_of(0xdeadbeefU) == "00000000deadbeef");
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0}})
    CHECK(number_of_hex(hex_of(value)) == value);
}

TEST_CASE("bytes have two digits each, and come back") {
  const std::string bytes(
      "\0\x7f\xff"
      "a",
      4);
  CHECK(hex_of_bytes(bytes) == "007fff61");
  CHECK(bytes_of_hex("007fff61") == bytes);
  CHECK(bytes_of_hex("") == "");
}

TEST_CASE("other digits are not read") {
  for (const char* text :
       {"", "7ff8", "00000000DEADBEEF", "00000000deadbeef0", "0x000000deadbeef", "-000000000000001"})
    CHECK_FALSE(number_of_hex(text).has_value());
  for (const char* text : {"f", "0g", "FF", "00 0"}) CHECK_FALSE(bytes_of_hex(text).has_value());
}
