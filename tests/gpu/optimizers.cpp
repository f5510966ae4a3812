// SPDX-License-Identifier: MIT
// Measures a step of each optimizer on a device for whisper-small's 240 million parameters in 459 tensors,
// beside FusedAdamW's; compares five steps with the CPU's on 5.8 million; and checks that a captured graph
// replays a step's bits.
#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/optim/fused_adamw.hpp>
#include <looptorch/optim/muon.hpp>
#include <looptorch/optim/narrow/rounded_sum.hpp>

#include "support/device_run.hpp"

#if __has_include(<cuda_runtime_api.h>)
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#endif
#include <c10/core/Event.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lt = looptorch;

namespace {

using namespace bench;
using Tensors = std::vector<at::Tensor>;
using Shapes = std::vector<std::vector<std::int64_t>>;

// ---- Parameters ----

Tensors parameters_of(const Shapes& shapes, at::TensorOptions form) {
  Tensors parameters;
  for (const auto& shape : shapes)
    parameters.push_back((at::randn(shape, form) * 0.02).set_requires_grad(true));
  return parameters;
}

std::int64_t elements_of(const Tensors& tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

/// whisper-small's, or with `quick` few of them.
Shapes whisper_shapes(bool quick) {
  Shapes shapes;
  if (!quick) shapes = {{51865, 768}, {1500, 768}};
  shapes.push_back({448, 768});
  const int blocks = quick ? 1 : 36;  // of attention, 24 of them with an MLP
  for (int block = 0; block < blocks; ++block) {
    for (int i = 0; i < 4; ++i) shapes.push_back({768, 768}), shapes.push_back({768});
    if (block < 24)
      for (const auto& shape : Shapes{{3072, 768}, {3072}, {768, 3072}, {768}}) shapes.push_back(shape);
    shapes.push_back({768}), shapes.push_back({768});
  }
  return shapes;
}

/// Sizes around blocks, tiles and tables; convolutions; long rows; a parameter of more than one part.
Shapes odd_shapes(bool quick) {
  Shapes shapes = {{1}, {255}, {256}, {257}, {1000, 768}, {4095}, {16385}, {3, 5, 7}, {0}};
  if (quick) return shapes;
  for (const auto& shape : Shapes{
           {65537}, {16384}, {512, 512, 5}, {1500, 768}, {100, 3001}, {200, 3072}, {2, 200, 1028}, {1100000}})
    shapes.push_back(shape);
  for (int i = 0; i < 600; ++i) shapes.push_back({1 + i});  // more than a table holds
  return shapes;
}

// ---- Time and memory of a step ----

struct StepCost {
  double ms = 0, host_ms = 0, made_ms = 0;
  std::int64_t temporary_bytes = 0, parameter_bytes = 0;
};

/// Returns the milliseconds of a step between two events on the device, or those of the host's clock on a
/// CPU.
template <class Step>
double device_ms(const DeviceRun& run, int steps, Step&& step) {
  if (run.device.is_cpu())
    return cost_of(run, steps,
                   [&] {
                     for (int i = 0; i < steps; ++i) step();
                   })
        .ms;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(run.device.type()).getStream(run.device);
  c10::Event begin(run.device.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(run.device.type(), c10::EventFlag::BACKEND_DEFAULT);
  begin.record(stream);
  for (int i = 0; i < steps; ++i) step();
  end.record(stream);
  run.synchronize();
  return begin.elapsedTime(end) / steps;
}

/// Makes an optimizer of all parameters; Muon's groups are its matrices but the embedding, and the rest.
template <class Optimizer>
Optimizer optimizer_of(const Tensors& parameters, const typename Optimizer::Options& options) {
  return Optimizer(parameters, options);
}
template <>
lt::Muon optimizer_of<lt::Muon>(const Tensors& parameters, const lt::MuonOptions& options) {
  Tensors matrices, rest;
  for (const at::Tensor& parameter : parameters)
    (parameter.dim() == 2 && parameter.size(0) < 50000 ? matrices : rest).push_back(parameter);
  lt::MuonOptions adamw = options;
  adamw.adamw = true;
  return lt::Muon({lt::Muon::group(matrices, options), lt::Muon::group(rest, adamw)});
}

template <class Optimizer>
StepCost step_cost(const DeviceRun& run, at::ScalarType type, const typename Optimizer::Options& options) {
  Tensors parameters =
      parameters_of(whisper_shapes(run.quick), at::TensorOptions().device(run.device).dtype(type));
  StepCost cost;
  for (at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = at::randn_like(parameter);
    cost.parameter_bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  const auto begin = std::chrono::steady_clock::now();
  Optimizer optimizer = optimizer_of<Optimizer>(parameters, options);
  cost.made_ms = milliseconds_since(begin);
  const auto step = [&] { optimizer.step(lt::GradientScale{}, at::Tensor()); };
  for (int i = 0; i < 3; ++i) step();
  run.synchronize();
  const lt::MemoryCounter memory(run.device);
  const std::int64_t before = memory.read().allocated;
  const int steps = run.quick ? 3 : 20;
  const Cost of_steps = cost_of(run, steps, [&] {
    for (int i = 0; i < steps; ++i) step();
  });
  cost.temporary_bytes = of_steps.peak_bytes - before;
  cost.host_ms = of_steps.host_ms;
  cost.ms = device_ms(run, steps, step);
  return cost;
}

/// Prints the rows of an optimizer beside FusedAdamW's time in the same process.
template <class Optimizer>
void time_rows(const DeviceRun& run, const std::string& name, at::ScalarType type,
               const typename Optimizer::Options& options, std::optional<double>& fused_ms) {
  attempt(run, name, [&] {
    const StepCost cost = step_cost<Optimizer>(run, type, options);
    if (!fused_ms) fused_ms = cost.ms;
    print_row(name + ": step", cost.ms, "ms", "FusedAdamW", *fused_ms);
    print_row(name + ": host time of a step", cost.host_ms, "ms");
    print_row(name + ": made in", cost.made_ms, "ms");
    print_row(name + ": temporaries",
              100.0 * static_cast<double>(cost.temporary_bytes) / static_cast<double>(cost.parameter_bytes),
              "% of the parameters' bytes");
  });
}

// ---- Beside the CPU ----

struct Distance {
  double weight = 0, moment = 0;  // the largest; of moments in parts of the largest one
  std::int64_t weights = 0, codes = 0, all_codes = 0;
};

void compare(const at::Tensor& a, const at::Tensor& b, const lt::StateDict& x, const lt::StateDict& y,
             Distance& distance) {
  const auto wide = [](const at::Tensor& tensor) { return tensor.detach().cpu().to(at::kDouble); };
  if (a.numel() == 0) return;
  distance.weight = std::max(distance.weight, (wide(a) - wide(b)).abs().max().item<double>());
  distance.weights += wide(a).ne(wide(b)).sum().item<std::int64_t>();
  for (const auto& item : x.values()) {
    const at::Tensor one = wide(x.get<at::Tensor>(item.first)), other = wide(y.get<at::Tensor>(item.first));
    if (item.first.ends_with("_code"))
      distance.codes += one.ne(other).sum().item<std::int64_t>(), distance.all_codes += one.numel();
    else if (item.first != "lost_bits")
      distance.moment =
          std::max(distance.moment, ((one - other).abs() / (one.abs().max() + 1e-30)).max().item<double>());
  }
}

/// Five steps on both sides with a pending factor; before the third one that a flag forbids.
template <class Optimizer>
void compare_rows(const DeviceRun& run, const std::string& name, at::ScalarType type,
                  const typename Optimizer::Options& options) {
  attempt(run, name, [&] {
    at::manual_seed(17);
    const Shapes shapes = odd_shapes(run.quick);
    const Tensors here = parameters_of(shapes, at::TensorOptions().dtype(type));
    Tensors there;
    for (const at::Tensor& parameter : here)
      there.push_back(parameter.detach().clone().to(run.device).set_requires_grad(true));
    Optimizer reference(here, options), tested(there, options);
    lt::GradientScale of_reference, of_tested;
    of_reference.multiply(0.37), of_tested.multiply(0.37);
    of_reference.multiply(at::scalar_tensor(1.5, at::kFloat));
    of_tested.multiply(at::scalar_tensor(1.5, at::kFloat).to(run.device));
    bool skipped = true;
    for (int step = 1; step <= 5; ++step) {
      for (std::size_t i = 0; i < here.size(); ++i) {
        at::Tensor gradient = at::randn(shapes[i]) * std::pow(10.0, static_cast<double>(i % 5) - 3);
        if (i % 3 == 0) gradient = gradient * at::rand(shapes[i]).gt(0.5);
        here[i].mutable_grad() = gradient.to(type);
        there[i].mutable_grad() = here[i].grad().clone().to(run.device);
      }
      if (step == 3) {
        Tensors before;
        for (const at::Tensor& parameter : there) before.push_back(parameter.detach().clone());
        tested.step(of_tested, at::ones({}, at::TensorOptions().device(run.device)));
        for (std::size_t i = 0; i < there.size(); ++i)
          skipped = skipped && before[i].equal(there[i].detach());
      }
      reference.step(of_reference, at::zeros({}));
      tested.step(of_tested, at::zeros({}, at::TensorOptions().device(run.device)));
    }
    Distance distance;
    for (std::size_t i = 0; i < here.size(); ++i)
      compare(here[i], there[i], reference.state_of(here[i]), tested.state_of(there[i]), distance);
    const std::string beside = name + " beside the CPU, 5 steps: ";
    print_row(beside + "largest difference of a weight", distance.weight, "");
    print_row(beside + "weights that differ", static_cast<double>(distance.weights), "weights", "all of them",
              static_cast<double>(elements_of(here)));
    if (distance.all_codes > 0)
      print_row(beside + "codes that differ", static_cast<double>(distance.codes), "codes", "all of them",
                static_cast<double>(distance.all_codes));
    print_row(beside + "largest difference of a moment", distance.moment, "of the largest");
    print_row(name + ": a skipped step changes nothing", skipped, "1 is true");
  });
}

// ---- Sums in bf16 ----

/// The sums of a window's gradients, as UpdateInBackward<Sums> adds them, and their bits beside the CPU's.
void sum_rows(const DeviceRun& run) {
  attempt(run, "sums in bf16", [&] {
    const at::TensorOptions form = at::TensorOptions().device(run.device);
    const Tensors gradients = parameters_of(whisper_shapes(run.quick), form);
    Tensors sums;
    for (const at::Tensor& gradient : gradients)
      sums.push_back(at::zeros_like(gradient, form.dtype(at::kBFloat16)));
    const auto add = [&] {
      for (std::size_t i = 0; i < sums.size(); ++i)
        lt::detail::add_rounded(sums[i], gradients[i].detach(), i);
    };
    add();
    print_row("sums in bf16 of all gradients", device_ms(run, run.quick ? 2 : 10, add), "ms");
    const at::Tensor here = at::randn({1000003}).to(at::kBFloat16), addend = at::randn({1000003}) * 0.01;
    const at::Tensor there = here.to(run.device, /*non_blocking=*/false, /*copy=*/true);
    lt::detail::add_rounded(here, addend, 5);
    lt::detail::add_rounded(there, addend.to(run.device), 5);
    print_row("sums in bf16 beside the CPU: sums that differ",
              static_cast<double>(here.ne(there.cpu()).sum().item<std::int64_t>()), "sums", "all of them",
              1000003);
  });
}

// ---- A captured graph ----

/// Five eager steps beside an eager one and four replays of a captured one.
template <class Optimizer>
void replay_row(const DeviceRun& run, const std::string& name, at::ScalarType type,
                const typename Optimizer::Options& options) {
#if __has_include(<cuda_runtime_api.h>)
  if (!run.device.is_cuda()) return;
  attempt(run, name, [&] {
    const Shapes shapes = {{1000, 768}, {768}, {70001}};
    const Tensors eager = parameters_of(shapes, at::TensorOptions().device(run.device).dtype(type));
    Tensors replayed;
    for (const at::Tensor& parameter : eager) {
      parameter.mutable_grad() = at::randn_like(parameter);
      replayed.push_back(parameter.detach().clone().set_requires_grad(true));
      replayed.back().mutable_grad() = parameter.grad().clone();
    }
    Optimizer one(eager, options), other(replayed, options);
    for (int i = 0; i < 5; ++i) one.step(lt::GradientScale{}, at::Tensor());
    other.step(lt::GradientScale{}, at::Tensor());
    run.synchronize();
    at::cuda::CUDAGraph graph;
    {
      const c10::cuda::CUDAStreamGuard on(c10::cuda::getStreamFromPool(false, run.device.index()));
      graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      other.step(lt::GradientScale{}, at::Tensor());
      graph.capture_end();
    }
    run.synchronize();
    for (int i = 0; i < 4; ++i) graph.replay();
    run.synchronize();
    bool same = true;
    for (std::size_t i = 0; i < eager.size(); ++i)
      same = same && eager[i].detach().equal(replayed[i].detach());
    print_row(name + ": a graph replays its bits", same, "1 is true");
  });
#else
  (void)run, (void)name, (void)type, (void)options;
#endif
}

// ---- All optimizers ----

struct Narrow {
  const char* name;
  at::ScalarType type;
};
constexpr Narrow kTypes[] = {
    {" fp32", at::kFloat}, {" bf16 weights", at::kBFloat16}, {" fp16 weights", at::kHalf}};

void time_all(const DeviceRun& run) {
  std::optional<double> fused;
  time_rows<lt::FusedAdamW>(run, "FusedAdamW fp32", at::kFloat, {}, fused);
  for (const auto& [name, type] : kTypes) {
    time_rows<lt::AdamW8bit>(run, std::string("AdamW8bit") + name, type, {}, fused);
    time_rows<lt::AdamWBf16>(run, std::string("AdamWBf16") + name, type, {}, fused);
    time_rows<lt::Adafactor>(run, std::string("Adafactor") + name, type, {}, fused);
  }
  time_rows<lt::AdamWBf16>(run, "AdamWBf16 exact", at::kBFloat16, {.exact = true}, fused);
  time_rows<lt::AdamW8bit>(run, "AdamW8bit corrected", at::kBFloat16, {.corrected = true}, fused);
  time_rows<lt::Muon>(run, "Muon fp32", at::kFloat, {}, fused);
}

void compare_all(const DeviceRun& run) {
  for (const auto& [name, type] : kTypes) {
    compare_rows<lt::AdamW8bit>(run, std::string("AdamW8bit") + name, type, {});
    compare_rows<lt::AdamWBf16>(run, std::string("AdamWBf16") + name, type, {});
    compare_rows<lt::Adafactor>(run, std::string("Adafactor") + name, type, {});
  }
  compare_rows<lt::AdamWBf16>(run, "AdamWBf16 exact", at::kBFloat16, {.exact = true});
  compare_rows<lt::AdamW8bit>(run, "AdamW8bit corrected", at::kBFloat16, {.corrected = true});
  compare_rows<lt::Adafactor>(run, "Adafactor with beta1 and weight decay", at::kFloat,
                              {.beta1 = 0.9, .weight_decay = 0.01});
}

void replay_all(const DeviceRun& run) {
  for (const auto& [name, type] : kTypes) {
    replay_row<lt::AdamW8bit>(run, std::string("AdamW8bit") + name, type, {});
    replay_row<lt::AdamWBf16>(run, std::string("AdamWBf16") + name, type, {});
    replay_row<lt::Adafactor>(run, std::string("Adafactor") + name, type, {});
  }
}

}  // namespace

int main(int count, char** words) {
  const DeviceRun run = DeviceRun::of(count, words);
  time_all(run);
  sum_rows(run);
  compare_all(run);
  replay_all(run);
}
