// SPDX-License-Identifier: MIT
// Draws curves as an image with axes, ticks and a legend. Needs no plotting tool.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::app {

inline constexpr std::int64_t kGlyphWidth = 5, kGlyphHeight = 7;

/// A glyph's pixels: 35 bits, row by row, the highest bit top left.
using Glyph = std::uint64_t;

// clang-format off
inline constexpr std::array<std::pair<char, Glyph>, 49> kGlyphs{{
    {' ', 0x000000000}, {'0', 0x3A33AE62E}, {'1', 0x11842108E}, {'2', 0x3A211111F}, {'3', 0x7C441062E},
    {'4', 0x08CA97C42}, {'5', 0x7E1E0862E}, {'6', 0x1910F462E}, {'7', 0x7C2222108}, {'8', 0x3A317462E},
    {'9', 0x3A317844C}, {'.', 0x00000018C}, {',', 0x000003088}, {':', 0x018C03180}, {'-', 0x0000F8000},
    {'+', 0x0084F9080}, {'_', 0x00000001F}, {'/', 0x042222210}, {'(', 0x088842082}, {')', 0x208210888},
    {'%', 0x632222263}, {'=', 0x001F07C00}, {'?', 0x3A2111004}, {'a', 0x000E0BE2F}, {'b', 0x4216CC63E},
    {'c', 0x000E8422E}, {'d', 0x042D9C62F}, {'e', 0x000E8FE0E}, {'f', 0x1928E2108}, {'g', 0x01F18BC2E},
    {'h', 0x4216CC631}, {'i', 0x100C2108E}, {'j', 0x080610A4C}, {'k', 0x4212A6292}, {'l', 0x30842108E},
    {'m', 0x001AAD631}, {'n', 0x0016CC631}, {'o', 0x000E8C62E}, {'p', 0x001E8FA10}, {'q', 0x000D9BC21},
    {'r', 0x0016CC210}, {'s', 0x000E8383E}, {'t', 0x211C42126}, {'u', 0x00118C66D}, {'v', 0x00118C544},
    {'w', 0x00118D6AA}, {'x', 0x001151151}, {'y', 0x00118BC2E}, {'z', 0x001F1111F}}};
// clang-format on

/// Returns the glyph of a character: for A to Z the small letter, for one without a glyph a question mark.
[[nodiscard]] constexpr Glyph glyph_of(char character) {
  if (character >= 'A' && character <= 'Z') character = static_cast<char>(character - 'A' + 'a');
  Glyph unknown = 0;
  for (const auto& [known, glyph] : kGlyphs) {
    if (known == character) return glyph;
    if (known == '?') unknown = glyph;
  }
  return unknown;
}

/// One line of a chart and its name in the legend.
struct Curve {
  std::string name;
  std::vector<double> x, y;  ///< as many of both; points that are not finite are left out
};

/// A chart's size in pixels, the title above it and the name of its horizontal axis.
struct ChartOptions {
  std::int64_t width = 720, height = 400;
  std::string x_name = {}, title = {};
};

/// Returns a chart as pixels, uint8 `[height, width, 3]`. Throws UsageError if no curve has a finite point,
/// for a curve with unequal numbers of x and y, and for a picture smaller than 200 x 120.
[[nodiscard]] at::Tensor line_chart(const std::vector<Curve>& curves, const ChartOptions& options = {});

namespace detail {

using Colour = std::array<std::uint8_t, 3>;

/// Pixels to draw on; drawing outside is clipped.
class Canvas {
 public:
  Canvas(std::int64_t width, std::int64_t height)
      : pixels_(at::full({height, width, 3}, 255, at::kByte)), width_(width), height_(height) {}

  [[nodiscard]] const at::Tensor& pixels() const { return pixels_; }

  void dot(std::int64_t x, std::int64_t y, Colour colour) {
    if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
    std::copy(colour.begin(), colour.end(), pixels_.mutable_data_ptr<std::uint8_t>() + 3 * (y * width_ + x));
  }

