// SPDX-License-Identifier: MIT
// Measures the work before the first sample: reading a manifest, opening a cache. Needs neither Python nor
// audio.
//
//   data_open FOLDER LINES SAMPLES   creates FOLDER with a manifest of LINES lines, read with and without a
//                                    check of the files, and an index of SAMPLES cached samples, opened
#include <looptorch/base/files/file.hpp>
#include <looptorch/data/cache/sample_pack.hpp>
#include <looptorch/data/manifest/manifest.hpp>

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

namespace lt = looptorch;
namespace fs = std::filesystem;

namespace {

double resident_mb() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / 1e6;
}

/// Runs `open`, and prints its processor time and memory for each line or sample.
template <class Open>
void measure(const char* what, std::int64_t count, const Open& open) {
  const double before = resident_mb();
  const std::clock_t begin = std::clock();
  [[maybe_unused]] const auto opened = open();
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%-28s %10lld in %6.2f s, %5.2f us each, %5.0f bytes each\n", what,
              static_cast<long long>(count), seconds, 1e6 * seconds / static_cast<double>(count),
              1e6 * (resident_mb() - before) / static_cast<double>(count));
  std::fflush(stdout);
}

/// Writes clips with names and texts as in Common Voice, a hundred of which exist.
fs::path write_manifest(const fs::path& folder, std::int64_t lines) {
  fs::create_directories(folder / "clips");
  const auto name = [](std::int64_t i) {
    return "clips/common_voice_kok_" + std::to_string(10'000'000 + i % 100) + ".mp3";
  };
  for (std::int64_t i = 0; i < 100; ++i) std::ofstream(folder / name(i)) << "x";
  std::ofstream out(folder / "train.jsonl");
  for (std::int64_t i = 0; i < lines; ++i)
    out << R"({"audio_filepath": ")" << name(i)
        << R"(", "text": "the quick brown fox jumps over the lazy dog )" << i
        << R"(", "duration": 3.25, "speaker": "speaker )" << i % 50 << "\"}\n";
  return folder / "train.jsonl";
}

fs::path write_index(const fs::path& folder, std::int64_t samples) {
  std::ofstream out(folder / "samples.index", std::ios::binary);
  for (std::int64_t i = 0; i < samples; ++i) {
    const auto number = static_cast<std::uint64_t>(i);
    const auto record =
        lt::detail::PackRecord::of(lt::detail::pack_key(std::to_string(i)), {64 * number, 8, 64, number});
    out.write(reinterpret_cast<const char*>(&record), sizeof(record));
  }
  return folder / "samples";
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return std::fprintf(stderr, "usage: data_open FOLDER LINES SAMPLES\n"), 1;
  const fs::path folder = arguments[1];
  const std::int64_t lines = std::stoll(arguments[2]), samples = std::stoll(arguments[3]);
  const fs::path manifest = write_manifest(folder, lines), pack = write_index(folder, samples);
  measure("cache index", samples, [&] { return std::make_unique<lt::detail::SamplePack>(pack); });
  measure("manifest", lines, [&] { return lt::load_manifest(manifest, {.check_files = false}); });
  measure("manifest, files checked", lines, [&] { return lt::load_manifest(manifest); });
  lt::detail::SamplePack open(pack);
  measure("cache index, all looked up", samples, [&] {
    for (std::int64_t i = 0; i < samples; ++i)
      if (!open.find(lt::detail::pack_key(std::to_string(i)))) std::abort();
    return 0;
  });
}
