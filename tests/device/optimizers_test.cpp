// SPDX-License-Identifier: MIT
// The fused optimizers on a device: the CPU's numbers, lists of several devices and dtypes, moments that
// follow a model, and no wait for the device.
#include "support/precompiled.hpp"

#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/graph/capture_graph.hpp>
#include <looptorch/graph/cuda_graph.hpp>
#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/optim/fused_adam.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/fused_sgd.hpp>
#include <looptorch/optim/muon.hpp>
#include <looptorch/optim/state/optimizer_state.hpp>

#include "support/device.hpp"

namespace lt = looptorch;
using namespace looptorch::testing;

namespace {

struct Adam : lt::FusedAdam {
  explicit Adam(const std::vector<at::Tensor>& params)
      : FusedAdam(params, {.lr = 1e-2, .weight_decay = 0.1, .amsgrad = true}) {}
};
struct AdamW : lt::FusedAdamW {
  explicit AdamW(const std::vector<at::Tensor>& params)
      : FusedAdamW(params, {.lr = 1e-2, .weight_decay = 0.1, .amsgrad = true}) {}
};
struct Plain : lt::FusedSGD {
  explicit Plain(const std::vector<at::Tensor>& params) : FusedSGD(params, {.lr = 1e-2}) {}
};
struct Nesterov : lt::FusedSGD {
  explicit Nesterov(const std::vector<at::Tensor>& params)
      : FusedSGD(params, {.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}) {}
};
struct Dampened : lt::FusedSGD {
  explicit Dampened(const std::vector<at::Tensor>& params)
      : FusedSGD(params, {.lr = 1e-2, .momentum = 0.9, .dampening = 0.4}) {}
};

struct EightBits : lt::AdamW8bit {
  explicit EightBits(const std::vector<at::Tensor>& params)
      : AdamW8bit(params, {.lr = 1e-2, .weight_decay = 0.1, .min_size = 1}) {}
};
struct SixteenBits : lt::AdamWBf16 {
  explicit SixteenBits(const std::vector<at::Tensor>& params)
      : AdamWBf16(params, {.lr = 1e-2, .weight_decay = 0.1, .exact = true}) {}
};

struct Rounded : lt::AdamWBf16 {
  explicit Rounded(const std::vector<at::Tensor>& params)
      : AdamWBf16(params, {.lr = 1e-2, .weight_decay = 0.1}) {}
};
struct Factored : lt::Adafactor {
  explicit Factored(const std::vector<at::Tensor>& params) : Adafactor(params) {}
};
struct FixedRate : lt::Adafactor {
  explicit FixedRate(const std::vector<at::Tensor>& params)
      : Adafactor(params, {.relative_step = false, .weight_decay = 0.1}) {}
};
struct Orthogonal : lt::Muon {
  explicit Orthogonal(const std::vector<at::Tensor>& params) : Muon(params) {}
};

constexpr int64_t kSteps = 8;

at::Tensor values(int64_t parameter, int64_t step, at::TensorOptions options) {
  const auto angles = torch::arange(70, torch::kDouble) * 0.7 + static_cast<double>(parameter + 3 * step);
  return angles.sin().reshape({10, 7}).to(options);
}

std::vector<at::Tensor> parameters(const std::vector<at::TensorOptions>& kinds) {
  std::vector<at::Tensor> result;
  for (std::size_t i = 0; i < kinds.size(); ++i)
    result.push_back(values(static_cast<int64_t>(i), 0, kinds[i]).requires_grad_());
  return result;
}

/// Parameter 1 has no gradient in steps 2 and 3.
void set_gradients(std::vector<at::Tensor>& params, int64_t step) {
  for (std::size_t i = 0; i < params.size(); ++i)
    params[i].mutable_grad() = i == 1 && (step == 2 || step == 3)
                                   ? at::Tensor()
                                   : values(static_cast<int64_t>(i), step + 1, params[i].options());
}

/// A run with a factor on the device, and an overflow in its first and in its fifth step.
template <class Optimizer>
void run(Optimizer& optimizer, std::vector<at::Tensor>& params, int64_t begin = 0, int64_t end = kSteps) {
  for (int64_t step = begin; step < end; ++step) {
    set_gradients(params, step);
    lt::GradientScale scale;
    scale.multiply(torch::full({}, 0.25, params[0].options()));
    optimizer.step(scale, torch::full({}, step == 0 || step == 4, params[0].options()));
  }
}

double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    largest = std::max(
        largest,
        (a[i].cpu().to(torch::kDouble) - b[i].cpu().to(torch::kDouble)).abs().max().template item<double>());
  return largest;
}

