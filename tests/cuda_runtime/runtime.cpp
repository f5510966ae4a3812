// SPDX-License-Identifier: MIT
// Implements the CUDA runtime of runtime.hpp: one device, streams that can capture, graphs, memory of the
// host.
#include "cuda_runtime/runtime.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace looptorch_test::cuda_runtime {

namespace {

/// A sequence of captured work. Streams join it by waiting for an event that was recorded in it.
struct Capture {
  unsigned long long id;
  cudaStream_t origin;
  std::set<cudaStream_t> streams;
  bool is_invalid = false;
};

struct Event {
  unsigned long long capture = 0;  // in which it was recorded last; 0: in none
};

struct Runtime {
  std::recursive_mutex mutex;
  Counts counts;
  std::map<Call, cudaError_t> failures;
  std::map<unsigned long long, Capture> captures;
  std::map<void*, std::size_t> device, pinned;
  std::int64_t limit = 0;
  unsigned long long next_capture = 1;
  std::uintptr_t next_handle = 0x1000;

  cudaError_t failure(Call call) {
    const auto found = failures.find(call);
    if (found == failures.end()) return cudaSuccess;
    const cudaError_t error = found->second;
    failures.erase(found);
    return error;
  }
  Capture* capture_of(cudaStream_t stream) {
    for (auto& [id, capture] : captures)
      if (capture.streams.contains(stream)) return &capture;
    return nullptr;
  }
  template <class Handle>
  Handle handle() {
    return reinterpret_cast<Handle>(next_handle += 0x10);
  }
};

Runtime& runtime() {
  static auto& runtime = *new Runtime;
  return runtime;
}
using Lock = std::lock_guard<std::recursive_mutex>;

thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
thread_local unsigned long long own_capture = 0;  // begun by this thread

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

/// Refuses what CUDA calls unsafe while this thread captures, and ends the capture by it.
cudaError_t refuse_in_own_capture() {
  const auto found = runtime().captures.find(own_capture);
  if (found == runtime().captures.end() || thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  found->second.is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

/// Refuses a wait for a stream that is captured.
cudaError_t refuse_wait(cudaStream_t stream) {
  Capture* const capture = runtime().capture_of(stream);
  if (!capture) return cudaSuccess;
  capture->is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

/// Issues work: runs `body`, or records it.
template <class Body>
cudaError_t issue(cudaStream_t stream, const Body& body) {
  Capture* const capture = runtime().capture_of(stream);
  if (!capture) return body(), cudaSuccess;
  if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  return cudaSuccess;
}

cudaError_t launch_on(cudaStream_t stream) {
  ++runtime().counts.kernels;
  if (!runtime().capture_of(stream) && !runtime().captures.empty()) ++runtime().counts.escaped_kernels;
  return issue(stream, [] {});
}

/// Copies to the device; to the host zeros, which stand for what no kernel has computed.
void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  kind == cudaMemcpyDeviceToHost ? std::memset(to, 0, bytes) : std::memcpy(to, from, bytes);
}

}  // namespace

void fail_next(Call call, int error) {
  const Lock lock(runtime().mutex);
  runtime().failures[call] = static_cast<cudaError_t>(error);
}
void limit_device(std::int64_t bytes) {
  const Lock lock(runtime().mutex);
  runtime().limit = bytes;
}
Counts counts() {
  const Lock lock(runtime().mutex);
  return runtime().counts;
}

}  // namespace looptorch_test::cuda_runtime

using namespace looptorch_test::cuda_runtime;

extern "C" {

// ---- Devices ----

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int device) { return result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "none");
  properties->major = 8, properties->minor = 0;
  properties->warpSize = 32, properties->multiProcessorCount = 4;
  properties->maxThreadsPerBlock = properties->maxThreadsDim[0] = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->totalGlobalMem = std::size_t{1} << 32;
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = properties->sharedMemPerMultiprocessor = 164 << 10;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 64 << 10;
  properties->maxBlocksPerMultiProcessor = 32;
  for (int& size : properties->maxGridSize) size = 65535;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  static const std::map<cudaDeviceAttr, int> known{{cudaDevAttrComputeCapabilityMajor, 8},
                                                   {cudaDevAttrComputeCapabilityMinor, 0},
                                                   {cudaDevAttrMultiProcessorCount, 4},
                                                   {cudaDevAttrWarpSize, 32},
                                                   {cudaDevAttrMaxThreadsPerBlock, 1024},
                                                   {cudaDevAttrMaxGridDimX, 1 << 30},
                                                   {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
                                                   {cudaDevAttrMaxSharedMemoryPerBlockOptin, 164 << 10}};
  const auto found = known.find(attribute);
  return *value = found == known.end() ? 0 : found->second, cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, cudaSuccess; }
cudaError_t cudaDeviceSynchronize() {
  const Lock lock(runtime().mutex);
  return result(refuse_in_own_capture());
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** entry, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *entry = nullptr;
  if (found) *found = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t) { return "cudaError"; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation           ? "out of memory"
         : error == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing"
         : error == cudaErrorStreamCaptureInvalidated
             ? "operation failed due to a previous error during capture"
             : "another error";
}

// ---- Memory ----

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const Lock lock(runtime().mutex);
  if (const auto refused = refuse_in_own_capture()) return result(refused);
  const auto held = runtime().counts.device_bytes + static_cast<std::int64_t>(bytes);
  if (runtime().limit > 0 && held > runtime().limit) return result(cudaErrorMemoryAllocation);
  *memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  std::memset(*memory, 0, bytes);
  runtime().device[*memory] = bytes;
  runtime().counts.device_bytes += static_cast<std::int64_t>(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const Lock lock(runtime().mutex);
  if (!memory) return cudaSuccess;
  if (const auto refused = refuse_in_own_capture()) return result(refused);
  const auto found = runtime().device.find(memory);
  if (found == runtime().device.end()) return result(cudaErrorInvalidValue);
  runtime().counts.device_bytes -= static_cast<std::int64_t>(found->second);
  runtime().device.erase(found);
  return std::free(memory), cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return *free = std::size_t{1} << 31, *total = std::size_t{1} << 32, cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  const Lock lock(runtime().mutex);
  if (const auto refused = refuse_in_own_capture()) return result(refused);
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  runtime().pinned[*memory] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  const Lock lock(runtime().mutex);
  if (const auto refused = refuse_in_own_capture()) return result(refused);
  runtime().pinned.erase(memory);
  return std::free(memory), cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const Lock lock(runtime().mutex);
  const auto holds = [memory](const std::map<void*, std::size_t>& blocks) {
    auto next = blocks.upper_bound(const_cast<void*>(memory));
    if (next == blocks.begin()) return false;
    --next;
    return static_cast<const char*>(memory) < static_cast<const char*>(next->first) + next->second;
  };
  *attributes = {};
  attributes->type = holds(runtime().device)   ? cudaMemoryTypeDevice
                     : holds(runtime().pinned) ? cudaMemoryTypeHost
                                               : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  if (runtime().capture_of(stream) && kind != cudaMemcpyDeviceToDevice)
    ++runtime().counts.captured_host_copies;
  return result(issue(stream, [&] { copy(to, from, bytes, kind); }));
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const Lock lock(runtime().mutex);
  if (const auto refused = refuse_in_own_capture()) return result(refused);
  return copy(to, from, bytes, kind), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  return result(issue(stream, [&] { std::memset(memory, value, bytes); }));
}

// ---- Streams and events ----

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return *least = 0, *greatest = -3, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  const Lock lock(runtime().mutex);
  return *stream = runtime().handle<cudaStream_t>(), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  if (const auto refused = refuse_wait(stream)) return result(refused);
  return result(refuse_in_own_capture());
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(runtime().mutex);
  const auto recorded = reinterpret_cast<Event*>(event)->capture;
  if (const auto found = runtime().captures.find(recorded); found != runtime().captures.end())
    found->second.streams.insert(stream);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return *event = reinterpret_cast<cudaEvent_t>(new Event), cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return delete reinterpret_cast<Event*>(event), cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  const Lock lock(runtime().mutex);
  const Capture* const capture = runtime().capture_of(stream);
  reinterpret_cast<Event*>(event)->capture = capture ? capture->id : 0;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(runtime().mutex);
  const auto recorded = reinterpret_cast<Event*>(event)->capture;
  if (const auto found = runtime().captures.find(recorded); found != runtime().captures.end()) {
    found->second.is_invalid = true;
    return result(cudaErrorCapturedEvent);
  }
  return result(refuse_in_own_capture());
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return cudaEventQuery(event); }

