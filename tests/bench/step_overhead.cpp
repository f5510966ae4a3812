// SPDX-License-Identifier: MIT
// Measures what the Trainer adds to a training step of a small MLP (64-64-10, batches of 32, fused AdamW, one
// thread), which is so short that the overhead shows. A row compares a set of policies with the same features
// in a hand-written loop; it is valid only if both reach the same parameters.
//
//   step_overhead [NAME]...   only the rows whose name contains NAME; prints one JSON object a row
#include <looptorch/policies/watch_memory.hpp>
#include <looptorch/trainer.hpp>

#include "support/hand.hpp"
#include "support/interleaved.hpp"

#if __has_include(<cuda_runtime_api.h>)
#include <c10/cuda/CUDAFunctions.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

namespace lt = looptorch;

namespace {

using namespace bench;

constexpr int kPatience = 1'000'000;

double distance(Net& a, Net& b) {
  double largest = 0;
  const auto of_a = a->parameters(), of_b = b->parameters();
  for (std::size_t i = 0; i < of_a.size(); ++i)
    largest = std::max(largest, (of_a[i] - of_b[i]).abs().max().item<double>());
  return largest;
}

class Table {
 public:
  explicit Table(std::vector<std::string_view> wanted) : wanted_(std::move(wanted)) {}

  /// Measures a Trainer under `policies` against `step`, the same made by hand: a callable (Hand&).
  template <class Step, class... Policies>
  void row(const char* name, std::int64_t micro_batches, Step step, Policies... policies) {
    if (!is_wanted(name)) return;
    const Plan plan;
    Net net = make_net();
    lt::FusedAdamW optimizer(net->parameters(), {.lr = kRate});
    lt::Trainer trainer(net, optimizer, objective, std::move(policies)...);
    Hand hand(batches_by_hand_, plan.total_steps());

    Rounds rounds(
        plan, [&] { step(hand); }, [&] { check(name, net, hand.net); });
    trainer.fit(TakingTurns(batches_, micro_batches, rounds));
    print(name, rounds.times());
  }

  const std::vector<Batch>& held_out() const { return held_out_; }

 private:
  bool is_wanted(std::string_view name) const {
    return wanted_.empty() || std::ranges::any_of(wanted_, [&](std::string_view part) {
             return name.find(part) != std::string_view::npos;
           });
  }

  /// Checks that both sides, after the same number of steps, have learnt the same, and something.
  static void check(const char* name, Net& ours, Net& by_hand) {
    Net untrained = make_net();
    const double apart = distance(ours, by_hand);
    const double moved = distance(ours, untrained);
    if (apart <= 1e-5 && moved >= 1e-2) return;
    std::fprintf(
        stderr,
        "%s: after the same steps the parameters are %g apart and moved by %g: not the same training\n", name,
        apart, moved);
    std::exit(1);
  }

  static void print(const char* name, Times times) {
    std::printf(
        "{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"us/step\", \"peer\": \"by hand\", \"peer_value\": %.3f}\n",
        name, times.ours, times.peer);
    std::fflush(stdout);
  }

