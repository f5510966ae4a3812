// SPDX-License-Identifier: MIT
#include "disk_shim.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace looptorch::testing {
namespace {

struct State {
  std::mutex mutex;
  DiskFault fault;
  std::vector<std::string> calls;
  std::uint64_t written = 0;
  std::vector<int> dirty;  // copies of the descriptors of files with bytes that were not fsynced
};

std::atomic<bool> armed = false;

State& state() {
  static State state;
  return state;
}

std::string path_of(int descriptor) {
  char path[4096];
  const auto link = "/proc/self/fd/" + std::to_string(descriptor);
  const auto size = ::syscall(SYS_readlink, link.c_str(), path, sizeof path);
  return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : std::string();
}

/// What a path stands for that is relative to an open folder.
std::string path_in(int folder, const char* path) {
  return folder == AT_FDCWD || path[0] == '/' ? std::string(path) : path_of(folder) + "/" + path;
}

bool same_file(int a, int b) {
  struct stat of_a {};
  struct stat of_b {};
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_ino == of_b.st_ino &&
         of_a.st_dev == of_b.st_dev;
}

void mark_dirty(int descriptor) { state().dirty.push_back(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)); }

void mark_clean(int descriptor) {
  std::erase_if(state().dirty, [&](int dirty) {
    const bool is_clean = same_file(dirty, descriptor);
    if (is_clean) ::syscall(SYS_close, dirty);
    return is_clean;
  });
}

[[noreturn]] void die() {
  ::raise(SIGKILL);
  ::_exit(1);
}

void lose_unsynced() {
  for (const int descriptor : state().dirty) {
    struct stat status {};
    if (::fstat(descriptor, &status) == 0) (void)::ftruncate(descriptor, status.st_size / 2);
  }
}

/// True if the call is not to be made, with errno set. Does not come back if the process is to die.
bool strikes(const std::string& call) {
  std::function<void()> action;
  {
    const std::lock_guard lock(state().mutex);
    const auto& fault = state().fault;
    if (call.find(fault.of) == std::string::npos) return false;
    const int number = static_cast<int>(state().calls.size());
    state().calls.push_back(call);
    const bool is_over = (fault.kind == DiskFault::crash || fault.kind == DiskFault::power_failure) &&
                         fault.at >= 0 && number > fault.at;
    if (is_over) return errno = EIO, true;
    if (number != fault.at) return false;
    if (fault.kind == DiskFault::kill) die();
    if (fault.kind == DiskFault::power_failure) lose_unsynced();
    if (fault.kind != DiskFault::act) return errno = fault.error, true;
    action = fault.action;
  }
  armed = false;  // the action's own calls are not counted
  action();
  armed = true;
  return false;
}

/// `call`, unless a fault strikes.
template <class Call>
auto guarded(const std::string& name, Call call) -> decltype(call()) {
  return armed && strikes(name) ? decltype(call())(-1) : call();
}

template <class... Arguments>
int system_call(long number, Arguments... arguments) {
  return static_cast<int>(::syscall(number, arguments...));
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
  std::string target = path;
  if (armed && (flags & O_CREAT) && !state().fault.full_file.empty() &&
      target.ends_with(state().fault.full_file)) {
    target = "/dev/full", flags = O_RDWR | O_CLOEXEC;
  }
  const auto name = (flags & O_CREAT ? "create " : "open ") + path_in(folder, path);
  return guarded(name, [&] { return system_call(SYS_openat, folder, target.c_str(), flags, mode); });
}

/// How many bytes a write may take now; 0 where the disk is full.
std::size_t allowance(std::size_t size) {
  const auto& fault = state().fault;
  return static_cast<std::size_t>(
      std::min<std::uint64_t>({size, fault.longest_write, fault.full_after - state().written}));
}

void write_half_of_last(int descriptor, const void* data, std::size_t size) {
  const std::lock_guard lock(state().mutex);
  const auto& fault = state().fault;
  const bool is_last = fault.kind == DiskFault::crash || fault.kind == DiskFault::power_failure ||
                       fault.kind == DiskFault::kill;
  if (!is_last || static_cast<int>(state().calls.size()) != fault.at) return;
  mark_dirty(descriptor);
  (void)::syscall(SYS_write, descriptor, data, size / 2);
}

