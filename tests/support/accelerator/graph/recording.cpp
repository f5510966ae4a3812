// SPDX-License-Identifier: MIT
// Implements Recording, a captured graph, and looptorch's DeviceGraph on it, which CaptureGraphs then uses on
// the simulated accelerator.
#include "support/accelerator/graph/recording.hpp"

#include <looptorch/base/device/device_graph.hpp>

#include "support/accelerator/accelerator.hpp"
#include "support/accelerator/device/generator.hpp"
#include "support/accelerator/memory/arena.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

namespace looptorch_test::accelerator {

namespace {

Recording* open_recording = nullptr;               // at most one, as LibTorch allows
auto& all_recordings = *new std::set<Recording*>;  // whose memory is held
thread_local const std::vector<std::uint64_t>* seeds_of_replay = nullptr;

class Graph final : public looptorch::detail::DeviceGraph {
 public:
  Graph(int device, const Graph* neighbour)
      : device_(device), pool_(neighbour ? neighbour->pool_ : std::make_shared<GraphPool>()) {}
  ~Graph() override {
    const Lock lock(driver().mutex);
    if (open_recording == recording_.get()) open_recording = nullptr;
    recording_.reset();
    pool_.reset();
  }

  void begin() override {
    const Lock lock(driver().mutex);
    TORCH_CHECK(
        current_stream_id(device_) != 0,
        "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay "
        "them on the default stream.)");
    TORCH_CHECK(!open_recording, "there is a capture already");
    driver().wait(Wait::device, "capture_begin", device_, driver().timeline.device(device_));
    char* const seed = driver().allocate(device_, Recording::kSeedBytes);
    recording_ =
        std::make_unique<Recording>(device_, current_stream(device_), generator_state(device_), pool_, seed);
    mark_capturing(recording_->generator(), true);
    all_recordings.insert(recording_.get());
    open_recording = recording_.get();
  }
  void end() override {
    const Lock lock(driver().mutex);
    TORCH_CHECK(open_recording == recording_.get() && recording_, "there is no capture");
    open_recording = nullptr;
    if (recording_->is_invalid()) throw_error("operation failed due to a previous error during capture");
    recording_->end();
  }
  void replay() override {
    const Lock lock(driver().mutex);
    driver().begin_launch(device_, "graph");
    recording_->replay(current_stream(device_));
  }

  at::Generator copy_generator(at::Generator source) override { return source.clone(); }
  std::uint64_t random_offset() const override { return offset_in_graph(recording_->generator()); }
  void set_random_offset(std::uint64_t offset) override { offset_in_graph(recording_->generator()) = offset; }

 private:
  int device_;
  std::shared_ptr<GraphPool> pool_;
  std::unique_ptr<Recording> recording_;
};

const bool is_set = [] {
  looptorch::detail::device_graph_maker(kDeviceType) =
      [](c10::Device device,
         const looptorch::detail::DeviceGraph* neighbour) -> std::unique_ptr<looptorch::detail::DeviceGraph> {
    return std::make_unique<Graph>(device.index(), static_cast<const Graph*>(neighbour));
  };
  return true;
}();

}  // namespace

GraphPool::~GraphPool() {
  for (void* const data : free_) driver().free(data);
}

char* GraphPool::take(std::size_t bytes, const std::function<bool(void*)>& is_other) {
  const auto fits = [&](void* data) {
    const std::size_t size = driver().find(data)->size;
    return size >= bytes && size / 2 <= bytes && is_other(data);
  };
  const auto found = std::ranges::find_if(free_, fits);
  if (found == free_.end()) return nullptr;
  char* const data = static_cast<char*>(*found);
  free_.erase(found);
  return data;
}

Recording::Recording(int device, int stream, std::shared_ptr<void> generator, std::shared_ptr<GraphPool> pool,
                     char* seed)
    : device_(device),
      stream_(stream),
      generator_(std::move(generator)),
      pool_(std::move(pool)),
      seed_(seed) {
  set_seed(stream);
}

Recording::~Recording() {
  all_recordings.erase(this);
  driver().host_waits(driver().timeline.device(device_));  // as cudaFree
  driver().free(seed_);
}

void Recording::set_seed(int stream) const {
  static const std::string name = "the seed of a graph";
  driver().access(stream, driver().tick(stream), seed_, kSeedBytes, /*writes=*/true, &name);
}

char* Recording::reuse(std::size_t bytes) {
  char* const data = pool_->take(bytes, [&](void* block) { return !memory_.contains(block); });
  if (data) own(data);
  return data;
}

bool Recording::keep(void* data) {
  if (!memory_.contains(data)) return false;
  freed_.insert(data);
  pool_->give(data);
  return true;
}

int Recording::add_draw(const void* state, std::uint64_t offset) {
  TORCH_CHECK(state == generator_.get(),
              "Attempt to increase offset for a CUDA generator not in capture mode.");
  draws_.push_back(offset);
  return static_cast<int>(draws_.size()) - 1;
}

void Recording::end() { advance_ = mark_capturing(generator_, false); }

void Recording::replay(int stream) {
  set_seed(stream);
  for (void* const data : freed_) {  // nothing of the last replay is left in them
    Block& block = *driver().find(data);
    driver().issue(stream, driver().tick(stream), [data = block.data, size = block.size](Copy copy) {
      poison(driver().in(copy, data), size);
    });
  }
  const auto seeds = std::make_shared<std::vector<std::uint64_t>>(draw_at(generator_, draws_, advance_));
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

bool is_recording(int device) { return open_recording && open_recording->device() == device; }

bool is_kept_by_recording(void* data) {
  bool is_kept = false;
  for (Recording* const recording : all_recordings) is_kept |= recording->keep(data);
  return is_kept;
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
