// SPDX-License-Identifier: MIT
// TensorBoard's records, to the byte where TensorBoard's own writer was asked (tests/report/tensorboard.sh
// lets TensorBoard read them), and files that a killed process left.
//
// Tests report: event_file
// Tests report/tensorboard: wire, events
#include "support/precompiled.hpp"

#include <looptorch/app/charts/png.hpp>
#include <looptorch/report/event_file.hpp>
#include <looptorch/report/example_forms.hpp>
#include <looptorch/report/metric_files.hpp>

#include "support/temporary_folder.hpp"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace report = looptorch::report;
using looptorch::testing::TemporaryFolder;

namespace event_file {

/// The steps of all events in a folder, with a dot for each file.
std::string steps_in(const TemporaryFolder& folder) {
  std::string text;
  for (const auto& file : report::detail::event_files(folder.path())) {
    const std::string events = looptorch::read_file(file);
    for (std::string_view rest = events; const auto event = report::take_record(rest);)
      text += std::to_string(report::step_of_event(*event)) + ' ';
    text += ". ";
  }
  return text;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

}  // namespace event_file

TEST_CASE("events: the bytes of TensorBoard's own writer") {
  CHECK(event_file::hex(report::version_event(1700000000.25)) ==
        "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9");
  CHECK(event_file::hex(report::scalar_event({1700000000.25, 300}, "a/loss", 0.1)) ==
        "1d00000000000000602fdf230900001040fc54d94110ac022a0f0a0d0a06612f6c6f737315cdcccc3d115eb9"
        "35");
  CHECK(event_file::hex(report::scalar_event({1700000000.25, 0}, "nan", std::nan(""))) ==
        "1700000000000000e7cef81e0900001040fc54d9412a0c0a0a0a036e616e150000c07fc9303128");
  CHECK(event_file::hex(report::text_event({1700000000.25, 7}, "text", "*said*")) ==
        "31000000000000009d8383e90900001040fc54d94110072a240a220a04746578744210080712041202080142"
        "062a736169642a4a080a060a0474657874a423e348");
  CHECK(event_file::hex(report::image_event({1700000000.25, 7}, "image", 3, 500, "PNG")) ==
        "2400000000000000422b804d0900001040fc54d94110072a170a150a05696d616765220c080310f403180322"
        "03504e47d39771a0");
  CHECK(event_file::hex(report::audio_event({1700000000.25, 7}, "sound", 16000, 200, "WAV")) ==
        "3200000000000000241956ec0900001040fc54d94110072a250a230a05736f756e64321a0d00007a46100118"
        "c80122035741562a09617564696f2f77617647782fd8");
  const std::vector<double> values{1, 2, 2, 3, 5};
  CHECK(event_file::hex(report::histogram_event({1700000000.25, 7}, "weights", values, 4)) ==
        "8b00000000000000852d3df10900001040fc54d94110072a7e0a7c0a07776569676874732a71090000000000"
        "00f03f110000000000001440190000000000001440210000000000002a402900000000008045403220000000"
        "00000000400000000000000840000000000000104000000000000014403a20000000000000f03f0000000000"
        "000040000000000000f03f000000000000f03f822a9bac");
}

TEST_CASE("EventFile: each process adds a file, and steps that are made again are dropped") {
  const TemporaryFolder folder;
  const auto write = [&](std::int64_t last, std::vector<std::int64_t> steps) {
    report::EventFile file(folder.path(), last, 1e9);
    for (const std::int64_t step : steps) file.append(report::scalar_event({1e9, step}, "loss", 1));
  };
  write(-1, {1, 2, 3});
  CHECK(event_file::steps_in(folder) == "0 1 2 3 . ");
  const auto first = report::detail::event_files(folder.path()).front();
  std::ofstream(first, std::ios::app) << report::scalar_event({1e9, 4}, "loss", 1).substr(0, 20);
  write(2, {3, 4});
  CHECK(event_file::steps_in(folder) == "0 1 2 . 0 3 4 . ");
  write(4, {});
  CHECK(event_file::steps_in(folder) == "0 1 2 . 0 3 4 . 0 . ");
  write(-1, {1});
  CHECK(event_file::steps_in(folder) == "0 1 . ");
}

TEST_CASE("records: damage ends the reading") {
  const std::string record = report::record_of("data");
  for (std::size_t i = 0; i < record.size(); ++i) {
    std::string damaged = record;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    std::string_view rest = damaged;
    CHECK_FALSE(report::take_record(rest));
    rest = std::string_view(record).substr(0, i);
    CHECK_FALSE(report::take_record(rest));
  }
}

namespace {

std::string white_pixel_png() { return looptorch::app::png_of(torch::full({1, 1, 3}, 255, torch::kUInt8)); }

}  // namespace

TEST_CASE("for tests/report/tensorboard.sh: events of each kind", "[.write_events]") {
  const char* folder = std::getenv("LOOPTORCH_EVENTS");
  if (!folder) return;  // all cases of this file are run
  std::filesystem::create_directories(folder);
  report::EventFile file(folder, -1, report::unix_seconds());
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const auto& [step, loss] : std::map<std::int64_t, double>{{1, 0.5}, {2, kNan}, {3, kInfinite}})
    file.append(report::scalar_event({1e9 + double(step), step}, "loss", loss));
  const std::vector<double> weights{1, 2, 2, 3, 5, kNan};
  file.append(report::histogram_event({1e9, 1}, "weights", weights));
  file.append(report::text_event({1e9, 1}, "said", "*words*"));
  const std::string png("\x89PNG\r\n\x1A\n", 8);
  file.append(report::image_event({1e9, 1}, "picture", 2, 3, png));
  file.append(report::audio_event({1e9, 1}, "sound", 8000, 4, "RIFF"));
  // What Run::offer_examples leaves there. The picture is a whole PNG file, of one white pixel.
  const auto show = [&](const char* tag, const looptorch::Example& example) {
    file.append(report::example_event({1e9, 7}, tag, example));
  };
  show("transcripts", looptorch::TextExample{"clip 1", {{"turn", "turn"}, {"left", "right"}}});
  show("mel", looptorch::PictureExample{"mel", 1, 1, white_pixel_png()});
  show("tone", looptorch::SoundExample{"tone", 8000, std::vector<float>(800, 0.25f)});
  show("rates", looptorch::DistributionExample{"rates", {1, 2, 3}});
  file.append(report::hyperparameter_events(1e9, {{"--lr", "0.1"}, {"model", "tiny"}}, {"loss"}));
}