// ---- Capture ----

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return std::swap(*mode, thread_mode), cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(runtime().mutex);
  if (const auto failure = runtime().failure(Call::begin_capture)) return result(failure);
  if (runtime().capture_of(stream)) return result(cudaErrorIllegalState);
  const auto id = own_capture = runtime().next_capture++;
  runtime().captures.emplace(id, Capture{id, stream, {stream}});
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(runtime().mutex);
  *graph = nullptr;
  Capture* const capture = runtime().capture_of(stream);
  if (!capture) return result(cudaErrorIllegalState);
  const bool is_invalid = capture->is_invalid, is_unjoined = capture->streams.size() > 1;
  runtime().captures.erase(capture->id);
  own_capture = 0;
  if (is_invalid) return result(cudaErrorStreamCaptureInvalidated);
  if (is_unjoined) return result(cudaErrorStreamCaptureUnjoined);
  if (const auto failure = runtime().failure(Call::end_capture)) return result(failure);
  ++runtime().counts.graphs_alive;
  return *graph = runtime().handle<cudaGraph_t>(), cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock(runtime().mutex);
  const Capture* const capture = runtime().capture_of(stream);
  *status = !capture              ? cudaStreamCaptureStatusNone
            : capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, std::size_t*) {
  const Lock lock(runtime().mutex);
  if (const Capture* const capture = runtime().capture_of(stream); capture && id) *id = capture->id;
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, std::size_t* count) {
  return *count = 1, cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t, unsigned long long) {
  const Lock lock(runtime().mutex);
  if (const auto failure = runtime().failure(Call::instantiate)) return result(failure);
  ++runtime().counts.graphs_alive;
  return *exec = runtime().handle<cudaGraphExec_t>(), cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  const Lock lock(runtime().mutex);
  return --runtime().counts.graphs_alive, cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  const Lock lock(runtime().mutex);
  return --runtime().counts.graphs_alive, cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  const Lock lock(runtime().mutex);
  return ++runtime().counts.launches, cudaSuccess;
}

