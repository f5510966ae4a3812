// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/audio/decode.hpp>

#include "../piped_bytes.hpp"
#include "support/temporary_folder.hpp"

#include <sndfile.h>
#include <whisper/audio/piped_header.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

using Catch::Matchers::Contains;
using looptorch::testing::TemporaryFolder;
using whisper::begins_as_file, whisper::PcmFormat, whisper::PcmReader;
using whisper_test::bytes_of, whisper_test::PipedBytes;

namespace {

/// A tone by libsndfile.
std::string written(const std::filesystem::path& path, int format, int rate = 16000, int channels = 1,
                    int frames = 20'000) {
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file);
  std::vector<float> samples;
  for (int i = 0; i < frames * channels; ++i) samples.push_back(float(0.4 * std::sin(0.05 * i)));
  REQUIRE(sf_writef_float(file, samples.data(), frames) == frames);
  REQUIRE(sf_close(file) == 0);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Four frames of `size` bytes that begin with `header`.
std::string several(std::string header, std::size_t size) {
  header.resize(size, 'x');
  return header + header + header + header;
}

/// The samples that a reader gives, as they arrive.
at::Tensor samples_of(PcmReader& reader) {
  std::vector<at::Tensor> parts;
  for (auto bytes = reader.next(); !bytes.empty(); bytes = reader.next())
    parts.push_back(whisper::pcm_samples(bytes, reader.format()).clone());
  reader.check_end();
  return at::cat(parts);
}

}  // namespace

TEST_CASE("A WAV file of plain samples in a pipe is read as it arrives, at its rate and with its channels") {
  const TemporaryFolder folder;
  const int format = GENERATE(SF_FORMAT_WAV | SF_FORMAT_PCM_16, SF_FORMAT_WAV | SF_FORMAT_FLOAT,
                              SF_FORMAT_WAVEX | SF_FORMAT_PCM_16);
  const int channels = GENERATE(1, 2);
  std::string bytes = written(folder / "a.wav", format, 44100, channels);
  const at::Tensor expected_T = looptorch::audio::decode(folder / "a.wav").samples_T;
  bytes += std::string("LIST\x04\0\0\0abcd", 12);
  std::string piped = bytes;
  const std::size_t data = piped.find("data");
  const std::string size =
      GENERATE(std::string("\0\xf0\xff\x7f", 4), std::string(4, '\xff'), std::string(4, '\0'));
  piped = piped.replace(data + 4, 4, size).substr(0, bytes.size() - 12);
  for (const std::string& wav : {bytes, piped}) {
    for (const std::size_t piece : {7, 1000, 1 << 20}) {
      const PipedBytes pipe(wav, piece);
      PcmReader reader(pipe.end(), {.sample_rate = 8000, .samples = "s16le"});
      CHECK_FALSE(begins_as_file(reader));
      CHECK(reader.format().sample_rate == 44100);
      CHECK(samples_of(reader).equal(expected_T));
    }
    const PipedBytes pipe(wav, 1000);
    PcmReader reader(pipe.end(), {});
    CHECK_FALSE(begins_as_file(reader));
    CHECK(looptorch::audio::decode(whisper::store_pcm(reader).path()).samples_T.equal(expected_T));
  }
}

TEST_CASE("A WAV file in a pipe that ends before what its header announces is cut off") {
  const TemporaryFolder folder;
  const std::string bytes = written(folder / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16);
  const PipedBytes pipe(bytes.substr(0, bytes.size() - 1000), 777);
  PcmReader reader(pipe.end(), {});
  CHECK_FALSE(begins_as_file(reader));
  CHECK_THROWS_WITH(samples_of(reader),
                    "-: cut off: its header announces 40000 bytes of samples, 39000 are there");
}