const at::TensorOptions kHost = at::TensorOptions(at::kFloat);
const at::TensorOptions kThere = kHost.device(test_device());

}  // namespace

#define EVERY_OPTIMIZER "", Adam, AdamW, Plain, Nesterov, Dampened

TEMPLATE_TEST_CASE("an optimizer has the CPU's numbers on a device", EVERY_OPTIMIZER) {
  if (!has_device()) return;
  auto host = parameters({kHost, kHost, kHost}), there = parameters({kThere, kThere, kThere});
  TestType one(host), two(there);
  run(one, host), run(two, there);
  CHECK(difference(host, there) <= tolerance(1e-5));
  CHECK(difference(host, parameters({kHost, kHost, kHost})) > 1e-3);
}

TEMPLATE_TEST_CASE("a group may hold parameters of several devices and dtypes", EVERY_OPTIMIZER) {
  if (!has_device()) return;
  auto mixed =
      parameters({kThere, kHost, kThere.dtype(at::kDouble), kHost, kThere, kThere.dtype(at::kBFloat16)});
  auto plain = parameters(std::vector<at::TensorOptions>(6, kHost));
  TestType one(mixed), two(plain);
  run(one, mixed), run(two, plain);
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    INFO("parameter " << i);
    CHECK(difference({mixed[i]}, {plain[i]}) < (i == 5 ? 5e-2 : 1e-5));
  }
}

TEMPLATE_TEST_CASE("16-bit weights on a device are the CPU's", EVERY_OPTIMIZER) {
  if (!has_device()) return;
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    CAPTURE(type);
    auto host = parameters({kHost.dtype(type), kHost.dtype(type)});
    auto there = parameters({kThere.dtype(type), kThere.dtype(type)});
    const auto start = parameters({kHost.dtype(type), kHost.dtype(type)});
    TestType one(host), two(there);
    run(one, host), run(two, there);
    CHECK(difference(host, there) <= tolerance(1.6e-2));
    for (std::size_t i = 0; i < host.size(); ++i) CHECK(difference({there[i]}, {start[i]}) > 1e-3);
  }
}

TEMPLATE_TEST_CASE("moments follow a model to a device and back", EVERY_OPTIMIZER) {
  if (!has_device()) return;
  auto host = parameters({kHost, kHost}), moving = parameters({kHost, kHost});
  TestType one(host), two(moving);
  run(one, host);
  run(two, moving, 0, 2);
  for (auto& parameter : moving) parameter.set_data(parameter.detach().to(test_device()));
  run(two, moving, 2, 5);
  for (auto& parameter : moving) parameter.set_data(parameter.detach().cpu());
  run(two, moving, 5);
  CHECK(difference(host, moving) <= tolerance(1e-5));
}

TEMPLATE_TEST_CASE("moments that were saved on a CPU are loaded to where the parameters are", "", AdamW,
                   torch::optim::AdamW) {
  if (!has_device()) return;
  const auto train = [](TestType& optimizer, std::vector<at::Tensor>& params, int64_t begin, int64_t end) {
    for (int64_t step = begin; step < end; ++step) set_gradients(params, step), optimizer.step();
  };
  auto host = parameters({kHost, kHost}), there = parameters({kThere, kThere});
  TestType one(host), two(there);
  train(one, host, 0, 4);
  for (std::size_t i = 0; i < host.size(); ++i) {
    there[i].set_data(host[i].detach().to(test_device()));
    lt::StateDict saved;  // as a snapshot reads it
    const lt::StateDict state = lt::detail::parameter_state(one, host[i]);
    for (const auto& [key, value] : state.values()) {
      const auto* tensor = value.get_if<at::Tensor>();
      saved.set(key, tensor ? lt::StateDict::Value(tensor->clone()) : value);
    }
    lt::detail::stage_parameter_state(two, two.param_groups()[0], there[i], saved)();
  }
  train(one, host, 4, kSteps), train(two, there, 4, kSteps);
  CHECK(difference(host, there) <= tolerance(1e-5));
}

TEMPLATE_TEST_CASE("a step waits for nothing on the device", EVERY_OPTIMIZER) {
  if (!has_device()) return;
  auto params = parameters({kThere, kThere, kThere});
  TestType optimizer(params);
  run(optimizer, params, 0, 4);
  set_gradients(params, 5);
  lt::GradientScale scale;
  scale.multiply(torch::full({}, 0.25, kThere));
  const auto found = torch::zeros({}, kThere);
  const NoWaits no_waits;
  CHECK_NOTHROW(optimizer.step(scale, found));
  CHECK_THROWS(found.item<float>());  // so that a wait would have shown
}

