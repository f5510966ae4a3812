// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/left_out.hpp>

#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>

using looptorch::app::LeftOut, looptorch::app::PrintAtEnd;

namespace {

const std::string kRemedy = " left out (--on-bad-audio stop ends the run instead):";

std::string printed(const LeftOut& left_out) {
  std::ostringstream err;
  auto* old_err = std::cerr.rdbuf(err.rdbuf());
  try {
    const PrintAtEnd print(left_out);
    throw std::runtime_error("the run failed");
  } catch (const std::runtime_error&) {
  }
  std::cerr.rdbuf(old_err);
  return err.str();
}

}  // namespace

TEST_CASE("Each entry is listed once, by the first line of its reason, in the order of adding") {
  LeftOut left_out({.one = "clip", .many = "clips"});
  CHECK(left_out.describe().empty());
  left_out.add("b.wav: is silent\nand more");
  CHECK(left_out.describe() == "1 clip is" + kRemedy + "\n  b.wav: is silent\n");
  left_out.add("a.wav: cut off");
  left_out.add("b.wav: is silent");
  left_out.add("c.wav: cut off");
  CHECK(left_out.count() == 3);
  CHECK(left_out.list() == "b.wav: is silent\na.wav: cut off\nc.wav: cut off\n");
  CHECK(left_out.describe() ==
        "3 clips are" + kRemedy + "\n  b.wav: is silent\n  a.wav: cut off\n  c.wav: cut off\n");
  CHECK(left_out.describe({.at_most = 1}) ==
        "3 clips are" + kRemedy + "\n  b.wav: is silent\n  and 2 more\n");
  CHECK(left_out.describe({.from = 2}) == "1 clip is" + kRemedy + "\n  c.wav: cut off\n");
  CHECK(left_out.describe({.from = 3}).empty());
}

TEST_CASE("A list that was written is read again, and what is known stays where it is") {
  LeftOut earlier, later;
  earlier.add("a");
  earlier.add("b");
  later.add("b");
  later.add_lines(earlier.list());
  CHECK(later.list() == "b\na\n");
  CHECK(later.describe() == "2 entries are" + kRemedy + "\n  b\n  a\n");
}

TEST_CASE("What a loader skipped has its path once") {
  looptorch::SkippedSamples skipped;
  skipped.add({{.path = "a.wav", .message = "is silent"},
               {.path = "b.wav", .message = "b.wav: is silent"},
               {.message = "has no path"}});
  LeftOut left_out;
  left_out.add(skipped);
  CHECK(left_out.list() == "a.wav: is silent\nb.wav: is silent\nhas no path\n");
}

TEST_CASE("Kinds are counted, and the entries of each are listed together") {
  LeftOut left_out({.one = "song", .many = "songs", .kinds = {"by a wrong line", "without audio"}});
  for (const auto* song : {"x", "y", "z"}) left_out.add(song, 1);
  left_out.add("line 3", 0);
  CHECK(left_out.count(0) == 1);
  CHECK(left_out.count(1) == 3);
  CHECK(left_out.describe({.at_most = 2}) ==
        "4 songs are" + kRemedy + " 1 by a wrong line, 3 without audio\n  line 3\n  x\n  y\n  and 1 more\n");
  CHECK(left_out.describe({.from = 2}) ==
        "2 songs are" + kRemedy + " 1 by a wrong line, 1 without audio\n  line 3\n  z\n");
}

TEST_CASE("The list is printed at the end of a scope, after an exception too, and an empty one is not") {
  LeftOut left_out;
  CHECK(printed(left_out).empty());
  left_out.add("a");
  CHECK(printed(left_out) == "1 entry is" + kRemedy + "\n  a\n");
}
