// SPDX-License-Identifier: MIT
// What compiles, keeps and loads kernels, as far as it needs no GPU. The kernels themselves are tested in
// unit/optim/kernels.
// Tests base/device: cuda_kernels, cuda_driver, kernel_cache, kernel_runner
// Tests base/device: kernel_source, nvrtc, opened_library
#include "support/precompiled.hpp"

#include <looptorch/base/device/kernel_runner.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <thread>

namespace lt = looptorch;
using namespace looptorch::detail;
using lt::testing::TemporaryFolder;

namespace {

constexpr KernelSource kDoubling{
    "a doubling",
    {"struct Table { float* numbers; };\n",
     "extern \"C\" __global__ void twice(const Table table) { table.numbers[threadIdx.x] *= 2; }\n"},
    8,
    8};
constexpr KernelSource kWrong{
    "a wrong one", {"extern \"C\" __global__ void wrong() { undeclared = 1; }\n"}, 8, 8};

std::optional<Nvrtc> nvrtc_here() {
  try {
    return std::optional<Nvrtc>(std::in_place);
  } catch (const KernelError& error) {
    WARN("skipped: " << error.what());
    return std::nullopt;
  }
}

std::string file_in(const std::filesystem::path& folder) {
  return std::filesystem::directory_iterator(folder)->path();
}

}  // namespace

TEST_CASE("a library that cannot be opened says why, and has no functions") {
  const OpenedLibrary none({"libno-such-thing.so.1", "libnor-this.so"});
  CHECK_FALSE(none);
  CHECK_THAT(none.reasons(), Catch::Contains("libno-such-thing.so.1") && Catch::Contains("libnor-this.so"));
  CHECK_FALSE(none.call("anything", 1).has_value());
  const OpenedLibrary some({"libno-such-thing.so.1", "libm.so.6"});
  REQUIRE(some);
  CHECK(some.name() == "libm.so.6");
  CHECK(some.find<double(double)>("sqrt")(9.0) == 3.0);
  CHECK(some.find<void()>("no_such_function") == nullptr);
}

TEST_CASE("LibTorch's streams are asked by a function that this LibTorch has") {
  const bool has_cuda = OpenedLibrary({"libc10_cuda.so"}).operator bool();
  CHECK((loaded_function(kStreamOfLibTorch, "libc10_cuda.so") != nullptr) == has_cuda);
}

TEST_CASE("NVRTC that is not there is an error that names what was tried") {
  CHECK_THROWS_AS(Nvrtc({"libno-such-nvrtc.so"}), KernelError);
  CHECK_THROWS_WITH(Nvrtc({"libno-such-nvrtc.so"}), Catch::Contains("libno-such-nvrtc.so"));
}

TEST_CASE("a source that does not compile is an error with NVRTC's log") {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  CHECK_THROWS_WITH(image_of(kWrong, 90, KernelRunner::kLargeTable, *nvrtc, KernelCache("")),
                    Catch::Contains("a wrong one") && Catch::Contains("undeclared"));
}

TEST_CASE("a GPU older than NVRTC knows is an error, and a newer one gets PTX") {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  CHECK(nvrtc->target(90) == "--gpu-architecture=sm_90");
  CHECK_THROWS_WITH(nvrtc->target(20), Catch::Contains("sm_20"));
  CHECK_THAT(nvrtc->target(999), Catch::Contains("compute_"));
  const std::string newer = image_of(kDoubling, 999, KernelRunner::kLargeTable, *nvrtc, KernelCache(""));
  CHECK_THAT(newer, Catch::Contains(".target"));
}

TEST_CASE("tables are large where the card, the driver and the compiler allow it") {
  CHECK(table_bytes_of(70, 12010, 12010) == KernelRunner::kLargeTable);
  CHECK(table_bytes_of(61, 13000, 12060) == KernelRunner::kSmallTable);
  CHECK(table_bytes_of(90, 12000, 13000) == KernelRunner::kSmallTable);
  CHECK(table_bytes_of(90, 13000, 11080) == KernelRunner::kSmallTable);
  CHECK(kDoubling.options(80)[2] == "-DLT_TENSORS=9");
}

