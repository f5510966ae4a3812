// SPDX-License-Identifier: MIT
// Tests audio/sound_file: flac_frame, flac_joined, mpeg_frame, mpeg_parts, mpeg_tags
// Tests audio/sound_file: ogg_headers, ogg_links, pieced_file, sound_part
#include "support/precompiled.hpp"

#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/probe.hpp>
#include <looptorch/audio/sample_stream.hpp>

#include "support/captured_stderr.hpp"
#include "support/reference.hpp"
#include "support/temporary_folder.hpp"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
namespace audio = looptorch::audio;
using audio::AudioError;
using audio::decode;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using looptorch::testing::CapturedStderr;
using looptorch::testing::TemporaryFolder;

namespace {

/// Returns a file that tests/parity/sound_files.py recorded.
std::string recorded(const std::string& name) {
  const at::Tensor bytes = reference::tensors("sound_files").at(name);
  return {reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()), std::size_t(bytes.numel())};
}

/// Returns what ffmpeg or oggdec decodes from it, and the rate.
std::pair<at::Tensor, std::int64_t> right_sound(const std::string& name) {
  const auto& tensors = reference::tensors("sound_files");
  return {tensors.at(name + "/samples").to(at::kFloat), tensors.at(name + "/rate").item<std::int64_t>()};
}

fs::path put(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

at::Tensor streamed(const fs::path& path) {
  audio::SampleStream stream(path);
  std::vector<at::Tensor> parts;
  while (true) {
    parts.push_back(stream.next(1000));
    if (parts.back().numel() == 0) return at::cat(parts);
  }
}

/// Checks that all that tell a length agree, and returns the samples.
at::Tensor agreed(const fs::path& path) {
  const at::Tensor samples_T = decode(path).samples_T;
  CHECK(audio::probe(path).frames == samples_T.numel());
  CHECK(audio::SampleStream(path).length() == samples_T.numel());
  CHECK(streamed(path).equal(samples_T));
  const double rate = double(audio::probe(path).sample_rate), seconds = double(samples_T.numel()) / rate;
  for (const double from : {0.1, 0.45, 0.6}) {
    const auto first = std::llround(from * seconds * rate),
               last = std::llround((from + 0.3) * seconds * rate);
    CHECK(decode(path, {0, from * seconds, (from + 0.3) * seconds})
              .samples_T.equal(samples_T.slice(0, first, last)));
  }
  return samples_T;
}

double rms(const at::Tensor& samples_T) { return std::sqrt(samples_T.square().mean().item<double>()); }

std::string id3v2(std::size_t size) {
  std::string tag("ID3\x03\0\0", 6);
  for (const int shift : {21, 14, 7, 0}) tag += char(size >> shift & 0x7f);
  while (tag.size() < 10 + size) tag += "\xff\xfb\x90\x64";  // looks like a frame
  return tag.substr(0, 10 + size);
}

std::string id3v1() { return "TAG" + std::string(125, 'a'); }

/// An APE tag with a header and a footer.
std::string ape() {
  const auto ends = [](char flags) {
    return std::string("APETAGEX\xd0\x07\0\0", 12) + std::string("\x84\0\0\0\1\0\0\0\0\0\0", 11) + flags +
           std::string(8, '\0');
  };
  return ends('\xa0') + std::string(100, '\xff') + ends('\x80');
}

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += char(value >> shift);
  return bytes;
}

/// A tone by libsndfile.
std::string written(const fs::path& path, int format, int rate, int frames, int channels = 1,
                    double pitch = 0.05) {
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file);
  std::vector<float> samples;
  for (int i = 0; i < frames; ++i)
    samples.insert(samples.end(), std::size_t(channels), float(0.4 * std::sin((pitch + 1e-6 * i) * i)));
  REQUIRE(sf_writef_float(file, samples.data(), frames) == frames);
  REQUIRE(sf_close(file) == 0);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

constexpr int kMp3 = SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III;

/// An MP3 whose first frame announces the others, and where its announcement begins.
struct Announced {
  std::string bytes;
  std::size_t info;
};

