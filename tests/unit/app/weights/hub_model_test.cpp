// SPDX-License-Identifier: MIT
//
// Tests app/weights: hub_model
#include "support/precompiled.hpp"

#include <looptorch/app/weights/hub_model.hpp>

#include "support/temporary_folder.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace app = looptorch::app;
namespace fs = std::filesystem;
using Catch::Contains;

namespace {

/// Sets a variable of the environment while it lives; null unsets it.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    value ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { before_.empty() ? ::unsetenv(name_) : ::setenv(name_, before_.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string before_;
};

/// A cache as huggingface_hub 1.0 leaves it: files are links to blobs.
struct Cache {
  looptorch::testing::TemporaryFolder folder;
  Variable hub{"HF_HUB_CACHE", folder.path().c_str()};

  fs::path add(const std::string& model, const std::string& hash, const std::string& file = "config.json") {
    const auto of_model = folder.path() / model;
    const auto snapshot = of_model / "snapshots" / hash;
    fs::create_directories(of_model / "blobs");
    fs::create_directories(snapshot);
    std::ofstream(of_model / "blobs" / (hash + file)) << "{}";
    fs::create_symlink(fs::path("../../blobs") / (hash + file), snapshot / file);
    return snapshot;
  }
  void main(const std::string& model, const std::string& text) {
    fs::create_directories(folder.path() / model / "refs");
    std::ofstream(folder.path() / model / "refs" / "main") << text;
  }
};

}  // namespace

TEST_CASE("hub model: a name means the snapshot that refs/main names") {
  Cache cache;
  const auto older = cache.add("models--openai--whisper-small", "aaa");
  CHECK(app::model_folder("openai/whisper-small") == older);  // the only one, without refs
  const auto newer = cache.add("models--openai--whisper-small", "bbb");
  CHECK_THROWS_AS(app::model_folder("openai/whisper-small"), looptorch::UsageError);  // which?
  cache.main("models--openai--whisper-small", "bbb\n");
  CHECK(app::model_folder("openai/whisper-small") == newer);
  cache.main("models--openai--whisper-small", "ccc");  // of a download that was broken off
  CHECK_THROWS_AS(app::model_folder("openai/whisper-small"), looptorch::UsageError);
}

TEST_CASE("hub model: what exists and what is no name is left alone") {
  const Cache cache;
  for (const char* path : {"/models/whisper", "model", "a/b/c", "./a/b", "../b", "a/", "/b", "", "a b/c"})
    CHECK(app::model_folder(path) == path);
  CHECK(app::model_folder(cache.folder.path()) == cache.folder.path());
}

TEST_CASE("hub model: what was not downloaded is told with the command") {
  Cache cache;
  CHECK_THROWS_WITH(
      app::model_folder("openai/whisper-small"),
      "openai/whisper-small: is no folder, and no model of this name was downloaded to " +
          cache.folder.path().string() +
          ". Download it: hf download openai/whisper-small --local-dir whisper-small, and give whisper-small");
  cache.add("models--google--vit", "aaa", "tokenizer.json");
  CHECK_THROWS_WITH(app::model_folder("google/vit"),
                    Contains("google/vit: was downloaded without config.json to "));
}

TEST_CASE("hub model: the cache lies where Hugging Face's variables say") {
  const Variable hub("HF_HUB_CACHE", nullptr), old("HUGGINGFACE_HUB_CACHE", nullptr), hf("HF_HOME", nullptr),
      xdg("XDG_CACHE_HOME", nullptr), home("HOME", "/home/me");
  CHECK(app::hub_cache() == "/home/me/.cache/huggingface/hub");
  const Variable with_xdg("XDG_CACHE_HOME", "/x");
  CHECK(app::hub_cache() == "/x/huggingface/hub");
  const Variable with_hf("HF_HOME", "/hf");
  CHECK(app::hub_cache() == "/hf/hub");
  const Variable with_old("HUGGINGFACE_HUB_CACHE", "/old");
  CHECK(app::hub_cache() == "/old");
  const Variable with_hub("HF_HUB_CACHE", "/hub");
  CHECK(app::hub_cache() == "/hub");
}

TEST_CASE("hub model: a flag takes a name, and notes what was typed") {
  Cache cache;
  const auto snapshot = cache.add("models--openai--whisper-small", "aaa");
  fs::path model, none;
  std::string noted;
  app::CommandLine line("program", "");
  line.option("model", "DIR", model, "").option("other", "DIR", none, "");
  line.on_parsed([&](const app::CommandLine& parsed) { noted = parsed.config_text(); });
  app::accept_hub_name(line, model);
  app::accept_hub_name(line, none);
  std::string words[] = {"program", "--model", "openai/whisper-small"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  REQUIRE(line.parse(3, argv));
  CHECK(model == snapshot);
  CHECK(none.empty());
  CHECK_THAT(noted, Contains("model=openai/whisper-small\n"));
}
