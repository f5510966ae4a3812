// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include "whisper/training/report.hpp"

#include <iostream>
#include <sstream>

TEST_CASE("Rates of a language that was detected after training only are not compared") {
  const whisper::Comparison heard({{"eins", "zwei"}, {"eins", "zwo"}, {"de", "de"}},
                                  {{"eins", "zwei"}, {"eins", "two"}, {"de", "en"}}, "marks");
  std::ostringstream out;
  auto* const previous = std::cout.rdbuf(out.rdbuf());
  print_result(heard, {}, {}, 1.5);
  std::cout.rdbuf(previous);
  CHECK_THAT(out.str(), Catch::Contains("word error rate in de 0.5 before, 0 after"));
  CHECK_THAT(out.str(), !Catch::Contains("in en"));
  CHECK_THAT(out.str(), Catch::Contains("word error rate 0.5 before, 0.5 after"));
}
