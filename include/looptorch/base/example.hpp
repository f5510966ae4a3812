// SPDX-License-Identifier: MIT
// Declares what a run's report can show besides numbers: texts with errors marked, pictures, sound,
// distributions. A policy or a hook offers such examples by `Run::offer_examples`.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace looptorch {

/// A text, word by word: what was expected, and what the model gave.
struct TextExample {
  /// Two words to compare. `got` is empty for a missing word, `expected` for an inserted one.
  struct Piece {
    std::string expected = {}, got = {};
  };

  std::string title = {};  ///< Such as a clip's name.
  std::vector<Piece> pieces = {};
  std::string separator = " ";
};

/// A picture, such as a spectrogram.
struct PictureExample {
  std::string title = {};
  std::int64_t rows = 0, columns = 0;
  std::string png = {};  ///< A PNG file's bytes; `app::png_of` makes them.
};

/// Sound of one channel.
struct SoundExample {
  std::string title = {};
  double sample_rate = 0;
  std::vector<float> samples = {};  ///< Within -1 and 1; others are cut off.
};

/// Numbers whose distribution is shown, such as a layer's weights.
struct DistributionExample {
  std::string title = {};
  std::vector<double> values = {};
};

using Example = std::variant<TextExample, PictureExample, SoundExample, DistributionExample>;

}  // namespace looptorch
