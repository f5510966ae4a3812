// SPDX-License-Identifier: MIT
// Limits LibTorch's operators to one thread in each worker thread, since more threads slow the workers down.
// Two workers on two cores made 207 log-mels per second with the default number of threads, and 298 with one
// thread each.
#pragma once

#include <ATen/Parallel.h>

namespace looptorch::detail {

/// Limits the calling thread to one intra-op thread permanently. LibTorch initialises a thread's number
/// lazily and would overwrite it at the first operator: once from its own code, once from `at::parallel_for`
/// instantiated in ours. So both are triggered here.
inline void use_one_intra_op_thread() {
  at::internal::lazy_init_num_threads();
  at::get_num_threads();
  at::set_num_threads(1);
}

/// Makes operators called from this thread use one thread while it lives. `at::set_num_threads` is per
/// thread, but also becomes the default of threads that LibTorch has not seen yet; the destructor restores
/// both.
class SingleIntraOpThread {
 public:
  SingleIntraOpThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  SingleIntraOpThread(const SingleIntraOpThread&) = delete;
  SingleIntraOpThread& operator=(const SingleIntraOpThread&) = delete;
  ~SingleIntraOpThread() { at::set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace looptorch::detail
