// SPDX-License-Identifier: MIT
// The voices of the corpus. espeak-ng 1.51 has a voice for Konkani, `kok`, which reads Devanagari's vowel
// signs by their names ("का" as "ka aakaar"). So a Marathi voice, `mr`, reads the sentences: the nearest
// language for which it has rules. Konkani words are thus pronounced as a reader of Marathi would.
#pragma once

#include <array>

namespace konkanivani {

/// Names for espeak-ng's `-v`: `mr` as it is, and with the timbre of seven men and four women.
inline constexpr std::array kVoices{"mr",    "mr+m1", "mr+m2", "mr+m3", "mr+m4", "mr+m5",
                                    "mr+m6", "mr+m7", "mr+f1", "mr+f2", "mr+f3", "mr+f4"};

}  // namespace konkanivani
