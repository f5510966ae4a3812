// SPDX-License-Identifier: MIT
// Against the file that tests/parity/safetensors_format.py recorded with Python's safetensors.
// Tests state/weights: safetensors_layout, safetensors_type
#include "support/precompiled.hpp"

#include <looptorch/state/weights/safetensors.hpp>

#include "support/temporary_folder.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::load_safetensors;
using looptorch::SafetensorsError;
using looptorch::save_safetensors;
using looptorch::TensorMap;
using looptorch::testing::TemporaryFolder;

namespace {

const fs::path kReference = fs::path(LOOPTORCH_SOURCE_DIR) / "tests/parity/data/safetensors.safetensors";
const looptorch::SafetensorsMetadata kMetadata{
    {"author", "looptorch \u0915\u094b\u0902\u0915\u0923\u0940 \x01\"\\\n"}};

/// The tensors of the parity script, by the same formulas.
TensorMap reference_tensors() {
  const auto steps = torch::arange(6, torch::kDouble);
  TensorMap tensors;
  const auto add = [&](const char* name, const at::Tensor& values, at::ScalarType type) {
    tensors[name] = values.to(type).reshape({2, 3});
  };
  add("uint8", steps, at::kByte), add("uint16", steps, at::kUInt16);
  add("uint32", steps, at::kUInt32), add("uint64", steps, at::kUInt64);
  add("int8", steps - 3, at::kChar), add("int16", steps - 3, at::kShort);
  add("int32", steps - 3, at::kInt), add("int64", steps - 3, at::kLong);
  add("float16", steps / 2 - 1, at::kHalf), add("bfloat16", steps / 2 - 1, at::kBFloat16);
  add("float32", steps / 2 - 1, at::kFloat), add("float64", steps / 2 - 1, at::kDouble);
  add("float8_e4m3fn", steps / 2 - 1, at::kFloat8_e4m3fn),
      add("float8_e5m2", steps / 2 - 1, at::kFloat8_e5m2);
  add("float8_e4m3fnuz", steps / 2 - 1, at::kFloat8_e4m3fnuz),
      add("float8_e5m2fnuz", steps / 2 - 1, at::kFloat8_e5m2fnuz);
  tensors["float4_e2m1fn_x2"] = steps.to(at::kByte).reshape({2, 3}).view(looptorch::detail::kFloat4);
  tensors["bool"] = (torch::arange(5) % 2).to(at::kBool);
  tensors["complex64"] = torch::complex(steps, -steps).to(at::kComplexFloat);
  tensors["float8_e8m0fnu"] = torch::pow(2, steps - 3).to(at::kFloat8_e8m0fnu);
  tensors["scalar"] = torch::tensor(2.5F);
  tensors["empty"] = torch::zeros({3, 0, 2}, at::kHalf);
  tensors["\u0928\u093e\u0902\u0935 \"quoted\"\t"] = torch::tensor({7}, at::kLong);
  return tensors;
}

bool bits_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.numel() == 0 ||
          std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0);
}

/// A file with this header and so many bytes of data.
fs::path write_raw(const fs::path& folder, const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  looptorch::write_file_atomically(folder / "raw.safetensors",
                                   bytes + header + std::string(data_bytes, '\0'));
  return folder / "raw.safetensors";
}

}  // namespace

TEST_CASE("safetensors: a file that Python wrote is read exactly, mapped or not") {
  const bool mapped = GENERATE(true, false);
  const auto file = load_safetensors(kReference, {.mapped = mapped});
  const auto expected = reference_tensors();
  CHECK(file.metadata == kMetadata);
  REQUIRE(file.tensors.size() == expected.size());
  for (const auto& [name, tensor] : expected) {
    CAPTURE(name);
    REQUIRE(file.tensors.contains(name));
    CHECK(bits_equal(file.tensors.at(name), tensor));
  }
}

TEST_CASE("safetensors: what we write is byte for byte what Python wrote") {
  const TemporaryFolder folder;
  save_safetensors(folder / "ours.safetensors", reference_tensors(), kMetadata);
  CHECK(looptorch::read_file(folder / "ours.safetensors") == looptorch::read_file(kReference));
}

