// SPDX-License-Identifier: MIT
// Tests spectrogram_gan_vit/clips: dataset_folder, splits
#include "support/precompiled.hpp"

#include "support/temporary_folder.hpp"

#include <spectrogram_gan_vit/clips/dataset_folder.hpp>
#include <spectrogram_gan_vit/clips/splits.hpp>

#include <algorithm>
#include <fstream>
#include <set>

using Catch::Contains;
using looptorch::testing::TemporaryFolder;
using spectrogram_gan::AnnotationError;
using spectrogram_gan::HeldOutSongs;
using spectrogram_gan::load_annotations;
using spectrogram_gan::Origin;
using spectrogram_gan::Song;
using spectrogram_gan::Split;
using spectrogram_gan::split_songs;

namespace {

/// A folder in DEAM's layout; the audio is never opened here.
struct Folder {
  Folder() { std::filesystem::create_directory(audio()); }

  void table(const std::string& text, const std::string& name = "songs.csv") const {
    std::ofstream(folder / name) << text;
  }
  void clips(const std::vector<std::string>& names) const {
    for (const auto& name : names) std::ofstream(audio() / name) << "x";
  }
  [[nodiscard]] std::filesystem::path audio() const { return folder / "audio"; }
  [[nodiscard]] std::filesystem::path table() const { return folder / "songs.csv"; }
  [[nodiscard]] std::vector<Song> load() const { return load_annotations(table(), audio()); }

  [[nodiscard]] std::string fault(const std::string& text) const {
    table(text);
    try {
      (void)load();
    } catch (const AnnotationError& error) {
      const std::string what = error.what(), place = table().string();
      return what.starts_with(place) ? what.substr(place.size()) : "does not begin with the file: " + what;
    }
    return "none";
  }

  TemporaryFolder folder;
};

std::vector<Song> recorded(std::int64_t count) {
  std::vector<Song> songs;
  for (std::int64_t id = 1; id <= count; ++id) songs.push_back({.id = id, .audio = "a"});
  return songs;
}

Song generated(std::int64_t id) { return {.id = id, .audio = "g.wav", .origin = Origin::generated}; }

std::set<std::int64_t> ids(const std::vector<Song>& songs) {
  std::set<std::int64_t> ids;
  for (const auto& song : songs) ids.insert(song.id);
  return ids;
}

}  // namespace

TEST_CASE("DEAM's table is read as published: blanks in the header, other columns, labels from 1 to 9") {
  const Folder deam;
  deam.clips({"2.mp3", "3.wav", "4.flac", "2.wav"});
  deam.table(
      "song_id, valence_mean, valence_std, arousal_mean, arousal_std\r\n"
      "2,3.1,0.94,9,0.63\r\n3,5,1.75,1,1.62\r\n\r\n4,5.7,1.42,5.5,1.63\r\n");
  const auto songs = deam.load();
  REQUIRE(songs.size() == 3);
  CHECK(songs[0].id == 2);
  CHECK(songs[0].audio == deam.audio() / "2.mp3");
  CHECK(songs[0].valence == Approx(-0.475));
  CHECK(songs[0].arousal == 1);
  CHECK(songs[1].audio == deam.audio() / "3.wav");
  CHECK(songs[1].valence == 0);
  CHECK(songs[1].arousal == -1);
  CHECK(songs[2].audio == deam.audio() / "4.flac");
  CHECK_FALSE(songs[2].split);
  CHECK(songs[2].origin == Origin::recorded);
}

TEST_CASE("A folder of tables is read as one, by name; an id may not stand in two") {
  const Folder deam;
  deam.clips({"2.mp3", "2001.mp3"});
  const std::string header = "song_id, valence_mean, arousal_mean\n";
  deam.table(header + "2001,5,5\n", "b.csv");
  deam.table(header + "2,5,5\n", "a.csv");
  deam.table("no table", "read.me");
  deam.table("no table", "._a.csv");
  const auto songs = load_annotations(deam.folder.path(), deam.audio());
  REQUIRE(songs.size() == 2);
  CHECK(songs[0].id == 2);
  deam.table(header + "2001,5,5\n2,4,4\n", "b.csv");
  CHECK_THROWS_WITH(load_annotations(deam.folder.path(), deam.audio()),
                    (deam.folder / "b.csv").string() + ":3: song_id 2 was given before, in " +
                        (deam.folder / "a.csv").string() + ":2");
  CHECK_THROWS_WITH(load_annotations(deam.audio(), deam.audio()), deam.audio().string() + ": holds no .csv");
  CHECK_THROWS_WITH(load_annotations(deam.folder / "none.csv", deam.audio()),
                    (deam.folder / "none.csv").string() + ": No such file or directory");
}

