// SPDX-License-Identifier: MIT
// Implements traps: protects pages, and handles the SIGSEGV of an access to them.
#include "support/accelerator/memory/traps.hpp"

#include "support/accelerator/driver.hpp"

#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>

namespace looptorch_test::accelerator {

namespace {

constexpr std::uintptr_t kPage = 4096;

/// Read by the handler of SIGSEGV, which can take no lock.
struct Trap {
  std::atomic<char*> begin{nullptr};
  std::atomic<char*> end{nullptr};
};
std::array<Trap, 4096> traps;
std::atomic<int> touches{0};
std::atomic<bool> dying{false};
struct sigaction next_handler;

char* page_up(char* address) {
  return address + (kPage - reinterpret_cast<std::uintptr_t>(address) % kPage) % kPage;
}
char* page_down(char* address) { return address - reinterpret_cast<std::uintptr_t>(address) % kPage; }

bool spring_trap(const void* address) {
  for (Trap& trap : traps) {
    char* const begin = trap.begin.load();
    char* const end = trap.end.load();
    if (!begin || address < begin || address >= end) continue;
    ::mprotect(begin, static_cast<std::size_t>(end - begin), PROT_READ | PROT_WRITE);
    ++touches;
    return true;
  }
  return false;
}

void on_segv(int signal, siginfo_t* info, void* context) {
  if (spring_trap(info->si_addr)) return;
  if (dying.exchange(true)) {  // the next handler has reported, and raises the signal again
    ::signal(SIGSEGV, SIG_DFL);
    return;
  }
  if (device_of(info->si_addr) >= 0) {
    constexpr char kText[] = "sim: the host touched memory of a device. Stack:\n";
    (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
    std::array<void*, 48> frames{};
    ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), frames.size()), STDERR_FILENO);
  }
  ::sigaction(SIGSEGV, &next_handler, nullptr);
  if (next_handler.sa_flags & SA_SIGINFO && next_handler.sa_sigaction)
    next_handler.sa_sigaction(signal, info, context);
}

}  // namespace

void handle_signals() {
  struct sigaction current {};
  ::sigaction(SIGSEGV, nullptr, &current);
  if (current.sa_flags & SA_SIGINFO && current.sa_sigaction == &on_segv) return;
  next_handler = current;
  struct sigaction ours {};
  ours.sa_sigaction = &on_segv;
  ours.sa_flags = SA_SIGINFO | (current.sa_flags & SA_ONSTACK);
  ::sigaction(SIGSEGV, &ours, nullptr);
}

int set_trap(char* begin, char* end, const char* end_of_block) {
  handle_signals();  // Catch2 installs its own at each test case
  begin = page_up(begin);
  end = end >= end_of_block ? page_up(end) : page_down(end);
  if (begin >= end) return -1;
  for (std::size_t i = 0; i < traps.size(); ++i) {
    if (traps[i].begin.load()) continue;
    traps[i].end = end;
    traps[i].begin = begin;
    ::mprotect(begin, static_cast<std::size_t>(end - begin), PROT_NONE);
    return static_cast<int>(i);
  }
  return -1;
}

void release_trap(int number) {
  if (number < 0) return;
  Trap& trap = traps[static_cast<std::size_t>(number)];
  ::mprotect(trap.begin, static_cast<std::size_t>(trap.end - trap.begin), PROT_READ | PROT_WRITE);
  trap.begin = nullptr;
}

int take_touches() { return touches.exchange(0); }

}  // namespace looptorch_test::accelerator
