// SPDX-License-Identifier: MIT
// Measures what g++ and clang++ take for a translation unit without a precompiled header: user time and
// memory, for <torch/torch.h> alone, with looptorch after it, and for narrow headers only. Each row is the
// least of three turns, or of as many as LOOPTORCH_BENCH_TURNS says.
#include <looptorch/base/error.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

constexpr const char* kTraining = R"(
int main() {
  torch::nn::Linear model(1, 1);
  looptorch::FusedAdamW optimizer(model->parameters(), {.lr = 0.1});
  auto objective = [](torch::nn::Linear& line, const at::Tensor& x) { return line(x).square().mean(); };
  looptorch::Trainer trainer(model, optimizer, objective, POLICIES);
  trainer.fit(std::vector<at::Tensor>(3, at::ones({4, 1})));
}
)";

struct Unit {
  std::string name;
  std::string peer;  ///< the unit that it is compared with; empty: it is one itself
  std::string text;
  double seconds = std::numeric_limits<double>::infinity(), megabytes = seconds;
};

std::string training(const std::string& includes, const std::string& policies) {
  return includes + "#include <vector>\n#define POLICIES " + policies + kTraining;
}

std::vector<Unit> units() {
  const std::string torch = "#include <torch/torch.h>\n", trainer = "#include <looptorch/trainer.hpp>\n";
  const auto including = [](std::initializer_list<const char*> headers) {
    std::string includes;
    for (const char* header : headers)
      includes += looptorch::message("#include <looptorch/", header, ".hpp>\n");
    return includes;
  };
  const std::string loop = including({"loop"});
  const std::string named = including({"loop", "optim/fused_adamw", "policies/accumulate",
                                       "policies/clip_grad_norm", "policies/show_progress"});
  const std::string narrow = "#include <torch/nn/modules/linear.h>\n" + named;
  const std::string policies = including({"policies"});
  const std::string with_snapshots = including({"policies/snapshot_every"});
  const std::string by_hand = R"(
int main() {
  torch::nn::Linear model(1, 1);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.1));
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    model(torch::ones({4, 1})).square().mean().backward();
    optimizer.step();
  }
}
)";
  const std::string all =
      "looptorch::Accumulate<4>{}, looptorch::ClipGradNorm{1.0}, looptorch::ShowProgress{}";
  const std::string snapshots = all + ", looptorch::SnapshotEvery{.folder = \"run\"}";
  const std::string hand = "torch.h: a loop by hand";
  return {
      {"torch.h alone", "", torch + "int main() {}\n"},
      {"torch.h, trainer.hpp", "torch.h alone", torch + trainer + "int main() {}\n"},
      {"torch.h, trainer.hpp, policies.hpp", "torch.h alone", torch + trainer + policies + "int main() {}\n"},
      {"torch.h, loop.hpp", "torch.h alone", torch + loop + "int main() {}\n"},
      {"torch.h, policies by name", "torch.h alone", torch + named + "int main() {}\n"},
      {"trainer.hpp alone", "torch.h alone", trainer + "int main() {}\n"},
      {hand, "", torch + by_hand},
      {"torch.h: with policies", hand, training(torch + trainer, all)},
      {"torch.h: with snapshots", hand, training(torch + trainer + with_snapshots, snapshots)},
      {"torch.h: policies by name", hand, training(torch + named, all)},
      {"narrow: with policies", hand, training(narrow, all)},
      {"narrow: with snapshots", hand, training(narrow + with_snapshots, snapshots)}};
}

/// Runs the compiler, keeps the least that it took, and returns what this run took. Throws looptorch::Error
/// if it fails.
double compile(const std::string& compiler, Unit& unit, const fs::path& file) {
  std::ofstream(file) << unit.text;
  std::istringstream words(LOOPTORCH_COMPILE_ARGUMENTS);
  std::vector<std::string> command{compiler};
  for (std::string word; words >> word;) command.push_back(word);
  command.push_back(file.string());
  std::vector<char*> arguments;
  for (auto& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  const pid_t child = ::fork();
  if (child == 0) {
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  rusage used{};
  if (child < 0 || ::wait4(child, &status, 0, &used) != child || status != 0)
    throw looptorch::Error(compiler + " failed with " + unit.name);
  const timeval& time = used.ru_utime;
  const double seconds = static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  unit.seconds = std::min(unit.seconds, seconds);
  unit.megabytes = std::min(unit.megabytes, static_cast<double>(used.ru_maxrss) / 1e3);
  return seconds;
}

void print(const std::string& compiler, const Unit& unit, const Unit& peer) {
  const auto row = [&](const char* what, const char* measure, double value, double of_peer) {
    std::printf(R"({"name": "%s, %s: %s", "value": %.4g, "unit": "%s", "peer": "%s", "peer_value": %.4g})"
                "\n",
                compiler.c_str(), unit.name.c_str(), what, value, measure, peer.name.c_str(), of_peer);
  };
  row("time", "s", unit.seconds, peer.seconds);
  row("memory", "MB", unit.megabytes, peer.megabytes);
  std::fflush(stdout);
}

void measure(const std::string& compiler, int turns) {
  const fs::path file = fs::temp_directory_path() / ("include_cost_" + std::to_string(::getpid()) + ".cpp");
  auto measured = units();
  for (int turn = 0; turn < turns; ++turn)
    for (auto& unit : measured) {
      const double seconds = compile(compiler, unit, file);
      std::fprintf(stderr, "%s, turn %d of %d, %s: %.1f s\n", compiler.c_str(), turn + 1, turns,
                   unit.name.c_str(), seconds);
    }
  fs::remove(file);
  const std::string name = fs::path(compiler).filename().string();
  for (const auto& unit : measured) {
    const auto peer = std::find_if(measured.begin(), measured.end(),
                                   [&](const Unit& other) { return other.name == unit.peer; });
    if (peer != measured.end()) print(name, unit, *peer);
  }
}

}  // namespace

int main() {
  const char* turns = std::getenv("LOOPTORCH_BENCH_TURNS");
  std::istringstream compilers(LOOPTORCH_COMPILERS);
  for (std::string compiler; compilers >> compiler;)
    measure(compiler, turns ? std::max(1, std::atoi(turns)) : 3);
}
