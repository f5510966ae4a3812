// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/loader/data_bound.hpp>

namespace lt = looptorch;
using lt::detail::is_data_bound;

TEST_CASE("a run starves when waiting takes more than the share, but not in its first batches or seconds") {
  const lt::LoaderStats half{.batches = 20, .wait_seconds = 1, .use_seconds = 1};
  CHECK(is_data_bound(half, 0.49));
  CHECK_FALSE(is_data_bound(half, 0.5));
  CHECK_FALSE(is_data_bound({.batches = 19, .wait_seconds = 9, .use_seconds = 1}, 0.2));
  CHECK_FALSE(is_data_bound({.batches = 99, .wait_seconds = 0.9, .use_seconds = 0.1}, 0.2));
  CHECK_FALSE(is_data_bound({}, 0.0));
  const lt::LoaderStats openings{.batches = 20, .wait_seconds = 9, .opening_seconds = 8.5, .use_seconds = 1};
  CHECK_FALSE(is_data_bound(openings, 0.2));  // such as 20 epochs of one batch
}

TEST_CASE("more workers are advised only while there are cores for them and the present ones are busy") {
  using lt::detail::worker_advice;
  CHECK(worker_advice(0, 8, 0) == "load in the background, by workers = 1 or more; ");
  CHECK(worker_advice(2, 8, 0.9) == "more workers, of which there are 2 for 8 cores; ");
  CHECK(worker_advice(8, 8, 0.9).empty());
  CHECK(worker_advice(2, 8, 0.4).empty());
  const lt::LoaderStats loading{.batches = 20, .wait_seconds = 3, .use_seconds = 1, .worker_seconds = {4, 2}};
  CHECK(lt::detail::busy_share(loading) == 0.75);
  CHECK_THAT(lt::detail::data_bound_text(loading, 8),
             Catch::Contains("75 % of the time was spent waiting for it (workers: 2, busy 75 %)"));
}
