// SPDX-License-Identifier: MIT
// Examples as a page's script and TensorBoard take them.
//
// Tests report: example_forms
// Tests base: example
#include "support/precompiled.hpp"

#include <looptorch/report/example_forms.hpp>

#include <cmath>

namespace lt = looptorch;
namespace report = looptorch::report;

TEST_CASE("example_forms: base64 of RFC 4648's test vectors") {
  using report::detail::base64;
  CHECK(base64("") == "");
  CHECK(base64("f") == "Zg==");
  CHECK(base64("fo") == "Zm8=");
  CHECK(base64("foo") == "Zm9v");
  CHECK(base64("foobar") == "Zm9vYmFy");
  CHECK(base64("\xFF\xFE\xFD") == "//79");
}

TEST_CASE("example_forms: sound is a WAV file, cut off beyond full scale") {
  const std::string wav = report::detail::wav_of({"tone", 8000, {0.0f, 1.0f, -2.0f, NAN}});
  REQUIRE(wav.size() == 44 + 8);
  CHECK(wav.substr(0, 4) == "RIFF");
  CHECK(wav.substr(4, 4) == std::string("\x2C\0\0\0", 4));     // 36 + 8
  CHECK(wav.substr(24, 4) == std::string("\x40\x1F\0\0", 4));  // 8000
  CHECK(wav.substr(44) == std::string("\0\0\xFF\x7F\x01\x80\0\0", 8));
}

TEST_CASE("example_forms: texts mark what is wrong, in JSON and in Markdown") {
  const lt::TextExample text{"clip*1", {{"turn", "turn"}, {"left", "right"}, {"now", ""}, {"", "two_2"}}};
  CHECK(
      report::page_example(text).dump() ==
      R"({"kind":"text","title":"clip*1","pieces":[["turn"],["left","right"],["now",""],["","two_2"]],"separator":" "})");
  CHECK(report::detail::marked_text(text) ==
        R"(*clip\*1*: turn **left → right** **now → ∅** **∅ → two\_2**)");
}

TEST_CASE("example_forms: pictures, sound and distributions for the page") {
  const auto picture = report::page_example(lt::PictureExample{"mel", 2, 3, "foo"});
  CHECK(picture.at("data").as_string() == "data:image/png;base64,Zm9v");
  const auto sound = report::page_example(lt::SoundExample{"tone", 8000, {0.5f}});
  CHECK_THAT(sound.at("data").as_string(), Catch::StartsWith("data:audio/wav;base64,UklGRi"));
  const auto numbers = report::page_example(lt::DistributionExample{"w", {0, 0, NAN, 40, INFINITY}});
  CHECK(numbers.at("high").as_number() == 40);
  std::int64_t count = 0;
  for (const auto& each : numbers.at("counts").as_array()) count += each.as_int();
  CHECK(
      (count == 3 && numbers.at("counts").at(0).as_int() == 2 && numbers.at("counts").at(39).as_int() == 1));
  CHECK(report::page_example(lt::DistributionExample{"none", {}}).at("low").as_number() == 0);
}
