// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/app/charts/line_chart.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

using Catch::Contains;
using looptorch::app::line_chart;

namespace {

using Pixel = std::array<int, 3>;
constexpr Pixel kFirst{0, 114, 178}, kSecond{213, 94, 0};

/// The rows in which a column of a picture has a colour, from the top.
std::vector<std::int64_t> rows_of(const at::Tensor& pixels, std::int64_t column, const Pixel& colour) {
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < pixels.size(0); ++row) {
    bool is_colour = true;
    for (std::size_t c = 0; c < 3; ++c)
      is_colour &= pixels[row][column][static_cast<std::int64_t>(c)].item<int>() == colour[c];
    if (is_colour) rows.push_back(row);
  }
  return rows;
}

}  // namespace

TEST_CASE("A chart has its curves where the values are, a legend, and no points that are not finite") {
  const auto pixels = line_chart({{"up", {0, 50, 100}, {0, 1, 2}}, {"down", {0, 100}, {2, 0}}},
                                 {.width = 400, .height = 300, .x_name = "step", .title = "a chart"});
  REQUIRE(pixels.sizes() == at::IntArrayRef({300, 400, 3}));
  // 0 to 100 lie on the columns 60 to 380, 0 to 2 on the rows 264 to 50.
  const auto left = rows_of(pixels, 61, kFirst), right = rows_of(pixels, 379, kFirst);
  REQUIRE(!left.empty());
  REQUIRE(!right.empty());
  CHECK(left.back() > 260);
  CHECK(right.front() < 54);
  CHECK(rows_of(pixels, 61, kSecond).back() < 54 + 2);
  CHECK(std::abs(rows_of(pixels, 220, kFirst).front() - 157) < 3);
  CHECK(rows_of(pixels, 70, kFirst).front() < 50);  // the legend's stroke
  // Text is drawn: the title's ink lies above all.
  CHECK((pixels.slice(0, 8, 15).slice(1, 60, 110) < 100).any().item<bool>());

  const double none = std::nan("");
  const auto gap = line_chart({{"up", {0, 50, 100}, {0, none, 2}}}),
             without = line_chart({{"up", {0, 100}, {0, 2}}});
  CHECK(gap.equal(without));
  CHECK_NOTHROW(line_chart({{"one point", {3}, {7}}}));
  CHECK_FALSE(rows_of(line_chart({{"large", {0, 1}, {1e16, 1e16}}}, {.width = 400}), 220, kFirst).empty());
  CHECK_THROWS_WITH(line_chart({{"none", {0, 1}, {none, none}}}), "line_chart: no curve has a finite point");
  CHECK_THROWS_WITH(line_chart({}), Contains("no curve"));
  CHECK_THROWS_WITH(line_chart({{"odd", {0, 1}, {0}}}), "line_chart: \"odd\" has 2 values of x and 1 of y");
  CHECK_THROWS_WITH(line_chart({{"a", {0}, {0}}}, {.width = 10}), Contains("10 x 400 pixels"));
}

TEST_CASE("Ticks are 1, 2 or 5 times a power of 10 and cover the values") {
  const auto axis = [](double low, double high) {
    const auto [from, to, tick] = looptorch::app::detail::axis_of(low, high, 6);
    CHECK(from <= low);
    CHECK(to >= high);
    return std::array{from, to, tick};
  };
  CHECK(axis(0, 1200) == std::array{0.0, 1200.0, 200.0});
  CHECK(axis(-0.3, 0.9)[2] == Approx(0.2));
  CHECK(axis(0, 5)[2] == 1);
  CHECK(axis(3, 3)[1] > 3);
  for (const double constant : {1e6, 1e16, -1e16, 1e300}) {
    const auto [from, to, tick] = axis(constant, constant);
    CHECK(from < constant);
    CHECK(to > constant);
    CHECK(tick > 0);
    CHECK((to - from) / tick < 12);
  }
  CHECK(looptorch::app::detail::tick_text(-1e-17, 0.2) == "0");
  CHECK(looptorch::app::glyph_of('A') == looptorch::app::glyph_of('a'));
  CHECK(looptorch::app::glyph_of('&') == looptorch::app::glyph_of('?'));
}
