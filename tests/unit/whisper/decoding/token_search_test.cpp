// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <whisper/decoding/token_search.hpp>

#include <cstdint>
#include <utility>
#include <vector>

using whisper::DecodingOptions;
using whisper::SampledTexts;

namespace {

using Ids = std::vector<std::int64_t>;
constexpr std::int64_t kEnd = 9;

/// What TokenChoice gives for rows with these tokens, each with the log-probability -1.
at::Tensor chosen(const Ids& tokens, float log_probability = -1) {
  const auto tokens_R = torch::tensor(tokens, at::kLong).to(at::kFloat);
  return at::stack({at::full_like(tokens_R, log_probability), tokens_R}, 1);
}

}  // namespace

TEST_CASE("Greedily each clip has one text, which leaves the batch when it ends") {
  SampledTexts search(3, {.end_of_text = kEnd});
  auto step = search.advance(chosen({1, 2, 3}));
  CHECK(step.tokens == Ids{1, 2, 3});
  CHECK(step.parents == Ids{0, 1, 2});
  CHECK(step.clips == Ids{0, 1, 2});
  step = search.advance(chosen({4, kEnd, 5}, -0.5));
  CHECK(step.tokens == Ids{4, 5});
  CHECK(step.parents == Ids{0, 2});
  CHECK(step.clips == Ids{0, 2});
  CHECK(search.texts() == std::vector<Ids>{{1, 4}, {3, 5}});
  step = search.advance(chosen({kEnd, 6}));
  CHECK(step.parents == Ids{1});
  CHECK(step.clips == Ids{1});  // by its index in the last step
  const auto texts = std::move(search).take();
  REQUIRE(texts.size() == 3);
  CHECK(texts[0].at(0).tokens == Ids{1, 4});
  CHECK(texts[1].at(0).tokens == Ids{2});
  CHECK(texts[2].at(0).tokens == Ids{3, 5, 6});  // which has not ended
  CHECK(texts[0][0].log_probability == -2.5F);   // its end included
  CHECK(texts[1][0].log_probability == -1.5F);
}

TEST_CASE("All clips done: no token is left, and a text may be empty") {
  SampledTexts search(2, {.end_of_text = kEnd, .other_ends = {8}});
  const auto step = search.advance(chosen({kEnd, 8}));
  CHECK(step.tokens.empty());
  CHECK(step.clips.empty());
  CHECK(search.texts().empty());
  const auto texts = std::move(search).take();
  CHECK(texts[0].at(0).tokens.empty());
  CHECK(texts[1].at(0).tokens.empty());
}

TEST_CASE("Sampled texts of a clip begin at its first row, and stay until the last of them has ended") {
  const DecodingOptions options{.end_of_text = kEnd, .temperature = 0.5, .best_of = 2};
  SampledTexts search(2, options);
  CHECK(search.texts().size() == 4);
  auto step = search.advance(chosen({1, kEnd, 3, 4}));
  CHECK(step.parents == Ids{0, 0, 1, 1});
  CHECK(step.tokens == Ids{1, kEnd, 3, 4});
  step = search.advance(chosen({kEnd, 7, 5, 6}));
  CHECK(step.clips == Ids{1});
  CHECK(step.parents == Ids{2, 3});
  const auto texts = std::move(search).take();
  REQUIRE(texts[0].size() == 2);
  CHECK(texts[0][0].tokens == Ids{1});
  CHECK(texts[0][1].tokens.empty());  // what follows an end is no part of the text
  CHECK(texts[0][1].log_probability == -1);
  CHECK(texts[1][1].tokens == Ids{4, 6});
}

TEST_CASE("Random numbers depend on the seed and the text's number within its clip alone") {
  const auto draws = [](std::int64_t clips, std::uint64_t seed) {
    SampledTexts search(clips, {.end_of_text = kEnd, .temperature = 1, .best_of = 2, .seed = seed});
    std::vector<double> numbers;
    for (std::size_t row = 0; row < search.texts().size(); ++row) numbers.push_back(search.draw(row));
    return numbers;
  };
  const auto one = draws(1, 5), two = draws(2, 5);
  CHECK(std::vector(two.begin(), two.begin() + 2) == one);
  CHECK(std::vector(two.begin() + 2, two.end()) == one);
  CHECK(one[0] != one[1]);
  CHECK(draws(1, 6) != one);

  SampledTexts search(2, {.end_of_text = kEnd, .temperature = 1, .seed = 5});
  const auto first = search.draw(1);
  CHECK(search.draw(0) == first);
  (void)search.advance(chosen({kEnd, 1}));
  CHECK(search.draw(0) != first);  // the second clip's next number, though its row is the first now
}

TEST_CASE("Without a temperature best_of is one") {
  CHECK(SampledTexts(2, {.end_of_text = kEnd, .best_of = 5}).texts().size() == 2);
}

TEST_CASE("A loop ends a text after its first piece where that is asked for") {
  for (const bool ends : {true, false}) {
    DecodingOptions options{.end_of_text = kEnd, .ends_loops = ends};
    SampledTexts search(1, options);
    bool going = true;
    int steps = 0;
    for (; going && steps < 40; ++steps) going = !search.advance(chosen({3})).tokens.empty();
    CHECK(steps == (ends ? 24 : 40));
    CHECK(std::move(search).take()[0].at(0).tokens.size() == (ends ? 1U : 40U));
  }
}