/// `write_at(size)` makes the system call for so many bytes.
template <class WriteAt>
ssize_t armed_write(int descriptor, const void* data, std::size_t size, WriteAt write_at) {
  const auto call = "write " + path_of(descriptor);
  if (call.find(state().fault.of) == std::string::npos) return write_at(size);
  write_half_of_last(descriptor, data, size);
  if (strikes(call)) return -1;
  const std::lock_guard lock(state().mutex);
  if (state().fault.writes_nothing) return 0;
  const auto allowed = allowance(size);
  if (allowed == 0 && size > 0) return errno = ENOSPC, -1;
  mark_dirty(descriptor);
  const ssize_t put = write_at(allowed);
  if (put > 0) state().written += static_cast<std::uint64_t>(put);
  return put;
}

int armed_fsync(int descriptor) {
  if (strikes("fsync " + path_of(descriptor))) return -1;
  const std::lock_guard lock(state().mutex);
  mark_clean(descriptor);
  return 0;
}

}  // namespace

FaultyDisk::FaultyDisk(DiskFault fault) {
  if (armed) throw std::logic_error("a faulty disk within a faulty disk");
  state().fault = std::move(fault);
  state().calls.clear();
  state().written = 0;
  armed = true;
}

FaultyDisk::~FaultyDisk() {
  armed = false;
  for (const int descriptor : state().dirty) ::syscall(SYS_close, descriptor);
  state().dirty.clear();
}

std::vector<std::string> FaultyDisk::calls() const {
  const std::lock_guard lock(state().mutex);
  return state().calls;
}

}  // namespace looptorch::testing

using namespace looptorch::testing;  // NOLINT: the functions below are the C library's

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_at(folder, path, flags, mode);
}

ssize_t write(int descriptor, const void* data, size_t size) {
  const auto write = [&](std::size_t bytes) { return ::syscall(SYS_write, descriptor, data, bytes); };
  return armed ? armed_write(descriptor, data, size, write) : write(size);
}

ssize_t pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  const auto write = [&](std::size_t bytes) {
    return ::syscall(SYS_pwrite64, descriptor, data, bytes, offset);
  };
  return armed ? armed_write(descriptor, data, size, write) : write(size);
}

int fsync(int descriptor) { return armed ? armed_fsync(descriptor) : system_call(SYS_fsync, descriptor); }

int close(int descriptor) {
  const auto close_it = [&] { return system_call(SYS_close, descriptor); };
  if (!armed) return close_it();
  const auto name = "close " + path_of(descriptor);
  // As on Linux, a close that fails has closed all the same.
  return strikes(name) ? close_it(), -1 : close_it();
}

int rename(const char* from, const char* to) noexcept {
  return guarded(std::string("rename ") + from + " " + to, [&] { return system_call(SYS_rename, from, to); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return guarded(std::string("renameat2 ") + from + " " + to, [&] {
    if (armed && state().fault.no_exchange) return errno = EINVAL, -1;
    return system_call(SYS_renameat2, from_folder, from, to_folder, to, flags);
  });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return guarded(std::string("mkdir ") + path, [&] { return system_call(SYS_mkdir, path, mode); });
}

int rmdir(const char* path) noexcept {
  return guarded(std::string("rmdir ") + path, [&] { return system_call(SYS_rmdir, path); });
}

int unlink(const char* path) noexcept {
  return guarded(std::string("unlink ") + path, [&] { return system_call(SYS_unlink, path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  return guarded("unlinkat " + path_in(folder, path),
                 [&] { return system_call(SYS_unlinkat, folder, path, flags); });
}

int fstat(int descriptor, struct stat* status) noexcept {
  const int result = system_call(SYS_fstat, descriptor, status);
  if (armed && result == 0 && state().fault.no_links) status->st_nlink = 0;
  return result;
}

int flock(int descriptor, int operation) noexcept {
  return guarded(armed ? "flock " + path_of(descriptor) : std::string(), [&] {
    if (armed && state().fault.no_locks) return errno = ENOLCK, -1;
    return system_call(SYS_flock, descriptor, operation);
  });
}

int statvfs(const char* path, struct statvfs* disk) noexcept {
  return guarded(std::string("statvfs ") + path, [&] {
    const int descriptor = system_call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    const int result = descriptor < 0 ? -1 : ::fstatvfs(descriptor, disk);
    if (descriptor >= 0) ::syscall(SYS_close, descriptor);
    if (armed && state().fault.promises_space) disk->f_bavail = std::uint64_t{1} << 40;
    if (armed && state().fault.knows_no_size) disk->f_blocks = disk->f_bavail = disk->f_frsize = 0;
    return result;
  });
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*begin)(void*),
                   void* argument) noexcept {
  if (armed && state().fault.no_threads) return EAGAIN;
  static const auto create =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, begin, argument);
}

}  // extern "C"
