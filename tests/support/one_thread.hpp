// SPDX-License-Identifier: MIT
// Keeps LibTorch to one thread: where operators are so small that a second only waits, and where bytes are
// compared exactly, which threads that share an operator allocate at times of their own.
#pragma once

#include "support/precompiled.hpp"

/// One thread in each operator while it lives.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { at::set_num_threads(before_); }

 private:
  int before_;
};
