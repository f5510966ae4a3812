// SPDX-License-Identifier: MIT
// CRC-32 and CRC-32C against the published check values.
#include "support/precompiled.hpp"

#include <looptorch/base/hash/crc32.hpp>

#include <string>

namespace d = looptorch::detail;

TEST_CASE("crc32: the check values of the catalogue of parametrised CRC algorithms, and of RFC 3720") {
  static_assert(d::crc32<d::kCrc32>("123456789") == 0xCBF43926U);
  static_assert(d::crc32<d::kCrc32c>("123456789") == 0xE3069283U);
  CHECK(d::crc32<d::kCrc32>("") == 0);
  CHECK(d::crc32<d::kCrc32>("IEND") == 0xAE426082U);  // the last bytes of each PNG
  CHECK(d::crc32<d::kCrc32c>(std::string(32, '\0')) == 0x8A9136AAU);
  CHECK(d::crc32<d::kCrc32c>(std::string(32, '\xFF')) == 0x62A8AB43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising += static_cast<char>(i);
  CHECK(d::crc32<d::kCrc32c>(rising) == 0x46DD794EU);
}