TEST_CASE("safetensors: views, gradients and an empty map are written as their values") {
  const TemporaryFolder folder;
  const auto path = folder / "views.safetensors";
  const auto base = torch::arange(24, torch::kFloat).reshape({4, 6});
  const auto leaf = torch::ones({2}, torch::requires_grad());
  const auto conjugate = torch::complex(base[0], base[1]).conj();
  const auto slice = torch::arange(24, torch::kFloat).reshape({4, 6}).slice(1, 0, 6, 2);
  save_safetensors(path, {{"t", base.t()},
                          {"slice", slice},
                          {"leaf", leaf},
                          {"conj", conjugate},
                          {"expanded", torch::ones({1}).expand({3})}});
  const auto tensors = load_safetensors(path).tensors;
  CHECK(torch::equal(tensors.at("t"), base.t()));
  CHECK(torch::equal(tensors.at("slice"), slice));
  CHECK(torch::equal(tensors.at("leaf"), torch::ones({2})));
  CHECK(torch::equal(tensors.at("expanded"), torch::ones({3})));
  CHECK(torch::equal(tensors.at("conj"), torch::complex(base[0], -base[1])));
  save_safetensors(path, {});
  CHECK(load_safetensors(path).tensors.empty());
}

TEST_CASE("safetensors: an unsound header is refused, by file and tensor") {
  const TemporaryFolder folder;
  const auto refuses = [&](const std::string& header, std::size_t data_bytes, const std::string& message) {
    CAPTURE(header);
    const auto path = write_raw(folder.path(), header, data_bytes);
    REQUIRE_THROWS_AS(load_safetensors(path), SafetensorsError);
    REQUIRE_THROWS_WITH(load_safetensors(path), Contains("raw.safetensors: ") && Contains(message));
  };
  const auto tensor = [](const std::string& name, const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return looptorch::message('"', name, R"(":{"dtype":")", dtype, R"(","shape":)", shape,
                              R"(,"data_offsets":)", offsets, '}');
  };
  const auto object = [](const auto&... members) { return looptorch::message('{', members..., '}'); };
  const auto a = tensor("a", "F32", "[2]", "[0,8]");
  REQUIRE(load_safetensors(write_raw(folder.path(), object(a).append("  "), 8)).tensors.size() == 1);
  const auto b_first = object(tensor("b", "I8", "[1]", "[8,9]"), ',', a);  // any order of names will do
  REQUIRE(load_safetensors(write_raw(folder.path(), b_first, 9)).tensors.size() == 2);
  REQUIRE(load_safetensors(write_raw(folder.path(), R"({"__metadata__":null})", 0)).tensors.empty());

  refuses("", 0, "header: ");
  refuses("[]", 0, "header: expected an object");
  refuses("{\"a\":", 8, "header: line 1");
  refuses(object(a, ',', a), 8, "duplicate key \"a\"");
  refuses("{\"a\":1}", 8, "tensor \"a\": expected an object");
  refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "\"data_offsets\" is missing");
  refuses(object(tensor("a", "F31", "[2]", "[0,8]")), 8, "tensor \"a\": unknown dtype \"F31\"");
  refuses(object(tensor("a", "F32", "[3]", "[0,8]")), 8, "take 12 bytes, data_offsets 8");
  refuses(object(tensor("a", "F32", "[-2]", "[0,8]")), 8, "negative number -2");
  refuses(object(tensor("a", "F32", "[2.0]", "[0,8]")), 8, "expected an integer");
  refuses(object(tensor("a", "F32", "[4611686018427387904,4,0]", "[0,0]")), 0, "shape overflows");
  refuses(object(tensor("a", "F64", "[2305843009213693953]", "[0,8]")), 8, "shape overflows");
  refuses(object(tensor("a", "F32", "[0,4611686018427387904,4]", "[0,0]")), 0, "shape overflows");
  refuses(object(tensor("a", "F32", "[9223372036854775808]", "[0,8]")), 8, "expected an integer");
  refuses(object(tensor("a", "F32", "[2]", "[-8,0]")), 8, "negative number -8");
  refuses(object(tensor("a", "F32", "[2]", "[0,9223372036854775807]")), 8,
          "data_offsets 9223372036854775807");
  refuses(object(tensor("a", "F4", "[]", "[0,0]")), 0, "tensor \"a\": the last dimension of F4 is not even");
  refuses(object(tensor("a", "F4", "[2,3]", "[0,3]")), 3, "the last dimension of F4 is not even");
  refuses(object(tensor("a", "F32", "[0]", "[4,4]"), ',', tensor("b", "F32", "[2]", "[0,8]")), 8,
          "tensor \"a\": overlaps");
  refuses(object(tensor("a", "F32", "[2]", "[8,0]")), 8, "not a begin and an end");
  refuses(object(tensor("a", "F32", "[2]", "[0,8,9]")), 8, "not a begin and an end");
  refuses(object(a), 7, "tensor \"a\": ends at byte 8 of the data, which has 7");
  refuses(object(a), 9, "1 bytes after the last tensor");
  refuses(object(tensor("a", "F32", "[2]", "[4,12]")), 12, "tensor \"a\": leaves a hole");
  refuses(object(a, ',', tensor("b", "F32", "[2]", "[4,12]")), 12, "tensor \"b\": overlaps");
  refuses(object(a, ',', tensor("b", "F32", "[1]", "[12,16]")), 16, "tensor \"b\": leaves a hole");
  refuses(object(a, ',', tensor("b", "F32", "[2]", "[0,8]")), 8, "tensor \"b\": overlaps");
  refuses(object(R"("__metadata__":{"x":1},)", a), 8, "__metadata__: expected a string");
}

