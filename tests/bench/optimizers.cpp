// SPDX-License-Identifier: MIT
// Measures a step of each optimizer that keeps less than AdamW beside FusedAdamW's on the same number of
// parameters, on a CPU: nanoseconds of processor time a parameter, the median of rounds in turns, and the
// bytes that they keep. An argument names the number of parameters, a
// multiple of 1000.
#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/optim/fused_adamw.hpp>

#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace {

constexpr int kRounds = 21, kStepsARound = 4;

/// A parameter with a gradient, and an optimizer of it.
template <class Optimizer>
class Trained {
 public:
  Trained(std::int64_t size, at::ScalarType type, typename Optimizer::Options options)
      : parameter_(at::randn({size / 1000, 1000}).to(type).set_requires_grad(true)),
        optimizer_({parameter_}, options) {
    parameter_.mutable_grad() = at::randn_like(parameter_);
    step();
  }

  void step() { optimizer_.step(looptorch::GradientScale{}, at::Tensor()); }

  /// Returns the nanoseconds a parameter of one round.
  double round() {
    const auto begin = std::clock();
    for (int i = 0; i < kStepsARound; ++i) step();
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    return seconds * 1e9 / kStepsARound / static_cast<double>(parameter_.numel());
  }

  /// Returns the bytes of weights and moments a parameter.
  double bytes() const {
    const auto kept = Optimizer::state_bytes(optimizer_.param_groups()[0], parameter_);
    return static_cast<double>(kept + static_cast<std::int64_t>(parameter_.nbytes())) /
           static_cast<double>(parameter_.numel());
  }

 private:
  at::Tensor parameter_;
  Optimizer optimizer_;
};

double median(std::array<double, kRounds> times) {
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

template <class Optimizer>
void compare(const char* name, std::int64_t size, at::ScalarType type, typename Optimizer::Options options) {
  Trained<Optimizer> ours(size, type, options);
  Trained<looptorch::FusedAdamW> peer(size, at::kFloat, {});
  std::array<double, kRounds> of_ours{}, of_peer{};
  for (int i = 0; i < kRounds; ++i)
    of_ours[static_cast<std::size_t>(i)] = ours.round(), of_peer[static_cast<std::size_t>(i)] = peer.round();
  const char* row =
      R"({"name": "%s", "value": %.4f, "unit": "%s", "peer": "FusedAdamW", "peer_value": %.4f})";
  const std::string line = std::string(row) + "\n";
  std::printf(line.c_str(), name, median(of_ours), "ns a parameter", median(of_peer));
  std::printf(line.c_str(), (std::string(name) + ", bytes").c_str(), ours.bytes(),
              "bytes a parameter, weights and moments", peer.bytes());
}

}  // namespace

int main(int count, char** arguments) {
  const std::int64_t size = count > 1 ? std::atoll(arguments[1]) : 10'000'000;
  compare<looptorch::AdamW8bit>("AdamW8bit", size, at::kFloat, {});
  compare<looptorch::AdamW8bit>("AdamW8bit, bf16 weights", size, at::kBFloat16, {});
  compare<looptorch::Adafactor>("Adafactor", size, at::kFloat, {});
  compare<looptorch::Adafactor>("Adafactor, bf16 weights", size, at::kBFloat16, {});
  compare<looptorch::AdamWBf16>("AdamWBf16", size, at::kBFloat16, {});
  compare<looptorch::AdamWBf16>("AdamWBf16, exact", size, at::kBFloat16, {.exact = true});
}
