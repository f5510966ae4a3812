// SPDX-License-Identifier: MIT
// Tests state/snapshot: snapshot_contents, snapshot_error, snapshot_image, snapshot_manifest
// Tests state/snapshot: snapshot_reading, state_json
#include "support/precompiled.hpp"

#include <looptorch/state/snapshot/snapshot.hpp>
#include <looptorch/state/weights/load_weights.hpp>

#include "support/snapshots.hpp"
#include "support/temporary_folder.hpp"

#include <sys/stat.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <utility>

namespace fs = std::filesystem;
using Catch::Contains;
using looptorch::load_safetensors_header;
using looptorch::read_file;
using looptorch::read_snapshot;
using looptorch::SnapshotContents;
using looptorch::SnapshotError;
using looptorch::StateDict;
using looptorch::write_snapshot;
using looptorch::detail::checksum_of;
using looptorch::testing::bits_equal;
using looptorch::testing::small_contents;
using looptorch::testing::TemporaryFolder;

namespace {

constexpr at::ScalarType kTypes[] = {at::kByte,
                                     at::kChar,
                                     at::kShort,
                                     at::kInt,
                                     at::kLong,
                                     at::kUInt16,
                                     at::kUInt32,
                                     at::kUInt64,
                                     at::kHalf,
                                     at::kBFloat16,
                                     at::kFloat,
                                     at::kDouble,
                                     at::kBool,
                                     at::kComplexFloat,
                                     at::kFloat8_e4m3fn,
                                     at::kFloat8_e5m2,
                                     at::kFloat8_e4m3fnuz,
                                     at::kFloat8_e5m2fnuz,
                                     at::kFloat8_e8m0fnu,
                                     looptorch::detail::kFloat4};

/// Arbitrary bits of each type, NaN and denormals among them.
at::Tensor random_bits(at::ScalarType type) {
  if (type == at::kBool) return torch::tensor({true, false, true, true});
  return torch::randint(256, {64}, at::kByte).view(type);
}

/// Keys that are unusual but allowed.
const std::string kKeys[] = {"",
                             " ",
                             "a.b.c",
                             "\x01\n\t\"\\/",
                             "\u0915\u094b\u0902\u0915\u0923\u0940 \U0001F600",
                             std::string("nul\0inside", 10),
                             "__metadata",
                             "step",
                             "format",
                             "pt",
                             "tensors"};

StateDict all_numbers() {
  using Double = std::numeric_limits<double>;
  using Int = std::numeric_limits<std::int64_t>;
  StateDict state;
  int count = 0;
  const auto add = [&](auto value) { state.set("value." + std::to_string(count++), value); };
  for (const double value :
       {0.0, -0.0, 0.1, -1.0, 1.0, 1e22, 123456789012345678.0, Double::max(), Double::lowest(), Double::min(),
        Double::denorm_min(), -Double::denorm_min(), Double::epsilon(), Double::infinity(),
        -Double::infinity(), Double::quiet_NaN()}) {
    add(value);
  }
  for (const std::uint64_t bits :
       {0x7ff0000000000001U, 0xfff8000000000000U, 0xffffffffffffffffU, 0x000fffffffffffffU}) {
    add(std::bit_cast<double>(bits));
  }
  for (const std::int64_t value :
       {Int::min(), Int::max(), std::int64_t{0}, std::int64_t{-1}, (std::int64_t{1} << 53) + 1}) {
    add(value);
  }
  add(true), add(false);
  for (const char* text :
       {"", "text", "\x01\x7f\n\"\\", "\u0915\u094b", "\xff\xfe not UTF-8 \xc3", "null", "0.1"}) {
    add(std::string(text));
  }
  add(std::string("a\0b", 3));
  add(at::Tensor());
  return state;
}

SnapshotContents everything() {
  SnapshotContents contents;
  contents.step = 120;
  for (const auto type : kTypes) contents.model[toString(type)] = random_bits(type);
  contents.model["scalar"] = torch::tensor(2.5F);
  contents.model["empty"] = torch::zeros({3, 0, 2}, at::kHalf);
  contents.model["with gradient"] = torch::ones({3}, at::requires_grad());
  const auto base = torch::randn({6, 8});
  contents.model["transposed"] = base.t();
  contents.averaged["strided"] = torch::randn({9, 5}).slice(0, 0, 9, 2).slice(1, 1, 4);
  contents.averaged["expanded"] = torch::randn({1, 3}).expand({4, 3});
  contents.averaged["conjugate"] = torch::conj(torch::randn({4}, at::kComplexFloat));
  contents.averaged["negative"] = torch::imag(torch::conj(torch::randn({4}, at::kComplexFloat)));
  contents.optimizer = all_numbers();
  contents.state = all_numbers();
  for (const auto& key : kKeys) {
    contents.model[key] = torch::randn({2});
    contents.optimizer.set(key, torch::randn({3}));
    contents.state.set(key, key);
    contents.state.set(key + "'", torch::randn({1}));
  }
  return contents;
}

using Names = std::set<std::string>;
using Pair = std::pair<std::string, std::string>;

Names names_in(const fs::path& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

/// Two names of one weight, and a buffer.
struct Net : torch::nn::Module {
  explicit Net(double value) {
    const auto weight = register_parameter("embedding", torch::full({5, 3}, value));
    register_parameter("output", weight);
    register_parameter("bias", torch::full({5}, value));
    register_buffer("count", torch::full({}, 3, at::kLong));
  }
};

/// Changes the byte at `offset`, which counts from the end if it is negative.
void change_byte(const fs::path& path, std::ptrdiff_t offset) {
  auto bytes = read_file(path);
  auto& byte = bytes[offset < 0 ? bytes.size() + offset : offset];
  byte = static_cast<char>(byte ^ 1);
  looptorch::write_file_atomically(path, bytes);
}

/// A manifest whose checksum is right, whatever else it says.
void put_manifest(const fs::path& snapshot, const std::string& text) {
  looptorch::write_file_atomically(
      snapshot / "manifest.json",
      looptorch::detail::SnapshotManifest::sealed(text.substr(0, text.rfind(",\n  \"checksum\""))));
}

/// A state that the manifest agrees with.
void put_state(const fs::path& snapshot, const std::string& text) {
  const auto manifest_path = snapshot / "manifest.json";
  auto manifest = looptorch::detail::SnapshotManifest::parse(manifest_path, read_file(manifest_path));
  auto& listed = manifest.files.back();
  REQUIRE(listed.name == "state.json");
  listed.bytes = text.size();
  listed.checksum = checksum_of(text);
  looptorch::write_file_atomically(snapshot / "state.json", text);
  looptorch::write_file_atomically(manifest_path, manifest.text());
}

}  // namespace

TEST_CASE("snapshot: all that it can hold comes back bit for bit") {
  const TemporaryFolder folder;
  torch::manual_seed(1);
  const auto contents = everything();
  const auto path = write_snapshot(folder.path(), contents);
  CHECK(path == folder / "step-00000120");
  const auto back = read_snapshot(path);
  CHECK(back.step == 120);
  CHECK(looptorch::testing::maps_equal(back.model, contents.model));
  CHECK(looptorch::testing::maps_equal(back.averaged, contents.averaged));
  CHECK(looptorch::testing::maps_equal(back.optimizer.values(), contents.optimizer.values()));
  CHECK(looptorch::testing::maps_equal(back.state.values(), contents.state.values()));
  CHECK_NOTHROW(looptorch::verify_snapshot(path));
}

TEST_CASE("snapshot: the folder has its files, none of them empty, and permissions follow the umask") {
  const TemporaryFolder folder;
  const mode_t before = ::umask(027);
  const auto path = write_snapshot(folder / "runs/one", small_contents(7));
  ::umask(before);
  CHECK(names_in(folder / "runs/one") == Names{"step-00000007"});
  CHECK(names_in(path) == Names{"manifest.json", "model.averaged.safetensors", "model.safetensors",
                                "optimizer.safetensors", "state.json", "state.safetensors"});
  const auto mode = [](const fs::path& of) { return fs::status(of).permissions() & fs::perms::mask; };
  CHECK(mode(folder / "runs") == fs::perms(0750));
  CHECK(mode(path) == fs::perms(0750));
  for (const auto& name : names_in(path)) CHECK(mode(path / name) == fs::perms(0640));

  SnapshotContents bare;
  bare.step = 123'456'789;
  const auto small = write_snapshot(folder.path(), bare);
  CHECK(small.filename() == "step-123456789");
  CHECK(names_in(small) == Names{"manifest.json", "model.safetensors", "state.json"});
  CHECK(bits_equal(read_snapshot(small), bare));
}

TEST_CASE("snapshot: the same contents give the same bytes") {
  const TemporaryFolder folder;
  const auto one = write_snapshot(folder / "one", small_contents(7)),
             two = write_snapshot(folder / "two", small_contents(7));
  for (const auto& name : names_in(one)) CHECK(read_file(one / name) == read_file(two / name));
}

TEST_CASE("snapshot: the model's file is plain weights, and tied ones come back as one tensor") {
  const TemporaryFolder folder;
  const Net net(1.5), other(0);
  SnapshotContents contents;
  contents.model = looptorch::state_dict(net);
  contents.averaged = looptorch::state_dict(other);
  const auto path = write_snapshot(folder.path(), contents);
  CHECK(load_safetensors_header(path / "model.safetensors").entries.size() == contents.model.size() - 1);

  const auto back = read_snapshot(path);
  CHECK(bits_equal(back, contents));
  CHECK(back.model.at("embedding").is_same(back.model.at("output")));
  CHECK(back.averaged.at("embedding").is_same(back.averaged.at("output")));

  looptorch::load_weights(other, path / "model.safetensors");
  CHECK(looptorch::testing::maps_equal(looptorch::state_dict(other), contents.model));
}

TEST_CASE("snapshot: views of one memory that are not the same come back with their values") {
  const TemporaryFolder folder;
  const auto base = torch::arange(6, torch::kFloat);
  SnapshotContents contents;
  contents.model["all"] = base;
  contents.model["part"] = base.slice(0, 2, 4);
  contents.optimizer.set("one", base);
  contents.optimizer.set("two", base);
  CHECK(bits_equal(read_snapshot(write_snapshot(folder.path(), contents)), contents));
}

TEST_CASE("snapshot: one of the same step is replaced, intact or damaged") {
  const TemporaryFolder folder;
  const auto path = write_snapshot(folder.path(), small_contents(7));
  if (GENERATE(false, true)) {
    fs::remove(path / "model.safetensors");
    CHECK_THROWS_AS(read_snapshot(path), SnapshotError);
  }
  CHECK(write_snapshot(folder.path(), small_contents(7, 3)) == path);
  CHECK(bits_equal(read_snapshot(path), small_contents(7, 3)));
  CHECK(names_in(folder.path()) == Names{"step-00000007"});
}

TEST_CASE("snapshot: what is in the way stays") {
  const TemporaryFolder folder;
  SECTION("a file") {
    looptorch::write_file_atomically(folder / "step-00000007", "mine");
    CHECK_THROWS_WITH(write_snapshot(folder.path(), small_contents(7)),
                      Contains("step-00000007: cannot create: Not a directory"));
    CHECK(read_file(folder / "step-00000007") == "mine");
  }
  SECTION("a folder with other files") {
    fs::create_directory(folder / "step-00000007");
    looptorch::write_file_atomically(folder / "step-00000007/notes.txt", "mine");
    CHECK_THROWS_WITH(write_snapshot(folder.path(), small_contents(7)),
                      Contains("step-00000007/notes.txt: is no file of a snapshot, so its folder stays"));
    CHECK(read_file(folder / "step-00000007/notes.txt") == "mine");
  }
  SECTION("a file instead of the folder") {
    looptorch::write_file_atomically(folder / "runs", "mine");
    CHECK_THROWS_WITH(write_snapshot(folder / "runs", small_contents(7)),
                      Contains("runs: cannot create: File exists"));
    CHECK_THROWS_WITH(write_snapshot(folder / "runs/one", small_contents(7)),
                      Contains("runs/one: cannot create: Not a directory"));
  }
  CHECK(folder.entries() == 1);
}

TEST_CASE("snapshot: contents that cannot be kept are refused by name, before anything is written") {
  const TemporaryFolder folder;
  auto contents = small_contents(7);
  const auto refusal = [&] {
    try {
      write_snapshot(folder / "runs", contents);
    } catch (const SnapshotError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const auto in = [&](const std::string& file) { return (folder / "runs/step-00000007" / file).string(); };
  SECTION("a dtype") {
    contents.model["wide"] = torch::zeros({2}, at::kComplexDouble);
    CHECK(refusal() ==
          in("model.safetensors: tensor \"wide\": has a dtype that safetensors lacks: ComplexDouble"));
  }
  SECTION("a layout") {
    contents.averaged["sparse"] = torch::zeros({2, 2}).to_sparse();
    CHECK(
        refusal() ==
        in("model.averaged.safetensors: tensor \"sparse\": is sparse or nested, and the format holds dense tensors only"));
  }
  SECTION("no values") {
    contents.state.set("mask", torch::zeros({2}, at::kMeta));
    CHECK(refusal() == in("state.safetensors: tensor \"mask\": has no values (meta device)"));
  }
  SECTION("no tensor") {
    contents.model["none"] = at::Tensor();
    CHECK(refusal() == in("model.safetensors: tensor \"none\": is undefined"));
  }
  SECTION("a tensor's name") {
    contents.optimizer.set("a\xff", torch::zeros({2}));
    CHECK(refusal() == in("optimizer.safetensors: the name \"a\uFFFD\" is not UTF-8"));
  }
  SECTION("a reserved name") {
    contents.model["__metadata__"] = torch::zeros({2});
    CHECK(refusal() == in("model.safetensors: tensor \"__metadata__\": the name is reserved"));
  }
  SECTION("a number's name") {
    contents.state.set("\xc3", 1);
    CHECK(refusal() == in("state.json: the name \"\uFFFD\" is not UTF-8"));
  }
  SECTION("a text that would not be read back") {
    contents.state.set("text", std::string(std::size_t{1} << 26, 'x'));
    CHECK_THAT(refusal(), Contains("state.json: takes 671") && Contains("more than the 67108864 allowed"));
  }
  SECTION("a step") {
    contents.step = -1;
    CHECK_THROWS_AS(write_snapshot(folder / "runs", contents), looptorch::UsageError);
  }
  CHECK(folder.entries() == 0);
}

TEST_CASE("snapshot: without room for it nothing is written, and the error says how much it takes") {
  const TemporaryFolder folder;
  auto contents = small_contents(7);
  contents.model["huge"] = torch::zeros({1}).expand({std::int64_t{1} << 50});
  try {
    write_snapshot(folder.path(), contents);
    FAIL("there cannot be room");
  } catch (const looptorch::SnapshotSpaceError& error) {
    CHECK(error.needed_bytes >= std::uint64_t{1} << 52);
    CHECK(error.free_bytes < error.needed_bytes);
    CHECK(error.what() == folder.path().string() + ": a snapshot needs " +
                              std::to_string(error.needed_bytes) + " bytes, and the disk has " +
                              std::to_string(error.free_bytes) + " free");
  }
  CHECK(folder.entries() == 0);
}

TEST_CASE("snapshot: an unsound one is refused by file, tensor and both sides of what does not agree") {
  const TemporaryFolder folder;
  auto path = write_snapshot(folder.path(), small_contents(7));
  const auto refusal = [&] {
    CHECK_THROWS_AS(looptorch::verify_snapshot(path), SnapshotError);
    try {
      (void)read_snapshot(path);
    } catch (const SnapshotError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const auto in = [&](const std::string& file) { return (path / file).string(); };
  SECTION("nothing there") {
    path = folder / "step-00000008";
    CHECK(refusal() == in("manifest.json: cannot open: No such file or directory"));
  }
  SECTION("no manifest") {
    fs::remove(path / "manifest.json");
    CHECK(refusal() == in("manifest.json: cannot open: No such file or directory"));
  }
  SECTION("a missing file") {
    fs::remove(path / "optimizer.safetensors");
    CHECK(refusal() == in("optimizer.safetensors: cannot open: No such file or directory"));
  }
  SECTION("a surplus file") {
    looptorch::write_file_atomically(path / "notes.txt", "");
    CHECK(refusal() == in("notes.txt: is not in the snapshot's manifest"));
  }
  SECTION("a folder instead of a file") {
    fs::remove(path / "state.json");
    fs::create_directory(path / "state.json");
    CHECK(refusal() == in("state.json: is not a regular file"));
  }
  SECTION("a file of another length") {
    const auto size = fs::file_size(path / "model.safetensors");
    fs::resize_file(path / "model.safetensors", size - 1);
    CHECK(refusal() == in("model.safetensors: has ") + std::to_string(size - 1) +
                           " bytes, the manifest says " + std::to_string(size));
  }
  SECTION("a changed tensor") {
    change_byte(path / "model.safetensors", -1);
    CHECK_THAT(refusal(), Contains(in("model.safetensors: tensor \"weight\" is damaged: its checksum is ")) &&
                              Contains(", the manifest says "));
  }
  SECTION("a changed header") {
    change_byte(path / "optimizer.safetensors", 20);
    CHECK_THAT(refusal(), Contains(in("optimizer.safetensors: ")));
  }
  SECTION("a changed state") {
    change_byte(path / "state.json", 30);
    CHECK_THAT(refusal(),
               Contains(in("state.json: is damaged: its checksum is ")) && Contains(", the manifest says "));
  }
  SECTION("a changed manifest") {
    change_byte(path / "manifest.json", 30);
    CHECK_THAT(refusal(), Contains(in("manifest.json: is damaged: it does not end with its checksum, ")));
  }
  SECTION("another step's name") {
    fs::rename(path, folder / "step-00000008");
    path = folder / "step-00000008/";
    CHECK(refusal() == path.string() + ": the manifest is of step 7, the folder's name of 8");
    fs::rename(folder / "step-00000008", folder / "best");
    CHECK(bits_equal(read_snapshot(folder / "best"), small_contents(7)));
  }
  SECTION("another snapshot's file") {
    const auto other = write_snapshot(folder.path(), small_contents(8));
    fs::copy_file(other / "model.safetensors", path / "model.safetensors",
                  fs::copy_options::overwrite_existing);
    CHECK_THAT(refusal(), Contains(in("model.safetensors: ")) && Contains("is damaged"));
  }
}

TEST_CASE("snapshot: a manifest that is made up is refused, though its checksum is right") {
  const TemporaryFolder folder;
  const auto path = write_snapshot(folder.path(), small_contents(7));
  const auto refusal = [&](const std::string& from, const std::string& to) {
    auto text = read_file(path / "manifest.json");
    REQUIRE(text.find(from) != std::string::npos);
    put_manifest(path, text.replace(text.find(from), from.size(), to));
    try {
      (void)read_snapshot(path);
    } catch (const SnapshotError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const auto manifest = (path / "manifest.json").string();
  SECTION("a newer format") {
    CHECK(refusal("\"version\": 1", "\"version\": 2") ==
          manifest +
              ": the snapshot has version 2 of the format, and this looptorch reads 1 and older: use the "
              "looptorch that wrote it, or a newer one");
  }
  SECTION("another format") {
    CHECK(refusal("looptorch snapshot", "x") == manifest + ": is no snapshot's: its format is \"x\"");
  }
  SECTION("a file elsewhere") {
    CHECK(refusal("\"state.safetensors\"", "\"../state.safetensors\"") ==
          manifest + ": \"../state.safetensors\" is no file of a snapshot");
  }
  SECTION("itself") {
    CHECK(refusal("\"state.safetensors\"", "\"manifest.json\"") ==
          manifest + ": \"manifest.json\" is no file of a snapshot");
  }
  SECTION("a file twice") {
    CHECK_THAT(refusal("\"state.safetensors\"", "\"model.safetensors\""), Contains("duplicate key"));
  }
  SECTION("no weights, or no state") {
    const bool lacks_state = GENERATE(false, true);
    auto parsed = looptorch::detail::SnapshotManifest::parse(manifest, read_file(manifest));
    parsed.files.erase(lacks_state ? parsed.files.end() - 1 : parsed.files.begin());
    looptorch::write_file_atomically(manifest, parsed.text());
    CHECK(refusal("\"step\": 7", "\"step\": 7") ==
          manifest + (lacks_state ? ": lists no state.json" : ": lists no model.safetensors"));
  }
  SECTION("a name tied to nothing, or twice there") {
    const auto [tied, kept] = GENERATE(Pair{"a", "none"}, Pair{"bias", "weight"}, Pair{"none", "none"});
    auto parsed = looptorch::detail::SnapshotManifest::parse(manifest, read_file(manifest));
    parsed.files.front().tied.emplace(tied, kept);
    looptorch::write_file_atomically(manifest, parsed.text());
    CHECK(refusal("\"step\": 7", "\"step\": 7") ==
          manifest + ": in model.safetensors \"" + tied + "\" cannot be tied to \"" + kept + "\"");
  }
  SECTION("depth") {
    CHECK_THAT(refusal("\"step\": 7", "\"step\": " + std::string(100, '[')),
               Contains("nested more than 8 deep"));
  }
  SECTION("not a number") {
    CHECK_THAT(refusal("\"step\": 7", "\"step\": NaN"), Contains("expected a value"));
  }
  SECTION("another kind") {
    CHECK(refusal("\"step\": 7", "\"step\": \"7\"") == manifest + ": expected an integer, found a string");
  }
  SECTION("a negative size") { CHECK_THAT(refusal("\"bytes\": ", "\"bytes\": -"), Contains("a size of -")); }
  SECTION("a checksum that is none") {
    CHECK_THAT(refusal("\"checksum\": \"", "\"checksum\": \"g"), Contains("is not 16 hexadecimal digits"));
  }
  SECTION("another tensor") {
    CHECK_THAT(refusal("\"weight\": {", "\"eight\": {"),
               Contains("has not the tensors that the manifest lists"));
  }
  SECTION("another tensor's size") {
    CHECK_THAT(refusal("\"bytes\": 16,", "\"bytes\": 12,"),
               Contains("has not the tensors that the manifest lists"));
  }
}

TEST_CASE("snapshot: a state that is made up is refused, though its checksum is right") {
  const TemporaryFolder folder;
  const auto path = write_snapshot(folder.path(), small_contents(7));
  const auto refusal = [&](const std::string& text) {
    put_state(path, text);
    try {
      (void)read_snapshot(path);
    } catch (const SnapshotError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  const auto of = [](const std::string& value) {
    return R"({"step": 7, "optimizer": {}, "state": {"key": )" + value + "}}";
  };
  const auto state = (path / "state.json").string();
  CHECK(refusal(of("1")) == "none");
  CHECK(refusal(of(R"({"double": "7ff8000000000000"})")) == "none");
  CHECK(refusal(R"({"step": 8, "optimizer": {}, "state": {}})") ==
        state + ": is of step 8, the manifest of 7");
  CHECK(refusal(R"({"step": 7, "state": {}})") == state + ": key \"optimizer\" is missing");
  CHECK(refusal(R"({"step": 7, "optimizer": {}, "state": []})") ==
        state + ": expected an object, found an array");
  CHECK(refusal(R"({"step": 7, "optimizer": {}, "state": {"random": 1}})") ==
        state + ": \"random\": is a tensor too, in state.safetensors");
  CHECK(refusal(of("[1]")) == state + ": \"key\": expected an object, found an array");
  CHECK(refusal(of("{}")) == state + ": \"key\": is no value of a state");
  CHECK(refusal(of(R"({"double": "7ff8"})")) == state + ": \"key\": \"7ff8\" is not 16 hexadecimal digits");
  CHECK(refusal(of(R"({"bytes": "f"})")) == state + ": \"key\": \"f\" is not bytes in hexadecimal");
  CHECK(refusal(of(R"({"double": 1})")) == state + ": \"key\": expected a string, found an integer");
  CHECK_THAT(refusal(of("NaN")), Contains(state + ": line 1, column ") && Contains("expected a value"));
  CHECK_THAT(refusal(of("1e999")), Contains("number outside the range of a double"));
  CHECK_THAT(refusal(of("\"\xff\"")), Contains("not UTF-8"));
  CHECK_THAT(refusal(of("1, \"key\": 2")), Contains("duplicate key \"key\""));
  CHECK_THAT(refusal(of(std::string(100, '['))), Contains("nested more than 8 deep"));
}
