// SPDX-License-Identifier: MIT
// Tests audio/sound_file: announced_data, ogg_pages, ogg_seek, sound_stream
#include "support/precompiled.hpp"

#include <looptorch/audio/decode.hpp>

#include "support/temporary_folder.hpp"

#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>

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
  const int encoding = format & SF_FORMAT_SUBMASK;
  if (encoding == SF_FORMAT_FLOAT || encoding == SF_FORMAT_DOUBLE || encoding >= SF_FORMAT_VORBIS) {
    constexpr sf_count_t kBlock = 3 * 4000;  // Vorbis's encoder overflows the stack if it gets all at once
    for (sf_count_t i = 0; i < count; i += kBlock) {
      const sf_count_t some = std::min(kBlock, count - i);
      REQUIRE(sf_write_float(file, interleaved.data() + i, some) == some);
    }
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
constexpr int kVorbis = SF_FORMAT_OGG | SF_FORMAT_VORBIS;
constexpr int kOpus = SF_FORMAT_OGG | SF_FORMAT_OPUS;
constexpr int kMp3 = SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III;

/// All channels alike; gliding, so that no part of it equals another.
std::vector<float> tone(double seconds, int rate, int channels) {
  std::vector<float> samples;
  for (int i = 0; i < std::lround(seconds * rate); ++i) {
    const double t = double(i) / rate;
    samples.insert(samples.end(), std::size_t(channels),
                   float(0.4 * std::sin(2 * 3.14159 * (300 + 100 * t) * t)));
  }
  return samples;
}

}  // namespace

TEST_CASE("samples and rate come out as they went in, whatever the format") {
  const TemporaryFolder folder;
  const int format = GENERATE(
      int(kWav), SF_FORMAT_WAV | SF_FORMAT_PCM_U8, SF_FORMAT_WAV | SF_FORMAT_PCM_24,
      SF_FORMAT_WAV | SF_FORMAT_PCM_32, SF_FORMAT_WAV | SF_FORMAT_FLOAT, SF_FORMAT_WAV | SF_FORMAT_DOUBLE,
      SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, SF_FORMAT_WAVEX | SF_FORMAT_PCM_16,
      SF_FORMAT_RF64 | SF_FORMAT_PCM_16, SF_FORMAT_W64 | SF_FORMAT_PCM_24, SF_FORMAT_CAF | SF_FORMAT_PCM_16,
      SF_FORMAT_AIFF | SF_FORMAT_PCM_16, SF_FORMAT_AIFF | SF_FORMAT_FLOAT, SF_FORMAT_AU | SF_FORMAT_PCM_16,
      SF_FORMAT_AU | SF_FORMAT_PCM_32 | SF_ENDIAN_LITTLE, int(kFlac), SF_FORMAT_FLAC | SF_FORMAT_PCM_S8,
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
  CHECK_THROWS_WITH(range(1, 2), EndsWith("holds 1 s; no sample lies between 1 s and 2 s"));
  CHECK_THROWS_AS(range(0.5, 0.5), UsageError);
  CHECK_THROWS_AS(range(-1, 2), UsageError);
  CHECK_THROWS_WITH(range(0.5, std::nan("")), EndsWith("cannot decode from 0.5 s to nan s at 16000 Hz"));
}

TEST_CASE("a range of a compressed or resampled file equals that part of the whole one") {
  const TemporaryFolder folder;
  const int format = GENERATE(int(kFlac), kVorbis, kOpus, kMp3);
  const std::int64_t rate = GENERATE(0, 16000, 44100);
  CAPTURE(format, rate);
  write(folder / "tone", format, tone(3.01, 48000, 2), 2, 48000);
  const audio::Waveform whole = decode(folder / "tone", {.sample_rate = rate});
  REQUIRE(whole.sample_rate == (rate ? rate : 48000));
  REQUIRE(whole.samples_T.numel() == std::int64_t(std::ceil(3.01 * double(whole.sample_rate))));
  for (const auto& [start, end] :
       {std::pair{0.0, 0.1}, {0.0123, 0.5}, {1.0, 1.001}, {2.2, 3.0}, {2.9, 99.0}}) {
    CAPTURE(start, end);
    const at::Tensor part_T = decode(folder / "tone", {rate, start, end}).samples_T;
    const auto at_rate = [&](double seconds) { return std::llround(seconds * double(whole.sample_rate)); };
    const at::Tensor expected_T = whole.samples_T.slice(0, at_rate(start), at_rate(end));
    REQUIRE(part_T.sizes() == expected_T.sizes());
    CHECK((part_T - expected_T).abs().max().item<float>() < 2e-6);
  }
}

namespace {

/// A voice with pauses of silence between, in which an Opus decoder's state does not show.
std::vector<float> speech(double seconds, int rate, int channels, double silent_from, double silent_to) {
  std::vector<float> samples = tone(seconds, rate, channels);
  const std::vector<float> rustle = noise(std::int64_t(samples.size()));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double t = double(i / std::size_t(channels)) / rate;
    const bool is_silent = t > silent_from && t < silent_to;
    samples[i] = is_silent ? 0 : samples[i] * float(std::max(0.0, std::sin(5 * t))) + 0.02F * rustle[i];
  }
  return samples;
}

at::Tensor from_near(const fs::path& path, std::int64_t first, std::int64_t count) {
  const audio::detail::PiecedFile file(std::make_shared<const InputFile>(path));
  const audio::detail::SoundStream whole(file);
  at::Tensor samples = torch::empty({count}, at::kFloat);
  const bool is_read =
      audio::detail::OggSeek(file, whole.info()).read(first, samples.data_ptr<float>(), count);
  return is_read ? samples : at::Tensor();
}

}  // namespace