TEMPLATE_TEST_CASE("narrow moments give the CPU's numbers on a device, up to their rounding", "", EightBits,
                   SixteenBits) {
  if (!has_device()) return;
  torch::manual_seed(0);  // of rounding there: else of what ran before in the process
  const auto narrow = kThere.dtype(at::kBFloat16);
  auto host = parameters({kHost, kHost, kHost.dtype(at::kBFloat16)}),
       there = parameters({kThere, kThere, narrow});
  TestType one(host), two(there);
  run(one, host), run(two, there);
  const auto start = parameters({kHost, kHost, kHost});
  for (std::size_t i = 0; i < host.size(); ++i) {
    INFO("parameter " << i);
    CHECK(difference({host[i]}, {there[i]}) < 1.8e-2);
    CHECK(difference({host[i]}, {start[i]}) > 2.2e-2);
  }
}

TEMPLATE_TEST_CASE("fp16 weights on a device are the CPU's, up to their rounding", "", EightBits, Rounded,
                   Factored) {
  if (!has_device()) return;
  torch::manual_seed(0);  // of rounding there: else of what ran before in the process
  auto host = parameters({kHost.dtype(at::kHalf)}), there = parameters({kThere.dtype(at::kHalf)});
  const auto start = parameters({kThere.dtype(at::kHalf)});
  TestType one(host), two(there);
  run(one, host), run(two, there);
  CHECK(difference(host, there) < 1.2e-2);
  CHECK(difference(host, start) > 1.8e-2);
}

TEST_CASE("fp16 weights on a device keep changes that rounding to the nearest loses") {
  if (!has_device()) return;
  const auto moved = [](auto optimizer, at::Tensor& weight) {
    for (int step = 0; step < 20; ++step) weight.mutable_grad() = torch::ones_like(weight), optimizer.step();
    return 1 - weight.detach().cpu().to(torch::kDouble).mean().item<double>();
  };
  const auto weight = [] { return torch::ones({200, 100}, kThere.dtype(at::kHalf)).requires_grad_(); };
  auto a = weight(), b = weight(), c = weight();
  CHECK(moved(lt::AdamWBf16({a}, {.lr = 1e-5, .weight_decay = 0}), a) == Approx(20e-5).margin(2e-5));
  CHECK(moved(lt::AdamW8bit({b}, {.lr = 1e-5, .weight_decay = 0}), b) == Approx(20e-5).margin(2e-5));
  CHECK(moved(lt::Adafactor({c}, {.lr = 1e-5, .relative_step = false, .scale_parameter = false}), c) ==
        Approx(20e-5).margin(2e-5));
}

TEMPLATE_TEST_CASE("an overflow on a device leaves narrow moments as they were", "", EightBits, SixteenBits) {
  if (!has_device()) return;
  auto params = parameters({kThere, kThere.dtype(at::kBFloat16)});
  TestType optimizer(params);
  run(optimizer, params, 0, 3);
  const auto kept = [&] {
    std::vector<at::Tensor> result;
    for (const auto& parameter : params) {
      result.push_back(parameter.detach().cpu().clone());
      const auto state = optimizer.state_of(parameter);
      for (const auto& [key, value] : state.values())
        result.push_back(value.template get_if<at::Tensor>()->cpu().clone());
    }
    return result;
  };
  const auto before = kept();
  for (auto& parameter : params) parameter.mutable_grad() = torch::full_like(parameter, NAN);
  optimizer.step(lt::GradientScale{}, torch::ones({}, kThere));
  const auto after = kept();
  REQUIRE(after.size() == before.size());
  for (std::size_t i = 0; i < after.size(); ++i) CHECK(after[i].equal(before[i]));
}

TEMPLATE_TEST_CASE("a step with narrow moments waits for nothing on the device", "", EightBits, SixteenBits) {
  if (!has_device()) return;
  auto params = parameters({kThere, kThere});
  TestType optimizer(params);
  run(optimizer, params, 0, 4);
  set_gradients(params, 5);
  const auto found = torch::zeros({}, kThere);
  const NoWaits no_waits;
  CHECK_NOTHROW(optimizer.step(lt::GradientScale{}, found));
}

