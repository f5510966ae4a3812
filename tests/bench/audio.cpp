// SPDX-License-Identifier: MIT
// Measures processing sound before and after a model: 30 s, one thread; the rows that begin with `segment`
// read 5 s at the end of 30 min, in each format. The peers, in audio.py, get the same sound.
//
//   audio [NAME]...   only the rows whose name contains NAME; prints one JSON object a row
#include <looptorch/audio/decode.hpp>
#include <looptorch/audio/encode.hpp>
#include <looptorch/audio/log_mel.hpp>
#include <looptorch/audio/mel_spectrogram.hpp>
#include <looptorch/audio/resample.hpp>

#include "support/interleaved.hpp"

#include <ATen/Parallel.h>

#include <sndfile.h>
#include <spectrogram_gan_vit/sound/griffin_lim.hpp>
#include <spectrogram_gan_vit/sound/mel_inverse.hpp>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <numbers>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace audio = looptorch::audio;

namespace {

using namespace bench;

/// Returns 30 s of tones that swell and fade, and some noise, like music() of audio.py.
at::Tensor music(std::int64_t rate) {
  constexpr double kTurn = 2 * std::numbers::pi;
  at::Tensor samples_T = at::empty({30 * rate}, at::kFloat);
  float* out = samples_T.mutable_data_ptr<float>();
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < samples_T.numel(); ++i) {
    state = 1664525 * state + 1013904223;
    double sample = (static_cast<std::int32_t>(state >> 16) - 32768) >> 6;
    const double t = static_cast<double>(i) / static_cast<double>(rate);
    double period = 2;
    for (const double hz : {220.0, 331.0, 1760.0, 5001.0})
      sample += 3000 * std::sin(kTurn * hz * t) * (1 + std::sin(kTurn * t / period++));
    out[i] = static_cast<float>(std::nearbyint(sample) / 32768);
  }
  return samples_T;
}

class Table {
 public:
  explicit Table(std::vector<std::string_view> wanted) : wanted_(std::move(wanted)) {}

  /// Prints the median time of `rounds` calls, after a few that do not count.
  template <class Call>
  void row(std::string_view name, int rounds, Call call) const {
    if (!is_wanted(name)) return;
    std::vector<double> times;
    for (int i = -kWarmUp; i < rounds; ++i) {
      const auto begin = Clock::now();
      call();
      if (i >= 0) times.push_back(microseconds(Clock::now() - begin) / 1000);
    }
    std::printf("{\"name\": \"%.*s\", \"value\": %.3f, \"unit\": \"ms\"}\n", static_cast<int>(name.size()),
                name.data(), median(std::move(times)));
    std::fflush(stdout);
  }

  bool is_wanted(std::string_view name) const {
    return wanted_.empty() || std::ranges::any_of(wanted_, [&](std::string_view part) {
             return name.find(part) != std::string_view::npos;
           });
  }

 private:
  static constexpr int kWarmUp = 2;

  std::vector<std::string_view> wanted_;
};

void measure_speech(const Table& table) {
  const at::Tensor speech_T = music(16000), cd_T = music(44100);
  const audio::LogMel log_mel, log_mel_128({.mel_bins = 128});
  const audio::Resampler resampler(44100, 16000);
  table.row("log-mel", 100, [&] { log_mel(speech_T); });
  table.row("log-mel 128", 100, [&] { log_mel_128(speech_T); });
  table.row("resample", 100, [&] { resampler(cd_T); });

  const auto path =
      std::filesystem::temp_directory_path() / ("looptorch-bench-" + std::to_string(::getpid()) + ".flac");
  audio::encode(path, {speech_T, 16000});
  table.row("decode FLAC", 100, [&] { audio::decode(path); });
  ::unlink(path.c_str());
}

void measure_music(const Table& table) {
  constexpr audio::MelSpectrogramOptions kPower{.min_hz = 20, .max_hz = 8000, .unit = audio::MelUnit::power};
  auto z_score = kPower;
  z_score.unit = audio::MelUnit::z_score;
  const at::Tensor music_T = music(22050), mel_MF = audio::MelSpectrogram(kPower)(music_T);
  const audio::MelSpectrogram spectrogram(z_score);
  const spectrogram_gan::MelInverse inverse(kPower);
  const spectrogram_gan::GriffinLim griffin_lim;
  const at::Tensor magnitude_KF = griffin_lim.magnitude(music_T);
  table.row("mel spectrogram", 50, [&] { spectrogram(music_T); });
  table.row("griffin_lim", 5, [&] { griffin_lim(magnitude_KF, 1); });
  table.row("mel inverse", 5, [&] { inverse(mel_MF); });
}

/// Writes `seconds` of sound at 16 kHz in a format of libsndfile.
void write_recording(const std::filesystem::path& path, int format, int seconds) {
  SF_INFO info{};
  info.samplerate = 16000, info.channels = 1, info.format = format;
  SNDFILE* const file = sf_open(path.c_str(), SFM_WRITE, &info);
  if (!file) throw std::runtime_error(sf_strerror(nullptr));
  const at::Tensor samples_T = music(16000);
  constexpr std::int64_t kBlock = 4000;
  for (std::int64_t i = 0; i < std::int64_t{16000} * seconds; i += kBlock)
    sf_writef_float(file, samples_T.const_data_ptr<float>() + i % samples_T.numel(), kBlock);
  sf_close(file);
}

void measure_segments(const Table& table) {
  constexpr int kSeconds = 30 * 60, kMp3 = 0x230000 | 0x82;  // libsndfile 1.0 has no names for it
  const std::pair<const char*, int> formats[] = {{"segment FLAC", SF_FORMAT_FLAC | SF_FORMAT_PCM_16},
                                                 {"segment Vorbis", SF_FORMAT_OGG | SF_FORMAT_VORBIS},
                                                 {"segment Opus", SF_FORMAT_OGG | SF_FORMAT_OPUS},
                                                 {"segment MP3", kMp3}};
  for (const auto& [name, format] : formats) {
    if (!table.is_wanted(name)) continue;
    const auto path =
        std::filesystem::temp_directory_path() / ("looptorch-bench-" + std::to_string(::getpid()) + ".sound");
    write_recording(path, format, kSeconds);
    table.row(name, 20, [&] { audio::decode(path, {16000, kSeconds - 10, kSeconds - 5}); });
    ::unlink(path.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  at::set_num_threads(1);
  const Table table(std::vector<std::string_view>(argv + 1, argv + argc));
  measure_speech(table);
  measure_segments(table);
  measure_music(table);
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