TEST_CASE("DEAM is found as its archives unpack, with both its tables, and a corpus as it was made") {
  const std::string song_level = "annotations/annotations averaged per song/song_level";
  const auto unpack = [&](const TemporaryFolder& folder, const std::string& audio,
                          const std::string& tables) {
    std::filesystem::create_directories(folder / audio);
    std::filesystem::create_directories(folder / tables);
    for (const auto* id : {"2", "2001"}) std::ofstream(folder / (audio + "/" + id + ".mp3"));
    std::ofstream(folder / (tables + "/static_annotations_averaged_songs_1_2000.csv"))
        << "song_id, valence_mean, valence_std, arousal_mean, arousal_std\n2,3.1,0.94,3,0.63\n";
    std::ofstream(folder / (tables + "/static_annotations_averaged_songs_2000_2058.csv"))
        << "song_id, valence_mean, valence_std, valence_ max_mean, valence_max_std, arousal_mean, arousal_std\n"
           "2001,6.4,1.1,7.1,1.0,5.6,1.2\n";
    return spectrogram_gan::load_songs(folder.path());
  };
  const TemporaryFolder zips, together, corpus;
  for (const auto& songs : {unpack(zips, "MEMD_audio", song_level),
                            unpack(together, "DEAM_audio/MEMD_audio", "DEAM_Annotations/" + song_level)}) {
    REQUIRE(songs.size() == 2);
    CHECK(songs[0].id == 2);
    CHECK(songs[1].id == 2001);
    CHECK(songs[1].valence == Approx(0.35));
    CHECK(songs[1].arousal == Approx(0.15));
    CHECK(std::filesystem::exists(songs[1].audio));
  }
  CHECK(unpack(corpus, "audio", ".").size() == 2);
  const TemporaryFolder arrays;
  for (const auto* name : {"2.NPY", "3.npy"}) std::ofstream(arrays / name) << "x";
  std::ofstream(arrays / "annotations.csv") << "song_id,valence_mean,arousal_mean\n2,3.1,3\n3,4,5\n";
  CHECK(spectrogram_gan::load_songs(arrays.path()).size() == 2);
  const TemporaryFolder empty;
  CHECK_THROWS_WITH(spectrogram_gan::load_songs(empty.path()),
                    empty.path().string() +
                        ": holds no folder audio, MEMD_audio, DEAM_audio/MEMD_audio or spectrograms, and no "
                        "array SONG_ID.npy");
}