Announced announced(const TemporaryFolder& folder) {
  Announced mp3{written(folder / "announced", kMp3, 16000, 20'000), 0};
  mp3.info = std::min(mp3.bytes.find("Info"), mp3.bytes.find("Xing"));
  REQUIRE(mp3.info < 100);
  return mp3;
}

}  // namespace

TEST_CASE("A file whose length stands nowhere, or is that of a part, is read to its end, and all agree") {
  const TemporaryFolder folder;
  const std::string name = GENERATE(as<std::string>(), "constant.mp3", "low.mp3", "variable.mp3",
                                    "stereo.mp3", "layer2.mp2", "joined.mp3", "chained.ogg", "chained.opus");
  CAPTURE(name);
  const auto [expected_T, rate] = right_sound(name);
  const auto path = put(folder / name, recorded(name));
  const CapturedStderr captured;
  const at::Tensor samples_T = agreed(path);
  CHECK(audio::probe(path).sample_rate == rate);
  REQUIRE(samples_T.numel() == expected_T.numel());
  const double other = name.ends_with(".opus") ? 0.3 : 0.002;  // another decoder, another phase
  CHECK(rms(samples_T - expected_T) < other * rms(expected_T));
  CHECK(captured.text().empty());  // mpg123 has nothing to note
}

TEST_CASE("Tags of any size do no harm to an MPEG file") {
  const TemporaryFolder folder;
  const std::string name =
      GENERATE(as<std::string>(), "constant.mp3", "variable.mp3", "layer2.mp2", "joined.mp3");
  CAPTURE(name);
  const std::string bytes = recorded(name);
  const at::Tensor expected_T = decode(put(folder / "plain", bytes)).samples_T;
  const auto same = [&](const std::string& tagged) {
    return agreed(put(folder / "tagged", tagged)).equal(expected_T);
  };
  const CapturedStderr captured;
  for (const std::size_t size : {0, 45, 10'000, 140'000, 1'000'000}) CHECK(same(id3v2(size) + bytes));
  CHECK(same(id3v2(20) + id3v2(70'000) + std::string(5000, '\0') + bytes));
  CHECK(same(bytes + id3v1()));
  CHECK(same(bytes + ape()));
  CHECK(same(id3v2(300) + bytes + ape() + "LYRICSBEGIN\xff\xfb\x90\x64LYRICS200" + id3v1()));
  CHECK(same(bytes + std::string(3000, '\0')));
  CHECK(captured.text().empty());
}

TEST_CASE("A frame that announces nothing, too few or one too many does not count") {
  const TemporaryFolder folder;
  const Announced mp3 = announced(folder);
  const std::string& bytes = mp3.bytes;
  const std::size_t info = mp3.info;
  const at::Tensor whole_T = decode(put(folder / "whole", bytes)).samples_T;
  REQUIRE(whole_T.numel() == 20'000);
  const auto frames = std::uint32_t(audio::detail::big_endian(bytes, info + 8, 4));
  const auto with = [&](std::uint32_t count) {
    std::string changed = bytes;
    return agreed(put(folder / "changed", changed.replace(info + 8, 4, big_endian(count))));
  };
  CHECK(with(frames + 1).equal(whole_T));  // it counted itself
  for (const std::uint32_t count : {0U, frames / 2}) {
    const at::Tensor samples_T = with(count);  // its padding is kept
    CHECK(samples_T.numel() >= 20'000);
    CHECK(samples_T.numel() < 20'000 + 2 * 576);
    CHECK(samples_T.slice(0, 0, 20'000).equal(whole_T));
  }
  std::string unsaid = bytes;
  unsaid[info + 7] = char(unsaid[info + 7] & ~1);
  unsaid.erase(info + 8, 4).insert(info + 120, 4, '\0');
  CHECK(agreed(put(folder / "unsaid", unsaid)).numel() >= 20'000);
}

TEST_CASE("Fraunhofer's announcing frame is no sound") {
  const TemporaryFolder folder;
  const std::string bytes = recorded("constant.mp3");
  const at::Tensor expected_T = decode(put(folder / "plain", bytes)).samples_T;
  const auto frame = audio::detail::mpeg_frame(bytes);
  REQUIRE(frame);
  std::string vbri = bytes.substr(0, 4) + std::string(std::size_t(frame->bytes) - 4, '\0');
  const auto count = std::uint32_t(expected_T.numel() / frame->samples);
  vbri.replace(36, 18,
               "VBRI" + std::string("\0\1\4\x51\0\x4b", 6) +
                   big_endian(std::uint32_t(bytes.size() + vbri.size())) + big_endian(count));
  CHECK(agreed(put(folder / "vbri", vbri + bytes)).equal(expected_T));
  CHECK_THROWS_WITH(
      decode(put(folder / "cut", vbri + bytes.substr(0, bytes.size() / 2 / frame->bytes * frame->bytes))),
      Contains("cut off: "));
}

TEST_CASE("What an announcing frame says is used as before: the encoder's delay and padding are skipped") {
  const TemporaryFolder folder;
  const std::string bytes = announced(folder).bytes;
  audio::detail::SoundStream direct(put(folder / "whole.mp3", bytes));
  at::Tensor expected_T = at::empty({direct.info().frames}, at::kFloat);
  REQUIRE(direct.read(expected_T.mutable_data_ptr<float>(), expected_T.numel()) == 20'000);
  CHECK(decode(folder / "whole.mp3").samples_T.equal(expected_T));
  CHECK(agreed(put(folder / "joined.mp3", bytes + bytes)).equal(at::cat({expected_T, expected_T})));
}

TEST_CASE("An MPEG file that begins or continues in the middle of a frame is read from the next one on") {
  const TemporaryFolder folder;
  const std::string bytes = recorded("layer2.mp2");
  const at::Tensor expected_T = decode(put(folder / "plain", bytes)).samples_T;
  const std::int64_t frame = 1152;
  CHECK(agreed(put(folder / "rest.mp2", bytes.substr(100))).numel() == expected_T.numel() - frame);
  CHECK(agreed(put(folder / "rest", bytes.substr(100))).numel() == expected_T.numel() - frame);
  std::string noisy = bytes;
  noisy.insert(2 * std::size_t(audio::detail::mpeg_frame(bytes)->bytes), 777, 'x');
  CHECK(agreed(put(folder / "noisy", noisy)).equal(expected_T));
}

TEST_CASE("An MPEG file that was cut off is refused, one between two frames if a first one announces them") {
  const TemporaryFolder folder;
  const std::string name = GENERATE(as<std::string>(), "constant.mp3", "low.mp3", "layer2.mp2", "announced");
  const std::string bytes = name == "announced" ? announced(folder).bytes : recorded(name);
  std::vector<std::size_t> ends;  // of frames
  for (std::size_t at = 0; at < bytes.size(); ends.push_back(at)) {
    const auto frame = audio::detail::mpeg_frame(std::string_view(bytes).substr(at));
    REQUIRE(frame);
    at += std::size_t(frame->bytes);
  }
  REQUIRE(ends.size() > 4);
  REQUIRE(ends.back() == bytes.size());
  std::vector<std::size_t> cuts{1, 3, 4, 5, 40, ends[0] - 1, ends[0] + 1, ends[0] + 4, bytes.size() / 2 + 1};
  for (const std::size_t behind : {1, 2, 3, 4, 5, 50}) cuts.push_back(bytes.size() - behind);
  for (const std::size_t kept : cuts) {
    CAPTURE(name, kept);
    put(folder / "cut", bytes.substr(0, kept));
    CHECK_THROWS_AS(decode(folder / "cut"), AudioError);
    CHECK_THROWS_AS(audio::probe(folder / "cut"), AudioError);
  }
  CHECK_THROWS_WITH(decode(put(folder / "cut", bytes.substr(0, bytes.size() - 9))),
                    Contains("cut off: its last MPEG frame has "));
  put(folder / "between", bytes.substr(0, ends[ends.size() - 3]));
  if (name == "announced")
    CHECK_THROWS_WITH(decode(folder / "between"), Contains("cut off: its header announces "));
  else
    CHECK(agreed(folder / "between").numel() > 0);
}

TEST_CASE("Streams of an Ogg file may differ in channels, and those of Opus in the rate before encoding") {
  const TemporaryFolder folder;
  const std::string narrow = written(folder / "a", SF_FORMAT_OGG | SF_FORMAT_OPUS, 16000, 16'000);
  const std::string wide = written(folder / "b", SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, 48'000, 2);
  const at::Tensor wide_T = decode(folder / "b").samples_T;
  for (const bool wide_is_first : {false, true}) {
    const auto path = put(folder / "both.opus", wide_is_first ? wide + narrow : narrow + wide);
    const at::Tensor whole_T = agreed(path);
    CHECK(audio::probe(path).sample_rate == 48'000);
    REQUIRE(whole_T.numel() == 96'000);
    const std::int64_t at = wide_is_first ? 0 : 48'000;
    CHECK(whole_T.slice(0, at, at + 48'000).equal(wide_T));
    CHECK(rms(whole_T.slice(0, 48'000 - at, 96'000 - at)) == Approx(rms(wide_T)).epsilon(0.05));
  }
}

TEST_CASE("Parts of different rates are refused in a sentence that says what to do") {
  const TemporaryFolder folder;
  const std::string low = written(folder / "a", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16000, 8000);
  const std::string high = written(folder / "b", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 44100, 8000);
  CHECK_THROWS_WITH(decode(put(folder / "both.ogg", low + high)),
                    (folder / "both.ogg").string() +
                        ": changes its rate from 16000 to 44100 Hz after 0.5 s; write it at one "
                        "rate first, as `ffmpeg -i IN OUT.flac` does");
  CHECK_THROWS_AS(audio::probe(folder / "both.ogg"), AudioError);
  CHECK_THROWS_WITH(decode(put(folder / "both.mp3", written(folder / "c", kMp3, 16000, 4000) +
                                                        written(folder / "d", kMp3, 44100, 4000))),
                    Contains("changes its rate from 16000 to 44100 Hz"));
}

TEST_CASE("An Ogg file is cut off if one of its streams is") {
  const TemporaryFolder folder;
  const std::string one = written(folder / "a", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16000, 60'000);
  const std::size_t last = one.rfind("OggS");
  CHECK(agreed(put(folder / "three.ogg", one + one + one)).numel() == 180'000);
  for (const std::string& cut : {one.substr(0, last), one.substr(0, one.size() - 1)}) {
    CHECK_THROWS_WITH(
        decode(put(folder / "cut.ogg", one + cut)),
        EndsWith(": cut off: one of its streams does not end with the last page of an Ogg stream"));
    CHECK_THROWS_WITH(decode(put(folder / "cut.ogg", cut + one)), Contains("cut off"));
    CHECK_THROWS_WITH(audio::probe(folder / "cut.ogg"), Contains("cut off"));
  }
}

namespace {

/// Where the pages of an Ogg file begin, and its end.
std::vector<std::size_t> pages_of(const std::string& ogg) {
  std::vector<std::size_t> begins;
  for (auto at = ogg.find("OggS"); at != ogg.npos; at = ogg.find("OggS", at + 1)) begins.push_back(at);
  begins.push_back(ogg.size());
  return begins;
}

}  // namespace

TEST_CASE("An Ogg file that lost a page is refused by all, unless a recording of radio begins there") {
  const TemporaryFolder folder;
  const int format = GENERATE(SF_FORMAT_OGG | SF_FORMAT_VORBIS, SF_FORMAT_OGG | SF_FORMAT_OPUS);
  const std::string one = written(folder / "a", format, 16000, 480'000);
  const auto pages = pages_of(one);
  const std::size_t headers = 2;  // in a page each, or two in the second
  REQUIRE(pages.size() > headers + 5);
  const auto without = [&](std::size_t first, std::size_t count) {
    return one.substr(0, pages[first]) + one.substr(pages[first + count]);
  };
  const auto refused = [&](const std::string& bytes, const std::string& why) {
    const auto path = put(folder / "lost.ogg", bytes);
    const std::string sentence = path.string() + ": damaged: at byte " + why;
    CHECK_THROWS_WITH(audio::probe(path), sentence);
    CHECK_THROWS_WITH(decode(path), sentence);
    CHECK_THROWS_WITH(decode(path, {0, 29, 30}), sentence);
    CHECK_THROWS_WITH(audio::SampleStream(path), sentence);
  };
  const auto place = [](std::size_t byte, std::size_t number, std::size_t expected) {
    return std::to_string(byte) + " page " + std::to_string(number) +
           " of its Ogg stream stands where page " + std::to_string(expected) + " should be";
  };
  for (const std::size_t lost : {headers + 1, pages.size() - 3}) {
    refused(without(lost, 1), place(pages[lost], lost + 1, lost));
    refused(one + without(lost, 1), place(one.size() + pages[lost], lost + 1, lost));
    refused(without(lost, 1) + one, place(pages[lost], lost + 1, lost));
    refused(one.substr(0, pages[lost + 1]) + one.substr(pages[lost]), place(pages[lost + 1], lost, lost + 1));
  }
  const std::string radio = without(headers, 2);
  const auto frames = agreed(put(folder / "radio.ogg", radio)).numel();
  CHECK((frames > 0 && frames < 480'000));
  CHECK(agreed(put(folder / "chained.ogg", radio + radio)).numel() == 2 * frames);
}

namespace {

/// A FLAC file that does not state its length, as one that a pipe wrote.
std::string as_piped(std::string flac) {
  flac[21] = char(flac[21] & 0xf0);
  return flac.replace(22, 4, 4, '\0');
}

/// FLAC of noise, which takes twice as many bytes as it has samples.
std::string noise_flac(const fs::path& path, int frames, unsigned seed) {
  SF_INFO info{};
  info.samplerate = 16000;
  info.channels = 1;
  info.format = SF_FORMAT_FLAC | SF_FORMAT_PCM_16;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file);
  std::vector<short> samples;
  for (int i = 0; i < frames; ++i) samples.push_back(short((seed = seed * 1664525 + 1013904223) >> 16));
  REQUIRE(sf_writef_short(file, samples.data(), frames) == frames);
  REQUIRE(sf_close(file) == 0);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("FLAC files that were joined are read one after the other, and all agree") {
  const TemporaryFolder folder;
  const std::string one = written(folder / "one", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, 20'000);
  const std::string two = written(folder / "two", SF_FORMAT_FLAC | SF_FORMAT_PCM_24, 16000, 31'000, 2, 0.02);
  const at::Tensor one_T = decode(folder / "one").samples_T, two_T = decode(folder / "two").samples_T;
  REQUIRE((one_T.numel() == 20'000 && two_T.numel() == 31'000));
  const auto path = folder / "joined.flac";
  CHECK(agreed(put(path, one + two)).equal(at::cat({one_T, two_T})));
  CHECK(agreed(put(path, two + one)).equal(at::cat({two_T, one_T})));
  CHECK(agreed(put(path, one + one)).equal(at::cat({one_T, one_T})));
  CHECK(agreed(put(path, one + two + one)).equal(at::cat({one_T, two_T, one_T})));
  CHECK(agreed(put(path, id3v2(300) + one + id3v1() + two)).equal(at::cat({one_T, two_T})));
  for (const auto& [a, b] :
       {std::pair{as_piped(one), two}, {one, as_piped(two)}, {as_piped(one), as_piped(two)}})
    CHECK(agreed(put(path, a + b)).equal(at::cat({one_T, two_T})));
}

TEST_CASE(
    "Long FLAC files that were joined are found without a search of each file, whatever their lengths") {
  const TemporaryFolder folder;
  const std::string one = noise_flac(folder / "one", 700'000, 1),
                    same = noise_flac(folder / "two", 700'000, 2);
  REQUIRE(one.size() > (1 << 20));
  const at::Tensor one_T = decode(folder / "one").samples_T, same_T = decode(folder / "two").samples_T;
  CHECK(agreed(put(folder / "joined", one + same)).equal(at::cat({one_T, same_T})));
  CHECK(agreed(put(folder / "joined", one + same + one)).equal(at::cat({one_T, same_T, one_T})));
  const std::string brief = noise_flac(folder / "three", 5000, 3);
  const at::Tensor brief_T = decode(folder / "three").samples_T;
  CHECK(agreed(put(folder / "joined", one + brief)).equal(at::cat({one_T, brief_T})));
  CHECK(agreed(put(folder / "joined", brief + one)).equal(at::cat({brief_T, one_T})));
  // A file whose frames are those of one stream is not searched.
  std::string planted = one;
  planted.replace(planted.size() / 2 + 100, 200, one, 0, 200);
  const auto begins = [&](const std::string& bytes) {
    const looptorch::InputFile file(put(folder / "scanned", bytes));
    return audio::detail::FlacScan(file).beginnings();
  };
  CHECK(begins(planted) == std::vector<std::uint64_t>{0});
  CHECK(begins(one + same) == std::vector<std::uint64_t>{0, one.size()});
  CHECK(begins("RIFF" + one).empty());
}

TEST_CASE("A FLAC file that lies in another's metadata is no part of it") {
  const TemporaryFolder folder;
  const std::string one = written(folder / "one", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, 9000);
  const std::size_t info = 4 + 4 + 34;
  const std::string block = "\x02" + big_endian(std::uint32_t(one.size() + 4)).substr(1) + "test" + one;
  CHECK(agreed(put(folder / "holder", one.substr(0, info) + block + one.substr(info))).numel() == 9000);
}

TEST_CASE("Joined FLAC files of which one was cut off, or has another rate, are refused in a sentence") {
  const TemporaryFolder folder;
  const std::string one = written(folder / "one", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, 8000);
  const std::string fast = written(folder / "two", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 44100, 8000);
  const std::string cut = one.substr(0, one.size() - 9);
  const auto path = folder / "joined.flac";
  for (const auto& [bytes, begin] : {std::pair{cut + one, std::size_t{0}}, {one + cut, one.size()}}) {
    const std::string sentence =
        path.string() + ": cut off: one of the FLAC files that it was joined of, which begins at byte " +
        std::to_string(begin) + ", does not end with a whole FLAC frame";
    CHECK_THROWS_WITH(audio::probe(put(path, bytes)), sentence);
    CHECK_THROWS_WITH(decode(path), sentence);
  }
  CHECK_THROWS_WITH(audio::probe(put(path, one + fast)),
                    Contains("changes its rate from 16000 to 44100 Hz after 0.5 s"));
}

TEST_CASE("What a resource fork is called in the current folder does no harm to an MPEG file") {
  const TemporaryFolder folder;
  const auto before = fs::current_path();
  const std::string name =
      GENERATE(as<std::string>(), "constant.mp3", "variable.mp3", "layer2.mp2", "joined.mp3");
  const at::Tensor expected_T = decode(put(folder / name, recorded(name))).samples_T;
  for (const auto& fork : {folder / "._", folder / ("._" + name)}) put(fork, "");
  fs::create_directory(folder / ".AppleDouble");
  fs::current_path(folder / ".");
  at::Tensor samples_T;
  CHECK_NOTHROW(samples_T = agreed(folder / name));
  fs::current_path(before);
  REQUIRE(samples_T.defined());
  CHECK(samples_T.equal(expected_T));
}

namespace {

/// Puts `size` bytes of value `byte` at the size of the chunk `name`.
std::string with_size(std::string bytes, const std::string& name, char byte, std::size_t size = 4) {
  const std::size_t at = bytes.find(name);
  REQUIRE(at != std::string::npos);
  return bytes.replace(at + name.size(), size, size, byte);
}

}  // namespace

TEST_CASE("A FLAC file that does not state its length is whole if its last frame is, however that is coded") {
  const TemporaryFolder folder;
  const int bits = GENERATE(SF_FORMAT_PCM_S8, SF_FORMAT_PCM_16, SF_FORMAT_PCM_24),
            channels = GENERATE(1, 2, 6);
  const int rate = GENERATE(16000, 12345, 44100, 250), frames = GENERATE(5000, 4096, 4097, 4396, 900'000);
  if (frames > 5000 && rate != 16000) return;
  CAPTURE(bits, channels, rate, frames);
  std::string bytes = written(folder / "a.flac", SF_FORMAT_FLAC | bits, rate, frames, channels);
  bytes[21] = char(bytes[21] & 0xf0);
  bytes.replace(22, 4, 4, '\0');
  CHECK(audio::probe(put(folder / "piped.flac", bytes)).frames == frames);
  for (const std::size_t part : {bytes.size() - 1, bytes.size() - 7, bytes.size() * 2 / 3, bytes.size() / 2})
    CHECK_THROWS_AS(audio::probe(put(folder / "cut.flac", bytes.substr(0, part))), AudioError);
}

TEST_CASE("MP3 within WAV is counted by its frames, as in a file of its own") {
  const TemporaryFolder folder;
  const std::string mp3 = written(folder / "a.mp3", kMp3, 16000, 30'000);
  const at::Tensor mp3_T = agreed(folder / "a.mp3");
  const auto little = [](std::uint32_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += char(value >> 8 * i);
    return text;
  };
  const std::string format = little(0x55, 2) + little(1, 2) + little(16000, 4) + little(8000, 4) +
                             little(1, 2) + little(0, 2) + little(12, 2) + little(1, 2) + little(2, 4) +
                             little(288, 2) + little(1, 2) + little(1393, 2);
  const std::string fact = "fact" + little(4, 4) + little(12345, 4);
  for (const bool is_finished : {true, false}) {
    const std::string data =
        "data" + (is_finished ? little(std::uint32_t(mp3.size()), 4) : std::string(4, '\xff'));
    std::string wav = "WAVEfmt " + little(30, 4) + format + fact + data + mp3;
    wav = "RIFF" + (is_finished ? little(std::uint32_t(wav.size()), 4) : std::string(4, '\xff')) + wav;
    CHECK(agreed(put(folder / "a.wav", wav)).equal(mp3_T));
    put(folder / "cut.wav", wav.substr(0, wav.size() - 50));
    CHECK_THROWS_WITH(audio::probe(folder / "cut.wav"), Contains("cut.wav: cut off: "));
  }
}

TEST_CASE("Behind a header that was never finished, all that follows is sound") {
  const TemporaryFolder folder;
  const std::string w64_data("data\xf3\xac\xd3\x11\x8c\xd1\0\xc0\x4f\x8e\xdb\x8a", 16);
  struct Case {
    int format;
    std::string chunk;
    std::size_t size;
  };
  const auto [format, chunk, size] = GENERATE_COPY(
      Case{SF_FORMAT_WAV | SF_FORMAT_PCM_16, "data", 4}, Case{SF_FORMAT_WAV | SF_FORMAT_FLOAT, "data", 4},
      Case{SF_FORMAT_WAV | SF_FORMAT_PCM_16 | SF_ENDIAN_BIG, "data", 4},
      Case{SF_FORMAT_WAVEX | SF_FORMAT_PCM_24, "data", 4}, Case{SF_FORMAT_AIFF | SF_FORMAT_PCM_16, "SSND", 4},
      Case{SF_FORMAT_AIFF | SF_FORMAT_FLOAT, "SSND", 4}, Case{SF_FORMAT_W64 | SF_FORMAT_PCM_16, w64_data, 8},
      Case{SF_FORMAT_CAF | SF_FORMAT_PCM_16, "data", 8}, Case{SF_FORMAT_AU | SF_FORMAT_PCM_16, ".snd", 8});
  CAPTURE(format);
  const std::string whole = written(folder / "whole", format, 16000, 5000);
  const at::Tensor whole_T = decode(folder / "whole").samples_T;
  REQUIRE(whole_T.numel() == 5000);
  for (const char byte : {'\0', '\xff'}) {
    std::string bytes =
        chunk == ".snd" ? std::string(whole).replace(8, 4, 4, byte) : with_size(whole, chunk, byte, size);
    CAPTURE(int(byte));
    CHECK(agreed(put(folder / "unfinished", bytes)).equal(whole_T));
    if (whole.starts_with("RIFF"))
      CHECK(agreed(put(folder / "unfinished", bytes.replace(4, 4, 4, byte))).equal(whole_T));
  }
  if (size == 8 && chunk != ".snd") {  // as ffmpeg writes W64 into a pipe
    const bool is_big = whole.starts_with("caff");
    std::string bytes = whole;
    bytes.replace(bytes.find(chunk) + chunk.size(), 8,
                  is_big ? "\x7f" + std::string(7, '\xff') : std::string(7, '\xff') + "\x7f");
    CHECK(agreed(put(folder / "unfinished", bytes)).equal(whole_T));
  }
  if (whole.starts_with("FORM")) {  // as sox writes into a pipe
    std::string bytes = with_size(whole, "SSND", '\0');
    bytes.replace(bytes.find("SSND") + 4, 4, std::string("\x7f\0\0\x08", 4));
    CHECK(agreed(put(folder / "unfinished", bytes)).equal(whole_T));
  }
}

TEST_CASE(
    "An RF64 header that was never finished, and headers that a pipe got several times, are passed over") {
  const TemporaryFolder folder;
  std::string rf64 = written(folder / "a", SF_FORMAT_RF64 | SF_FORMAT_PCM_16, 16000, 5000);
  const at::Tensor whole_T = decode(folder / "a").samples_T;
  rf64.replace(rf64.find("ds64") + 16, 8, 8, '\0');
  CHECK(agreed(put(folder / "unfinished", rf64)).equal(whole_T));

  std::string caf = written(folder / "b", SF_FORMAT_CAF | SF_FORMAT_PCM_16, 16000, 5000);
  const std::size_t data = caf.find("data");
  REQUIRE(data != std::string::npos);
  caf.replace(data + 4, 8, std::string("\0\0\0\0\0\0\0\x04", 8));
  const std::string header = caf.substr(0, data + 16);
  CHECK(agreed(put(folder / "piped.caf", header + caf + header)).equal(decode(folder / "b").samples_T));
}

TEST_CASE("A file of more bytes than its header can state is refused, whatever it states") {
  const TemporaryFolder folder;
  constexpr std::uintmax_t kWav = (std::uintmax_t{1} << 32) + 100'000, kAu = (std::uintmax_t{1} << 31) + 1000;
  const std::string wav = written(folder / "whole.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 5000);
  const std::string aiff = written(folder / "whole.aiff", SF_FORMAT_AIFF | SF_FORMAT_PCM_16, 16000, 5000);
  const std::string au = written(folder / "whole.au", SF_FORMAT_AU | SF_FORMAT_PCM_16, 16000, 5000);
  const auto refused = [&](const std::string& bytes, std::uintmax_t size) {
    fs::resize_file(put(folder / "long", bytes), size);  // zeros, of which the disk stores none
    CHECK_THROWS_WITH(audio::probe(folder / "long"),
                      Contains("is longer than can be read of its format") && EndsWith("FLAC, W64 or RF64"));
  };
  refused(wav, kWav);  // ffmpeg states the length without its upper bits
  for (const char byte : {'\0', '\xff'}) refused(with_size(wav, "data", byte), kWav);
  refused(with_size(aiff, "SSND", '\0'), kWav);
  refused(au, kAu);
  refused(std::string(au).replace(8, 4, 4, '\xff'), kAu);
  const std::string rf64 = written(folder / "a", SF_FORMAT_RF64 | SF_FORMAT_PCM_16, 16000, 5000);
  fs::resize_file(put(folder / "long", rf64), kWav);
  CHECK(audio::probe(folder / "long").frames == 5000);
}

TEST_CASE("An unfinished header is told once, and no finished one is") {
  const TemporaryFolder folder;
  const std::string whole = written(folder / "whole.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 1000);
  const auto path = put(folder / "a.wav", with_size(whole, "data", '\0'));
  const CapturedStderr captured;
  audio::detail::warned_of_unfinished = false;
  (void)decode(folder / "whole.wav");
  CHECK(captured.text().empty());
  for (int i = 0; i < 3; ++i) (void)agreed(path);
  const std::string text = captured.text();
  CHECK_THAT(text, Contains("looptorch: " + path.string() +
                            ": its header was never finished, so the 2000 bytes up to the file's end "));
  CHECK(text.find("never finished") == text.rfind("never finished"));
}

TEST_CASE("A header that states no samples, with whole chunks after them, is believed") {
  const TemporaryFolder folder;
  std::string bytes = written(folder / "empty.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 0);
  bytes += std::string("LIST\x04\0\0\0abcd", 12);
  CHECK_THROWS_WITH(decode(put(folder / "empty.wav", bytes)), EndsWith("empty.wav: holds no samples"));
}

TEST_CASE("A header whose numbers contradict each other is refused in a sentence") {
  const TemporaryFolder folder;
  std::string bytes = written(folder / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 16000, 100);
  const std::size_t rate = bytes.find("fmt ") + 12;
  CHECK_THROWS_WITH(
      decode(put(folder / "rate.wav", std::string(bytes).replace(rate, 4, 4, '\0'))),
      EndsWith("its header states a rate or a number of channels that cannot be, or two blocks of samples"));
}
