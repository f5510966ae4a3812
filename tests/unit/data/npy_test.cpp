// SPDX-License-Identifier: MIT
// Arrays of NumPy, as tests/parity/npy.py writes them: their bits, and what is refused.
#include "support/precompiled.hpp"

#include <looptorch/data/npy.hpp>

#include "support/temporary_folder.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::load_npy, looptorch::NpyError;
using looptorch::testing::TemporaryFolder;

namespace {

const fs::path kFolder = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/npy";

/// The script's numbers: 2.5, -2.375, 2.25 ...
at::Tensor values(at::IntArrayRef shape, at::ScalarType type) {
  auto numbers = at::empty(shape, at::kDouble);
  auto* number = numbers.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < numbers.numel(); ++i)
    number[i] = static_cast<double>(i % 40 - 20) / 8 * (i % 2 == 1 ? 1 : -1);
  return numbers.to(type);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.is_contiguous() &&
         std::memcmp(a.const_data_ptr(), b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

TEST_CASE("arrays of np.save have NumPy's shapes, dtypes and bits, in both orders") {
  CHECK(same_bits(load_npy(kFolder / "float16.npy"), values({3, 5}, at::kHalf)));
  CHECK(same_bits(load_npy(kFolder / "float32.npy"), values({3, 5}, at::kFloat)));
  CHECK(same_bits(load_npy(kFolder / "float64.npy"), values({3, 5}, at::kDouble)));
  CHECK(same_bits(load_npy(kFolder / "float16_fortran.npy"), values({2, 3, 5}, at::kHalf)));
  CHECK(same_bits(load_npy(kFolder / "float32_fortran.npy"), values({2, 3, 5}, at::kFloat)));
  CHECK(same_bits(load_npy(kFolder / "float64_fortran.npy"), values({2, 3, 5}, at::kDouble)));
}

TEST_CASE("arrays of formats 1, 2 and 3 are read") {
  for (const char* name : {"format_1.npy", "format_2.npy", "format_3.npy"})
    CHECK(same_bits(load_npy(kFolder / name), values({1, 3, 5}, at::kFloat)));
}

TEST_CASE("arrays without dimensions, of one, of no elements, and of no finite numbers are read") {
  CHECK(same_bits(load_npy(kFolder / "scalar.npy"), at::full({}, 0.25, at::kFloat)));
  CHECK(same_bits(load_npy(kFolder / "vector.npy"), values({7}, at::kFloat)));
  CHECK(same_bits(load_npy(kFolder / "empty.npy"), at::empty({0, 5}, at::kFloat)));
  const auto odd = load_npy(kFolder / "not_finite.npy");
  CHECK(odd[0].isnan().item<bool>());
  CHECK(odd[1].item<float>() == INFINITY);
  CHECK(odd[2].item<float>() == -INFINITY);
  CHECK(std::signbit(odd[3].item<float>()));
  CHECK(odd[4].item<float>() == 1e-45F);
}

TEST_CASE("arrays of other kinds are refused by name, each with what to write") {
  const auto refused = [](const std::string& name, const std::string& why) {
    CHECK_THROWS_WITH(load_npy(kFolder / name), Contains((kFolder / name).string() + ": ") && Contains(why));
    CHECK_THROWS_AS(load_npy(kFolder / name), NpyError);
  };
  refused("big_endian.npy",
          "holds big-endian numbers (>f4); save them as np.save(file, array.astype(\"<f4\"))");
  refused("integers.npy", "holds numbers of dtype \"<i8\"; float16, float32 and float64 are read");
  refused("complex.npy", "dtype \"<c8\"");
  refused("records.npy", "the header describes records of several fields");
  refused("objects.npy", "holds Python objects (dtype object), which only a pickle makes, and none is run");
  refused("archive.npz", "is an archive of arrays (.npz); save each by itself");
  refused("two.npy", "has 140 bytes after its array of shape [3]; a file holds one array");
}

TEST_CASE("an array that is cut off anywhere is refused") {
  const TemporaryFolder folder;
  const auto whole = looptorch::read_file(kFolder / "float32.npy");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(folder / "cut.npy", std::ios::binary) << whole.substr(0, size);
    CHECK_THROWS_AS(load_npy(folder / "cut.npy"), NpyError);
  }
  std::ofstream(folder / "cut.npy", std::ios::binary) << whole.substr(0, whole.size() - 4);
  CHECK_THROWS_WITH(
      load_npy(folder / "cut.npy"),
      Contains("is cut off: its shape [3, 5] needs 15 numbers of 4 bytes, and 56 bytes are there"));
  CHECK_THROWS_AS(load_npy(folder / "missing.npy"), looptorch::FileError);
}
