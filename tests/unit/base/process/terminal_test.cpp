// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/process/terminal.hpp>

#include <cmath>
#include <cstdio>
#include <string>

namespace lt = looptorch;

TEST_CASE("times and numbers read well") {
  CHECK(lt::detail::clock_text(5) == "0:05");
  CHECK(lt::detail::clock_text(754.4) == "12:34");
  CHECK(lt::detail::clock_text(3723) == "1:02:03");
  CHECK(lt::detail::clock_text(NAN) == "?");
  CHECK(lt::detail::clock_text(INFINITY) == "?");
  CHECK(lt::detail::number_text(0.000123456, 3) == "0.000123");
}

TEST_CASE("a file is no terminal, and a live line is cut to one column less than the width") {
  std::FILE* file = std::tmpfile();
  CHECK_FALSE(lt::detail::is_terminal(file));
  CHECK(lt::detail::terminal_columns(file) == 80);
  lt::detail::write_live_line(file, std::string(100, 'a'));
  std::string text(200, ' ');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  CHECK(text == "\r" + std::string(79, 'a') + "\033[K");
}

TEST_CASE("columns are counted by characters, and none is cut in half") {
  CHECK(lt::detail::columns_of("größe") == 5);
  CHECK(lt::detail::first_columns("größe", 3) == "grö");
  CHECK(lt::detail::first_columns("gr", 3) == "gr");
}

TEST_CASE("a line for a file clears nothing first") {
  std::FILE* file = std::tmpfile();
  CHECK(lt::detail::own_line(file, "late") == "late\n");
  std::fclose(file);
}

TEST_CASE("a file takes no colours") {
  std::FILE* file = std::tmpfile();
  CHECK_FALSE(lt::detail::takes_colour(file));
  CHECK(lt::detail::warning_text(file, "late") == "late");
  std::fclose(file);
}
