// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/run/skipped_items.hpp>

#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

using looptorch::app::SkippedItems, looptorch::app::PrintAtEnd;

namespace {

const std::string kRemedy = " skipped (--on-bad-audio stop ends the run instead):";

std::string printed(const SkippedItems& skipped) {
  std::ostringstream err;
  auto* old_err = std::cerr.rdbuf(err.rdbuf());
  try {
    const PrintAtEnd print(skipped);
    throw std::runtime_error("the run failed");
  } catch (const std::runtime_error&) {
  }
  std::cerr.rdbuf(old_err);
  return err.str();
}

}  // namespace

TEST_CASE("Each entry is listed once, by the first line of its reason, in the order of adding") {
  SkippedItems skipped({.one = "clip", .many = "clips"});
  CHECK(skipped.describe().empty());
  skipped.add("b.wav: is silent\nand more");
  CHECK(skipped.describe() == "1 clip is" + kRemedy + "\n  b.wav: is silent\n");
  skipped.add("a.wav: cut off");
  skipped.add("b.wav: is silent");
  skipped.add("c.wav: cut off");
  CHECK(skipped.count() == 3);
  CHECK(skipped.list() == "b.wav: is silent\na.wav: cut off\nc.wav: cut off\n");
  CHECK(skipped.describe() ==
        "3 clips are" + kRemedy + "\n  b.wav: is silent\n  a.wav: cut off\n  c.wav: cut off\n");
  CHECK(skipped.describe({.at_most = 1}) == "3 clips are" + kRemedy + "\n  b.wav: is silent\n  and 2 more\n");
  CHECK(skipped.describe({.from = 2}) == "1 clip is" + kRemedy + "\n  c.wav: cut off\n");
  CHECK(skipped.describe({.from = 3}).empty());
}

TEST_CASE("A list that was written is read again, and what is known stays where it is") {
  SkippedItems earlier, later;
  earlier.add("a");
  earlier.add("b");
  later.add("b");
  later.add_lines(earlier.list());
  CHECK(later.list() == "b\na\n");
  CHECK(later.describe() == "2 entries are" + kRemedy + "\n  b\n  a\n");
}

TEST_CASE("What a loader skipped has its path once") {
  looptorch::SkippedSamples of_loader;
  of_loader.add({{.path = "a.wav", .message = "is silent"},
                 {.path = "b.wav", .message = "b.wav: is silent"},
                 {.message = "has no path"}});
  SkippedItems skipped;
  skipped.add(of_loader);
  CHECK(skipped.list() == "a.wav: is silent\nb.wav: is silent\nhas no path\n");
}

TEST_CASE("Kinds are counted, and the entries of each are listed together") {
  SkippedItems skipped({.one = "song", .many = "songs", .kinds = {"by a wrong line", "without audio"}});
  for (const auto* song : {"x", "y", "z"}) skipped.add(song, 1);
  skipped.add("line 3", 0);
  CHECK(skipped.count(0) == 1);
  CHECK(skipped.count(1) == 3);
  CHECK(skipped.describe({.at_most = 2}) ==
        "4 songs are" + kRemedy + " 1 by a wrong line, 3 without audio\n  line 3\n  x\n  y\n  and 1 more\n");
  CHECK(skipped.describe({.from = 2}) ==
        "2 songs are" + kRemedy + " 1 by a wrong line, 1 without audio\n  line 3\n  z\n");
}

TEST_CASE("The list is printed at the end of a scope, after an exception too, and an empty one is not") {
  SkippedItems skipped;
  CHECK(printed(skipped).empty());
  skipped.add("a");
  CHECK(printed(skipped) == "1 entry is" + kRemedy + "\n  a\n");
}