TEST_CASE("safetensors: a header length that cannot be is refused before it is believed") {
  const TemporaryFolder folder;
  const auto path = folder / "length.safetensors";
  const auto refuses = [&](const std::string& bytes, const std::string& message) {
    looptorch::write_file_atomically(path, bytes);
    CHECK_THROWS_WITH(load_safetensors(path), Contains("length.safetensors: ") && Contains(message));
  };
  refuses("", "0 bytes are too few");
  refuses(std::string(7, '\0'), "7 bytes are too few");
  refuses(
      std::string(8, '\xFF'),
      "is no safetensors file, or damaged: its first 8 bytes give a header of 18446744073709551615 bytes");
  refuses(std::string("\x03\0\0\0\0\0\0\0{}", 10),
          "is cut off, or no safetensors file: header of 3 bytes in a file of 10");
  CHECK_THROWS_AS(load_safetensors(folder / "none"), looptorch::FileError);
}

TEST_CASE("safetensors: tensors are views of the file, and writing to them stays private") {
  const TemporaryFolder folder;
  const auto path = folder / "mapped.safetensors";
  save_safetensors(path, {{"a", torch::arange(6, torch::kFloat)}, {"b", torch::ones({2})}});
  const auto bytes = looptorch::read_file(path);
  at::Tensor a, b;
  {
    auto tensors = load_safetensors(path).tensors;
    a = tensors.at("a"), b = tensors.at("b");
  }
  const auto distance =
      static_cast<const char*>(b.const_data_ptr()) - static_cast<const char*>(a.const_data_ptr());
  CHECK(distance == 24);  // one mapping, in the file's order
  CHECK_FALSE(a.is_alias_of(b));
  a.fill_(7);
  CHECK(looptorch::read_file(path) == bytes);
  CHECK(torch::equal(load_safetensors(path).tensors.at("a"), torch::arange(6, torch::kFloat)));
  b.reset();
  CHECK(torch::equal(a, torch::full({6}, 7.F)));  // the mapping lives as long as one tensor
}

TEST_CASE("safetensors: a model may be saved over the file that it is mapped from") {
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors";
  save_safetensors(path, {{"a", torch::arange(1000)}});
  const auto tensors = load_safetensors(path).tensors;
  save_safetensors(path, {{"a", tensors.at("a") + 1}});
  CHECK(torch::equal(tensors.at("a"), torch::arange(1000)));
  CHECK(torch::equal(load_safetensors(path).tensors.at("a"), torch::arange(1000) + 1));
}

TEST_CASE("safetensors: data read at once do not follow the file when it is overwritten in place") {
  const TemporaryFolder folder;
  const auto path = folder / "copied.safetensors";
  save_safetensors(path, {{"a", torch::ones({4})}});
  const auto copied = load_safetensors(path, {.mapped = false}).tensors.at("a");
  std::filesystem::resize_file(path, 0);
  CHECK(torch::equal(copied, torch::ones({4})));
}

