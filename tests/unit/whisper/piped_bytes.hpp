// SPDX-License-Identifier: MIT
// Bytes that come through a pipe, a piece after the other.
#pragma once

#include "support/precompiled.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace whisper_test {

template <class T>
std::string bytes_of(const std::vector<T>& samples) {
  std::string bytes(samples.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), samples.data(), bytes.size());
  return bytes;
}

/// A thread that writes bytes into a pipe, and closes it.
class PipedBytes {
 public:
  PipedBytes(std::string bytes, std::size_t piece, std::chrono::microseconds pause = {})
      : bytes_(std::move(bytes)) {
    REQUIRE(::pipe(ends_) == 0);
    writer_ = std::thread([this, piece, pause] {
      for (std::size_t at = 0; at < bytes_.size(); at += piece) {
        const auto size = std::min(piece, bytes_.size() - at);
        if (::write(ends_[1], bytes_.data() + at, size) != static_cast<ssize_t>(size)) break;
        written_ = at + size;
        if (pause.count() > 0) std::this_thread::sleep_for(pause);
      }
      ::close(ends_[1]);
    });
  }
  PipedBytes(const PipedBytes&) = delete;
  PipedBytes& operator=(const PipedBytes&) = delete;
  ~PipedBytes() {
    std::string rest(1 << 16, 0);
    while (::read(ends_[0], rest.data(), rest.size()) > 0) continue;  // or the writer would wait
    writer_.join();
    ::close(ends_[0]);
  }

  [[nodiscard]] int end() const { return ends_[0]; }
  [[nodiscard]] std::size_t written() const { return written_; }

 private:
  std::string bytes_;
  int ends_[2]{};
  std::thread writer_;
  std::atomic<std::size_t> written_{0};
};

}  // namespace whisper_test