// On a CPU one matrix after another is updated.
TEST_CASE("Muon updates matrices of one shape together, with the CPU's numbers") {
  if (!has_device()) return;
  const auto type = GENERATE(at::kFloat, at::kDouble, at::kBFloat16);
  CAPTURE(type);
  const std::vector<std::vector<int64_t>> shapes{{10, 7}, {7, 10}, {70}, {10, 7}, {5, 2, 7}, {7, 10}, {70}};
  const auto trained = [&](at::TensorOptions options) {
    std::vector<at::Tensor> matrices, vectors, all;
    for (const auto& shape : shapes) {
      all.push_back(values(std::ssize(all), 0, options).reshape(shape).requires_grad_());
      (shape.size() > 1 ? matrices : vectors).push_back(all.back());
    }
    lt::Muon muon({lt::Muon::group(matrices, {.lr = 5e-2}),
                   lt::Muon::group(vectors, {.lr = 5e-2, .eps = 1e-8, .adamw = true})});
    for (int64_t step = 0; step < kSteps; ++step) {
      for (std::size_t i = 0; i < all.size(); ++i)
        all[i].mutable_grad() = step == 2 && i == 3
                                    ? at::Tensor()
                                    : values(static_cast<int64_t>(i), step + 1, options).reshape(shapes[i]);
      lt::GradientScale scale;
      scale.multiply(torch::full({}, 0.25, options));
      muon.step(scale, torch::full({}, step == 4, options));
    }
    std::vector<at::Tensor> results;
    for (const at::Tensor& parameter : all) {
      results.push_back(parameter.detach().cpu());
      const auto state = muon.state_of(parameter);
      results.push_back(state.contains("exp_avg") ? state.get<at::Tensor>("exp_avg")
                                                  : state.get<at::Tensor>("momentum_buffer"));
    }
    return results;
  };
  const auto host = trained(kHost.dtype(type)), there = trained(kThere.dtype(type));
  for (std::size_t i = 0; i < host.size(); ++i) {
    INFO("tensor " << i);
    CHECK(difference({host[i]}, {there[i]}) < (type == at::kBFloat16 ? 3.2e-2 : 5e-3));
    if (i % 2 == 0)
      CHECK(difference({there[i]}, {values(static_cast<int64_t>(i) / 2, 0, kHost).reshape(shapes[i / 2])}) >
            4e-2);
  }
}

// ---- A captured step ----

namespace {

enum class Way { plain, kept, captured };

/// Steps with a rate that changes; the captured ones replay the third.
template <class Optimizer>
std::vector<at::Tensor> scheduled(Way way) {
  std::vector<at::Tensor> params = parameters({kThere, kThere, kThere});
  for (at::Tensor& parameter : params) parameter.mutable_grad() = at::empty_like(parameter);
  Optimizer optimizer(params);
  if (way != Way::plain) optimizer.keep_rates_on_devices();
  std::unique_ptr<lt::detail::DeviceGraph> graph;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < params.size(); ++i)
      params[i].mutable_grad().copy_(values(static_cast<int64_t>(i), step + 1, params[i].options()));
    for (auto& group : optimizer.param_groups()) group.options().set_lr(0.1 / static_cast<double>(step + 3));
    if (way != Way::captured || step < 2) {
      optimizer.step();
      continue;
    }
    optimizer.send_rates();
    if (!graph) {
      graph = lt::detail::device_graph_maker(test_device().type())(params[0].device(), nullptr);
      lt::detail::capture_without_draws(*graph, params[0].device(), [&] { optimizer.step(); });
    }
    graph->replay();
  }
  for (at::Tensor& parameter : params) parameter = parameter.detach().cpu();
  return params;
}

}  // namespace

TEMPLATE_TEST_CASE("a step that a graph has captured follows a schedule", "", Adam, AdamW, Plain, Nesterov,
                   Factored, FixedRate, Orthogonal) {
  if (!has_device()) return;
  const auto plain = scheduled<TestType>(Way::plain), kept = scheduled<TestType>(Way::kept);
  CHECK(difference(kept, scheduled<TestType>(Way::captured)) == 0);
  CHECK(difference(plain, kept) <= 1e-6);  // LibTorch's kernels read the rate in fp32
}

// Elsewhere tensor operations draw from the device's generator.
TEMPLATE_TEST_CASE("a captured step of narrow moments has the eager step's bits", "[cuda]", EightBits,
                   SixteenBits, Rounded) {
  if (!has_cuda()) return;
  const auto plain = scheduled<TestType>(Way::plain);
  CHECK(difference(plain, scheduled<TestType>(Way::kept)) == 0);
  CHECK(difference(plain, scheduled<TestType>(Way::captured)) == 0);
}
