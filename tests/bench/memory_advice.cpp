// SPDX-License-Identifier: MIT
// Advises micro-batch, accumulation and policies for cards of 4 to 80 GB: Whisper from tiny to large-v3, the
// three sizes of KonkaniVani, the GAN and ViT-B/16; or measures the settings of the guides that the examples
// follow. Each choice is a dry run of the program's Trainer on random weights of the real shape, without
// arithmetic (looptorch/shapes_only), so that large-v3 takes seconds and no memory. CPU, one thread.
//
//   memory_advice [--only TEXT] [--write docs/memory_advice.md]
//       prints the sections of the page
//   memory_advice [--only TEXT] --compare docs/memory_advice.md
//       fails if the page's sections say something else, or bytes that differ by more than 1 %
//   memory_advice --guides [--write docs/performance_log.md] [--compare docs/performance_log.md]
//       prints the settings of the guides, or compares them
//   memory_advice --check
//       compares dry runs without arithmetic with real ones, and fails if one is off by more than 1 %
#include <looptorch/app/command_line.hpp>
#include <looptorch/app/run_main.hpp>
#include <looptorch/base/error.hpp>

#include "support/advice/konkanivani.hpp"
#include "support/advice/music.hpp"
#include "support/advice/page.hpp"
#include "support/advice/seeds.hpp"
#include "support/advice/whisper.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace looptorch_bench;

constexpr double kTolerance = 0.01;
constexpr std::int64_t kNoLimit = 1'000'000'000'000;

struct Options {
  std::string only;
  std::filesystem::path page, compared;
  bool check = false, guides = false;
  Limits limits;
};

std::vector<Candidate> candidates(const Options& options) {
  std::vector<Candidate> chosen;
  for (const auto& group : {whisper_candidates(), konkanivani_candidates(), music_candidates()})
    for (Candidate candidate : group) {
      if (candidate.name.find(options.only) == std::string::npos) continue;
      chosen.push_back(std::move(candidate));
    }
  return chosen;
}

void print(const std::string& name, std::int64_t bytes, const char* peer, std::int64_t peer_bytes) {
  std::printf(
      "{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"MB\", \"peer\": \"%s\", \"peer_value\": %.3f}\n",
      name.c_str(), static_cast<double>(bytes) / 1e6, peer, static_cast<double>(peer_bytes) / 1e6);
  std::fflush(stdout);
}

void advise_all(const Options& options) {
  std::optional<Page> page;
  if (!options.page.empty()) page.emplace(options.page);
  const auto put = [&](const std::string& text) {
    std::printf("%s", text.c_str());
    std::fflush(stdout);
    if (page) page->put(text);
  };
  if (options.guides) return put(seeds_section(options.limits));
  const auto chosen = candidates(options);
  if (page && options.only.empty()) page->put_preface(preface(chosen));
  for (const Candidate& candidate : chosen) {
    Needs needs(candidate);
    put(section(needs, options.limits));
  }
}

void compare_all(const Options& options) {
  const Page page(options.compared);
  std::string differing;
  const auto compare = [&](const std::string& name, const std::string& now) {
    if (page.agrees(now, kTolerance)) return;
    std::printf("%s", now.c_str());
    differing += (differing.empty() ? "" : ", ") + name;
  };
  if (options.guides) {
    compare(kSeedsTitle, seeds_section(options.limits));
  } else {
    for (const Candidate& candidate : candidates(options)) {
      Needs needs(candidate);
      compare(candidate.name, section(needs, options.limits));
    }
  }
  if (!differing.empty())
    throw looptorch::Error(looptorch::message(options.compared.string(), " is out of date: ", differing,
                                              "; write it by --write"));
}

void check_all(const Options& options) {
  double worst = 0;
  for (const Candidate& candidate : candidates(options))
    for (const std::string& flags : candidate.checks) {
      const auto needed = [&] { return candidate.needed(candidate.with(flags), kNoLimit); };
      const auto by_shape = [&] {
        const looptorch::ShapesOnly shapes_only;
        return needed();
      }();
      const auto real = needed();
      worst = std::max(worst, std::abs(static_cast<double>(by_shape) / static_cast<double>(real) - 1));
      print(candidate.name + " " + flags, by_shape, "real dry run", real);
    }
  std::fprintf(stderr, "off by %.3f %% at worst\n", 100 * worst);
  if (worst > kTolerance)
    throw looptorch::Error(looptorch::message("a dry run without arithmetic is off by ", 100 * worst, " %"));
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  looptorch::HostMemory::counted();
  Options options;
  looptorch::app::CommandLine line("memory_advice", "Advises how to train within the memory of a card.");
  line.option("only", "TEXT", options.only, "models whose names contain this");
  line.option("write", "PAGE", options.page,
              "writes the sections of these models between the page's markers");
  line.option("compare", "PAGE", options.compared, "fails if these models' sections of the page differ");
  line.option("reserve", "GB", options.limits.reserve, "that a card's context and libraries take",
              {.min = 0});
  line.option("margin", "SHARE", options.limits.margin, "of the rest that stays free",
              {.min = 0, .max = 0.9});
  line.toggle("guides", options.guides, "the settings of the examples' guides, in place of advice");
  line.toggle("check", options.check, "compares with real dry runs, which takes minutes");
  return looptorch::app::run_main(argc, argv, line, [&] {
    if (options.check) return check_all(options);
    if (!options.compared.empty()) return compare_all(options);
    advise_all(options);
  });
}