TEST_CASE("a folder keeps compiled kernels by all that they depend on") {
  const TemporaryFolder folder;
  const KernelCache cache(folder / "made" / "here");
  CHECK_FALSE(cache.find("key").has_value());
  CHECK(cache.store("key", std::string("image\0with zeros", 16)));
  CHECK(cache.find("key") == std::string("image\0with zeros", 16));
  CHECK_FALSE(cache.find("kex").has_value());
  std::filesystem::rename(cache.file_of("key"), cache.file_of("kex"));  // as if their sums were equal
  CHECK_FALSE(cache.find("kex").has_value());
  CHECK_FALSE(KernelCache("").store("key", "image"));
  CHECK_FALSE(KernelCache("/proc/no/such").store("key", "image"));
}

TEST_CASE("a damaged or truncated file of kernels counts as absent, and is written again") {
  const TemporaryFolder folder;
  const KernelCache cache(folder.path());
  const std::string image(300, 'x');
  REQUIRE(cache.store("key", image));
  const std::string whole = lt::read_file(cache.file_of("key"));
  for (std::size_t i = 0; i < whole.size(); i += 7) {
    std::string damaged = whole;
    damaged[i] ^= 1;
    std::ofstream(cache.file_of("key"), std::ios::binary) << damaged;
    CHECK_FALSE(cache.find("key").has_value());
    std::ofstream(cache.file_of("key"), std::ios::binary) << whole.substr(0, i);
    CHECK_FALSE(cache.find("key").has_value());
  }
  CHECK(cache.store("key", image));
  CHECK(cache.find("key") == image);
}

TEST_CASE("processes may share a folder of kernels") {
  const TemporaryFolder folder;
  const KernelCache cache(folder.path());
  const auto image = [](int writer) { return std::string(200000, static_cast<char>('a' + writer)); };
  std::vector<pid_t> writers;
  for (int writer = 0; writer < 3; ++writer) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int i = 0; i < 30; ++i) cache.store("key", image(writer));
      ::_exit(0);
    }
    writers.push_back(child);
  }
  bool whole = true;
  for (int i = 0; i < 300; ++i)
    if (const auto found = cache.find("key"))
      whole = whole && (*found == image(0) || *found == image(1) || *found == image(2));
  for (const pid_t writer : writers) ::waitpid(writer, nullptr, 0);
  CHECK(whole);
  CHECK(cache.find("key").has_value());
  CHECK(folder.entries() == 1);
}

TEST_CASE("an image comes from the folder unless it is damaged there") {
  const auto nvrtc = nvrtc_here();
  if (!nvrtc) return;
  const TemporaryFolder folder;
  const auto image = [&] {
    return image_of(kDoubling, 90, KernelRunner::kLargeTable, *nvrtc, KernelCache(folder.path()));
  };
  const std::string compiled = image();
  CHECK(compiled.substr(0, 4) == "\177ELF");
  REQUIRE(folder.entries() == 1);
  const std::string file = file_in(folder.path());
  CHECK_THAT(lt::read_file(file), Catch::Contains("sm_90") && Catch::Contains(kDoubling.parts[1]));
  CHECK(image() == compiled);
  std::string damaged = lt::read_file(file);
  damaged.back() ^= 1;
  std::ofstream(file, std::ios::binary) << damaged;
  CHECK(image() == compiled);
  CHECK(lt::read_file(file) != damaged);
  (void)image_of(kDoubling, 80, KernelRunner::kLargeTable, *nvrtc, KernelCache(folder.path()));
  CHECK(folder.entries() == 2);
}

TEST_CASE("a machine without a driver is an error that says so") {
  if (CudaDriver::get().version() > 0) return;
  CHECK_THROWS_WITH(CudaDriver::get().require_context(0), Catch::Contains("NVIDIA driver"));
  CHECK_FALSE(CudaDriver::get().is_capturing(nullptr));
}

TEST_CASE("where kernels do not run is said once") {
  lt::testing::CapturedStderr captured;
  for (int i = 0; i < 3; ++i) say_without_kernels("AdamW8bit", c10::Device(c10::kXPU, 0), "a reason");
  const std::string text = captured.text();
  CHECK_THAT(text, Catch::Contains("looptorch: AdamW8bit on xpu:0") && Catch::Contains("a reason"));
  CHECK(text.find("a reason") == text.rfind("a reason"));
}

TEST_CASE("a CPU has kernels only where a test gives it a runner") {
  CHECK_FALSE(ready_kernels(kDoubling, c10::kCPU));
}
