// SPDX-License-Identifier: MIT
// Runs a program's main: parses the command line, calls the body, and turns every error into one line on
// stderr and an exit code. On several ranks the body prints on rank 0 alone; errors of the other ranks are
// printed with their rank.
#pragma once

#include <looptorch/app/command_line.hpp>
#include <looptorch/app/out_of_memory_help.hpp>
#include <looptorch/app/program_warnings.hpp>
#include <looptorch/app/ranks.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/out_of_memory.hpp>
#include <looptorch/base/what_of.hpp>

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace looptorch::app {

/// The exit codes that `run_main` returns. A run that a signal stopped has the code that shells give it.
enum ExitCode : int {
  kDone = 0,
  kUnexpectedError = 1,  ///< an exception that neither looptorch nor LibTorch nor the file system threw
  kError = 2,            ///< a wrong flag, wrong data, a wrong setting; memory, threads or disk space ran out
  kTimeIsUp = 75,        ///< `FitOptions::max_time` ended the run, or a policy's `Run::interrupt`
  kStoppedBySighup = 129,
  kStoppedBySigint = 130,
  kStoppedBySigterm = 143,
};

/// Thrown for work that a signal or a time limit ended early.
struct Interrupted : Error {
  /// For a run, which can be resumed. `reason` and `signal` are FitResult's.
  Interrupted(const std::string& reason, int signal, std::int64_t steps)
      : Interrupted(reason, signal,
                    "stopped after " + std::to_string(steps) + " steps; go on with --resume auto") {}
  /// For other work. `done` says what was done until then.
  Interrupted(const std::string& reason, int signal, const std::string& done)
      : Error(reason + ": " + done),
        exit_code(signal == SIGINT    ? kStoppedBySigint
                  : signal == SIGTERM ? kStoppedBySigterm
                  : signal == SIGHUP  ? kStoppedBySighup
                                      : kTimeIsUp) {}
  ExitCode exit_code;
};

/// Thrown after a window was replayed instead of a run (`--replay`).
struct ReplayEnded : Error {
  /// `text` describes the result; `clean` is true if all was finite.
  ReplayEnded(const std::string& text, bool clean) : Error(text), exit_code(clean ? kDone : kError) {}
  ExitCode exit_code;
};

namespace detail {

/// Opens closed standard streams on /dev/null. Otherwise the next file that the program opens would get a
/// closed stream's descriptor, and receive what is printed. The modes are such that reading and writing still
/// fail.
inline void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

/// Throws Error if the working directory was removed: relative paths name nothing then, and LibTorch's MKL
/// ends the process with "Cannot load libtorch_cpu.so".
inline void require_working_directory() {
  std::error_code error;
  static_cast<void>(std::filesystem::current_path(error));
  if (error == std::errc::no_such_file_or_directory)
    throw Error("the working directory was removed; change to one that exists");
}

/// Throws Error if printed text was lost, as on a full disk.
inline void require_written_output() {
  errno = 0;
  std::cout.flush();
  if (std::cout && std::ferror(stdout) == 0) return;
  throw Error(message("what was printed on the standard output could not be written",
                      errno != 0 ? message(": ", std::generic_category().message(errno)) : std::string()));
}

}  // namespace detail

/// Parses, runs `body`, and returns the exit code for main. An error is one line on stderr,
/// "program: sentence", as are looptorch's warnings, "program: warning: sentence"; an error that says that
/// memory ran out also names the program's flags that help. `--help` goes to stdout. `least_batch` returns
/// the smallest --batch-size that the program takes with the flags that were parsed, for a program that does
/// not take 1.
template <class Body>
[[nodiscard]] int run_main(
    int argc, char* const* argv, CommandLine& line, Body&& body,
    const std::function<std::int64_t()>& least_batch = [] { return 1; }) {
  const auto report = [&](const std::string& what, ExitCode code) {
    const std::string sentence = looptorch::detail::first_line(what);
    std::cerr << line.program() << detail::rank_suffix() << ": " << sentence;
    if (looptorch::detail::is_out_of_memory(std::current_exception()))
      std::cerr << (sentence.ends_with('.') ? " " : ". ") << out_of_memory_help(line, least_batch(), what);
    std::cerr << std::endl;
    return code;
  };
  detail::occupy_closed_streams();
  const ProgramWarnings warnings(line.program() + detail::rank_suffix());
#ifdef SIGXFSZ
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit of its size is an error that names it
#endif
  try {
    detail::require_working_directory();
    if (!line.parse(argc, argv))
      std::cout << line.help();
    else
      detail::run_on_ranks(std::forward<Body>(body));
    detail::require_written_output();
    return kDone;
  } catch (const CommandLineError& error) {
    return report(looptorch::detail::first_line(error.what()) + " (see --help)", kError);
  } catch (const Interrupted& interrupted) {
    return report(interrupted.what(), interrupted.exit_code);
  } catch (const ReplayEnded& replayed) {
    return report(replayed.what(), replayed.exit_code);
  } catch (const Error& error) {
    return report(error.what(), kError);
  } catch (const c10::Error& error) {
    return report(error.what_without_backtrace(), kError);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(error.what(), kError);
  } catch (const std::bad_alloc& error) {
    return report(error.what(), kError);
  } catch (const std::exception& error) {
    const auto* const of_system = dynamic_cast<const std::system_error*>(&error);
    if (of_system && of_system->code() == std::errc::resource_unavailable_try_again)
      return report(message("a thread cannot be started: ", of_system->code().message(),
                            "; raise the limit of processes (ulimit -u, or the container's), or use fewer "
                            "threads (--workers, OMP_NUM_THREADS)"),
                    kError);
    const bool out_of_memory = looptorch::detail::is_out_of_memory(std::current_exception());
    return report(error.what(), out_of_memory ? kError : kUnexpectedError);
  }
}

}  // namespace looptorch::app
