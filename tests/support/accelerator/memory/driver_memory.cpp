// SPDX-License-Identifier: MIT
// The driver's memory: allocates up to the limit, frees in stream order, and pins host memory.
#include "support/accelerator/driver.hpp"
#include "support/accelerator/graph/recording.hpp"

#include <c10/util/Exception.h>

#include <set>

namespace looptorch_test::accelerator {

Block* Driver::find(const void* address) {
  const int index = device_of(address);
  return index < 0 ? nullptr : device(index).pool.find(address);
}

char* Driver::in(Copy copy, const void* address) {
  if (!address) return nullptr;
  const int index = device_of(address);
  TORCH_CHECK(index >= 0, "sim: ", address, " is no address of a device's memory");
  return device(index).arena.in(copy, address);
}

char* Driver::allocate(int index, std::size_t bytes) {
  use(index);
  DeviceState& state = device(index);
  ++ledger.counts.allocations;
  reclaim(state);
  const int stream = current_stream(index);
  Recording* const recording = recording_here(index);
  if (char* const reused = recording ? recording->reuse(bytes) : nullptr) return reused;
  Block* block = nullptr;
  bool is_new = false;
  if (++allocations_ != options.fail_allocation_at) {
    block = state.pool.allocate(stream, bytes, is_new);
    if (!block && !is_recording(index)) {
      ++state.pool.stats().num_alloc_retries;
      empty_cache(index);
      block = state.pool.allocate(stream, bytes, is_new);
    }
  }
  if (!block) ++state.pool.stats().num_ooms;
  TORCH_CHECK_WITH(OutOfMemoryError, block, "CUDA out of memory (simulated). Tried to allocate ", bytes,
                   " bytes on sim:", index, ", which has ", state.pool.capacity(), " bytes, of which ",
                   state.pool.reserved(), " are reserved.");
  if (is_new) poison_new(*block);
  if (options.behind_host) block->late_is_poison = false;
  if (recording) recording->own(block->data);
  return block->data;
}

void Driver::poison_new(Block& block) {
  const std::size_t bytes = BlockPool::segment_size(block.size);
  poison(in(Copy::issued, block.data), bytes);
  if (!options.behind_host) return;
  poison(in(Copy::late, block.data), bytes);
  if (block.next) block.next->late_is_poison = true;
}

/// Reports streams that may still be using a block that is freed, beyond `known`.
void Driver::report_users(const Block& block, const Clock& known) {
  std::set<int> reported;
  block.accesses.each_beyond(known, block.stream, [&](const Access& access) {
    if (reported.insert(access.stream).second)
      ledger.violation("memory of " + std::to_string(block.requested) + " bytes of " +
                       stream_name(block.stream) + " is freed while " + *access.what + " on " +
                       stream_name(access.stream) + " may still be using it: record_stream is missing");
  });
}

void Driver::free(void* data) noexcept {
  Block* const block = find(data);
  if (!block || !block->live) return ledger.violation("memory of a device was freed twice");
  if (is_kept_by_recording(data)) return;
  Clock known = timeline.stream(block->stream);  // the allocator hands it out after all of this
  known.join(timeline.host());
  auto others = block->recorded;
  others.reset(static_cast<std::size_t>(block->stream));
  for (int stream = 0; stream < kStreams; ++stream)
    if (others[static_cast<std::size_t>(stream)]) known.join(timeline.stream(stream));
  DeviceState& state = device(device_of_stream(block->stream));
  if (state.error.empty()) report_users(*block, known);  // a device that has failed uses nothing
  if (!options.behind_host) queue.run_until(known);
  state.pool.release(*block);
  if (options.behind_host && others.any()) {
    state.waiting.push_back({block, known});
    return;
  }
  poison_late(*block);
  state.pool.make_reusable(*block);
}

/// Poisons a block after the work of its stream.
void Driver::poison_late(Block& block) {
  poison(in(Copy::issued, block.data), block.size);
  if (!options.behind_host) return;
  block.late_is_poison = true;  // before anything else that is issued to the stream
  char* const late = in(Copy::late, block.data);
  queue.push({block.stream, tick(block.stream), timeline.stream(block.stream),
              [late, size = block.size] { poison(late, size); }});
}

/// Blocks whose other streams are done can be allocated again.
void Driver::reclaim(DeviceState& state) {
  std::erase_if(state.waiting, [&](const DeviceState::Waiting& waiting) {
    if (queue.holds(waiting.after)) return false;
    for (const Copy copy : {Copy::issued, Copy::late})
      poison(in(copy, waiting.block->data), waiting.block->size);
    waiting.block->late_is_poison = true;
    state.pool.make_reusable(*waiting.block);
    return true;
  });
}

void Driver::empty_cache(int index) {
  host_waits(timeline.device(index));
  reclaim(device(index));
  device(index).pool.empty_cache();
}

HostBlock* Driver::allocate_host(std::size_t bytes) {
  bool any = false;
  for (const DeviceState& state : devices) any = any || state.used;
  if (!any) use(current_device());  // as CUDA, which pins memory in a context
  ++ledger.counts.pinnings;
  HostBlock* block = nullptr;
  if (++pinnings_ != options.fail_pinning_at && !options.pinning_fails) block = pinned.allocate(bytes);
  if (!block) throw_error("out of memory: " + std::to_string(bytes) + " bytes cannot be pinned");
  return block;
}

void Driver::free_host(HostBlock& block) noexcept {
  transfers.lose(block);
  pinned.release(block);
}

}  // namespace looptorch_test::accelerator