  /// Draws a line of `thick` pixels.
  void line(double x0, double y0, double x1, double y1, Colour colour, std::int64_t thick = 1) {
    const auto steps =
        std::max<std::int64_t>(1, std::llround(std::max(std::abs(x1 - x0), std::abs(y1 - y0))));
    for (std::int64_t i = 0; i <= steps; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(steps);
      const auto x = std::llround(x0 + share * (x1 - x0)), y = std::llround(y0 + share * (y1 - y0));
      for (std::int64_t dx = 0; dx < thick; ++dx)
        for (std::int64_t dy = 0; dy < thick; ++dy) dot(x + dx, y + dy, colour);
    }
  }

  /// Writes text from its upper left corner on.
  void text(std::int64_t x, std::int64_t y, const std::string& text, Colour colour) {
    for (const char character : text) {
      const auto glyph = glyph_of(character);
      for (std::int64_t bit = 0; bit < kGlyphWidth * kGlyphHeight; ++bit)
        if ((glyph >> (kGlyphWidth * kGlyphHeight - 1 - bit) & 1) != 0)
          dot(x + bit % kGlyphWidth, y + bit / kGlyphWidth, colour);
      x += kGlyphWidth + 1;
    }
  }

  [[nodiscard]] static std::int64_t width_of(const std::string& text) {
    return static_cast<std::int64_t>(text.size()) * (kGlyphWidth + 1);
  }

 private:
  at::Tensor pixels_;
  std::int64_t width_, height_;
};

/// The part of an axis that is shown, and the distance of its ticks: 1, 2 or 5 times a power of 10.
struct Axis {
  double low, high, tick;
};

[[nodiscard]] inline Axis axis_of(double low, double high, double most_ticks) {
  const double size = std::max(std::abs(low), std::abs(high));
  if (high - low < 1e-12 * std::max(1.0, size)) {  // a constant: doubles resolve 1e-6 of it
    const double half = std::max(0.5, 1e-6 * size);
    low -= half, high += half;
  }
  const double rough = (high - low) / most_ticks, power = std::pow(10, std::floor(std::log10(rough)));
  double tick = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough) tick = factor * power;
  return {std::floor(low / tick + 1e-9) * tick, std::ceil(high / tick - 1e-9) * tick, tick};
}

[[nodiscard]] inline std::string tick_text(double value, double tick) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", std::abs(value) < tick / 2 ? 0 : value);
  return text;
}

/// The axes of all curves' finite points, x and y.
[[nodiscard]] inline std::pair<Axis, Axis> axes_of(const std::vector<Curve>& curves) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::array<double, 2> low{kInfinity, kInfinity}, high{-kInfinity, -kInfinity};
  for (const auto& curve : curves) {
    if (curve.x.size() != curve.y.size())
      throw UsageError(message("line_chart: \"", curve.name, "\" has ", curve.x.size(), " values of x and ",
                               curve.y.size(), " of y"));
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      if (!std::isfinite(curve.x[i]) || !std::isfinite(curve.y[i])) continue;
      for (const auto& [axis, value] :
           {std::pair{std::size_t{0}, curve.x[i]}, std::pair{std::size_t{1}, curve.y[i]}}) {
        low[axis] = std::min(low[axis], value);
        high[axis] = std::max(high[axis], value);
      }
    }
  }
  if (low[0] > high[0]) throw UsageError("line_chart: no curve has a finite point");
  return {axis_of(low[0], high[0], 8), axis_of(low[1], high[1], 6)};
}

inline constexpr Colour kInk{40, 40, 40}, kGrid{225, 225, 225};
/// Six colours that most colour-blind people can tell apart (Okabe, Ito 2008).
inline constexpr std::array<Colour, 6> kCurveColours{
    {{0, 114, 178}, {213, 94, 0}, {0, 158, 115}, {204, 121, 167}, {230, 159, 0}, {86, 180, 233}}};

