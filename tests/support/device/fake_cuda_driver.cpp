// SPDX-License-Identifier: MIT
// A fake of NVIDIA's driver: built as libcuda.so.1 and found by LD_LIBRARY_PATH, it supports CUDA 11.4 and
// has one card, of compute capability 5.2. Answers the queries of app/device/cuda_query.hpp; computes
// nothing.
#include <cstddef>
#include <cstring>

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 5 : attribute == 76 ? 2 : 0;
  return 0;
}
int cuDeviceGetName(char* name, int length, int) {
  std::strncpy(name, "Fake GTX 980", static_cast<std::size_t>(length));
  return 0;
}

}  // extern "C"
