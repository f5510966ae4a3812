// SPDX-License-Identifier: MIT
// The message by which stand_in.cpp asks preloaded.cpp over a socket to run a program: a folder, arguments,
// an environment and three open files. The answer is the run's status, as waitpid has it.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace looptorch::testing {

inline constexpr int kFiles = 3;  // standard input, output and error

/// Returns the address of a socket in the file system; of family AF_UNSPEC for a path that is too long.
inline sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof(address.sun_path)) return address;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

/// A message of one number and the three files.
struct Head {
  std::uint64_t bytes = 0;
  iovec part{&bytes, sizeof(bytes)};
  alignas(cmsghdr) char control[CMSG_SPACE(kFiles * sizeof(int))]{};
  msghdr message{};

  Head() {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;
  void* files() { return CMSG_DATA(CMSG_FIRSTHDR(&message)); }
};

/// Reads or writes all of it; false at an end or error.
template <class Call, class Byte>
bool transfer_all(Call call, int file, Byte* data, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t count = call(file, data + done, size - done);
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace looptorch::testing