TEST_CASE(
    "a range of a long Vorbis or Opus file has the bits of the whole one, without what lies before it") {
  const TemporaryFolder folder;
  const int format = GENERATE(kVorbis, kOpus);
  const int rate = GENERATE(16000, 48000), channels = GENERATE(1, 2);
  CAPTURE(format, rate, channels);
  const int seconds = rate == 16000 && channels == 1 ? 60 : 30;
  write(folder / "long", format, speech(seconds, rate, channels, 99, 99), channels, rate);
  const at::Tensor whole_T = decode(folder / "long").samples_T;
  for (const double start : {8.0, 9.7654, seconds / 3.0, 0.555 * seconds, 0.7852 * seconds, seconds - 1.1}) {
    CAPTURE(start);
    const std::int64_t first = std::llround(start * rate);
    const at::Tensor expected_T = whole_T.slice(0, first, first + rate);
    CHECK(decode(folder / "long", {0, start, start + 1}).samples_T.equal(expected_T));
    const at::Tensor near_T = from_near(folder / "long", first, rate);
    REQUIRE(near_T.defined());
    CHECK(near_T.equal(expected_T));
  }
  CHECK_FALSE(from_near(folder / "long", 7 * rate, rate).defined());
  CHECK_FALSE(from_near(folder / "long", (seconds - 1) * rate, 2 * rate).defined());
}

TEST_CASE("after silence, which does not show an Opus decoder's state, a range has the same bits") {
  const TemporaryFolder folder;
  const int format = GENERATE(kVorbis, kOpus);
  write(folder / "long", format, speech(60, 16000, 1, 22, 40));
  const at::Tensor whole_T = decode(folder / "long").samples_T;
  for (const double start : {23.5, 30.0, 40.5, 41.0, 45.0}) {
    const std::int64_t first = std::llround(start * 16000);
    CAPTURE(format, start);
    CHECK(decode(folder / "long", {0, start, start + 2})
              .samples_T.equal(whole_T.slice(0, first, first + 32000)));
  }
}

TEST_CASE("a range of an Ogg file of several streams has the bits of the whole one, across their ends too") {
  const TemporaryFolder folder;
  write(folder / "one", kVorbis, speech(30, 16000, 1, 99, 99));
  const std::string one = bytes_of(folder / "one");
  put_bytes(folder / "chained", one + one);
  const at::Tensor whole_T = decode(folder / "chained").samples_T, one_T = decode(folder / "one").samples_T;
  CHECK(whole_T.equal(at::cat({one_T, one_T})));
  for (const double start : {10.0, 28.0, 29.5, 30.0, 45.0, 59.0}) {
    const std::int64_t first = std::llround(start * 16000);
    CHECK(decode(folder / "chained", {0, start, start + 1})
              .samples_T.equal(whole_T.slice(0, first, first + 16000)));
  }
}

