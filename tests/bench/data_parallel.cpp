// SPDX-License-Identifier: MIT
// One rank of a training by DataParallel, by torchrun's environment: 24 layers of 768 x 768 numbers (57 MB of
// gradients) and batches of 64, one thread. data_parallel.py starts the ranks, and DistributedDataParallel's
// for the same training.
//
//   data_parallel whole          a micro-batch a window
//   data_parallel late           the same, gradients sent after backward only
//   data_parallel accumulated    4 micro-batches a window
//   data_parallel reproducible   the same with the same bits on any number of ranks that divides 8
//   data_parallel steady         what ranks pay so that none hangs, without a training
//
// Rank 0 prints a JSON object: ms of the median step, bytes a step that each rank gave to sums, the
// parameters' checksum; or ms of processor time that its watch of the others takes a second, and of the
// median reduction.
#include <looptorch/distributed/data_parallel.hpp>
#include <looptorch/trainer.hpp>

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lt = looptorch;

namespace {

constexpr std::int64_t kLayers = 24, kWidth = 768, kRows = 64;
constexpr std::int64_t kWarmUp = 3, kSteps = 12;

struct Batch {
  at::Tensor input, target;
};

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (std::int64_t i = 0; i < kLayers; ++i) {
    net->push_back(torch::nn::Linear(kWidth, kWidth));
    if (i + 1 < kLayers) net->push_back(torch::nn::GELU());
  }
  return net;
}

std::vector<Batch> make_batches(std::int64_t rank, std::int64_t count) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + rank));
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor input = torch::randn({kRows, kWidth});
    batches.push_back({input, torch::randn({kRows, kWidth})});
  }
  return batches;
}

template <int kMicroBatches>
void train(const lt::DataParallel& parallel) {
  using Clock = std::chrono::steady_clock;
  torch::nn::Sequential net = make_net();
  lt::FusedAdamW optimizer(net->parameters(), {.lr = 1e-4});
  const auto objective = [](torch::nn::Sequential& model, const Batch& batch) {
    return lt::Loss{.value = torch::mse_loss(model->forward(batch.input), batch.target)};
  };
  std::vector<Clock::time_point> ends;  // on rank 0, where policies that observe run
  lt::Trainer trainer(net, optimizer, objective, lt::Accumulate<kMicroBatches>{}, parallel,
                      lt::On{lt::kObserve, [&](lt::WindowContext&) { ends.push_back(Clock::now()); }});
  const std::int64_t rank = lt::rank_environment().rank;
  trainer.fit(make_batches(rank, (kWarmUp + kSteps) * kMicroBatches));
  if (rank != 0) return;

  std::vector<double> ms;
  for (std::size_t i = kWarmUp; i < ends.size(); ++i)
    ms.push_back(std::chrono::duration<double, std::milli>(ends[i] - ends[i - 1]).count());
  std::ranges::sort(ms);
  double checksum = 0;
  for (const at::Tensor& parameter : net->parameters())
    checksum += parameter.detach().to(at::kDouble).abs().sum().item<double>();
  const std::int64_t bytes = trainer.template policy<lt::DataParallel>().bytes;
  std::printf("{\"ms\": %.3f, \"bytes\": %.0f, \"checksum\": %.9f}\n", ms[ms.size() / 2],
              static_cast<double>(bytes) / (kWarmUp + kSteps), checksum);
}

double cpu_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

void measure_steady_cost() {
  using Clock = std::chrono::steady_clock;
  constexpr int kSeconds = 10, kBallots = 300;
  lt::ProcessGroup& group = lt::ProcessGroup::of_environment();
  group.watch().begin_fit();
  const std::string text(600, ' ');  // as long as a window's
  std::vector<double> ms;
  for (int i = 0; i < kBallots; ++i) {
    const auto begin = Clock::now();
    (void)group.gather(text, "a reduction");
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::ranges::sort(ms);
  const double before = cpu_ms();
  std::this_thread::sleep_for(std::chrono::seconds(kSeconds));
  const double watch = (cpu_ms() - before) / kSeconds;
  (void)group.gather(text, "the end");
  group.watch().end_fit();
  if (group.rank() == 0) std::printf("{\"watch\": %.3f, \"reduction\": %.3f}\n", watch, ms[ms.size() / 2]);
}

}  // namespace

int main(int argc, char** argv) try {
  at::set_num_threads(1);
  const std::string_view mode = argc == 2 ? argv[1] : "";
  if (mode == "whole") {
    train<1>({});
  } else if (mode == "accumulated") {
    train<4>({});
  } else if (mode == "late") {
    train<1>({.overlap = false});
  } else if (mode == "reproducible") {
    train<4>({.reproducible = true});
  } else if (mode == "steady") {
    measure_steady_cost();
  } else {
    std::fprintf(stderr,
                 "usage: data_parallel whole | late | accumulated | reproducible | steady, started by "
                 "data_parallel.py\n");
    return 2;
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
