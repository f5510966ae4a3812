// SPDX-License-Identifier: MIT
// The fingerprint of a line is its content: it stays when a corpus is moved, and differs with each field but
// the duration.
#include "support/precompiled.hpp"

#include <looptorch/data/manifest/listed_lines.hpp>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace lt = looptorch;

namespace {

std::vector<std::string> fingerprints(const std::vector<lt::Utterance>& lines) {
  const lt::LineFingerprints of(lines);
  std::vector<std::string> all;
  for (const auto& line : lines) all.push_back(of(line));
  return all;
}

std::vector<std::string> names(const std::vector<std::string>& files) {
  const lt::NamesBelow of(files, [](const std::string& file) { return file; });
  std::vector<std::string> all;
  for (const auto& file : files) all.push_back(of(file));
  return all;
}

}  // namespace

TEST_CASE("files are named below the folder that holds all of them") {
  using All = std::vector<std::string>;
  CHECK(names({"/data/one/a.wav", "/data/two/a.wav"}) == All{"one/a.wav", "two/a.wav"});
  CHECK(names({"moved/one/a.wav", "moved/two/a.wav"}) == All{"one/a.wav", "two/a.wav"});
  CHECK(names({"/data/clip1.wav", "/data/clip2.wav"}) == All{"clip1.wav", "clip2.wav"});
  CHECK(names({"/data/clips/a.wav", "/data/clips2/a.wav"}) == All{"clips/a.wav", "clips2/a.wav"});
  CHECK(names({"/data/a.wav", "/data/a.wav"}) == All{"a.wav", "a.wav"});
  CHECK(names({"a.wav", "b.wav"}) == All{"a.wav", "b.wav"});
  CHECK(names({"/a.wav", "b.wav"}) == All{"/a.wav", "b.wav"});
  CHECK(names({}).empty());
}

TEST_CASE("a line's fingerprint is its content, wherever the corpus lies and however long a file is") {
  const std::vector<lt::Utterance> lines{{.audio_filepath = "/data/one/a.wav", .text = "a"},
                                         {.audio_filepath = "/data/two/b.wav", .text = "b"}};
  auto moved = lines;
  moved[0].audio_filepath = "elsewhere/one/a.wav", moved[1].audio_filepath = "elsewhere/two/b.wav";
  moved[0].duration = 2.5;
  CHECK(fingerprints(moved) == fingerprints(lines));

  std::set<std::string> all;
  auto line = lines[0];
  const auto add = [&] { all.insert(fingerprints({line, lines[1]}).front()); };
  add();
  line.text = "b", add();
  line.speaker = "b", add();
  line.language = "b", add();
  line.start = 0, add();
  line.end = 1, add();
  line.start.reset(), add();
  line.audio_filepath = "/data/one/c.wav", add();
  line.text = "1:b", line.speaker = "", add();  // no two fields run into one
  CHECK(all.size() == 9);
}