TEST_CASE("a range of a format in which libsndfile cannot seek equals that part of the whole one") {
  const TemporaryFolder folder;
  const int format = GENERATE(SF_FORMAT_WAV | SF_FORMAT_GSM610, SF_FORMAT_WAV | SF_FORMAT_G721_32,
                              SF_FORMAT_WAV | SF_FORMAT_NMS_ADPCM_32, SF_FORMAT_AU | SF_FORMAT_G723_24,
                              SF_FORMAT_AIFF | SF_FORMAT_DWVW_16);
  CAPTURE(format);
  write(folder / "tone", format, tone(2, 16000, 1));
  const at::Tensor whole_T = decode(folder / "tone").samples_T;
  REQUIRE(whole_T.numel() >= 32000);
  for (const auto& [start, end] : {std::pair{0.0, 0.1}, {0.5, 1.2345}, {1.9, 2.0}})
    CHECK(decode(folder / "tone", {0, start, end})
              .samples_T.equal(whole_T.slice(0, std::llround(start * 16000), std::llround(end * 16000))));
}

TEST_CASE("compressed formats keep the length and, nearly, the sound") {
  const TemporaryFolder folder;
  const int format = GENERATE(kVorbis, kOpus, kMp3);
  const int channels = GENERATE(1, 2);
  CAPTURE(format, channels);
  write(folder / "tone", format, tone(1.5, 48000, channels), channels, 48000);
  const audio::Waveform waveform = decode(folder / "tone");
  REQUIRE(waveform.sample_rate == 48000);
  REQUIRE(waveform.samples_T.numel() == 72000);
  const at::Tensor expected_T = torch::tensor(tone(1.5, 48000, 1));
  CHECK((waveform.samples_T - expected_T).slice(0, 1000, -1000).abs().max().item<float>() < 0.02);
}

