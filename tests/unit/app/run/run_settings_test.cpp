// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/run/run_settings.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/trainer.hpp>

#include "support/temporary_folder.hpp"

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <string>
#include <vector>

using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using Settings = std::map<std::string, std::string>;

namespace {

looptorch::FitResult fit(const std::filesystem::path& folder, const Settings& settings, bool resumes,
                         bool resume_changed = false, const Settings& data = {}) {
  torch::nn::Linear line(1, 1);
  looptorch::FusedSGD optimizer(line->parameters(), {.lr = 0.1});
  const auto objective = [](torch::nn::Linear& line, const at::Tensor& x_B1) {
    return at::mse_loss(line(x_B1), x_B1);
  };
  const std::vector<at::Tensor> batches(2, at::ones({2, 1}));
  looptorch::Trainer trainer(line, optimizer, objective,
                             looptorch::SnapshotEvery{.folder = folder, .steps = 1},
                             looptorch::app::RunSettings(settings, data));
  return trainer.fit(batches, {.epochs = 1 + resumes,
                               .resume = resumes ? folder : std::filesystem::path(),
                               .resume_changed = resume_changed});
}

/// A list of texts.
struct Listed {
  std::vector<std::string> lines;

  std::int64_t size() const { return std::ssize(lines); }
  at::Tensor get(std::int64_t /*index*/) const { return at::zeros({}); }
  std::string fingerprint(std::int64_t index) const { return lines[static_cast<std::size_t>(index)]; }
};

}  // namespace

TEST_CASE("A run continues with its own settings only, and the error names those that differ") {
  const TemporaryFolder folder;
  const Settings settings{{"--best", "wer"}, {"--language", "de"}};
  (void)fit(folder.path(), settings, false);
  CHECK_THROWS_WITH(
      fit(folder.path(), {{"--best", "wer"}, {"--language", "fr"}}, true),
      Contains(
          "is not of this run: looptorch::app::RunSettings: --language is fr here and de in the snapshot") &&
          !Contains("--best"));
  CHECK_THROWS_WITH(fit(folder.path(), {{"--best", "loss"}, {"--language", "fr"}}, true, true),
                    Contains("--best is loss here and wer in the snapshot, --language is fr here"));
  CHECK_THROWS_WITH(
      fit(folder.path(), {{"--best", "wer"}, {"--language", "de"}, {"--chunking", "true"}}, true),
      Contains("--chunking is true here and not set in the snapshot"));
  CHECK(fit(folder.path(), settings, true).steps == 4);
  CHECK(looptorch::app::setting(true) + looptorch::app::setting(0.5) == "on0.5");
}

TEST_CASE("A run continues with the data that it measures itself by, and a snapshot without them continues") {
  const auto of = [](const std::vector<std::string>& lines) {
    return Settings{{"--validation", looptorch::app::samples_of(Listed{lines})}};
  };
  const TemporaryFolder folder;
  (void)fit(folder.path(), {}, false, false, of({"a", "b"}));
  for (const std::vector<std::string>& others : {std::vector<std::string>{"a"}, {"a", "c"}, {"b", "a"}})
    for (const bool resume_changed : {false, true})
      CHECK_THROWS_WITH(fit(folder.path(), {}, true, resume_changed, of(others)),
                        Contains("RunSettings: --validation is " + std::to_string(others.size()) +
                                 (others.size() == 1 ? " sample with" : " samples with") + " checksum ") &&
                            Contains(" here and " + of({"a", "b"}).at("--validation") + " in the snapshot"));
  CHECK(fit(folder.path(), {}, true, false, of({"a", "b"})).steps == 4);

  const TemporaryFolder earlier;
  (void)fit(earlier.path(), {}, false);
  CHECK(fit(earlier.path(), {}, true, false, of({"a"})).steps == 4);
}
