// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/decode.hpp>

#include "support/temporary_folder.hpp"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace fs = std::filesystem;
using namespace looptorch;
using audio::AudioError;
using audio::decode;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using testing::TemporaryFolder;

namespace {

/// Frame i of channel c holds (i % 200 - 100 + c) / 128, which every format below keeps exactly.
float value(std::int64_t frame, int channel) { return float(frame % 200 - 100 + channel) / 128; }

void write(const fs::path& path, int format, const std::vector<float>& interleaved, int channels = 1,
           int rate = 16000) {
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file);
  const auto count = sf_count_t(interleaved.size());
  if ((format & SF_FORMAT_SUBMASK) == SF_FORMAT_FLOAT) {
    REQUIRE(sf_write_float(file, interleaved.data(), count) == count);
  } else {  // as whole numbers: libsndfile scales floats by 2^15 - 1
    std::vector<int> whole;
    for (const float sample : interleaved) whole.push_back(int(double(sample) * 2147483648.0));
    REQUIRE(sf_write_int(file, whole.data(), count) == count);
  }
  REQUIRE(sf_close(file) == 0);
}

std::vector<float> ramp(std::int64_t frames, int channels = 1) {
  std::vector<float> samples;
  for (std::int64_t i = 0; i < frames; ++i)
    for (int c = 0; c < channels; ++c) samples.push_back(value(i, c));
  return samples;
}

/// Noise, so that a compressed file's length follows the number of samples.
std::vector<float> noise(std::int64_t frames) {
  std::vector<float> samples;
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < frames; ++i) {
    state = 1664525 * state + 1013904223;
    samples.push_back(float(std::int32_t(state) >> 16) / 32768);
  }
  return samples;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

constexpr int kWav = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
constexpr int kFlac = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;

}  // namespace

TEST_CASE("samples and rate come out as they went in, whatever the format") {
  const TemporaryFolder folder;
  const int format =
      GENERATE(int(kWav), int(kFlac), SF_FORMAT_WAV | SF_FORMAT_PCM_24, SF_FORMAT_WAV | SF_FORMAT_FLOAT,
               SF_FORMAT_WAVEX | SF_FORMAT_PCM_16, SF_FORMAT_RF64 | SF_FORMAT_PCM_16,
               SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, SF_FORMAT_AIFF | SF_FORMAT_PCM_16,
               SF_FORMAT_FLAC | SF_FORMAT_PCM_24);
  CAPTURE(format);
  write(folder / "ramp", format, ramp(5000), 1, 22050);
  const audio::Waveform waveform = decode(folder / "ramp");
  CHECK(waveform.sample_rate == 22050);
  CHECK(waveform.samples_T.scalar_type() == at::kFloat);
  CHECK(waveform.samples_T.equal(torch::tensor(ramp(5000))));
}

