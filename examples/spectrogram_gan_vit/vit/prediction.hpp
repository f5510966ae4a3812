// SPDX-License-Identifier: MIT
// Formats the predictions for an audio file, for vit_predict: as text to read, or as CSV or JSON for
// programs.
#pragma once

#include <looptorch/base/json/json.hpp>
#include <looptorch/base/text/utf8.hpp>
#include <looptorch/report/metric_lines.hpp>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>

namespace spectrogram_vit {

struct Prediction {
  std::filesystem::path file = {};
  double valence = 0, arousal = 0;  ///< labels lie in [-1, 1]; DEAM's scale is 5 + 4 x
  double seconds = 0;               ///< seconds of the file that were used, before padding
  std::int64_t sample_rate = 0;     ///< rate of the file, in Hz
};

/// The length and rate of the clips that a model was trained on.
struct TrainedClip {
  double seconds;
  std::int64_t sample_rate;
};

/// Returns how the file was converted: "12.0 s, padded to 30 s; resampled from 8000 Hz, so that it has
/// nothing above 4000 Hz". Empty for a file of the model's rate that is long enough. `highest_hz` is the
/// highest frequency that the model uses.
[[nodiscard]] inline std::string remark_on(const Prediction& prediction, const TrainedClip& model,
                                           double highest_hz) {
  const auto number = [](const char* format, double value) {
    char text[64];
    std::snprintf(text, sizeof text, format, value);
    return std::string(text);
  };
  std::string remark;
  if (prediction.seconds < model.seconds - 0.01)
    remark = number("%.1f s, padded", prediction.seconds) + number(" to %g s", model.seconds);
  if (prediction.sample_rate != model.sample_rate) {
    if (!remark.empty()) remark += "; ";
    remark += "resampled from " + std::to_string(prediction.sample_rate) + " Hz";
    const auto nyquist = static_cast<double>(prediction.sample_rate) / 2;
    if (nyquist < highest_hz) remark += ", so that it has nothing above" + number(" %g Hz", nyquist);
  }
  return remark;
}

inline constexpr const char* kCsvHeader = "file,valence,arousal,seconds,sample_rate,remark";

/// Returns one line, without its end, in the format "text", "csv" or "json". In JSON, bytes of a file's name
/// that are not UTF-8 become U+FFFD.
[[nodiscard]] inline std::string line_of(const Prediction& prediction, const std::string& remark,
                                         const std::string& format) {
  const auto file = prediction.file.string();
  if (format == "json") {
    auto line = looptorch::Json::object();
    line.set("file", looptorch::replace_invalid_utf8(file))
        .set("valence", prediction.valence)
        .set("arousal", prediction.arousal);
    line.set("seconds", prediction.seconds).set("sample_rate", prediction.sample_rate).set("remark", remark);
    return line.dump();
  }
  char numbers[96];
  if (format == "csv") {
    std::snprintf(numbers, sizeof numbers, ",%.4f,%.4f,%.2f,", prediction.valence, prediction.arousal,
                  prediction.seconds);
    return looptorch::report::csv_cell(file) + numbers + std::to_string(prediction.sample_rate) + ',' +
           looptorch::report::csv_cell(remark);
  }
  std::snprintf(numbers, sizeof numbers, "\tvalence %+.2f\tarousal %+.2f", prediction.valence,
                prediction.arousal);
  return file + numbers + (remark.empty() ? "" : "\t(" + remark + ")");
}

}  // namespace spectrogram_vit
