// SPDX-License-Identifier: MIT
// The default collate: what a batch of each kind of sample is. Tensors stay on their device.
// Runs on every device.
#include "support/precompiled.hpp"

#include <looptorch/data/batch/stack_samples.hpp>
#include <looptorch/data/loader/pinned_prefetch_loader.hpp>

#include "support/place.hpp"
#include "support/watchdog.hpp"

#include <array>
#include <memory>
#include <string_view>

using namespace looptorch;
using looptorch::detail::stack_samples;
using looptorch::detail::Stackable;
using looptorch::testing::placed;

namespace {

enum class Emotion : std::uint8_t { calm, happy };

struct Picture {
  at::Tensor pixels;
  std::int32_t label;
};

struct Clip {
  at::Tensor mels;
  std::string text;
  double seconds;
  float gain;
  bool loud;
  Emotion emotion;
  std::vector<std::int64_t> tokens;
  std::filesystem::path path;
  Picture cover;
};

struct Pair {
  at::Tensor features, labels;
};

struct Nested {
  Pair pair;
  at::Tensor more;
};

struct Words {
  std::int64_t size() const { return 5; }
  std::string get(std::int64_t index) const { return "word " + std::to_string(index); }
};

struct Pictures {
  std::int64_t size() const { return 5; }
  Picture get(std::int64_t index) const {
    return {placed(torch::full({2, 3}, double(index))), std::int32_t(10 * index)};
  }
};

template <class T>
auto stacked(std::vector<T> samples) {
  return stack_samples(std::span(samples));
}

bool same(const at::Tensor& a, const at::Tensor& b) { return a.dtype() == b.dtype() && a.equal(b); }

struct Opaque {
  std::unique_ptr<int> number;
};
struct Nothing {};
static_assert(Stackable<at::Tensor> && Stackable<Clip> && Stackable<int> && Stackable<std::string>);
static_assert(Stackable<std::pair<int, at::Tensor>> && Stackable<std::array<float, 2>>);
static_assert(!Stackable<Opaque> && !Stackable<Nothing> && !Stackable<std::string_view> && !Stackable<bool> &&
              !Stackable<std::unique_ptr<int>> && !Stackable<std::optional<int>>);
static_assert(std::is_same_v<batch_t<Words>, std::vector<std::string>>);
static_assert(std::is_same_v<batch_t<Pictures>, std::tuple<at::Tensor, at::Tensor>>);
static_assert(BatchLike<batch_t<Pictures>>);

}  // namespace

TEST_CASE("numbers become tensors of PyTorch's types: int64, the float that they are, bool") {
  CHECK(same(stacked(std::vector<std::int32_t>{1, -2}), torch::tensor({1, -2}, at::kLong)));
  CHECK(same(stacked(std::vector<std::uint8_t>{200, 1}), torch::tensor({200, 1}, at::kLong)));
  CHECK(same(stacked(std::vector<std::int64_t>{std::int64_t{1} << 40}),
             torch::tensor({std::int64_t{1} << 40}, at::kLong)));
  CHECK(same(stacked(std::vector<float>{0.5F, 2}), torch::tensor({0.5, 2.0}, at::kFloat)));
  CHECK(same(stacked(std::vector<double>{0.1}), torch::tensor({0.1}, at::kDouble)));
  CHECK(same(stacked(std::vector<Emotion>{Emotion::happy}), torch::tensor({1}, at::kLong)));
}

TEST_CASE("a sample of many kinds is collated field by field") {
  const auto clip = [](std::int64_t i) {
    return Clip{placed(torch::full({4}, double(i))),
                "text " + std::to_string(i),
                0.5 * double(i),
                float(i),
                i == 1,
                Emotion(i % 2),
                std::vector<std::int64_t>(std::size_t(i), 7),
                "/clips/" + std::to_string(i),
                Picture{placed(torch::zeros({1})), std::int32_t(i)}};
  };
  auto [mels, texts, seconds, gains, loud, emotions, tokens, paths, cover] =
      stacked(std::vector{clip(0), clip(1), clip(2)});
  CHECK(same(mels, placed(torch::tensor({0., 1., 2.}, at::kFloat).unsqueeze(1).expand({3, 4}))));
  CHECK(texts == std::vector<std::string>{"text 0", "text 1", "text 2"});
  CHECK(same(seconds, torch::tensor({0., 0.5, 1.}, at::kDouble)));
  CHECK(same(gains, torch::tensor({0., 1., 2.}, at::kFloat)));
  CHECK(same(loud, torch::tensor({false, true, false})));
  CHECK(same(emotions, torch::tensor({0, 1, 0}, at::kLong)));
  CHECK(tokens == std::vector<std::vector<std::int64_t>>{{}, {7}, {7, 7}});
  CHECK(paths[2] == "/clips/2");
  CHECK(std::get<0>(cover).sizes() == at::IntArrayRef{3, 1});
  CHECK(same(std::get<1>(cover), torch::tensor({0, 1, 2}, at::kLong)));
}

TEST_CASE("an aggregate of tensors is its own batch, and so is one of such") {
  const auto pair = [](double x) { return Pair{placed(torch::full({2}, x)), placed(torch::tensor(x))}; };
  const Pair batch = stacked(std::vector{pair(1), pair(2)});
  CHECK((batch.features.sizes() == at::IntArrayRef{2, 2} && batch.labels.sizes() == at::IntArrayRef{2}));
  const Nested nested = stacked(
      std::vector{Nested{pair(1), placed(torch::ones({3}))}, Nested{pair(2), placed(torch::ones({3}))}});
  CHECK((nested.pair.labels.equal(batch.labels) && nested.more.sizes() == at::IntArrayRef{2, 3}));
}

TEST_CASE("tuples, pairs and arrays become tuples") {
  const auto [numbers, texts] = stacked(std::vector<std::pair<int, std::string>>{{1, "a"}, {2, "b"}});
  CHECK((same(numbers, torch::tensor({1, 2}, at::kLong)) && texts[1] == "b"));
  const auto [x, y] = stacked(std::vector<std::array<float, 2>>{{1, 2}, {3, 4}});
  CHECK((same(x, torch::tensor({1., 3.}, at::kFloat)) && same(y, torch::tensor({2., 4.}, at::kFloat))));
}

TEST_CASE("a loader needs no collate for them, and makes their tensors in its slots") {
  const testing::Watchdog watchdog("default collate");
  const std::int64_t workers = GENERATE(0, 2);
  PinnedPrefetchLoader loader(Pictures{}, {.batch_size = 2, .workers = workers});
  std::int64_t sum = 0;
  for (int epoch = 0; epoch < 4; ++epoch)
    for (const auto& [pixels, labels] : loader) {
      CHECK(pixels.device() == looptorch::testing::place());
      CHECK(labels.is_cpu());
      CHECK(same(pixels.cpu().select(1, 0).select(1, 0) * 10, labels.to(at::kFloat)));
      sum += labels.sum().item<std::int64_t>();
    }
  CHECK(sum == 4 * 100);
  const bool own_slots = looptorch::testing::place().is_cpu();  // pinned memory is LibTorch's to reuse
  if (workers == 0 && own_slots) CHECK(loader.stats().slot_reuses > 0);
  PinnedPrefetchLoader words(Words{}, {.batch_size = 5, .workers = workers});
  CHECK(words.begin()->at(4) == "word 4");
}
