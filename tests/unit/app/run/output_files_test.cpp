// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/run/output_files.hpp>
#include <looptorch/base/files/atomic_file.hpp>

#include "support/temporary_folder.hpp"

#include <filesystem>

namespace app = looptorch::app;
namespace fs = std::filesystem;
using Catch::Matchers::Contains;

TEST_CASE("app: a result replaces neither what is read nor another result") {
  const looptorch::testing::TemporaryFolder root;
  const fs::path folder = root.path(), clips = folder / "clips.jsonl";
  looptorch::write_file_atomically(clips, "{}\n");
  fs::create_symlink(clips, folder / "link");
  for (const fs::path& same : {clips, folder / "." / "clips.jsonl", folder / "link"})
    CHECK_THROWS_WITH(
        app::require_distinct_files({{"transcripts", ""}, {"summary", same}}, {{"manifest", clips}}),
        Contains("--summary and --manifest name the same file") && Contains(same.string()));
  const fs::path result = folder / "a.json", other = folder / "b.json";
  CHECK_THROWS_WITH(
      app::require_distinct_files({{"summary", result}, {"transcripts", folder / "." / "a.json"}}),
      Contains("--summary and --transcripts name the same file") && Contains("a name of its own"));
  CHECK_THROWS_WITH(app::require_distinct_files({{"summary", "a.json"}, {"transcripts", "./a.json"}}),
                    Contains("--summary and --transcripts name the same file"));
  CHECK_NOTHROW(app::require_distinct_files({{"summary", result}, {"transcripts", other}, {"more", ""}},
                                            {{"manifest", clips}, {"test", ""}}));
  CHECK_FALSE(fs::exists(result));
}

TEST_CASE("app: a result that cannot be written is refused before the work") {
  const looptorch::testing::TemporaryFolder root;
  const fs::path file = root.path() / "file";
  looptorch::write_file_atomically(file, "");
  CHECK_THROWS_WITH(app::require_distinct_files({{"summary", root.path() / "none" / "a.json"}}),
                    Contains("--summary ") && Contains("there is no folder"));
  CHECK_THROWS_WITH(app::require_distinct_files({{"summary", file / "a.json"}}),
                    Contains("there is no folder"));
  CHECK_THROWS_WITH(app::require_distinct_files({{"summary", root.path()}}), Contains("is a folder"));
  CHECK_NOTHROW(app::require_distinct_files({{"summary", "a.json"}}));
}

TEST_CASE("app: an output folder is created, or refused with its flag") {
  const looptorch::testing::TemporaryFolder root;
  const fs::path file = root.path() / "file";
  looptorch::write_file_atomically(file, "");
  app::create_output_folder("output-dir", root.path() / "a" / "b");
  app::create_output_folder("output-dir", root.path() / "a" / "b");
  CHECK(fs::is_directory(root.path() / "a" / "b"));
  for (const fs::path& wrong : {file, file / "below"})
    CHECK_THROWS_WITH(app::create_output_folder("output-dir", wrong),
                      Contains("--output-dir: cannot create the folder " + wrong.string() + ": "));
}

TEST_CASE("app: what another program could not write is an error") {
  const looptorch::testing::TemporaryFolder root;
  const fs::path file = root.path() / "spoken.wav";
  CHECK_THROWS_WITH(app::require_written(file), Contains("spoken.wav: could not be written"));
  looptorch::write_file_atomically(file, "RIFF");
  CHECK_THROWS_AS(app::require_written(file, 4), looptorch::FileError);
  CHECK_NOTHROW(app::require_written(file, 3));
}
