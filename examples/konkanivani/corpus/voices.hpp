// SPDX-License-Identifier: MIT
// Lists the voices of espeak-ng, a speech synthesiser, that speak the synthetic corpus. They are Marathi
// (`mr`), the nearest language for which espeak-ng has pronunciation rules, so Konkani words sound as a
// reader of Marathi would say them. The Konkani voice (`kok`) of espeak-ng 1.51 is not used: it reads
// Devanagari's vowel signs by their names ("का" as "ka aakaar").
#pragma once

#include <array>

namespace konkanivani {

/// Names for espeak-ng's `-v`: `mr` unchanged, and with the timbres of seven men and four women.
inline constexpr std::array kVoices{"mr",    "mr+m1", "mr+m2", "mr+m3", "mr+m4", "mr+m5",
                                    "mr+m6", "mr+m7", "mr+f1", "mr+f2", "mr+f3", "mr+f4"};

}  // namespace konkanivani
