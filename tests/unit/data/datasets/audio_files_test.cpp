// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/data/datasets/audio_files.hpp>

#include "support/temporary_folder.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace lt = looptorch;
namespace fs = std::filesystem;

TEST_CASE("audio files are known by their names, in capitals too") {
  for (const char* name : {"a.wav", "B.WAV", "x/c.Flac", "d.mp3", "e.ogg", "f.OPUS", "talk.sph"})
    CHECK(lt::is_audio_file(name));
  for (const char* name : {"a.txt", "wav", ".wav", "a.wav.part", ""}) CHECK_FALSE(lt::is_audio_file(name));
  CHECK(lt::small_extension("folder.d/Table.CSV") == ".csv");
}

TEST_CASE("audio files of folders, by name; what holds none stands for itself") {
  const looptorch::testing::TemporaryFolder folder;
  const fs::path root = folder.path();
  fs::create_directories(root / "clips" / "below");
  fs::create_directories(root / "empty");
  for (const char* name :
       {"clips/b.WAV", "clips/._b.WAV", "clips/a.flac", "clips/notes.txt", "clips/below/c.ogg"})
    std::ofstream(root / name) << "x";
  using Paths = std::vector<fs::path>;
  CHECK(lt::audio_files({(root / "clips").string()}) ==
        Paths{root / "clips/a.flac", root / "clips/b.WAV", root / "clips/below/c.ogg"});
  const auto is_text = [](const fs::path& file) { return lt::small_extension(file) == ".txt"; };
  CHECK(lt::audio_files({(root / "clips").string()}, is_text) == Paths{root / "clips/notes.txt"});
  CHECK(lt::audio_files({(root / "empty").string(), "missing.wav", (root / "clips/notes.txt").string()}) ==
        Paths{root / "empty", "missing.wav", root / "clips/notes.txt"});
}

TEST_CASE("audio files: links to folders are entered; a folder that several names lead to counts once") {
  const looptorch::testing::TemporaryFolder folder;
  const fs::path root = folder.path();
  fs::create_directories(root / "corpus" / "own");
  fs::create_directories(root / "corpus" / "folder.wav");
  fs::create_directories(root / "elsewhere");
  for (const char* name : {"corpus/own/a.wav", "elsewhere/b.wav"}) std::ofstream(root / name) << "x";
  for (const char* link : {"linked", "linked_again"})
    fs::create_directory_symlink("../elsewhere", root / "corpus" / link);
  fs::create_directory_symlink("own", root / "corpus" / "latest");
  fs::create_directory_symlink("..", root / "corpus" / "own" / "up");
  fs::create_directory_symlink("../corpus", root / "elsewhere" / "back");
  fs::create_symlink("nowhere.wav", root / "corpus" / "broken.wav");
  fs::create_symlink("itself", root / "corpus" / "itself");
  using Paths = std::vector<fs::path>;
  CHECK(lt::audio_files({(root / "corpus").string()}) ==
        Paths{root / "corpus/broken.wav", root / "corpus/linked/b.wav", root / "corpus/own/a.wav"});
}

TEST_CASE("audio files: sound that cannot be read is listed, unless it was converted") {
  const looptorch::testing::TemporaryFolder folder;
  const fs::path root = folder.path();
  fs::create_directories(root / "below");
  for (const char* name : {"a.m4a", "b.M4A", "b.flac", "below/a.wav", "film.mp4", "film.srt"})
    std::ofstream(root / name) << "x";
  using Paths = std::vector<fs::path>;
  CHECK(lt::audio_files({root.string()}) ==
        Paths{root / "a.m4a", root / "b.flac", root / "below/a.wav", root / "film.mp4"});
}