  std::vector<std::string_view> wanted_;
  // The same batches twice, so that the second side does not find them in the cache.
  std::vector<Batch> batches_ = make_batches(3000);
  std::vector<Batch> batches_by_hand_ = make_batches(3000);
  std::vector<Batch> held_out_ = make_batches(8);
};

const auto plain = [](Hand& hand) { hand.plain_step(); };
const auto tracked = [](Hand& hand) {
  hand.zero_grad();
  const at::Tensor loss = hand.loss();
  loss.backward();
  hand.track(loss);
  hand.collect();
  hand.update();
};
const auto clipped = [](Hand& hand) { hand.clipped_step(); };

void measure(Table& table) {
  const std::vector<Batch>& held_out = table.held_out();

  table.row("no policy", 1, plain);
  table.row("no policy, loss totals by hand too", 1, tracked);
  table.row("Accumulate<1>", 1, plain, lt::Accumulate<1>{});
  table.row(
      "Accumulate<4>", 4, [](Hand& hand) { hand.accumulated_step(); }, lt::Accumulate<4>{});
  table.row(
      "Autocast<bf16>", 1,
      [](Hand& hand) {
        hand.zero_grad();
        hand.autocast_loss(at::kBFloat16).backward();
        hand.collect();
        hand.update();
      },
      lt::Autocast<lt::bf16>{});
  table.row(
      "Autocast<fp16>", 1, [](Hand& hand) { hand.scaled_step(); }, lt::Autocast<lt::fp16>{});
  table.row("BackendFlags", 1, plain, lt::BackendFlags{.cudnn_benchmark = true});
  table.row("ClipGradNorm", 1, clipped, lt::ClipGradNorm{1.0});
  table.row(
      "ClipGradValue", 1,
      [](Hand& hand) {
        hand.zero_grad();
        hand.loss().backward();
        hand.collect();
        hand.clip_value(0.01);
        hand.update();
      },
      lt::ClipGradValue{0.01});
  table.row(
      "AverageWeights", 1, [](Hand& hand) { hand.averaged_step(); }, lt::AverageWeights{});
  table.row(
      "UnfreezeAt", 1,
      [](Hand& hand) {
        if (hand.step == 0) hand.freeze_first_layer();
        hand.plain_step();
      },
      lt::UnfreezeAt{{.epoch = 1, .patterns = {"0.*"}}});
  table.row(
      "ScheduleLr", 1,
      [](Hand& hand) {
        hand.schedule();
        hand.plain_step();
      },
      lt::ScheduleLr{.warmup_steps = kWarmupSteps});
  table.row(
      "Validate", 1,
      [&](Hand& hand) {
        hand.plain_step();
        hand.validate(held_out);
      },
      lt::Validate{held_out, {.every = kValidateEvery}});
  table.row(
      "Validate, StopEarly", 1,
      [&](Hand& hand) {
        hand.plain_step();
        hand.validate(held_out);
        if (hand.lost_patience(kPatience)) std::abort();  // far beyond the run
      },
      lt::Validate{held_out, {.every = kValidateEvery}}, lt::StopEarly{.patience = kPatience});
  table.row(
      "ShowProgress", 1,
      [](Hand& hand) {
        tracked(hand);
        hand.show_progress();
      },
      lt::ShowProgress{.out = nowhere()});
  table.row(
      "CacheFlushEvery<50>", 1,
      [](Hand& hand) {
        hand.plain_step();
        hand.flush_cache();
      },
      lt::CacheFlushEvery<kFlushEvery>{});

  std::int64_t ours = 0, by_hand = 0;
  table.row(
      "On", 1,
      [&](Hand& hand) {
        hand.plain_step();
        ++by_hand;
      },
      lt::On{lt::kObserve, [&](lt::WindowContext&) { ++ours; }});
  table.row("When, off", 1, plain, lt::When{false, lt::ClipGradNorm{1.0}});
  table.row("When, on", 1, clipped, lt::When{true, lt::ClipGradNorm{1.0}});

  table.row(
      "all policies", 4,
      [&](Hand& hand) {
        hand.schedule();
        hand.zero_grad();
        for (int i = 0; i < 4; ++i) {
          const at::Tensor loss = hand.autocast_loss(at::kBFloat16);
          (loss / 4).backward();
          hand.track(loss);
        }
        hand.collect();
        hand.clip_norm(1.0);
        hand.clip_value(0.01);
        hand.update();
        hand.average(0.999);
        ++by_hand;
        hand.validate(held_out);
        if (hand.lost_patience(kPatience)) std::abort();
        hand.show_progress();
        hand.flush_cache();
      },
      lt::Accumulate<4>{}, lt::Autocast<lt::bf16>{}, lt::ClipGradNorm{1.0}, lt::ClipGradValue{0.01},
      lt::AverageWeights{.evaluate = false}, lt::ScheduleLr{.warmup_steps = kWarmupSteps},
      lt::Validate{held_out, {.every = kValidateEvery}}, lt::StopEarly{.patience = kPatience},
      lt::ShowProgress{.out = nowhere()}, lt::CacheFlushEvery<kFlushEvery>{},
      lt::On{lt::kObserve, [&](lt::WindowContext&) { ++ours; }});

  // Last, since CPU tensors are counted from here on, on both sides.
  table.row("WatchMemory", 1, plain, lt::WatchMemory{.out = nullptr});
}

#if __has_include(<cuda_runtime_api.h>)
struct CountsWarnings : c10::WarningHandler {
  void process(const c10::Warning&) override { ++count; }
  std::int64_t count = 0;
};

/// Returns the number of LibTorch calls that make the host wait, in `steps` fused steps on a GPU with batches
/// in pageable memory.
std::int64_t waits_of(std::size_t steps) {
  Net net = make_net();
  net->to(at::kCUDA);
  lt::FusedAdamW optimizer(net->parameters(), {.lr = kRate});
  lt::Trainer trainer(net, optimizer, objective, lt::ClipGradNorm{1.0}, lt::AverageWeights{});
  const std::vector<Batch> batches = make_batches(static_cast<std::int64_t>(steps));
  for (std::size_t i = 0; i < 4; ++i) trainer.step(batches[i]);  // creates allocators and handles
  CountsWarnings waits;
  const c10::WarningUtils::WarningHandlerGuard counted(&waits);
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_WARN);
  for (const Batch& batch : batches) trainer.step(batch);
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
  return waits.count;
}
#endif

/// Fails if a fused step makes the host wait for the device. Events that have already completed are not
/// counted.
void check_waits() {
#if __has_include(<cuda_runtime_api.h>)
  if (at::hasCUDA()) {
    constexpr std::size_t kSteps = 100;
    const std::int64_t waits = waits_of(kSteps);
    std::fprintf(stderr, "    the host waited %lld times in %zu fused steps on a GPU\n",
                 static_cast<long long>(waits), kSteps);
    if (waits != 0) std::exit(1);
    return;
  }
#endif
  std::fprintf(stderr, "    no GPU: waits of the host were not counted\n");
}

}  // namespace

int main(int argc, char** argv) try {
  at::set_num_threads(1);
  check_waits();
  Table table(std::vector<std::string_view>(argv + 1, argv + argc));
  measure(table);
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
