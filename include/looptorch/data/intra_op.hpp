// SPDX-License-Identifier: MIT
// LibTorch's intra-op threads and worker threads get in each other's way: two workers on two cores made 207
// log-mels a second with the default number of threads, 256 inside at::NoParallel's guard, and 298 with one
// thread each.
#pragma once

#include <ATen/Parallel.h>

namespace looptorch::detail {

/// Gives the calling thread one thread for good. LibTorch initialises a thread's number lazily, and would
/// overwrite it at the first operator: once from its own code, once from `at::parallel_for` instantiated in
/// ours. So do it now.
inline void use_one_intra_op_thread() {
  at::internal::lazy_init_num_threads();
  at::get_num_threads();
  at::set_num_threads(1);
}

/// While it lives, operators called from this thread use one thread. `at::set_num_threads` is per thread, but
/// also becomes the default of threads that LibTorch has not seen yet; the destructor puts both back.
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
