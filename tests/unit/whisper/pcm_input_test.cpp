// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/decode.hpp>

#include <unistd.h>
#include <whisper/pcm_input.hpp>

#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

using whisper::PcmFormat, whisper::store_pcm;

namespace {

/// What store_pcm makes of bytes that a pipe gives in pieces of `piece` bytes.
whisper::UnnamedFile stored(const std::string& bytes, const PcmFormat& format, size_t piece) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::thread writer([&] {
    for (size_t at = 0; at < bytes.size(); at += piece) {
      const auto size = std::min(piece, bytes.size() - at);
      if (::write(ends[1], bytes.data() + at, size) != static_cast<ssize_t>(size)) break;
    }
    ::close(ends[1]);
  });
  struct Join {
    std::thread& writer;
    int end;
    ~Join() { writer.join(), ::close(end); }
  } join{writer, ends[0]};
  return store_pcm(ends[0], format);
}

template <class T>
std::string bytes_of(const std::vector<T>& samples) {
  std::string bytes(samples.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), samples.data(), bytes.size());
  return bytes;
}

}  // namespace

TEST_CASE("Samples of a pipe are read back as they are, however they arrive") {
  std::vector<int16_t> shorts;
  std::vector<float> floats;
  for (int i = 0; i < 100'000; ++i) {
    shorts.push_back(static_cast<int16_t>(i * 7919));
    floats.push_back(static_cast<float>(shorts.back()) / 32768 + 1e-6F);
  }
  for (const size_t piece : {3, 1000, 65536, 1 << 20}) {
    const auto file = stored(bytes_of(shorts), {.sample_rate = 8000}, piece);
    const auto read = looptorch::audio::decode(file.path());
    CHECK(read.sample_rate == 8000);
    CHECK(read.samples_T.equal(torch::tensor(std::vector<int>(shorts.begin(), shorts.end())).to(at::kFloat) /
                               32768));
  }
  const auto file = stored(bytes_of(floats), {.sample_rate = 16000, .samples = "f32le"}, 4099);
  CHECK(looptorch::audio::decode(file.path()).samples_T.equal(torch::tensor(floats)));
}

TEST_CASE("A pipe without samples, or with half of one, is an error; the stored file has no name") {
  CHECK_THROWS_WITH(stored("", {}, 1), "-: holds no samples");
  CHECK_THROWS_WITH(stored("x", {}, 1), "-: ends with 1 of the 2 bytes of a sample of s16le");
  CHECK_THROWS_WITH(stored("123456", {.samples = "f32le"}, 4),
                    "-: ends with 2 of the 4 bytes of a sample of f32le");
  CHECK_THROWS_AS(store_pcm(-1, {}), looptorch::FileError);
  const auto file = stored("1234", {}, 4);
  CHECK_FALSE(std::filesystem::exists(std::filesystem::read_symlink(file.path())));
}