TEST_CASE("a file of another rate is resampled") {
  const TemporaryFolder folder;
  write(folder / "cd.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, tone(1, 44100, 1), 1, 44100);
  const audio::Waveform waveform = decode(folder / "cd.wav", {.sample_rate = 16000});
  CHECK(waveform.sample_rate == 16000);
  REQUIRE(waveform.samples_T.numel() == 16000);
  const at::Tensor expected_T = torch::tensor(tone(1, 16000, 1));
  CHECK((waveform.samples_T - expected_T).slice(0, 100, -100).abs().max().item<float>() < 1e-4);
  CHECK(decode(folder / "cd.wav", {.sample_rate = 44100}).samples_T.equal(torch::tensor(tone(1, 44100, 1))));
  CHECK_THROWS_AS(decode(folder / "cd.wav", {.sample_rate = -1}), UsageError);
}

TEST_CASE("a file whose rate cannot be resampled is named") {
  const TemporaryFolder folder;
  write(folder / "odd.wav", kWav, ramp(100), 1, 191'999);
  CHECK_THROWS_WITH(
      decode(folder / "odd.wav", {.sample_rate = 192'000}),
      StartsWith((folder / "odd.wav").string() + ": Resampler: from 191999 Hz to 192000 Hz takes"));
  CHECK_THROWS_AS(decode(folder / "odd.wav", {.sample_rate = 192'000}), AudioError);
}

TEST_CASE("only what a range needs is decoded") {
  const TemporaryFolder folder;
  std::vector<float> samples = ramp(48000);
  samples[100] = samples[47900] = std::numeric_limits<float>::quiet_NaN();
  write(folder / "bad.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, samples, 1, 48000);
  CHECK(decode(folder / "bad.wav", {16000, 0.1, 0.9}).samples_T.numel() == 12800);
  CHECK_THROWS_WITH(decode(folder / "bad.wav", {16000, 0.9, 1}),
                    EndsWith("sample 47900 is not a finite number"));
}

TEST_CASE("a file that was cut off anywhere is refused") {
  const TemporaryFolder folder;
  const int format =
      GENERATE(int(kWav), int(kFlac), SF_FORMAT_WAV | SF_FORMAT_FLOAT, SF_FORMAT_RF64 | SF_FORMAT_PCM_16,
               SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, SF_FORMAT_WAVEX | SF_FORMAT_PCM_16,
               SF_FORMAT_WAV | SF_FORMAT_PCM_U8, SF_FORMAT_WAV | SF_FORMAT_DOUBLE,
               SF_FORMAT_AIFF | SF_FORMAT_PCM_16, SF_FORMAT_AIFF | SF_FORMAT_FLOAT,
               SF_FORMAT_AU | SF_FORMAT_PCM_16, SF_FORMAT_AU | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE,
               SF_FORMAT_W64 | SF_FORMAT_PCM_16, SF_FORMAT_CAF | SF_FORMAT_PCM_16,
               SF_FORMAT_NIST | SF_FORMAT_PCM_16, SF_FORMAT_NIST | SF_FORMAT_ULAW, kVorbis, kOpus, kMp3);
  CAPTURE(format);
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

TEST_CASE("an Ogg file that ends after one of its pages is refused") {
  const TemporaryFolder folder;
  const int format = GENERATE(kVorbis, kOpus);
  write(folder / "whole", format, noise(160'000));
  const std::string whole = bytes_of(folder / "whole");
  int pages = 0;
  for (std::size_t page = whole.find("OggS", 1); page != std::string::npos;
       page = whole.find("OggS", page + 1)) {
    CAPTURE(format, page);
    ++pages;
    put_bytes(folder / "cut", whole.substr(0, page));
    CHECK_THROWS_WITH(
        decode(folder / "cut"),
        (folder / "cut").string() + ": cut off: it does not end with the last page of an Ogg stream");
  }
  CHECK(pages > 3);
  CHECK(decode(folder / "whole").samples_T.numel() == 160'000);
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

TEST_CASE("AU and CAF files written by a pipe do not count as cut off") {
  const TemporaryFolder folder;
  const auto piped = [&folder](int format, std::size_t size_at, const std::string& size) {
    write(folder / "a", format, ramp(1000));
    std::string bytes = bytes_of(folder / "a");
    if (size_at == 0) size_at = bytes.find("data") + 4;
    put_bytes(folder / "piped", bytes.replace(size_at, size.size(), size));
    return decode(folder / "piped").samples_T;
  };
  const std::string unknown(8, '\xff');
  CHECK(piped(SF_FORMAT_AU | SF_FORMAT_PCM_16, 8, unknown.substr(0, 4)).equal(torch::tensor(ramp(1000))));
  std::string refusal;
  try {
    piped(SF_FORMAT_CAF | SF_FORMAT_PCM_16, 0, unknown);
  } catch (const AudioError& error) {  // libsndfile 1.2 does not know such files
    refusal = error.what();
  }
  CHECK(refusal.find("cut off") == std::string::npos);
}

TEST_CASE("a FLAC file written by a pipe, which does not say how long it is, is read to its end") {
  const TemporaryFolder folder;
  write(folder / "a.flac", kFlac, ramp(10'000));
  std::string bytes = bytes_of(folder / "a.flac");
  bytes[21] = static_cast<char>(bytes[21] & 0xf0);  // STREAMINFO's 36 bits of total samples
  bytes.replace(22, 4, 4, '\0');
  put_bytes(folder / "piped.flac", bytes);
  const at::Tensor whole_T = torch::tensor(ramp(10'000));
  CHECK(decode(folder / "piped.flac").samples_T.equal(whole_T));
  CHECK(decode(folder / "piped.flac", {0, 0.25, 0.5}).samples_T.equal(whole_T.slice(0, 4000, 8000)));
  put_bytes(folder / "tagged.flac", bytes + "TAG" + std::string(125, ' '));
  CHECK(decode(folder / "tagged.flac").samples_T.equal(whole_T));
  for (const std::size_t missing : {1U, 2U, 100U}) {
    put_bytes(folder / "cut.flac", bytes.substr(0, bytes.size() - missing));
    CHECK_THROWS_WITH(decode(folder / "cut.flac"),
                      (folder / "cut.flac").string() + ": cut off: it does not end with a whole FLAC frame");
  }
  put_bytes(folder / "empty.flac", bytes.substr(0, bytes.find("\xff\xf8")));
  CHECK_THROWS_AS(decode(folder / "empty.flac"), AudioError);
}

TEST_CASE("a file of nothing but empty chunks is refused at once") {
  const TemporaryFolder folder;
  put_bytes(folder / "chunks.wav", std::string("RIFF\0\0\0\0WAVE", 12));
  fs::resize_file(folder / "chunks.wav", 200'000'000);
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_AS(decode(folder / "chunks.wav"), AudioError);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
}

TEST_CASE("no byte of a header, whatever its value, does more than give samples or an AudioError") {
  const TemporaryFolder folder;
  const int format = GENERATE(int(kWav), SF_FORMAT_RF64 | SF_FORMAT_PCM_16, SF_FORMAT_AIFF | SF_FORMAT_PCM_16,
                              SF_FORMAT_AU | SF_FORMAT_PCM_16, SF_FORMAT_W64 | SF_FORMAT_PCM_16,
                              SF_FORMAT_CAF | SF_FORMAT_PCM_16, SF_FORMAT_NIST | SF_FORMAT_PCM_16);
  write(folder / "whole", format, ramp(200));
  const std::string whole = bytes_of(folder / "whole");
  int refused = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(whole.size(), 120); ++i) {
    for (const int value : {0x00, 0x7f, 0x80, 0xff}) {
      CAPTURE(format, i, value);
      std::string bytes = whole;
      bytes[i] = static_cast<char>(value);
      put_bytes(folder / "changed", bytes);
      std::int64_t samples = 0;
      try {
        samples = decode(folder / "changed").samples_T.numel();
      } catch (const AudioError&) {
        ++refused;
      }
      CHECK(samples <= 1000);
    }
  }
  CHECK(refused > 20);
}

TEST_CASE("chunks before and after the samples do no harm") {
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
  CHECK_THROWS_WITH(decode(file("text.mp3", "this is not audio")),
                    StartsWith((folder / "text.mp3").string() + ": not audio that libsndfile can read: ") &&
                        !Catch::Contains("does not exist"));
  using namespace std::string_literals;
  const std::vector<std::pair<std::string, std::string>> kinds{{"\0\0\0 ftypM4A isom"s, "M4A or MP4"},
                                                               {"\xff\xf1\x50\x80"s, "AAC"},
                                                               {"\x30\x26\xb2\x75\x8e"s, "WMA or WMV"},
                                                               {"\x1a\x45\xdf\xa3"s, "WebM or Matroska"},
                                                               {"#!AMR\n"s, "AMR"}};
  for (const auto& [bytes, kind] : kinds)
    CHECK_THROWS_WITH(
        decode(file("talk.m4a", bytes)),
        Catch::Contains("not audio that libsndfile can read: ") &&
            Catch::Contains("; it is " + kind + ": ffmpeg -i \"" + (folder / "talk.m4a").string() + "\" \"" +
                            (folder / "talk.flac").string() + "\" converts it"));
  CHECK_THROWS_WITH(decode(file("nothing.wav", "")),
                    (folder / "nothing.wav").string() + ": is an empty file");
  std::string shorten =
      "NIST_1A\n   1024\nsample_count -i 9\nsample_rate -i 16000\nchannel_count -i 1\nsample_n_bytes -i 2\n"
      "sample_byte_format -s2 01\nsample_coding -s26 pcm,embedded-shorten-v2.00\nend_head\n";
  shorten.resize(1024, ' ');
  CHECK_THROWS_WITH(decode(file("wsj.wv1", shorten + "ajkg" + std::string(30, 'x'))),
                    (folder / "wsj.wv1").string() +
                        ": is compressed by Shorten, which libsndfile cannot read: ffmpeg -i \"" +
                        (folder / "wsj.wv1").string() + "\" \"" + (folder / "wsj.flac").string() +
                        "\" converts it");
  CHECK_THROWS_WITH(decode(folder / "missing.wav"),
                    (folder / "missing.wav").string() + ": cannot open: No such file or directory");
  CHECK_THROWS_WITH(decode(folder.path()), folder.path().string() + ": is not a regular file");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH(decode(folder / "pipe"), (folder / "pipe").string() + ": is not a regular file");
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

TEST_CASE("A recording of more than 2^31 samples is read") {
  const TemporaryFolder folder;
  constexpr std::uint32_t kSamples = 2'500'000'000;  // 14 h at 48 kHz, of a byte each
  write(folder / "day.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_U8, ramp(16), 1, 48000);
  std::string bytes = bytes_of(folder / "day.wav");
  const std::size_t size = bytes.find("data") + 4;
  std::memcpy(bytes.data() + size, &kSamples, sizeof kSamples);
  put_bytes(folder / "day.wav", bytes);
  fs::resize_file(folder / "day.wav", size + 4 + kSamples);  // zeros, of which the disk stores none
  constexpr double kEnd = kSamples / 48000.0;
  const at::Tensor end_T = decode(folder / "day.wav", {.start = kEnd - 0.01}).samples_T;
  CHECK(end_T.equal(at::full({480}, -1.0F)));
}
