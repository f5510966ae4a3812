// SPDX-License-Identifier: MIT
// Implements Recording, a captured graph, and looptorch's DeviceGraph on it, which CaptureGraphs then uses on
// the simulated accelerator.
#include "support/accelerator/graph/recording.hpp"

#include <looptorch/base/device/device_graph.hpp>

#include "support/accelerator/accelerator.hpp"
#include "support/accelerator/device/generator.hpp"
#include "support/accelerator/memory/arena.hpp"

#include <c10/util/Exception.h>

#include <utility>

namespace looptorch_test::accelerator {

namespace {

Recording* open_recording = nullptr;               // at most one, as LibTorch allows
auto& all_recordings = *new std::set<Recording*>;  // whose memory is held
thread_local const std::vector<std::uint64_t>* seeds_of_replay = nullptr;

class Graph final : public looptorch::detail::DeviceGraph {
 public:
  explicit Graph(int device) : device_(device) {}
  ~Graph() override {
    const Lock lock(driver().mutex);
    if (open_recording == recording_.get()) open_recording = nullptr;
    recording_.reset();
  }

  void begin() override {
    const Lock lock(driver().mutex);
    TORCH_CHECK(
        current_stream_id(device_) != 0,
        "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay "
        "them on the default stream.)");
    TORCH_CHECK(!open_recording, "there is a capture already");
    driver().wait(Wait::device, "capture_begin", device_, driver().timeline.device(device_));
    recording_ = std::make_unique<Recording>(device_, current_stream(device_), generator_state(device_));
    mark_capturing(recording_->generator(), true);
    all_recordings.insert(recording_.get());
    open_recording = recording_.get();
  }
  void end() override {
    const Lock lock(driver().mutex);
    TORCH_CHECK(open_recording == recording_.get() && recording_, "there is no capture");
    open_recording = nullptr;
    if (recording_->is_invalid()) throw_error("operation failed due to a previous error during capture");
    mark_capturing(recording_->generator(), false);
  }
  void replay() override {
    const Lock lock(driver().mutex);
    driver().begin_launch(device_, "graph");
    recording_->replay(current_stream(device_));
  }

 private:
  int device_;
  std::unique_ptr<Recording> recording_;
};

const bool is_set = [] {
  looptorch::detail::device_graph_maker(kDeviceType) =
      [](c10::Device device,
         const looptorch::detail::DeviceGraph*) -> std::unique_ptr<looptorch::detail::DeviceGraph> {
    return std::make_unique<Graph>(device.index());
  };
  return true;
}();

}  // namespace

Recording::~Recording() {
  all_recordings.erase(this);
  driver().host_waits(driver().timeline.device(device_));  // as cudaFree
  for (void* const data : freed_) driver().free(data);
}

bool Recording::keep(void* data) {
  if (!memory_.contains(data)) return false;
  freed_.insert(data);
  return true;
}

int Recording::add_draw(const void* state, std::function<std::uint64_t()> draw) {
  TORCH_CHECK(state == generator_.get(),
              "Attempt to increase offset for a CUDA generator not in capture mode.");
  draws_.push_back(std::move(draw));
  return static_cast<int>(draws_.size()) - 1;
}

void Recording::replay(int stream) {
  for (void* const data : freed_) {  // nothing of the last replay is left in them
    Block& block = *driver().find(data);
    driver().issue(stream, driver().tick(stream), [data = block.data, size = block.size](Copy copy) {
      poison(driver().in(copy, data), size);
    });
  }
  auto seeds = std::make_shared<std::vector<std::uint64_t>>();
  for (const auto& draw : draws_) seeds->push_back(draw());
  for (const RecordedKernel& kernel : kernels_) {
    const Time time = driver().tick(stream);
    driver().count_kernel(stream, time);
    for (const RecordedAccess& access : kernel.accesses)
      driver().access(stream, time, access.data, access.bytes, access.writes, kernel.name);
    driver().issue(stream, time, [run = kernel.run, seeds, state = at::ThreadLocalState()](Copy copy) {
      const at::ThreadLocalStateGuard guard(state);
      const auto* const before = std::exchange(seeds_of_replay, seeds.get());
      run(copy);
      seeds_of_replay = before;
    });
  }
}

Recording* recording_here(int device) {
  if (!open_recording || open_recording->device() != device) return nullptr;
  return open_recording->stream() == current_stream(device) ? open_recording : nullptr;
}

Recording* recording_of(void* data) {
  for (Recording* const recording : all_recordings)
    if (recording->keep(data)) return recording;
  return nullptr;
}

void refuse_in_recording(int device, const char* what) {
  Recording* const recording = recording_here(device);
  if (!recording) return;
  recording->invalidate();
  throw_error(std::string("operation not permitted when stream is capturing: ") + what);
}

std::uint64_t replayed_seed(int number) {
  return seeds_of_replay ? seeds_of_replay->at(static_cast<std::size_t>(number)) : 0;  // 0: for its form
}

}  // namespace looptorch_test::accelerator
