// SPDX-License-Identifier: MIT
// Measures the Whisper example's tokenizer encoding a text in one call, on one thread: English (this
// project's documentation), Devanagari (Konkani, Hindi and Marathi sentences), and both with emoji
// alternately. LOOPTORCH_WHISPER_CT2 names the folder with Whisper tiny.en's tokenizer.json, as
// packaging/setup.sh exports it.
#include <looptorch/base/files/file.hpp>

#include <whisper/text/tokenizer.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

constexpr int kRounds = 41;
const fs::path kSource = LOOPTORCH_SOURCE_DIR;

std::string documentation() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(kSource / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const auto& path : paths) text += looptorch::read_file(path);
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The corpus, which tokenizer.py makes too.
struct Corpus {
  std::string english = documentation(), devanagari, mixed;

  Corpus() {
    const auto sentences = looptorch::read_file(kSource / "tests/bench/support/devanagari.txt");
    for (int i = 0; i < 20; ++i) devanagari += sentences;
    const auto of_english = lines_of(english), of_devanagari = lines_of(sentences);
    for (std::size_t i = 0; i < of_english.size(); ++i) {
      mixed += of_english[i] + " " + of_devanagari[i % of_devanagari.size()] + " \U0001F44D\U0001F3FD\n";
    }
  }
};

/// Returns the median of the rounds after a warm-up round, in the process's own time, which other programs do
/// not affect.
double milliseconds_per_megabyte(const whisper::Tokenizer& tokenizer, const std::string& text) {
  std::array<double, kRounds> times;
  if (tokenizer.decode(tokenizer.encode(text), false) != text) {
    throw looptorch::Error("the text does not come back");
  }
  for (auto& time : times) {
    const auto begin = std::clock();
    const auto ids = tokenizer.encode(text);
    time = 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2] / static_cast<double>(text.size()) * 1e6;
}

void print_row(const char* name, double value) {
  std::printf("{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"ms/MB\"}\n", name, value);
}

}  // namespace

int main() try {
  const char* folder = std::getenv("LOOPTORCH_WHISPER_CT2");
  if (!folder) throw looptorch::UsageError("LOOPTORCH_WHISPER_CT2 is not set; see packaging/setup.sh");
  const auto tokenizer = whisper::load_tokenizer(fs::path(folder) / "tokenizer.json");
  const Corpus corpus;
  print_row("encode English", milliseconds_per_megabyte(tokenizer, corpus.english));
  print_row("encode Devanagari", milliseconds_per_megabyte(tokenizer, corpus.devanagari));
  print_row("encode mixed", milliseconds_per_megabyte(tokenizer, corpus.mixed));
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
