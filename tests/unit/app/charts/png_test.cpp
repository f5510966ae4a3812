// SPDX-License-Identifier: MIT
// Against tests/parity/png.py.
#include "support/precompiled.hpp"

#include <looptorch/app/charts/png.hpp>
#include <looptorch/app/program_warnings.hpp>

#include "support/reference.hpp"
#include "support/temporary_folder.hpp"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

using Catch::Contains;
using looptorch::app::png_of;
using looptorch::testing::TemporaryFolder;

namespace {

const at::Tensor& recorded(const std::string& name) { return reference::tensors("png").at(name); }

std::string recorded_bytes(const std::string& name) {
  const auto bytes = recorded(name).contiguous();
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()),
          static_cast<std::size_t>(bytes.numel())};
}

/// As the script makes it.
at::Tensor pixels(int64_t rows, int64_t columns) {
  return ((at::arange(rows * columns * 3) * 37 + 11) % 256).to(at::kByte).view({rows, columns, 3});
}

}  // namespace

TEST_CASE("A PNG file is what Python's zlib makes of the pixels, byte for byte") {
  CHECK(png_of(pixels(3, 5)) == recorded_bytes("small"));
  const auto large = png_of(pixels(150, 299));  // three stored blocks
  CHECK(static_cast<int64_t>(large.size()) == recorded("large.size").item<int64_t>());
  CHECK(large.substr(0, 50) + large.substr(large.size() - 50) == recorded_bytes("large"));
  CHECK(looptorch::detail::crc32<looptorch::detail::kCrc32>(large) ==
        recorded("large.crc32").item<int64_t>());
  CHECK(png_of(pixels(5, 3).transpose(0, 1)) == png_of(pixels(5, 3).transpose(0, 1).contiguous()));

  const TemporaryFolder folder;
  looptorch::app::write_png(folder / "a.png", pixels(3, 5));
  std::ostringstream content;
  content << std::ifstream(folder / "a.png", std::ios::binary).rdbuf();
  CHECK(content.str() == recorded_bytes("small"));
}

TEST_CASE("A picture that cannot be written is a warning where the run goes on") {
  const TemporaryFolder folder;
  CHECK(looptorch::app::try_write_png(folder / "a.png", pixels(3, 5)));
  std::ostringstream said;
  auto* const before = std::cerr.rdbuf(said.rdbuf());
  const looptorch::app::ProgramWarnings warnings("digits");
  const bool written = looptorch::app::try_write_png(folder / "gone" / "a.png", pixels(3, 5));
  std::cerr.rdbuf(before);
  CHECK_FALSE(written);
  CHECK_THAT(said.str(), Contains("digits: warning: " + (folder / "gone").string()) &&
                             Contains("The run goes on without this picture"));
  CHECK_THROWS(looptorch::app::try_write_png(folder / "a.png", at::zeros({2, 2}, at::kByte)));
}

TEST_CASE("Pixels of another type or shape are refused") {
  CHECK_THROWS_WITH(png_of(at::zeros({2, 2, 3})), Contains("expected bytes [rows, columns, 3], got"));
  CHECK_THROWS_WITH(png_of(at::zeros({2, 2}, at::kByte)), Contains("[2, 2]"));
  CHECK_THROWS_WITH(png_of(at::zeros({0, 2, 3}, at::kByte)), Contains("[0, 2, 3]"));
}