TEST_CASE("Other files in a pipe are stored as they are") {
  const TemporaryFolder folder;
  const int format = GENERATE(
      SF_FORMAT_WAV | SF_FORMAT_PCM_24, SF_FORMAT_WAV | SF_FORMAT_ULAW, SF_FORMAT_RF64 | SF_FORMAT_PCM_16,
      SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, SF_FORMAT_W64 | SF_FORMAT_PCM_16,
      SF_FORMAT_AIFF | SF_FORMAT_PCM_16, SF_FORMAT_AIFF | SF_FORMAT_ULAW, SF_FORMAT_CAF | SF_FORMAT_PCM_16,
      SF_FORMAT_AU | SF_FORMAT_PCM_16, SF_FORMAT_NIST | SF_FORMAT_PCM_16, SF_FORMAT_FLAC | SF_FORMAT_PCM_16,
      SF_FORMAT_OGG | SF_FORMAT_VORBIS, SF_FORMAT_OGG | SF_FORMAT_OPUS, SF_FORMAT_PAF | SF_FORMAT_PCM_16,
      SF_FORMAT_PAF | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE,
      SF_FORMAT_IRCAM | SF_FORMAT_PCM_16 | SF_ENDIAN_LITTLE,
      SF_FORMAT_IRCAM | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, SF_FORMAT_SVX | SF_FORMAT_PCM_16,
      SF_FORMAT_SVX | SF_FORMAT_PCM_S8, SF_FORMAT_VOC | SF_FORMAT_PCM_16, SF_FORMAT_MAT5 | SF_FORMAT_PCM_16,
      0x230082 /* MP3 */);
  CAPTURE(format);
  const std::string bytes = written(folder / "a", format);
  const at::Tensor expected_T = looptorch::audio::decode(folder / "a").samples_T;
  std::vector<std::string> inputs{bytes};
  if (format == 0x230082)
    inputs.push_back(std::string("ID3\x03\0\0\0\0\x02\x01", 10) + std::string(257, '\xff') + bytes);
  for (const std::string& input : inputs) {
    const PipedBytes pipe(input, 5);
    PcmReader reader(pipe.end(), {});
    REQUIRE(begins_as_file(reader));
    CHECK(looptorch::audio::decode(whisper::store_file(reader).path()).samples_T.equal(expected_T));
  }
}

TEST_CASE("Raw samples stay samples, whatever they begin with") {
  std::vector<std::vector<std::int16_t>> beginnings{
      {}, {1}, {-1, -1, -1, -1, -1, -1, -1, -1}, std::vector<std::int16_t>(9000, -1025)};
  std::vector<std::int16_t> frames(9000, 100);
  std::memcpy(frames.data(), "\xff\xfb\x90\x64", 4);  // one frame's header, and no more
  beginnings.push_back(frames);
  std::memcpy(frames.data(), "RIFFabcdWAX ", 12);
  beginnings.push_back(frames);
  std::memcpy(frames.data(), "ID3\x03\0\0\xff\xff\0\0", 10);
  beginnings.push_back(frames);
  for (const char* magic :
       {"\xff\xf1\x60\x40", "\x0b\x77\x12\x34\x14\x40", "G@\x11\x10", "{\x01", " paf", "\x64\xa3\x01"}) {
    std::fill(frames.begin(), frames.end(), 100);
    std::memcpy(frames.data(), magic, std::strlen(magic));
    beginnings.push_back(frames);
  }
  beginnings.emplace_back(9000, 0x4747);
  beginnings.emplace_back(9000, 0x770b);
  beginnings.emplace_back(9000, std::int16_t(0xf1ff));
  for (const auto& samples : beginnings) {
    const PipedBytes pipe(bytes_of(samples), 1000);
    PcmReader reader(pipe.end(), {});
    CHECK_FALSE(begins_as_file(reader));
    std::string read;
    for (auto bytes = reader.next(); !bytes.empty(); bytes = reader.next()) read += bytes;
    CHECK(read == bytes_of(samples));
  }
}

