// SPDX-License-Identifier: MIT
// Limits LibTorch's operators to one thread in each worker thread, since more threads slow the workers down.
// Two workers on two cores made 207 log-mels per second with the default number of threads, and 298 with one
// thread each.
#pragma once

#include <ATen/Parallel.h>

namespace looptorch::detail {

/// Limits the calling thread to one intra-op thread permanently. A thread's first operator sets its number of
/// intra-op threads to the default, once in LibTorch's own code and once in the code of `at::parallel_for`
/// that is compiled into ours, and would overwrite this limit. So both are triggered before it is set.
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
