// SPDX-License-Identifier: MIT
// CUDA devices that a LibTorch can and cannot use. No GPU is needed: the facts of other machines stand here.
// Tests app/device: cuda_query
#include "support/precompiled.hpp"

#include <looptorch/app/device.hpp>
#include <looptorch/app/device/cuda_device.hpp>

#include <string>
#include <vector>

namespace app = looptorch::app;
using namespace app;
using Catch::Contains;
using Kind = CudaKernels::Kind;

namespace {

CudaMachine machine(int driver, Capability capability, const std::string& name = "GPU") {
  return {driver, {{name, capability}}};
}

const CudaBuild k27{"2.7.1", 12060, app::detail::installable_builds()[2].kernels};
const CudaBuild k211{"2.11.0", 13000, app::detail::installable_builds()[0].kernels};

std::string verdict(const CudaBuild& build, const CudaMachine& machine) {
  return why_unusable(build, machine, 0);
}

}  // namespace

TEST_CASE("cuda: nvcc's flags say for which cards there are kernels") {
  const auto found = app::detail::parse_nvcc_flags(
      "  - CUDA Runtime 13.0\n  - NVCC architecture flags: -gencode;arch=compute_75,code=sm_75;"
      "-gencode;arch=compute_90a,code=sm_90a;-gencode;arch=compute_120,code=[compute_120,sm_120]\n"
      "  - CuDNN 90.1");
  REQUIRE(found.size() == 4);
  CHECK((found[0].capability == Capability{7, 5} && found[0].kind == Kind::machine));
  CHECK((found[1].capability == Capability{9, 0} && found[1].kind == Kind::exact));
  CHECK((found[2].capability == Capability{12, 0} && found[2].kind == Kind::machine));
  CHECK((found[3].capability == Capability{12, 0} && found[3].kind == Kind::ptx));
  CHECK(app::detail::parse_nvcc_flags("code=; code=sm_;code=native").empty());
}

TEST_CASE("cuda: kernels run on their card and on later ones of its major version, PTX on all later ones") {
  const CudaKernels machine_code{{8, 6}, Kind::machine}, exact{{9, 0}, Kind::exact}, ptx{{7, 5}, Kind::ptx};
  CHECK((machine_code.run_on({8, 6}) && machine_code.run_on({8, 9})));
  CHECK_FALSE((machine_code.run_on({8, 0}) || machine_code.run_on({9, 0}) || machine_code.run_on({7, 5})));
  CHECK((exact.run_on({9, 0}) && !exact.run_on({9, 1})));
  CHECK((ptx.run_on({7, 5}) && ptx.run_on({12, 0}) && !ptx.run_on({7, 0})));
}

TEST_CASE("cuda: a card without kernels is named, with what LibTorch has and the version to install") {
  CHECK(
      verdict(k211, machine(13000, {5, 2}, "NVIDIA GeForce GTX 980")) ==
      "cuda:0 (NVIDIA GeForce GTX 980) has compute capability 5.2, for which LibTorch 2.11.0 has no kernels "
      "(it has 7.5, 8.0, 8.6, 9.0, 10.0, 12.0): install LibTorch 2.7.1 (packaging/setup.sh --libtorch 2.7.1) "
      "or a newer one built for CUDA 12.6, up to 2.14, or choose --device cpu; see docs/errors.md#cuda-device");
  for (const Capability old : {Capability{5, 0}, {6, 0}, {6, 1}, {7, 0}}) {
    CHECK_THAT(verdict(k211, machine(13000, old)), Contains("install LibTorch 2.7.1"));
    CHECK(verdict(k27, machine(13000, old)) == "");
  }
  CHECK_THAT(verdict(k27, machine(13000, {12, 0})), Contains("install LibTorch 2.11.0"));
  CHECK_THAT(verdict(k27, machine(12080, {12, 0})),
             Contains(": update the driver and install LibTorch 2.11.0"));
  CHECK_THAT(verdict(k27, machine(11040, {3, 7}, "Tesla K80")),
             Contains("cuda:0 (Tesla K80) has compute capability 3.7") &&
                 Contains("): no LibTorch that looptorch knows has any; choose --device cpu"));
}

