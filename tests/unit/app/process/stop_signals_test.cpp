// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/process/stop_signals.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

using looptorch::app::Interrupted, looptorch::app::StopSignals;

namespace {

/// The wait status of a process that runs `body`.
template <class Body>
int status_of(Body body) {
  const auto child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);  // not Catch2's
    body();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("A signal is recorded while signals are watched, and has its usual effect before and after that") {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
    {
      const StopSignals signals;
      CHECK_FALSE(StopSignals::received());
      CHECK_NOTHROW(StopSignals::throw_if_received("done"));
      ::raise(signal);
      CHECK(StopSignals::received());
      try {
        StopSignals::throw_if_received("some was done");
        FAIL("nothing was thrown");
      } catch (const Interrupted& interrupted) {
        CHECK(interrupted.exit_code == code);
        CHECK_THAT(interrupted.what(), Catch::EndsWith("was received: some was done"));
      }
    }
    CHECK_FALSE(StopSignals::received());
    const int usual = status_of([signal = signal] { ::raise(signal); });
    CHECK((WIFSIGNALED(usual) && WTERMSIG(usual) == signal));
    const int second = status_of([signal = signal] {
      const StopSignals signals;
      ::raise(signal);
      ::usleep(1'100'000);
      ::raise(signal);
    });
    CHECK((WIFSIGNALED(second) && WTERMSIG(second) == signal));
    const int passed_on = status_of([signal = signal] {  // by a job's script
      const StopSignals signals;
      ::raise(signal);
      ::raise(signal);
      ::_exit(StopSignals::received() ? 3 : 0);
    });
    CHECK((WIFEXITED(passed_on) && WEXITSTATUS(passed_on) == 3));
  }
}

TEST_CASE("A closed terminal's SIGHUP is recorded, however often it comes, and a SIGTERM after it acts") {
  const int hung_up = status_of([] {
    const StopSignals signals;
    ::raise(SIGHUP);
    ::raise(SIGHUP);
    try {
      StopSignals::throw_if_received("some was done");
    } catch (const Interrupted& interrupted) {
      const bool names_it = std::string(interrupted.what()) == "SIGHUP was received: some was done";
      ::_exit(names_it ? interrupted.exit_code : 1);
    }
  });
  CHECK((WIFEXITED(hung_up) && WEXITSTATUS(hung_up) == 129));
  const int ended = status_of([] {
    const StopSignals signals;
    ::raise(SIGHUP);
    ::raise(SIGTERM);
  });
  CHECK((WIFSIGNALED(ended) && WTERMSIG(ended) == SIGTERM));
  const int under_nohup = status_of([] {
    ::signal(SIGHUP, SIG_IGN);
    const StopSignals signals;
    ::raise(SIGHUP);
    ::_exit(StopSignals::received() ? 1 : 0);
  });
  CHECK((WIFEXITED(under_nohup) && WEXITSTATUS(under_nohup) == 0));
}