TEST_CASE("A container that libsndfile does not read is refused, not read as noise") {
  for (const auto& [bytes, name] : std::vector<std::pair<std::string, std::string>>{
           {std::string("\0\0\0\x20"
                        "ftypM4A \0\0",
                        14),
            "MP4"},
           {"\x1a\x45\xdf\xa3 and more of it", "Matroska or WebM"},
           {"RIFFabcdAVI LIST", "AVI"},
           {".SoX,\1\1\1 and more", "SoX's own format"},
           {std::string("wvpk\x10\x20\0\0 and more", 17), "WavPack"},
           {std::string("TTA1\1\0\1\0\0\0\0\0", 12), "TTA"},
           {"nut/multimedia container", "NUT"},
           {several(std::string("\xff\xf1\x60\x40\x3f\xff\xfc", 7), 0x1ff), "AAC"},
           {several(std::string("\x0b\x77\1\2\x00\x40", 6), 128), "AC-3"},
           {several("\x0b\x77\1\2\x41\x40", 140), "AC-3"},
           {several(std::string("\x0b\x77\0\x2f\x3f\x80", 6), 96), "AC-3"},
           {several("G@\x11\x10", 188), "an MPEG transport stream"}}) {
    const PipedBytes pipe(bytes, 100);
    PcmReader reader(pipe.end(), {});
    CHECK_THROWS_WITH(
        begins_as_file(reader),
        "-: begins as " + name +
            ", which libsndfile does not read; put `ffmpeg -i - -f wav - |` before this program");
  }
}

TEST_CASE("Text and a damaged header in a pipe are refused in a sentence, not read as noise") {
  for (const auto& [bytes, why] : std::vector<std::pair<std::string, std::string>>{
           {"<!DOCTYPE html><html>", "begins as HTML or XML, which is text"},
           {"<HTML><body>Not found</body>", "begins as HTML or XML, which is text"},
           {R"({"error": "no such recording", "code": 404})", "begins as JSON, which is text"},
           {"{}", "begins as JSON, which is text"},
           {"\xef\xbb\xbfRIFFabcdWAVEfmt ", "a byte order mark lies before its RIFF header"},
           {"RIFF", "cut off: it ends within the header of a file, after 4 bytes"},
           {"RIFFabcdWAV", "cut off: it ends within the header of a file, after 11 bytes"}}) {
    const PipedBytes pipe(bytes, 100);
    PcmReader reader(pipe.end(), {});
    CHECK_THROWS_AS(begins_as_file(reader), looptorch::audio::ClipError);
    const PipedBytes again(bytes, 3);
    PcmReader other(again.end(), {});
    CHECK_THROWS_WITH(begins_as_file(other), Catch::Matchers::StartsWith("-: " + why));
  }
}

TEST_CASE("Two WAV files one after the other in a pipe are refused once the first was read, as in a file") {
  const TemporaryFolder folder;
  const int channels = GENERATE(1, 3);
  std::string bytes = written(folder / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, channels, 20'001);
  const std::string between = GENERATE(std::string(), std::string("LIST\x04\0\0\0abcd", 12));
  std::ofstream(folder / "two.wav", std::ios::binary) << bytes << between << bytes;
  for (const std::size_t piece : {1, 777, 1 << 20}) {
    const PipedBytes pipe(bytes + between + bytes, piece);
    PcmReader reader(pipe.end(), {});
    CHECK_FALSE(begins_as_file(reader));
    std::size_t given = 0;
    for (auto some = reader.next(); !some.empty(); some = reader.next()) given += some.size();
    CHECK(given == std::size_t(2 * 20'001 * channels));
    CHECK_THROWS_AS(reader.check_end(), looptorch::audio::ClipError);
    CHECK_THROWS_WITH(reader.check_end(),
                      Catch::Matchers::StartsWith("-: another WAV file lies after the " +
                                                  std::to_string(given) + " bytes of samples"));
  }
  CHECK_THROWS_AS(looptorch::audio::decode(folder / "two.wav"), looptorch::audio::AudioError);
}

TEST_CASE("A part of a sample after a header of unknown size is skipped, in a pipe as in a file") {
  const TemporaryFolder folder;
  std::string bytes = written(folder / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16);
  const std::string size = GENERATE(std::string(4, '\0'), std::string(4, '\xff'));
  bytes.replace(bytes.find("data") + 4, 4, size);
  bytes += 'x';
  std::ofstream(folder / "odd.wav", std::ios::binary) << bytes;
  const PipedBytes pipe(bytes, 1000);
  PcmReader reader(pipe.end(), {});
  CHECK_FALSE(begins_as_file(reader));
  CHECK(samples_of(reader).equal(looptorch::audio::decode(folder / "odd.wav").samples_T));
}
