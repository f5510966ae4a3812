// SPDX-License-Identifier: MIT
// Finds the address at which the other ranks reach this machine. Looking up the machine's own name is not
// enough: Debian's /etc/hosts maps it to 127.0.1.1, and in a container it often has no address at all.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace looptorch::detail {

/// Returns this machine's address on the route to `host`, as text; empty if there is none. Sends nothing.
inline std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  for (; found; found = found->ai_next) {
    const int socket = ::socket(found->ai_family, SOCK_DGRAM, 0);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    const bool is_known = ::connect(socket, found->ai_addr, found->ai_addrlen) == 0 &&
                          ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0;
    ::close(socket);
    std::array<char, NI_MAXHOST> text{};
    if (is_known && ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text.data(), text.size(), nullptr,
                                  0, NI_NUMERICHOST) == 0)
      return text.data();
  }
  return {};
}

[[nodiscard]] inline bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

/// Returns this rank's address on the route to `master`, the machine of the store. On `master` itself,
/// returns the address on the route to a rank of another machine, or loopback if there is no such rank. Empty
/// if there is no route. All ranks call it.
inline std::string own_address(c10d::Store& store, const std::string& master, std::int64_t rank,
                               std::int64_t size) {
  const auto key = [](std::int64_t of) { return "address " + std::to_string(of); };
  std::string own = address_towards(master);
  store.set(key(rank), own);
  for (std::int64_t other = 0; other < size && is_loopback(own); ++other) {
    const auto bytes = store.get(key(other));  // waits for that rank
    const std::string there(bytes.begin(), bytes.end());
    if (there.empty() || is_loopback(there)) continue;
    if (const std::string towards = address_towards(there); !towards.empty()) own = towards;
  }
  return own;
}

}  // namespace looptorch::detail
