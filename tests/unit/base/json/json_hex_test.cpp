// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/json/json_hex.hpp>
#include <looptorch/base/text/hex.hpp>

#include <cstdint>
#include <string>

namespace lt = looptorch;
using lt::Json;
using lt::detail::bytes_from_hex;
using lt::detail::number_from_hex;

TEST_CASE("numbers and bytes come back from hexadecimal texts, and other texts are refused by name") {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{0x3ff0000000000001}, ~std::uint64_t{0}})
    CHECK(number_from_hex(Json(lt::hex_of(number))) == number);
  const std::string bytes("a\0\xff", 3);
  CHECK(bytes_from_hex(Json(lt::hex_of_bytes(bytes))) == bytes);
  CHECK_THROWS_WITH(number_from_hex(Json(std::string("3ff"))), "\"3ff\" is not 16 hexadecimal digits");
  CHECK_THROWS_AS(bytes_from_hex(Json(std::string("abc"))), lt::JsonError);
  CHECK_THROWS_WITH(bytes_from_hex(Json(std::string("xy"))), "\"xy\" is not bytes in hexadecimal");
}
