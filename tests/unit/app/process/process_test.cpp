// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/process/process.hpp>

#include <string>
#include <thread>
#include <vector>

using looptorch::app::run_process;

TEST_CASE("A program that ends well is silent, whatever it writes") {
  CHECK_NOTHROW(run_process({"true"}));
  CHECK_NOTHROW(run_process({"sh", "-c", "echo out; echo err >&2"}));
  CHECK_NOTHROW(run_process({"sh", "-c", "yes | head -c 1000000 >&2"}));  // more than a pipe holds
}

TEST_CASE("Arguments reach the program as they are") {
  CHECK_NOTHROW(run_process({"sh", "-c", "test \"$1\" = 'a b;$HOME'", "sh", "a b;$HOME"}));
}

TEST_CASE("A program that fails is quoted") {
  CHECK_THROWS_WITH(run_process({"sh", "-c", "echo broken >&2; echo more >&2; exit 3"}),
                    "sh failed with exit code 3: broken");
  CHECK_THROWS_WITH(run_process({"sh", "-c", "kill -9 $$"}), "sh failed with signal 9: ");
}

TEST_CASE("A program that is not there comes with the remedy") {
  CHECK_THROWS_AS(run_process({"no-such-program"}), looptorch::app::ProcessError);
  CHECK_THROWS_WITH(run_process({"no-such-program"}),
                    "no-such-program is not installed (Debian: apt-get install no-such-program)");
  CHECK_THROWS_WITH(run_process({"/opt/x/ffmpeg"}),
                    "/opt/x/ffmpeg: cannot be started: No such file or directory");
}

TEST_CASE("Threads run programs side by side without holding each other's pipes") {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 20; ++k) run_process({"true"});
    });
  }
}