TEST_CASE("cuda: a driver older than LibTorch's CUDA is refused; a driver of its major version suffices") {
  CHECK(
      verdict(k211, machine(12040, {8, 6}, "RTX 3090")) ==
      "the NVIDIA driver supports CUDA 12.4 at most, and LibTorch 2.11.0 needs CUDA 13.0 for cuda:0 (RTX 3090): "
      "update the driver, or install LibTorch 2.7.1 (packaging/setup.sh --libtorch 2.7.1) or a newer one built for CUDA "
      "12.6, up to 2.14, or choose --device cpu; see docs/errors.md#cuda-device");
  CHECK_THAT(
      verdict(k27, machine(11080, {8, 6})),
      Contains("supports CUDA 11.8 at most") && Contains(": update the driver, or choose --device cpu"));
  CHECK(verdict(k211, machine(13000, {8, 6})) == "");
  CHECK(verdict(k27, machine(12020, {8, 6})) == "");
  CHECK(verdict(k27, machine(13000, {9, 0})) == "");
}

TEST_CASE("cuda: nothing is said of an absent card, nor of kernels that LibTorch does not list") {
  CHECK(why_unusable(k211, machine(12040, {5, 2}), 1) == "");
  CHECK(why_unusable(k211, {12040, {}}, 0) == "");
  CHECK(verdict({"2.11.0", 13000, {}}, machine(13000, {5, 2})) == "");
}

TEST_CASE("cuda: choose_device refuses a device that cannot be used, before LibTorch looks for one") {
  const CudaQuery old_card = [] { return CudaFacts{k211, machine(13000, {5, 2}, "GTX 980")}; };
  const CudaQuery old_driver = [] { return CudaFacts{k211, machine(12040, {8, 6})}; };
  const bool simulated = c10::is_privateuse1_backend_registered();
  for (const std::string name : {"auto", "cuda", "cuda:0"}) {
    if (simulated && name == "auto") continue;
    CHECK_THROWS_AS(choose_device(name, old_card), looptorch::UsageError);
    CHECK_THROWS_WITH(choose_device(name, old_card),
                      Contains("--device: cuda:0 (GTX 980) has compute capability 5.2"));
    CHECK_THROWS_WITH(choose_device(name, old_driver),
                      Contains("--device: the NVIDIA driver supports CUDA 12.4 at most"));
  }
  CHECK(choose_device("cpu", old_card) == at::Device(at::kCPU));
  const CudaQuery cpu_only = [] { return CudaFacts{std::nullopt, machine(12040, {5, 2})}; };
  const CudaQuery no_driver = [] { return CudaFacts{k211, std::nullopt}; };
  for (const CudaQuery& query : {cpu_only, no_driver})
    CHECK(choose_device("auto", query) == choose_device("auto"));
}

TEST_CASE("cuda: cards before Ampere compute no bf16") {
  using looptorch::app::why_no_bf16;
  const auto says = [](looptorch::app::Capability capability, const std::string& name,
                       at::Device device = {at::kCUDA, 0}) {
    return why_no_bf16(device, [&] { return CudaFacts{std::nullopt, machine(13000, capability, name)}; });
  };
  CHECK(says({5, 2}, "GTX 980") == "cuda:0 (GTX 980) has compute capability 5.2, and bf16 needs 8.0");
  CHECK_THAT(says({6, 1}, "GTX 1080"), Contains("(GTX 1080) has compute capability 6.1"));
  CHECK_THAT(says({7, 5}, "T4", at::kCUDA), Contains("cuda:0 (T4) has compute capability 7.5"));
  CHECK(says({8, 0}, "A100").empty());
  CHECK(says({8, 9}, "RTX 4080").empty());
  CHECK(says({7, 5}, "T4", {at::kCUDA, 1}).empty());  // there is no such card
  CHECK(says({7, 5}, "T4", at::kCPU).empty());
  CHECK(why_no_bf16(at::kCUDA, [] { return CudaFacts{}; }).empty());
}

TEST_CASE("cuda: the query says what this LibTorch and this machine have") {
  const CudaFacts facts = query_cuda();
  CHECK((facts.machine && !facts.machine->gpus.empty()) == facts.build.has_value());
  if (!at::detail::getCUDAHooks().isBuilt()) return;
  CHECK(app::detail::cuda_runtime_version() >= 12000);
  if (const auto build = app::detail::cuda_build()) CHECK(build->libtorch == TORCH_VERSION);
}