TEST_CASE("The error for a wrong table names the line") {
  const Folder deam;
  deam.clips({"1.wav", "2.wav", "3.wav"});
  const std::string header = "song_id,valence_mean,arousal_mean\n", ok = "1,5,5\n";
  CHECK(deam.fault(header + ok + "2,9.01,5\n") ==
        ":3: valence_mean is \"9.01\"; it must be a number from 1 to 9");
  for (const std::string label : {"nan", "NaN", "inf", "-inf", "0.99", "", "five", "5,5", "1e3"}) {
    INFO(label);
    CHECK_THAT(deam.fault(header + ok + "2,5," + label + "\n"), Contains(":3: "));
  }
  CHECK(deam.fault(header + ok + "2,5,nan\n") ==
        ":3: arousal_mean is \"nan\"; it must be a number from 1 to 9");
  CHECK(deam.fault(header + ok + "2,5\n") == ":3: has 2 fields, the header 3");
  CHECK(deam.fault(header + "1.5,5,5\n") == ":2: song_id \"1.5\" is no whole number");
  CHECK(deam.fault(header + "-1,5,5\n") == ":2: song_id \"-1\" is no whole number");
  CHECK(deam.fault(header + ok + "2,5,5\n1,6,6\n") ==
        ":4: song_id 1 was given before, in " + deam.table().string() + ":2");
  CHECK(deam.fault(header + ok + "\n17,5,5\n") ==
        ":4: there is no audio file 17.mp3, .wav, .flac, .ogg, .opus or .npy in " + deam.audio().string());
  CHECK(deam.fault("song_id,valence_mean\n1,5\n") ==
        ":1: the header has no column \"arousal_mean\", it has \"song_id,valence_mean\"");
  CHECK(deam.fault("song_id,valence_mean,valence_mean,arousal_mean\n") ==
        ":1: the header has two columns \"valence_mean\"");
  CHECK(deam.fault(header) == ": holds no songs");
  CHECK(deam.fault("") == ": is empty");
  CHECK(deam.fault(header + "1,\"5,5\n" + "2,5,5\n") == ":2: a quoted field without an end");
  CHECK(deam.fault(header + "1,0,5\n2,0,5\n3,0,5\n") ==
        ":2: valence_mean is \"0\"; it must be a number from 1 to 9 (and 2 more lines are wrong)");
  CHECK(deam.fault(header + ok + "2,5,5\n3,5,5\n") == "none");
}

TEST_CASE("Lines that are wrong and songs without audio are skipped and listed, where that is asked for") {
  const Folder deam;
  deam.clips({"1.wav", "2.wav", "3.wav", "5.wav"});
  deam.table("song_id,valence_mean,arousal_mean\n1,5,5\n2,0,5\n3,5,nan\n4,5,5\n1,6,6\n5,5,5\n");
  spectrogram_gan::SkippedItems skipped;
  const auto songs = load_annotations(deam.table(), deam.audio(), &skipped);
  CHECK(ids(songs) == std::set<std::int64_t>{1, 5});
  CHECK(skipped.count(spectrogram_gan::Fault::row) == 3);
  CHECK(skipped.count(spectrogram_gan::Fault::missing_file) == 1);
  const auto text = skipped.describe(), table = deam.table().string();
  CHECK_THAT(text,
             Contains("4 songs are skipped (--on-bad-audio stop ends the run instead): 3 by a wrong line, 1 "
                      "without audio, 0 whose audio cannot be used"));
  CHECK_THAT(text, Contains("\n  " + table + ":3: valence_mean is \"0\"; it must be a number from 1 to 9\n"));
  CHECK_THAT(text, Contains("\n  " + table + ":5: there is no audio file 4.mp3"));
  CHECK_THAT(skipped.describe({.at_most = 1}), Contains("\n  and 2 more\n"));
  CHECK_THROWS_WITH(deam.load(), Contains(":3: valence_mean") && Contains("(and 3 more lines are wrong)"));

  // No song remains, or a table that cannot be read at all.
  deam.table("song_id,valence_mean,arousal_mean\n2,0,5\n");
  CHECK_THROWS_WITH(load_annotations(deam.table(), deam.audio(), &skipped), Contains(":2: valence_mean"));
  deam.table("song_id,valence_mean\n1,5\n");
  CHECK_THROWS_WITH(load_annotations(deam.table(), deam.audio(), &skipped), Contains("no column"));
}