// ---- Kernels ----

struct LaunchShape {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};
static thread_local std::vector<LaunchShape> shapes;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  return shapes.push_back({grid, block, shared, stream}), 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  const LaunchShape shape = shapes.back();
  shapes.pop_back();
  *grid = shape.grid, *block = shape.block, *shared = shape.shared;
  return *static_cast<cudaStream_t*>(stream) = shape.stream, cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void*) {
  return *kernel = reinterpret_cast<cudaKernel_t>(1), cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  const Lock lock(runtime().mutex);
  return result(launch_on(stream));
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  const Lock lock(runtime().mutex);
  return result(launch_on(config->stream));
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024, attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 80;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, std::size_t,
                                                                   unsigned) {
  return *blocks = 2, cudaSuccess;
}

// ---- The driver, which libcaffe2_nvrtc.so links ----

int cuCtxGetCurrent(void** context) { return *context = &shapes, 0; }
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) { return *flags = 0, *active = 1, 0; }

#define LOOPTORCH_NOT_SUPPORTED(name) \
  int name() { return 801; }
LOOPTORCH_NOT_SUPPORTED(cuCtxSetCurrent)
LOOPTORCH_NOT_SUPPORTED(cuDeviceGet)
LOOPTORCH_NOT_SUPPORTED(cuDeviceGetAttribute)
LOOPTORCH_NOT_SUPPORTED(cuDevicePrimaryCtxRetain)
LOOPTORCH_NOT_SUPPORTED(cuFuncGetAttribute)
LOOPTORCH_NOT_SUPPORTED(cuFuncSetAttribute)
LOOPTORCH_NOT_SUPPORTED(cuFuncSetCacheConfig)
LOOPTORCH_NOT_SUPPORTED(cuGetErrorString)
LOOPTORCH_NOT_SUPPORTED(cuLaunchCooperativeKernel)
LOOPTORCH_NOT_SUPPORTED(cuLaunchKernel)
LOOPTORCH_NOT_SUPPORTED(cuLinkAddData_v2)
LOOPTORCH_NOT_SUPPORTED(cuLinkComplete)
LOOPTORCH_NOT_SUPPORTED(cuLinkCreate_v2)
LOOPTORCH_NOT_SUPPORTED(cuModuleGetFunction)
LOOPTORCH_NOT_SUPPORTED(cuModuleLoad)
LOOPTORCH_NOT_SUPPORTED(cuModuleLoadData)
LOOPTORCH_NOT_SUPPORTED(cuModuleLoadDataEx)
LOOPTORCH_NOT_SUPPORTED(cuModuleUnload)
LOOPTORCH_NOT_SUPPORTED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
LOOPTORCH_NOT_SUPPORTED(cuPointerGetAttribute)
LOOPTORCH_NOT_SUPPORTED(cuTensorMapEncodeTiled)
#undef LOOPTORCH_NOT_SUPPORTED

}  // extern "C"
