// SPDX-License-Identifier: MIT
// Implements WorkQueue: chooses which issued work runs next, in order of issue or by a seed.
#include "support/accelerator/order/work_queue.hpp"

#include <utility>

namespace looptorch_test::accelerator {

namespace {
constexpr std::size_t kDeepest = 1024;  // as a driver's queue, which then holds the host back
}

std::uint64_t Dice::next() {
  std::uint64_t x = state_ += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

void WorkQueue::push(Work work) {
  queues_[static_cast<std::size_t>(work.stream)].push_back({std::move(work), issued_++});
  ++size_;
}

bool WorkQueue::may_run(const Entry& entry) const {
  for (int stream = 0; stream < kStreams; ++stream) {
    const Queue& queue = queues_[static_cast<std::size_t>(stream)];
    if (stream != entry.work.stream && !queue.empty() &&
        entry.work.after.covers(stream, queue.front().work.time))
      return false;
  }
  return true;
}

template <class Wanted>
int WorkQueue::choose(const Wanted& wanted) {
  int chosen = -1;
  std::size_t candidates = 0;
  for (int stream = 0; stream < kStreams; ++stream) {
    const Queue& queue = queues_[static_cast<std::size_t>(stream)];
    if (queue.empty() || !wanted(stream, queue.front().work) || !may_run(queue.front())) continue;
    ++candidates;
    const bool takes = chosen < 0 || (dice_ ? dice_->below(candidates) == 0
                                            : queue.front().number <
                                                  queues_[static_cast<std::size_t>(chosen)].front().number);
    if (takes) chosen = stream;
  }
  return chosen;
}

void WorkQueue::run_first(int stream) {
  Queue& queue = queues_[static_cast<std::size_t>(stream)];
  const Work work = std::move(queue.front().work);
  queue.pop_front();
  --size_;
  work.run();
}

void WorkQueue::run_until(const Clock& clock) {
  if (size_ == 0) return;
  while (true) {
    const int stream = choose([&](int of, const Work& work) { return clock.covers(of, work.time); });
    if (stream < 0) break;
    run_first(stream);
    run_some();
  }
  if (dice_) draw_temper();
}

void WorkQueue::run_all() {
  while (run_one()) continue;
}

bool WorkQueue::run_one() {
  if (size_ == 0) return false;
  run_first(choose([](int, const Work&) { return true; }));
  return true;
}

void WorkQueue::run_some() {
  if (!dice_) return;
  while (size_ > kDeepest) run_one();
  while (size_ > 0 && dice_->chance(eagerness_)) {
    const int stream = choose([&](int of, const Work&) { return !held_[static_cast<std::size_t>(of)]; });
    if (stream < 0) return;
    run_first(stream);
  }
}

bool WorkQueue::holds(const Clock& clock) const {
  for (int stream = 0; stream < kStreams; ++stream) {
    const Queue& queue = queues_[static_cast<std::size_t>(stream)];
    if (!queue.empty() && clock.covers(stream, queue.front().work.time)) return true;
  }
  return false;
}

void WorkQueue::take_order_from(std::optional<std::uint64_t> seed) {
  dice_ = seed ? std::optional(Dice(*seed)) : std::nullopt;
  if (dice_) draw_temper();
}

/// A device that never runs ahead of a wait, one that keeps pace, or something between; some of its streams
/// are held.
void WorkQueue::draw_temper() {
  constexpr std::array kEagerness = {0.0, 0.3, 0.5, 0.7, 0.9};
  eagerness_ = kEagerness[dice_->below(kEagerness.size())];
  const double held = dice_->chance(0.5) ? 0.3 : 0.0;
  for (bool& stream : held_) stream = dice_->chance(held);
}

}  // namespace looptorch_test::accelerator
