// SPDX-License-Identifier: MIT
// The reference values and the formulas of the signals: tests/parity/log_mel.py.
#include "support/precompiled.hpp"

#include <looptorch/audio/log_mel.hpp>
#include <looptorch/state/weights/safetensors.hpp>

#include "support/default_type.hpp"
#include "support/operators_called.hpp"

#include <cmath>
#include <numbers>
#include <thread>

using looptorch::UsageError;
using looptorch::audio::LogMel;
using looptorch::audio::LogMelOptions;

namespace {

const looptorch::TensorMap& recorded() {
  static const auto tensors =
      looptorch::load_safetensors(LOOPTORCH_SOURCE_DIR "/tests/parity/data/log_mel.safetensors").tensors;
  return tensors;
}

/// A signal of whole 16-bit steps as float32 samples.
template <class Signal>
at::Tensor samples_of(std::int64_t count, Signal signal) {
  at::Tensor samples_T = torch::empty({count});
  float* out = samples_T.data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(std::nearbyint(signal(i)) / 32768);
  return samples_T;
}

at::Tensor noise(std::int64_t count, int shift) {
  std::uint32_t state = 12345;
  return samples_of(count, [&](std::int64_t) {
    state = 1664525 * state + 1013904223;
    return double((static_cast<std::int32_t>(state >> 16) - 32768) >> shift);
  });
}

at::Tensor chirp(std::int64_t count) {
  return samples_of(count, [](std::int64_t i) {
    const double t = double(i) / 16000;
    return 20000 * std::sin(std::numbers::pi * 130 * t * t);
  });
}

at::Tensor voice(std::int64_t count) {
  return samples_of(count, [](std::int64_t i) {
    const double t = double(i) / 16000, turn = 2 * std::numbers::pi;
    const double pitch = turn * (120 * t + 3 * std::sin(turn * 0.5 * t));
    double tone = 0;
    for (int h = 1; h <= 30; ++h)
      tone += std::exp(-std::pow((120 * h - 700) / 500.0, 2)) * std::sin(h * pitch);
    return 6000 * tone * std::max(0.0, std::sin(turn * 2 * t));
  });
}

at::Tensor click(std::int64_t count) {
  return samples_of(count, [count](std::int64_t i) { return i == count / 2 ? 30000.0 : 0.0; });
}

struct Case {
  std::string name;
  at::Tensor samples_T;
  LogMelOptions options{};
};

std::vector<Case> cases() {
  return {{"noise", noise(480000, 1)},
          {"quiet_noise", noise(480000, 13)},
          {"chirp_30s", chirp(480000)},
          {"chirp_128", chirp(480000), {.mel_bins = 128}},
          {"voice_short", voice(60000)},
          {"voice_4s", voice(60000), {.max_samples = 64000}},
          {"noise_cut", noise(70001, 2), {.max_samples = 48080}},
          {"click", click(16000)},
          {"silence", torch::zeros({1000})}};
}

double distance(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

}  // namespace

TEST_CASE("mel filters are bit-equal to openai-whisper's published ones") {
  const std::int64_t bins = GENERATE(80, 128);
  const std::string name = "filters_" + std::to_string(bins);
  at::Tensor expected = torch::zeros({bins * 201});
  expected.index_put_({recorded().at(name + ".index").to(at::kLong)}, recorded().at(name + ".value"));
  const at::Tensor filters_MK = looptorch::audio::slaney_mel_filters(bins, 400, 16000);
  CHECK(filters_MK.equal(expected.view({bins, 201})));
}

TEST_CASE("features equal openai-whisper's within 1e-5") {
  for (const auto& [name, samples_T, options] : cases()) {
    CAPTURE(name);
    const LogMel log_mel(options);
    const at::Tensor mel_MF = log_mel(samples_T);
    REQUIRE(mel_MF.sizes() == at::IntArrayRef{options.mel_bins, log_mel.frames()});
    const at::Tensor frames =
        torch::cat({mel_MF.slice(1, 0, {}, 75), mel_MF.slice(1, 0, 4), mel_MF.slice(1, -4)}, 1);
    // Around a pure tone quiet cells hold what the Fourier transform rounds, and each kind of CPU has its
    // own.
    const double bound = name.find("chirp") == 0 ? 5e-5 : 1e-5;
    CHECK(distance(frames, recorded().at(name + ".frames")) < bound);
    const double frame_count = double(log_mel.frames());
    CHECK(distance(mel_MF.to(at::kDouble).sum(1) / frame_count, recorded().at(name + ".sums") / frame_count) <
          1e-5);
  }
}

TEST_CASE("the CPU's one pass over the spectrum equals the chain of operators that other devices use") {
  torch::manual_seed(1);
  const std::int64_t frames = GENERATE(1, 15, 16, 700);
  const looptorch::audio::MelPower mel_power(looptorch::audio::slaney_mel_filters(80, 400, 16000));
  const at::Tensor spectrum_BFK = torch::randn({3, frames, 201}, at::kComplexFloat);
  const at::Tensor expected_BMF = mel_power.by_operators(spectrum_BFK);
  const at::Tensor mel_BMF = torch::full({3, 80, frames + 5}, -7.0);
  for (int clip = 0; clip < 3; ++clip)
    mel_power.in_one_pass(spectrum_BFK[clip], mel_BMF[clip].narrow(1, 0, frames));
  CHECK(torch::allclose(mel_BMF.narrow(2, 0, frames), expected_BMF, 1e-5, 1e-9));
  CHECK(mel_BMF.narrow(2, frames, 5).eq(-7).all().item<bool>());
}

TEST_CASE("a clip gives the same features alone, in company, strided and from several threads") {
  const at::Tensor loud_T = chirp(30000), quiet_T = noise(30000, 10);
  const LogMel log_mel({.max_samples = 32000});
  const at::Tensor both_BMF = log_mel(torch::stack({loud_T, quiet_T}));
  CHECK(both_BMF.sizes() == at::IntArrayRef{2, 80, 200});
  CHECK(both_BMF[0].equal(log_mel(loud_T)));
  CHECK(both_BMF[1].equal(log_mel(quiet_T)));
  CHECK(log_mel(torch::stack({loud_T, quiet_T}, 1).select(1, 1)).equal(log_mel(quiet_T)));

  std::vector<std::thread> threads;
  std::array<at::Tensor, 4> results;
  for (at::Tensor& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) result = log_mel(loud_T);
    });
  for (auto& thread : threads) thread.join();
  for (const at::Tensor& result : results) CHECK(result.equal(both_BMF[0]));
}