TEST_CASE("safetensors: data that another writer left unaligned are copied to where they are aligned") {
  const TemporaryFolder folder;
  const auto header = [](int pad) {
    return R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
           R"("b":{"dtype":"I64","shape":[2],"data_offsets":[1,17]}})" +
           std::string(static_cast<std::size_t>(pad), ' ');
  };
  for (int pad = 0; pad < 8; ++pad) {
    CAPTURE(pad);
    const auto path = write_raw(folder.path(), header(pad), 17);
    auto bytes = looptorch::read_file(path);
    const std::int64_t values[] = {-5, std::int64_t{1} << 40};
    std::memcpy(bytes.data() + bytes.size() - 16, values, 16);
    looptorch::write_file_atomically(path, bytes);
    const auto b = load_safetensors(path).tensors.at("b");
    CHECK(reinterpret_cast<std::uintptr_t>(b.const_data_ptr()) % 8 == 0);
    CHECK(torch::equal(b, torch::tensor({values[0], values[1]})));
  }
}

TEST_CASE("safetensors: a file beyond 4 GB") {
  const TemporaryFolder folder;
  const auto path = folder / "raw.safetensors";
  constexpr std::uint64_t kBulk = 5'000'000'000;
  (void)write_raw(folder.path(),
                  R"({"bulk":{"dtype":"U8","shape":[5000,1000000],"data_offsets":[0,5000000000]},)"
                  R"("tail":{"dtype":"I32","shape":[2],"data_offsets":[5000000000,5000000008]}})",
                  0);
  const auto begin = fs::file_size(path);
  if (::truncate(path.c_str(), static_cast<off_t>(begin + kBulk)) != 0) {
    WARN("skipped: the disk takes no sparse file of 5 GB");
    return;
  }
  const std::int32_t tail[] = {42, -42};
  std::ofstream(path, std::ios::binary | std::ios::app).write(reinterpret_cast<const char*>(tail), 8);
  const auto tensors = load_safetensors(path).tensors;
  CHECK(torch::equal(tensors.at("tail"), torch::tensor({42, -42}, at::kInt)));
  CHECK(tensors.at("bulk").nbytes() == kBulk);
  tensors.at("bulk")[4999][999'999] = 3;  // the page of the tail: copied, with what stands after
  CHECK(tensors.at("bulk")[4999][999'999].item<int>() == 3);
  CHECK(tensors.at("tail")[0].item<int>() == 42);
  std::filesystem::resize_file(path, begin + kBulk + 7);
  CHECK_THROWS_WITH(load_safetensors(path), Contains("tensor \"tail\": ends at byte 5000000008"));
}

TEST_CASE("safetensors: what is laid out beyond 4 GB has offsets beyond 4 GB") {
  const auto wide = torch::zeros({1}, at::kLong).expand({1'000'000'000});
  const auto entries = looptorch::detail::lay_out("x", {{"b", torch::zeros({1})}, {"a", wide}});
  const auto header = looptorch::detail::format_safetensors_header("x", entries, {});
  CHECK_THAT(header, Contains(R"("a":{"dtype":"I64","shape":[1000000000],"data_offsets":[0,8000000000]})"));
  CHECK_THAT(header, Contains(R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8000000000,8000000004]})"));
}

TEST_CASE("safetensors: metadata are written in the order of their keys") {
  const TemporaryFolder folder;
  const looptorch::SafetensorsMetadata metadata{{"zeta", ""}, {"format", "pt"}, {"a", "\n\"\\"}};
  save_safetensors(folder / "x", {}, metadata);
  CHECK(load_safetensors(folder / "x").metadata == metadata);
  CHECK_THAT(looptorch::read_file(folder / "x"),
             Contains(R"({"__metadata__":{"a":"\n\"\\","format":"pt","zeta":""}})"));
}

TEST_CASE("safetensors: tensors that share memory are refused by both names, as Python's save_file does") {
  const TemporaryFolder folder;
  const auto base = torch::arange(12, torch::kFloat);
  const auto refuses = [&](const at::Tensor& a, const at::Tensor& b) {
    REQUIRE_THROWS_AS(save_safetensors(folder / "x", {{"a", a}, {"b", b}}), SafetensorsError);
    REQUIRE_THROWS_WITH(save_safetensors(folder / "x", {{"a", a}, {"b", b}}),
                        Contains("shares memory with") && Contains("\"a\"") && Contains("\"b\""));
    REQUIRE(fs::is_empty(folder.path()));
  };
  refuses(base, base);
  refuses(base, base.slice(0, 4, 5));
  refuses(base.slice(0, 0, 6), base.slice(0, 5, 12));
  refuses(base.view({3, 4}), base.view({3, 4}).t());
  save_safetensors(folder / "x",
                   {{"a", base.slice(0, 0, 6)}, {"b", base.slice(0, 6, 12)}, {"c", base.slice(0, 3, 3)}});
  CHECK(torch::equal(load_safetensors(folder / "x").tensors.at("b"), base.slice(0, 6, 12)));
}

TEST_CASE("safetensors: what the format cannot hold is refused by name, and no file is left") {
  const TemporaryFolder folder;
  const auto refuses = [&](const TensorMap& tensors, const std::string& message) {
    REQUIRE_THROWS_AS(save_safetensors(folder / "x", tensors), SafetensorsError);
    REQUIRE_THROWS_WITH(save_safetensors(folder / "x", tensors), Contains(message));
    REQUIRE(fs::is_empty(folder.path()));
  };
  refuses({{"u", at::Tensor()}}, "tensor \"u\": is undefined");
  refuses({{"s", torch::eye(3).to_sparse()}}, "tensor \"s\": is sparse or nested");
  refuses({{"m", torch::empty({3}, at::kMeta)}}, "tensor \"m\": has no values (meta device)");
  refuses({{"c", torch::zeros({1}, at::kComplexDouble)}},
          "tensor \"c\": has a dtype that safetensors lacks: ComplexDouble");
  refuses({{"__metadata__", torch::zeros({1})}}, "reserved");
  refuses({{"a\xFF", torch::zeros({1})}}, "not UTF-8");
}

TEST_CASE("safetensors: every dtype of LibTorch is written and read back, or refused by tensor and dtype") {
  const TemporaryFolder folder;
  std::size_t written = 0;
  for (int number = 0; number < static_cast<int>(at::ScalarType::Undefined); ++number) {
    const auto type = static_cast<at::ScalarType>(number);
    CAPTURE(c10::toString(type));
    const bool is_held = looptorch::detail::find_safetensors_type(type) != nullptr;
    const auto tensor = [&](at::IntArrayRef shape) {  // whose bytes are 1, 2, 3, ...
      auto out = at::empty(shape, at::TensorOptions().dtype(is_held ? type : at::kByte));
      auto* bytes = static_cast<unsigned char*>(out.mutable_data_ptr());
      for (std::size_t i = 0; i < out.nbytes(); ++i) bytes[i] = type == at::kBool || i == 255 ? 1 : i + 1;
      return out;
    };
    if (!is_held) {
      const auto entry = [&] { (void)looptorch::detail::safetensors_type_of("x", "odd", type); };
      CHECK_THROWS_AS(entry(), SafetensorsError);
      CHECK_THROWS_WITH(entry(), Contains("tensor \"odd\": has a dtype that safetensors lacks: ") &&
                                     Contains(c10::toString(type)));
      continue;
    }
    ++written;
    TensorMap tensors{{"filled", tensor({3, 2})}, {"empty", tensor({2, 0, 4})}};
    if (type != looptorch::detail::kFloat4) tensors["scalar"] = tensor({});
    save_safetensors(folder / "x", tensors);
    const auto back = load_safetensors(folder / "x").tensors;
    REQUIRE(back.size() == tensors.size());
    for (const auto& [name, value] : tensors) CHECK(bits_equal(back.at(name), value));
  }
  CHECK(written == looptorch::detail::kSafetensorsTypes.size());
}

TEST_CASE("safetensors: a disk that fills up leaves the old file and no other") {
  const TemporaryFolder folder;
  const auto path = folder / "full.safetensors";
  save_safetensors(path, {{"old", torch::ones({1})}});
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limit{64 * 1024, old.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  CHECK_THROWS_AS(save_safetensors(path, {{"large", torch::ones({1 << 20})}}), looptorch::FileError);
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  CHECK(load_safetensors(path).tensors.contains("old"));
  CHECK(folder.entries() == 1);
}