TEST_CASE(
    "A table may say each song's split and origin; half of the splits, or a held-out generated song, is wrong") {
  const Folder made;
  made.clips({"1.wav", "2.wav", "3.wav", "4.wav"});
  const std::string header = "song_id,valence_mean,arousal_mean,split,origin\n";
  made.table(header + "1,5,5,train,\n2,5,5,test,recorded\n3,5,5,validation,\n4,5,5,,generated\n");
  const auto songs = made.load();
  REQUIRE(songs.size() == 4);
  CHECK(songs[1].split == Split::test);
  CHECK(songs[3].origin == Origin::generated);
  const auto splits = split_songs(songs);
  CHECK(ids(splits.train) == std::set<std::int64_t>{1, 4});
  CHECK(ids(splits.validation.songs()) == std::set<std::int64_t>{3});
  CHECK(ids(splits.test.songs()) == std::set<std::int64_t>{2});

  CHECK(made.fault(header + "1,5,5,test,generated\n") == ":2: a generated song is for training alone");
  CHECK(made.fault(header + "1,5,5,validation,generated\n") == ":2: a generated song is for training alone");
  CHECK(made.fault(header + "1,5,5,dev,\n") ==
        ":2: split is \"dev\"; it must be one of train, validation, test");
  CHECK(made.fault(header + "1,5,5,,fake\n") ==
        ":2: origin is \"fake\"; it must be one of recorded, generated");
  CHECK(made.fault(header + "1,5,5,train,\n2,5,5,,\n") ==
        ":3: has no split, recorded songs before it have one");
  CHECK(made.fault(header + "1,5,5,,\n2,5,5,test,\n") ==
        ":3: has a split, recorded songs before it have none");
}

TEST_CASE("Songs are parted 80/10/10 by id and seed, disjoint, whatever their order and company") {
  const auto splits = split_songs(recorded(2000));
  const auto train = ids(splits.train), validation = ids(splits.validation.songs()),
             test = ids(splits.test.songs());
  CHECK(train.size() + validation.size() + test.size() == 2000);
  std::set<std::int64_t> all(train);
  all.insert(validation.begin(), validation.end());
  all.insert(test.begin(), test.end());
  CHECK(all.size() == 2000);
  CHECK(std::abs(static_cast<double>(train.size()) - 1600) < 80);
  CHECK(std::abs(static_cast<double>(test.size()) - 200) < 60);

  auto fewer = recorded(2000);
  std::reverse(fewer.begin(), fewer.end());
  fewer.resize(1500);
  const auto again = split_songs(fewer);
  for (const auto id : ids(again.test.songs())) CHECK(test.count(id) == 1);
  for (const auto id : ids(again.train)) CHECK(train.count(id) == 1);
  CHECK(ids(split_songs(recorded(2000), 43).test.songs()) != test);
}

// In the public project synthetic clips reached the test split.
TEST_CASE("No generated song is held out, and none moves a recorded song to another part") {
  const auto before = split_songs(recorded(300));
  auto songs = recorded(300);
  for (std::int64_t id = 1000; id < 3000; ++id) songs.push_back(generated(id));
  std::reverse(songs.begin(), songs.end());
  const auto splits = split_songs(songs);
  CHECK(splits.train.size() == before.train.size() + 2000);
  CHECK(ids(splits.validation.songs()) == ids(before.validation.songs()));
  CHECK(ids(splits.test.songs()) == ids(before.test.songs()));
  for (const auto* held_out : {&splits.validation, &splits.test}) {
    for (const auto& song : held_out->songs()) CHECK(song.origin == Origin::recorded);
  }

  auto forged = generated(7);
  forged.split = Split::test;  // past load_annotations
  songs.push_back(forged);
  CHECK(ids(split_songs(songs).test.songs()) == ids(before.test.songs()));
  CHECK_THROWS_WITH(HeldOutSongs({recorded(1)[0], generated(9)}),
                    "g.wav: song 9 was generated; it cannot be held out");
}

TEST_CASE("A part without recorded songs, and impossible shares, are refused") {
  auto songs = recorded(3);
  for (auto& song : songs) song.split = Split::train;
  CHECK_THROWS_WITH(split_songs(songs), "of 3 songs none is for validation");
  songs[0].split = Split::validation;
  CHECK_THROWS_WITH(split_songs(songs), "of 3 songs none is for testing");
  songs[0] = generated(1), songs[1].split = Split::validation, songs[2].split = Split::test;
  CHECK_THROWS_WITH(split_songs(songs), "of 3 songs none is for training");
  CHECK_THROWS_AS(split_songs(recorded(9), 42, {.train = 0.8, .validation = 0.3}), looptorch::UsageError);
  CHECK_THROWS_AS(split_songs(recorded(9), 42, {.train = -0.1, .validation = 0.3}), looptorch::UsageError);
}
