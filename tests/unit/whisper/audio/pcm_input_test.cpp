// SPDX-License-Identifier: MIT
// Tests whisper/audio: unnamed_file
#include "support/precompiled.hpp"

#include <looptorch/audio/decode.hpp>

#include "../piped_bytes.hpp"

#include <signal.h>
#include <unistd.h>
#include <whisper/audio/pcm_input.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using whisper::PcmFormat, whisper::store_pcm;
using whisper_test::bytes_of, whisper_test::PipedBytes;

namespace {

/// What store_pcm makes of bytes that a pipe gives in pieces of `piece` bytes.
whisper::UnnamedFile stored(const std::string& bytes, const PcmFormat& format, size_t piece) {
  const PipedBytes pipe(bytes, piece);
  whisper::PcmReader reader(pipe.end(), format);
  return store_pcm(reader);
}

whisper::UnnamedFile stored_from(int input) {
  whisper::PcmReader reader(input, {});
  return store_pcm(reader);
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
  CHECK_THROWS_WITH(stored("1234567", {.channels = 2}, 4),
                    "-: ends with 3 of the 4 bytes of a sample of s16le in all channels");
  CHECK_THROWS_AS(stored_from(-1), looptorch::FileError);
  CHECK_THROWS_WITH(stored_from(::open("/", O_RDONLY)), Catch::StartsWith("-: cannot read: "));
  const auto file = stored("1234", {}, 4);
  CHECK_FALSE(std::filesystem::exists(std::filesystem::read_symlink(file.path())));
}

TEST_CASE("Of several channels the mean is read, stored or not") {
  const std::vector<int16_t> shorts{100, 300, -32768, -32768, 7, 8};
  const PcmFormat stereo{.samples = "s16le", .channels = 2};
  const auto expected_T = torch::tensor({200.0F, -32768.0F, 7.5F}) / 32768;
  CHECK(whisper::pcm_samples(bytes_of(shorts), stereo).equal(expected_T));
  CHECK(looptorch::audio::decode(stored(bytes_of(shorts), stereo, 3).path()).samples_T.equal(expected_T));
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  CHECK(whisper::pcm_samples(bytes_of(std::vector<float>{0.5F, 0.25F, kNaN, 1}), {.samples = "f32le"})
            .equal(torch::tensor({0.5F, 0.25F})));
}

TEST_CASE("A reader gives whole samples as they arrive, and ends at a signal") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  {
    whisper::PcmReader reader(ends[0], {});
    REQUIRE(::write(ends[1], "abc", 3) == 3);
    CHECK(reader.next() == "ab");
    REQUIRE(::write(ends[1], "d", 1) == 1);
    CHECK(reader.next() == "cd");  // though the pipe is still open
    CHECK_NOTHROW(reader.check_end());
    ::raise(SIGTERM);
    CHECK(reader.next().empty());
    try {
      reader.check_end();
      FAIL("nothing was thrown");
    } catch (const looptorch::app::Interrupted& interrupted) {
      CHECK(interrupted.exit_code == looptorch::app::kStoppedBySigterm);
      CHECK(std::string(interrupted.what()) == "SIGTERM was received: -: was read up to 0.000125 s");
    }
  }
  ::close(ends[1]);
  ::close(ends[0]);
}