/// Maps values to places on a canvas.
struct Frame {
  Axis x_axis, y_axis;
  double left, top, right, bottom;  // pixels

  [[nodiscard]] double x(double value) const {
    return left + (value - x_axis.low) / (x_axis.high - x_axis.low) * (right - left);
  }
  [[nodiscard]] double y(double value) const {
    return bottom - (value - y_axis.low) / (y_axis.high - y_axis.low) * (bottom - top);
  }
};

inline void draw_axes(Canvas& canvas, const Frame& frame) {
  const auto each_tick = [](const Axis& axis, const auto& draw) {
    for (double tick = axis.low; tick <= axis.high + axis.tick / 2; tick += axis.tick)
      draw(tick, tick_text(tick, axis.tick));
  };
  const auto bottom = std::llround(frame.bottom), left = std::llround(frame.left);
  each_tick(frame.x_axis, [&](double tick, const std::string& text) {
    const double x = std::round(frame.x(tick));
    canvas.line(x, frame.top, x, frame.bottom, kGrid);
    canvas.text(std::llround(x) - Canvas::width_of(text) / 2, bottom + 6, text, kInk);
  });
  each_tick(frame.y_axis, [&](double tick, const std::string& text) {
    const double y = std::round(frame.y(tick));
    canvas.line(frame.left, y, frame.right, y, kGrid);
    canvas.text(left - 6 - Canvas::width_of(text), std::llround(y) - kGlyphHeight / 2, text, kInk);
  });
  canvas.line(frame.left, frame.top, frame.left, frame.bottom, kInk);
  canvas.line(frame.left, frame.bottom, frame.right, frame.bottom, kInk);
}

inline void draw_curve(Canvas& canvas, const Frame& frame, const Curve& curve, Colour colour) {
  bool has_last = false;
  double last_x = 0, last_y = 0;
  for (std::size_t i = 0; i < curve.x.size(); ++i) {
    if (!std::isfinite(curve.x[i]) || !std::isfinite(curve.y[i])) continue;
    const double x = frame.x(curve.x[i]), y = frame.y(curve.y[i]);
    canvas.line(has_last ? last_x : x, has_last ? last_y : y, x, y, colour, 2);
    has_last = true, last_x = x, last_y = y;
  }
}

}  // namespace detail

inline at::Tensor line_chart(const std::vector<Curve>& curves, const ChartOptions& options) {
  using namespace detail;
  if (options.width < 200 || options.height < 120)
    throw UsageError(message("line_chart: ", options.width, " x ", options.height, " pixels are too few"));
  const auto [x_axis, y_axis] = axes_of(curves);
  Canvas canvas(options.width, options.height);
  constexpr std::int64_t kLine = kGlyphHeight + 5, kLeft = 60, kRight = 20, kBottom = 36;
  const auto legend = 14 + (options.title.empty() ? 0 : kLine);  // above the curves, a line each
  const auto top = legend + static_cast<std::int64_t>(curves.size()) * kLine;
  const auto pixel = [](std::int64_t place) { return static_cast<double>(place); };
  const Frame frame{x_axis,
                    y_axis,
                    pixel(kLeft),
                    pixel(top),
                    pixel(options.width - kRight),
                    pixel(options.height - kBottom)};
  draw_axes(canvas, frame);
  canvas.text(kLeft, 8, options.title, kInk);
  canvas.text((kLeft + options.width - kRight - Canvas::width_of(options.x_name)) / 2, options.height - 14,
              options.x_name, kInk);
  auto y = legend - 4;
  for (std::size_t i = 0; i < curves.size(); ++i, y += kLine) {
    const auto colour = kCurveColours[i % kCurveColours.size()];
    draw_curve(canvas, frame, curves[i], colour);
    canvas.line(frame.left, pixel(y + 3), frame.left + 20, pixel(y + 3), colour, 2);
    canvas.text(kLeft + 28, y, curves[i].name, kInk);
  }
  return canvas.pixels();
}

}  // namespace looptorch::app
