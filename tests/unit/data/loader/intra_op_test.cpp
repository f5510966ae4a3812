// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/loader/intra_op.hpp>

#include <thread>

using looptorch::detail::SingleIntraOpThread;

TEST_CASE("operators use one thread within the scope, and as many as before after it") {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  {
    const SingleIntraOpThread one;
    CHECK(at::get_num_threads() == 1);
  }
  CHECK(at::get_num_threads() == 3);
  at::set_num_threads(before);
}

TEST_CASE("a worker thread keeps to one intra-op thread, whatever runs on it") {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  int inside = 0;
  std::thread([&] {
    looptorch::detail::use_one_intra_op_thread();
    torch::ones({64, 64}).matmul(torch::ones({64, 64}));
    inside = at::get_num_threads();
  }).join();
  CHECK(inside == 1);
  CHECK(at::get_num_threads() == 2);
  at::set_num_threads(before);
}