TEST_CASE("features do not depend on the default type") {
  const at::Tensor samples_T = voice(8000);
  const LogMelOptions options{.max_samples = 8000};
  const at::Tensor expected_MF = LogMel(options)(samples_T);
  const auto type = GENERATE(at::kDouble, at::kHalf, at::kBFloat16);
  const DefaultType other(type);
  const at::Tensor mel_MF = LogMel(options)(samples_T);
  CHECK(mel_MF.scalar_type() == at::kFloat);
  CHECK(mel_MF.equal(expected_MF));
}

TEST_CASE("the filters are copied to a device once, for copies of theirs too") {
  const looptorch::audio::MelPower mel_power(looptorch::audio::slaney_mel_filters(80, 400, 16000));
  const auto copy = mel_power;
  const at::Tensor spectrum_BFK =
      torch::empty({2, 4, 201}, at::TensorOptions(at::kMeta).dtype(at::kComplexFloat));
  const auto copies = [&](const auto& of) {
    const OperatorsCalled called;
    CHECK(of.by_operators(spectrum_BFK).sizes() == at::IntArrayRef{2, 80, 4});
    return called.count("aten::_to_copy");
  };
  CHECK(copies(mel_power) == 1);
  CHECK(copies(mel_power) == 0);
  CHECK(copies(copy) == 0);
}

TEST_CASE("a constant has one copy a device") {
  const looptorch::audio::DeviceConstant constant(torch::ones({3}));
  CHECK(constant.on(at::kCPU).is_same(constant.on_cpu()));
  CHECK(constant.on(at::kMeta).is_meta());
  CHECK(constant.on(at::kMeta).is_same(constant.on(at::kMeta)));
}

TEST_CASE("the matmul of other devices is made without TF32") {
  const looptorch::audio::MelPower mel_power(looptorch::audio::slaney_mel_filters(80, 400, 16000));
  const OperatorsCalled called;
  (void)mel_power.by_operators(torch::ones({1, 4, 201}, at::kComplexFloat));
  CHECK(called.count("aten::matmul") == 1);
  CHECK(called.count_with_tf32("aten::matmul") == 0);
  (void)torch::matmul(torch::ones({2, 2}), torch::ones({2, 2}));
  CHECK(called.count_with_tf32("aten::matmul") == 1);
}

TEST_CASE("samples are left as they were, and nothing hangs on them") {
  const at::Tensor samples_T = chirp(2000).requires_grad_();
  const at::Tensor before = samples_T.detach().clone();
  const at::Tensor mel_MF = LogMel({.max_samples = 1600})(samples_T);
  CHECK(samples_T.equal(before));
  CHECK_FALSE(mel_MF.requires_grad());
  CHECK(mel_MF.is_contiguous());
}

TEST_CASE("silence gives -1.5 everywhere, an empty clip too") {
  const LogMel log_mel;
  CHECK(log_mel(torch::zeros({480000})).eq(-1.5).all().item<bool>());
  CHECK(log_mel(torch::zeros({0})).eq(-1.5).all().item<bool>());
}

TEST_CASE("wrong options and samples are refused with their values") {
  CHECK_THROWS_WITH(LogMel({.mel_bins = 0}),
                    "LogMel: 0 mel bins of 480000 samples; needed are at least 1 and 400");
  CHECK_THROWS_AS(LogMel({.max_samples = 399}), UsageError);
  const LogMel log_mel({.max_samples = 400});
  CHECK(log_mel(torch::ones({400})).sizes() == at::IntArrayRef{80, 2});
  CHECK_THROWS_WITH(log_mel(torch::zeros({2, 1, 400})),
                    "LogMel: expected float32 samples [T] or [B, T], got CPUFloatType [2, 1, 400]");
  CHECK_THROWS_WITH(log_mel(torch::zeros({5}, at::kShort)),
                    "LogMel: expected float32 samples [T] or [B, T], got CPUShortType [5]");
  CHECK_THROWS_AS(log_mel(at::Tensor()), UsageError);
}