TEST_CASE("channels are mixed down by their mean") {
  const TemporaryFolder folder;
  const int channels = GENERATE(2, 3);
  write(folder / "many.wav", kWav, ramp(10'001, channels), channels);
  const at::Tensor samples_T = decode(folder / "many.wav").samples_T;
  REQUIRE(samples_T.sizes() == at::IntArrayRef{10'001});
  for (const std::int64_t i : {0, 1, 4095, 4096, 10'000})
    CHECK(std::abs(samples_T[i].item<float>() - (value(i, 0) + value(i, channels - 1)) / 2) < 1e-6);
}

TEST_CASE("a range is read without what surrounds it") {
  const TemporaryFolder folder;
  const int format = GENERATE(int(kWav), int(kFlac));
  write(folder / "ramp", format, ramp(16000));
  const at::Tensor whole_T = torch::tensor(ramp(16000));
  const auto range = [&folder](double start, double end) {
    return decode(folder / "ramp", {16000, start, end}).samples_T;
  };
  CHECK(range(0.25, 0.75).equal(whole_T.slice(0, 4000, 12000)));
  CHECK(range(0, 0.5).equal(whole_T.slice(0, 0, 8000)));
  CHECK(range(0.9, 7).equal(whole_T.slice(0, 14400)));
  CHECK_THROWS_WITH(range(1, 2), EndsWith("holds 1 s; nothing lies between 1 s and 2 s"));
  CHECK_THROWS_AS(range(0.5, 0.5), UsageError);
  CHECK_THROWS_AS(range(-1, 2), UsageError);
  CHECK_THROWS_WITH(range(0.5, std::nan("")), EndsWith("cannot decode from 0.5 s to nan s"));
}

TEST_CASE("another sample rate than expected names the file and both rates") {
  const TemporaryFolder folder;
  write(folder / "cd.wav", kWav, ramp(100), 1, 44100);
  CHECK_THROWS_WITH(decode(folder / "cd.wav", {.sample_rate = 16000}),
                    (folder / "cd.wav").string() + ": sample rate is 44100 Hz, expected 16000 Hz");
  CHECK(decode(folder / "cd.wav", {.sample_rate = 44100}).samples_T.numel() == 100);
}

TEST_CASE("a file that was cut off anywhere is refused") {
  const TemporaryFolder folder;
  const int format =
      GENERATE(int(kWav), int(kFlac), SF_FORMAT_WAV | SF_FORMAT_FLOAT, SF_FORMAT_RF64 | SF_FORMAT_PCM_16,
               SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, SF_FORMAT_WAVEX | SF_FORMAT_PCM_16);
  write(folder / "whole", format, noise(20'000));
  const std::string whole = bytes_of(folder / "whole");
  REQUIRE(decode(folder / "whole").samples_T.numel() == 20'000);
  for (const std::size_t kept :
       {whole.size() - 1, whole.size() - 2, whole.size() - 4096, whole.size() / 2, whole.size() / 10,
        std::size_t{200}, std::size_t{40}, std::size_t{12}, std::size_t{3}}) {
    CAPTURE(format, kept, whole.size());
    put_bytes(folder / "cut", whole.substr(0, kept));
    CHECK_THROWS_AS(decode(folder / "cut"), AudioError);
  }
}

TEST_CASE("the message of a cut file says what is missing") {
  const TemporaryFolder folder;
  write(folder / "a.wav", kWav, noise(10'000));
  write(folder / "a.flac", kFlac, noise(10'000));
  put_bytes(folder / "cut.wav", bytes_of(folder / "a.wav").substr(0, 5044));
  put_bytes(folder / "cut.flac", bytes_of(folder / "a.flac").substr(0, 12'000));
  CHECK_THROWS_WITH(decode(folder / "cut.wav"),
                    (folder / "cut.wav").string() +
                        ": cut off: its header announces 20000 bytes of samples, 5000 are there");
  CHECK_THROWS_WITH(
      decode(folder / "cut.flac"),
      StartsWith((folder / "cut.flac").string() +
                 ": cut off or damaged: it announces 10000 samples a channel, reading ended after "));
}

TEST_CASE("a WAV file written by a pipe, which did not know its size, is read to its end") {
  const TemporaryFolder folder;
  write(folder / "a.wav", kWav, ramp(1000));
  std::string bytes = bytes_of(folder / "a.wav");
  const std::size_t data = bytes.find("data");
  REQUIRE(data != std::string::npos);
  const std::string size = GENERATE(std::string("\xff\xff\xff\xff"), std::string("\x00\xf0\xff\x7f", 4));
  put_bytes(folder / "piped.wav", bytes.replace(data + 4, 4, size));
  CHECK(decode(folder / "piped.wav").samples_T.equal(torch::tensor(ramp(1000))));
}

TEST_CASE("chunks before and behind the samples do no harm") {
  const TemporaryFolder folder;
  write(folder / "a.wav", kWav, ramp(1000));
  std::string bytes = bytes_of(folder / "a.wav");
  bytes.insert(bytes.find("data"), std::string("junk\x03\0\0\0abc\0", 12));  // odd length: padded
  bytes += std::string("LIST\x04\0\0\0abcd", 12);
  put_bytes(folder / "chunks.wav", bytes);
  CHECK(decode(folder / "chunks.wav").samples_T.equal(torch::tensor(ramp(1000))));
}

TEST_CASE("what is no audio is refused in one sentence with the path") {
  const TemporaryFolder folder;
  const auto file = [&folder](const std::string& name, const std::string& bytes) {
    put_bytes(folder / name, bytes);
    return folder / name;
  };
  CHECK_THROWS_WITH(decode(file("text.wav", "this is not audio")),
                    StartsWith((folder / "text.wav").string() + ": not audio that libsndfile can read: "));
  CHECK_THROWS_WITH(decode(file("nothing.wav", "")),
                    StartsWith((folder / "nothing.wav").string() + ": not audio"));
  CHECK_THROWS_WITH(decode(folder / "missing.wav"),
                    (folder / "missing.wav").string() + ": cannot open: No such file or directory");
  CHECK_THROWS_WITH(decode(folder.path()), folder.path().string() + ": is not a regular file");
  CHECK_THROWS_AS(decode(folder / "missing.wav"), FileError);
  write(folder / "empty.wav", kWav, {});
  CHECK_THROWS_WITH(decode(folder / "empty.wav"), (folder / "empty.wav").string() + ": holds no samples");
  write(folder / "empty.flac", kFlac, {});
  CHECK_THROWS_AS(decode(folder / "empty.flac"), AudioError);
}

TEST_CASE("samples that are no finite numbers are refused, large ones are not") {
  const TemporaryFolder folder;
  const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity());
  std::vector<float> samples = ramp(500);
  samples[100] = std::numeric_limits<float>::max();
  write(folder / "loud.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, samples);
  CHECK(decode(folder / "loud.wav").samples_T.numel() == 500);
  samples[321] = bad;
  write(folder / "bad.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, samples);
  CHECK_THROWS_WITH(decode(folder / "bad.wav"),
                    (folder / "bad.wav").string() + ": sample 321 is not a finite number");
}

TEST_CASE("a header that announces an incredible length allocates nothing") {
  const TemporaryFolder folder;
  write(folder / "a.flac", kFlac, noise(10'000));
  std::string bytes = bytes_of(folder / "a.flac");
  bytes[21] = static_cast<char>(bytes[21] | 0x0f);  // the upper 4 of STREAMINFO's 36 bits: total samples
  put_bytes(folder / "long.flac", bytes);
  CHECK_THROWS_WITH(decode(folder / "long.flac"), EndsWith("which is not credible"));
}
