// SPDX-License-Identifier: MIT
// Against what tests/parity/safetensors_headers.py recorded of Python's safetensors, header by header.
#include "support/precompiled.hpp"

#include <looptorch/state/weights/safetensors.hpp>

#include "support/temporary_folder.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace fs = std::filesystem;
using looptorch::Json;
using looptorch::testing::TemporaryFolder;

namespace {

fs::path write_case(const TemporaryFolder& folder, const Json& recorded) {
  const auto& header = recorded["header"].as_string();
  const std::uint64_t length = header.size();
  std::array<char, 8> prefix{};
  std::memcpy(prefix.data(), &length, 8);
  std::ofstream out(folder / "case", std::ios::binary);
  out.write(prefix.data(), 8) << header;
  for (std::int64_t i = 0; i < recorded["data"].as_int(); ++i) out.put(static_cast<char>(i % 256));
  return folder / "case";
}

/// The tensors in the recording's terms, or null where the file is refused.
Json read_case(const fs::path& path) {
  looptorch::TensorMap tensors;
  try {
    tensors = looptorch::load_safetensors(path).tensors;
  } catch (const looptorch::SafetensorsError&) {
    return nullptr;
  }
  auto json = Json::object();
  for (const auto& [name, tensor] : tensors) {
    std::int64_t sum = 0;
    const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
    for (std::size_t i = 0; i < tensor.nbytes(); ++i) sum += bytes[i];
    json.set(name, Json::object().set("shape", Json::array(tensor.sizes())).set("sum", sum));
  }
  return json;
}

}  // namespace

TEST_CASE("safetensors header: what Python reads is read the same, and what Python refuses is refused") {
  const TemporaryFolder folder;
  const auto recorded =
      looptorch::load_json(fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/safetensors_headers.json");
  REQUIRE(recorded.as_array().size() > 150);
  for (const auto& one : recorded.as_array()) {
    CAPTURE(one["header"].as_string(), one["data"].as_int(), one["read"].dump());
    CHECK((read_case(write_case(folder, one)) == one["read"]));
  }
}

TEST_CASE("safetensors header: names that are given twice are refused, where Python takes the last") {
  const TemporaryFolder folder;
  const auto* twice = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})";
  const auto path = write_case(folder, Json::object().set("header", twice).set("data", 1));
  CHECK_THROWS_WITH(looptorch::load_safetensors(path), Catch::Contains("duplicate key \"a\""));
}

TEST_CASE("safetensors header: can be looked at alone, in the order of the data") {
  const auto header = looptorch::load_safetensors_header(fs::path(LOOPTORCH_SOURCE_DIR) /
                                                         "tests/parity/data/safetensors.safetensors");
  REQUIRE(header.entries.size() == 23);
  CHECK(header.data_begin % 8 == 0);
  CHECK(header.metadata.contains("author"));
  std::uint64_t end = 0;
  for (const auto& entry : header.entries) {
    CHECK(entry.begin == end);
    end = entry.end;
  }
  CHECK(header.entries.front().type->name == "U64");
  CHECK(header.entries.back().type->name == "BOOL");
}
