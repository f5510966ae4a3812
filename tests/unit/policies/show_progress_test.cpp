// SPDX-License-Identifier: MIT
// The lines that ShowProgress writes, and its warning about a loader that cannot keep up.
#include "support/precompiled.hpp"

#include <looptorch/policies/autopsy.hpp>
#include <looptorch/policies/profile.hpp>
#include <looptorch/policies/retry_on_oom.hpp>
#include <looptorch/policies/skip_bad_windows.hpp>
#include <looptorch/policies/watch_memory.hpp>
#include <looptorch/trainer.hpp>

#include "support/captured_stderr.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy.hpp"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <regex>
#include <thread>

namespace lt = looptorch;

namespace {

struct Rows {
  std::int64_t count = 24;
  int milliseconds = 0;
  std::int64_t broken = -1;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t index) const {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    if (index / 2 == broken) throw std::runtime_error("cut off");
    return torch::full({4}, 0.01 * double(index), torch::kDouble);
  }
};

struct RowStream {
  std::int64_t at = 0;
  std::optional<at::Tensor> next() {
    return at < 10 ? std::optional(torch::full({4}, 0.01 * double(at++), torch::kDouble)) : std::nullopt;
  }
};
struct Again : RowStream {
  void begin(std::int64_t) { at = 0; }
};

at::Tensor objective(toy::Net& net, const at::Tensor& batch) { return net(batch).pow(2).mean(); }

/// What a temporary file holds after `write` had it as its stream.
template <class Write>
std::string written(Write&& write) {
  std::FILE* file = std::tmpfile();
  write(file);
  std::string text(static_cast<std::size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

template <class Batches>
std::string shown(Batches&& batches, lt::FitOptions options = {}, double starving = 0.2) {
  return written([&](std::FILE* file) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.125);
    lt::Trainer trainer(net, sgd, objective,
                        lt::ShowProgress{.out = file, .line_seconds = 0, .starving = starving});
    trainer.fit(std::forward<Batches>(batches), options);
  });
}

std::ptrdiff_t count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {});
}

}  // namespace

TEST_CASE("ShowProgress tells how long a loader was waited for, and nothing where there is none") {
  const Rows rows{.milliseconds = 1};
  const std::string text =
      shown(lt::PinnedPrefetchLoader(rows, {.batch_size = 4, .workers = 0}), {.epochs = 2});
  INFO(text);
  CHECK(count(text, "samples/s  data wait [0-9]+ %\n") == 1);  // a first step tells no pace
  CHECK(count(text, "samples/s  ETA [0-9:]+  data wait [0-9]+ %\n") == 11);
  CHECK(count(text, "epoch [12] done  step [0-9]+  loss [0-9.e-]+  data wait [0-9]+ %\n") == 2);
  std::smatch wait;
  REQUIRE(std::regex_search(text, wait, std::regex("epoch 2 done.*data wait ([0-9]+) %")));
  CHECK(std::stoi(wait[1]) > 10);             // 4 ms a batch, where a step takes a part of one
  CHECK(count(text, "cannot keep up") == 0);  // too short to tell

  const std::string plain = shown(std::vector<at::Tensor>(3, torch::ones({2, 4}, torch::kDouble)));
  CHECK(plain.find("data wait") == std::string::npos);
}

TEST_CASE("ShowProgress counts the time in which a step uses its own batch") {
  const Rows rows{.milliseconds = 1};
  const std::string text = written([&](std::FILE* file) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.125);
    const auto slow = [](auto& model, const at::Tensor& batch) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return objective(model, batch);
    };
    lt::Trainer trainer(net, sgd, slow, lt::ShowProgress{.out = file, .line_seconds = 0});
    trainer.fit(lt::PinnedPrefetchLoader(rows, {.batch_size = 4, .workers = 0}), {.max_steps = 1});
  });
  INFO(text);
  std::smatch wait;
  REQUIRE(std::regex_search(text, wait, std::regex("step 1/1 .*data wait ([0-9]+) %")));
  CHECK(std::stoi(wait[1]) < 50);  // 4 ms, and 200 of the step
}

TEST_CASE("ShowProgress measures each fit's own loader, in mid-epoch too") {
  const Rows rows{.milliseconds = 1};
  const std::string text = written([&](std::FILE* file) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.125);
    lt::Trainer trainer(net, sgd, objective, lt::ShowProgress{.out = file, .line_seconds = 0});
    trainer.fit(lt::PinnedPrefetchLoader(rows, {.batch_size = 4, .workers = 3}), {.max_steps = 9});
    trainer.fit(lt::PinnedPrefetchLoader(rows, {.batch_size = 4, .workers = 1}), {.epochs = 2});
    trainer.fit(std::vector<at::Tensor>(3, torch::ones({2, 4}, torch::kDouble)), {.epochs = 3});
  });
  INFO(text);
  CHECK(count(text, "data wait (100|[0-9]{1,2}) %\n") == 12 + 2);
  CHECK(count(text, "data wait") == 12 + 2);
}

TEST_CASE("ShowProgress tells no loss of an update that was not due") {
  const std::string text = written([&](std::FILE* file) {
    auto net = toy::net();
    torch::optim::SGD often(net->parameters(), 0.125), seldom(net->parameters(), 0.125);
    lt::Trainer trainer(
        net, lt::Update{often, objective, {.name = "often"}},
        lt::Update{seldom, objective, {.name = "seldom", .when = [](const lt::Run&) { return false; }}},
        lt::ShowProgress{.out = file, .line_seconds = 0});
    trainer.fit(std::vector<at::Tensor>(2, torch::ones({2, 4}, torch::kDouble)), {.epochs = 1});
  });
  INFO(text);
  CHECK(count(text, "  often [0-9.e-]+  seldom -  ") == 2);
  CHECK(count(text, "epoch 1 done  step 2  often [0-9.e-]+  seldom -\n") == 1);
}

TEST_CASE("a run that starves says so once, with the remedies") {
  const Rows rows{.count = 25, .milliseconds = 60};
  const lt::testing::CapturedStderr captured;  // ShowProgress speaks for the loader
  const auto text = [&rows](double starving) {
    return shown(lt::PinnedPrefetchLoader(rows, {.workers = 1}), {.epochs = 1}, starving);
  };
  const std::string told = text(0.2);
  INFO(told);
  CHECK(count(told,
              "\nthe data cannot keep up: [0-9]+ % of the time was spent waiting for it \\(workers: 1, busy "
              "[0-9]+ %\\)\\. What helps: .*CachedDataset.*LengthBucketSampler.*docs/loader.md#waiting\n") ==
        1);
  CHECK(count(text(1.0), "cannot keep up") == 0);
  CHECK(captured.text() == "");
}

TEST_CASE("a run without ShowProgress that starves is warned once, on stderr") {
  const lt::testing::CapturedStderr captured;
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.125);
  lt::Trainer trainer(net, sgd, objective);
  const Rows rows{.count = 25, .milliseconds = 60};
  lt::PinnedPrefetchLoader loader(rows, {.workers = 1});
  trainer.fit(loader, {.epochs = 1});
  CHECK(count(captured.text(), "looptorch: a loader of 25 samples: the data cannot keep up: ") == 1);
  trainer.fit(loader, {.epochs = 2});
  CHECK(count(captured.text(), "cannot keep up") == 1);
}

TEST_CASE("ShowProgress gives back to the loader what it has not said") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.125);
  lt::PinnedPrefetchLoader loader(Rows{.count = 4}, {.batch_size = 4, .workers = 0});
  const auto while_fitting = [&](lt::LoaderStats before) {
    bool told = false;
    loader.stats().warned_data_bound = before.warned_data_bound;
    std::FILE* file = std::tmpfile();
    lt::Trainer trainer(
        net, sgd, objective, lt::ShowProgress{.out = file},
        lt::On{lt::kUpdate, [&](lt::UpdateContext&) { told = loader.stats().warned_data_bound; }});
    trainer.fit(loader, {.epochs = 1});
    std::fclose(file);
    return told;
  };
  for (const bool before : {false, true}) {
    CHECK(while_fitting({.warned_data_bound = before}));
    CHECK(loader.stats().warned_data_bound == before);
  }
}

TEST_CASE("the remedy for waiting depends on workers and cores") {
  using looptorch::detail::data_bound_text;
  using looptorch::detail::is_data_bound;
  lt::LoaderStats loading{.batches = 20, .wait_seconds = 3, .use_seconds = 1, .worker_seconds = {4, 2}};
  CHECK(
      data_bound_text(loading, 8) ==
      "the data cannot keep up: 75 % of the time was spent waiting for it (workers: 2, busy 75 %). What helps: more "
      "workers, of which there are 2 for 8 cores; a CachedDataset, which computes features once; a "
      "LengthBucketSampler, which loads and pads less. See docs/loader.md#waiting");
  CHECK(data_bound_text(loading, 2).find("more workers") == std::string::npos);
  loading.worker_seconds = {1, 1};  // at a stream that others read
  CHECK(data_bound_text(loading, 8).find("more workers") == std::string::npos);
  loading.worker_seconds = {4, 2};
  CHECK(is_data_bound(loading, 0.7));
  CHECK_FALSE(is_data_bound(loading, 0.75));
  loading.worker_seconds = {};
  CHECK(data_bound_text(loading, 2).find("What helps: load in the background, by workers = 1 or more; ") !=
        std::string::npos);
  CHECK_FALSE(is_data_bound({.batches = 19, .wait_seconds = 3}, 0.2));
  CHECK_FALSE(is_data_bound({.batches = 90, .wait_seconds = 0.9}, 0.2));
}

TEST_CASE("samples that are skipped are told, and a fit continues at the right batch after them") {
  const Rows rows{.count = 12, .broken = 1};  // samples 2 and 3: batch 1
  const lt::LoaderOptions options{.batch_size = 2, .workers = 1, .on_error = lt::OnError::skip};
  CHECK(count(shown(lt::PinnedPrefetchLoader(rows, options), {.epochs = 2}),
              "done .*  samples skipped 2  data") == 2);

  const auto net_after = [&](std::vector<std::int64_t> stops, std::vector<std::int64_t>* batches) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.125);
    lt::Trainer trainer(net, sgd, objective, lt::Accumulate<2>{});
    for (const std::int64_t stop : stops) {
      trainer.fit(lt::PinnedPrefetchLoader(rows, options), {.epochs = 2, .max_steps = stop});
      if (batches) batches->push_back(trainer.progress().batch);
    }
    return torch::nn::utils::parameters_to_vector(net->parameters());
  };
  std::vector<std::int64_t> batches;
  const at::Tensor interrupted = net_after({1, 2, 3, 4, 6}, &batches);
  CHECK(batches == std::vector<std::int64_t>{2, 4, 0, 2, 0});  // one that was left out has its place
  CHECK(torch::equal(interrupted, net_after({6}, nullptr)));
}

TEST_CASE("a loss that is NaN after a batch that was skipped is reported by its batch's number") {
  struct Bad : Rows {
    at::Tensor get(std::int64_t index) const {
      return index == 10 ? torch::full({4}, NAN, torch::kDouble) : Rows::get(index);
    }
  };
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.125);
  lt::Trainer trainer(net, sgd, objective, lt::Accumulate<2>{});
  const lt::LoaderOptions options{.batch_size = 2, .workers = 1, .on_error = lt::OnError::skip};
  for (const std::int64_t broken : {3, 4}) {  // windows (0, 1), (2, -), (4, 5) and (0, 1), (2, 3), (-, 5)
    lt::PinnedPrefetchLoader loader(Bad{{.count = 24, .broken = broken}}, options);
    try {
      trainer.fit(loader, {.epochs = 1});
      FAIL("no exception");
    } catch (const lt::NonFiniteLoss& error) {
      CHECK((error.first_batch == 5 && error.last_batch == 5));
    }
    trainer.load_state_dict(lt::Trainer(net, sgd, objective, lt::Accumulate<2>{}).state_dict());
  }
  lt::PinnedPrefetchLoader moved(Rows{.count = 8}, {.batch_size = 2});
  moved.skip(3);  // fit's own place counts
  CHECK(trainer.fit(moved, {.epochs = 1}).steps == 2);
}

TEST_CASE("fit takes streams, by a loader and listed, and knows nothing of their length") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.125);
  lt::Trainer trainer(net, sgd, objective, lt::PinnedPrefetchLoader({.batch_size = 4, .workers = 2}));
  CHECK(trainer.fit(RowStream{}).steps == 3);
  CHECK_FALSE(trainer.progress().total_steps);
  CHECK_THROWS_WITH(trainer.fit(RowStream{}, {.epochs = 4}), Catch::Contains("single-pass range"));
  Again again;
  CHECK(trainer.fit(again, {.epochs = 3}).steps == 9);
  lt::Trainer ranged(net, sgd, objective);
  ranged.fit(lt::PinnedPrefetchLoader(again, {.batch_size = 4}), {.epochs = 2, .max_steps = 4});
  CHECK((ranged.progress().epoch == 1 && ranged.progress().batch == 1));
  CHECK(ranged.fit(lt::PinnedPrefetchLoader(again, {.batch_size = 4}), {.epochs = 2}).steps == 6);
}

TEST_CASE("the rates of all groups and updates are shown, of many groups the range") {
  const auto line = [](auto&&... updates) {
    return written([&](std::FILE* file) {
      auto net = toy::net();
      lt::Trainer trainer(net, updates(net)..., lt::ShowProgress{.out = file, .line_seconds = 0});
      trainer.fit(toy::batches(1));
    });
  };
  const auto grouped = [](std::vector<double> rates, std::string name) {
    return [rates, name](toy::Net& net) {
      std::vector<torch::optim::OptimizerParamGroup> groups;
      for (std::size_t i = 0; i < rates.size(); ++i)
        groups.emplace_back(i < 4 ? std::vector{net->parameters()[i]} : std::vector<at::Tensor>{},
                            std::make_unique<torch::optim::SGDOptions>(rates[i]));
      return lt::Update{std::make_shared<torch::optim::SGD>(std::move(groups), torch::optim::SGDOptions(1.0)),
                        toy::objective,
                        {.name = name}};
    };
  };
  CHECK_THAT(line(grouped({0.5, 0.5}, "")), Catch::Contains("  lr 0.5  "));
  CHECK_THAT(line(grouped({0.5, 0.25}, "")), Catch::Contains("  lr 0.5/0.25  "));
  CHECK_THAT(line(grouped({0.5, 0.25, 0.125, 0.1, 0.7}, "")), Catch::Contains("  lr 0.1 to 0.7  "));
  CHECK_THAT(line(grouped({0.5}, "player"), grouped({0.25, 0.125}, "critic")),
             Catch::Contains("  lr player 0.5, critic 0.25/0.125  "));
}

TEST_CASE("ShowProgress writes plain lines where the output is no terminal") {
  const auto text = written([](std::FILE* file) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.125);
    lt::Trainer trainer(net, sgd, toy::objective, lt::ShowProgress{.out = file, .line_seconds = 0},
                        lt::Validate{toy::batches(2)});
    trainer.fit(toy::batches(3), {.epochs = 2});
  });
  INFO(text);
  CHECK(std::regex_search(
      text, std::regex("epoch 1  step 2/6  loss [0-9.]+  lr 0.125  [0-9.e+]+ samples/s  ETA [0-9:]+\n")));
  CHECK(std::regex_search(text, std::regex("epoch 2  step 6/6  loss [0-9.]+")));
  CHECK(std::regex_search(text, std::regex("epoch 2 done  step 6  loss [0-9.]+  validation.loss [0-9.]+\n")));
  CHECK(text.find('\r') == std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 8);
}

TEST_CASE("ShowProgress holds its tongue between lines, and names each update's loss") {
  const auto text = written([](std::FILE* file) {
    auto net = toy::net();
    torch::optim::SGD a(net->first->parameters(), 0.1), b(net->second->parameters(), 0.1);
    lt::Trainer trainer(net, lt::Update{a, toy::objective, {.name = "critic"}}, lt::Update{b, toy::objective},
                        lt::ShowProgress{.out = file});
    trainer.fit(toy::batches(5));
  });
  INFO(text);
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);  // the first step's, and the epoch's
  CHECK(std::regex_search(text, std::regex("critic [0-9.]+  update 2 [0-9.]+")));
}

namespace {

/// A pseudo-terminal of a width, and a stream that writes to it.
class Screen {
 public:
  explicit Screen(unsigned short columns) : terminal_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    REQUIRE((terminal_ >= 0 && ::grantpt(terminal_) == 0 && ::unlockpt(terminal_) == 0));
    stream_ = std::fopen(::ptsname(terminal_), "w");
    REQUIRE(stream_);
    winsize size{.ws_row = 25, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(::ioctl(terminal_, TIOCSWINSZ, &size) == 0);
  }
  Screen(const Screen&) = delete;
  ~Screen() { std::fclose(stream_), ::close(terminal_); }
  std::FILE* stream() const { return stream_; }

  /// What was written, up to the `lines`th line feed: a terminal hands it over in pieces and in its own time.
  std::string text(std::ptrdiff_t lines = 1) const {
    return text_until(
        [=](const std::string& text) { return std::count(text.begin(), text.end(), '\n') >= lines; });
  }

  template <class Ended>
  std::string text_until(Ended&& ended) const {
    std::string text;
    for (pollfd ready{terminal_, POLLIN, 0}; !ended(text) && ::poll(&ready, 1, 10000) == 1;) {
      char piece[4096];
      const auto length = ::read(terminal_, piece, sizeof piece);
      if (length <= 0) break;
      text.append(piece, static_cast<std::size_t>(length));
    }
    return text;
  }

 private:
  int terminal_;
  std::FILE* stream_ = nullptr;
};

/// Sets a variable of the environment, or removes it, and puts the old one back.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  Environment(const Environment&) = delete;
  ~Environment() { set(old_ ? old_->c_str() : nullptr); }

 private:
  void set(const char* value) { value ? ::setenv(name_, value, 1) : ::unsetenv(name_); }
  const char* name_;
  std::optional<std::string> old_;
};

/// What three steps of two updates with long names leave on a terminal of this width.
std::string live_lines(unsigned short columns) {
  const Screen screen(columns);
  auto net = toy::net();
  torch::optim::SGD a(net->first->parameters(), 0.125), b(net->second->parameters(), 0.125);
  lt::Trainer trainer(net, lt::Update{a, toy::objective, {.name = "discriminator_of_spectrograms"}},
                      lt::Update{b, toy::objective, {.name = "generator"}},
                      lt::ShowProgress{.out = screen.stream(), .live_seconds = 0});
  trainer.fit(toy::batches(5), {.max_steps = 3});
  return screen.text();
}

/// The lines that a reader saw: between a carriage return and the order to clear the rest.
std::vector<std::string> seen(const std::string& text) {
  std::vector<std::string> lines;
  const std::regex drawn("\r([^\r\n\033]*)\033\\[K");
  for (std::sregex_iterator at(text.begin(), text.end(), drawn), end; at != end; ++at)
    if ((*at)[1].length() > 0) lines.push_back((*at)[1]);
  return lines;
}

}  // namespace

TEST_CASE(
    "ShowProgress keeps to one live line on a terminal, and leaves out what its width has no room for") {
  const Environment kind("TERM", "xterm");
  const std::string number = "[0-9.e+-]+";
  const auto last = [](unsigned short columns) {
    const std::string text = live_lines(columns);
    CHECK(std::count(text.begin(), text.end(), '\n') == 1);  // the last line stays
    const auto lines = seen(text);
    REQUIRE(lines.size() == 4);  // a line a step, and the last once more as the fit ends
    CHECK(lines[3] == lines[2]);
    for (const auto& line : lines) CHECK(looptorch::detail::columns_of(line) < columns);
    return lines.back();
  };
  const auto matches = [](const std::string& line, const std::string& pattern) {
    INFO(line);
    CHECK(std::regex_match(line, std::regex(pattern)));
  };
  const std::string head = "epoch 1  step 3/3  ";
  matches(last(200), head + "discriminator_of_spectrograms " + number + "  generator " + number +
                         "  lr discriminator_of_spectrograms 0.125, generator 0.125  " + number +
                         " samples/s  ETA 0:00");
  matches(last(100), head + "discrimi…rograms " + number + "  generator " + number + "  " + number +
                         " samples/s  ETA 0:00");
  matches(last(80), head + "discrimi…rograms " + number + "  generator " + number + "(  ETA 0:00)?");
  matches(last(58), head + "dis…ams " + number + "  gen…tor " + number);
  matches(last(40), head + "dis…ams " + number);
  matches(last(20), "epoch 1  step 3/3");
  CHECK(last(9) == "epoch 1 ");
}

TEST_CASE("ShowProgress writes plain lines to a terminal that cannot go back in its line") {
  for (const char* kind : {"dumb", "", static_cast<const char*>(nullptr)}) {
    const Environment environment("TERM", kind);
    const std::string text = live_lines(40);
    CHECK_THAT(text, Catch::StartsWith("epoch 1  step 1/3  discriminator_of_spectrograms "));
    CHECK(text.find('\033') == text.npos);
  }
}

TEST_CASE(
    "ShowProgress warns in yellow on a terminal, and without colours where NO_COLOR is set or in a file") {
  const Environment kind("TERM", "xterm");
  const auto warned = [](std::FILE* out) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.125);
    lt::Trainer trainer(net, sgd, objective, lt::ShowProgress{.out = out});
    const Rows rows{.count = 25, .milliseconds = 60};
    trainer.fit(lt::PinnedPrefetchLoader(rows, {.workers = 1}), {.epochs = 1});
  };
  const auto on_screen = [&] {
    const Screen screen(500);
    warned(screen.stream());
    return screen.text(2);
  };
  {
    const Environment allowed("NO_COLOR", "");
    CHECK_THAT(on_screen(),
               Catch::Contains("\033[33mthe data cannot keep up") && Catch::Contains("waiting\033[0m"));
  }
  const Environment refused("NO_COLOR", "1");
  const std::string text = on_screen();
  CHECK_THAT(text, Catch::Contains("the data cannot keep up") && !Catch::Contains("\033[33m"));
}

namespace {

/// What a terminal shows once `text` was written: of its codes those that go back in a line and clear the
/// rest.
std::vector<std::string> rows_shown(const std::string& text) {
  std::vector<std::string> rows(1);
  std::size_t column = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string& row = rows.back();
    if (text[at] == '\r')
      column = 0;
    else if (text[at] == '\n')
      rows.emplace_back();
    else if (text.compare(at, 3, "\033[K") == 0)
      row.resize(column), at += 2;
    else
      row.replace(column++, 1, 1, text[at]);
  }
  return rows;
}

/// What a terminal gets on stderr of a run that is shown there and traced, runs out of memory once and has a
/// NaN.
std::string troubled_run() {
  const Screen screen(100);
  const lt::testing::CapturedStderr otherwise;  // puts stderr back
  ::dup2(::fileno(screen.stream()), STDERR_FILENO);
  const lt::testing::TemporaryFolder folder;
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.125);
  auto batches = toy::batches(6);
  batches[3].features.fill_(NAN);
  int calls = 0;
  const auto troubled = [&calls](toy::Net& model, const toy::Batch& batch) {
    if (++calls == 3) TORCH_CHECK_WITH(OutOfMemoryError, false, "no room");
    return toy::objective(model, batch);
  };
  lt::Trainer trainer(net, sgd, troubled, lt::RetryOnOom{}, lt::Autopsy{},
                      lt::SkipBadWindows{.max_skipped = 3},
                      lt::Profile{.folder = folder.path(), .first = 2, .last = 2}, lt::WatchMemory{},
                      lt::ShowProgress{.live_seconds = 0});
  trainer.fit(batches, {.epochs = 1});
  std::fputs("the end\n", stderr);
  return screen.text_until([](const std::string& text) { return text.find("the end") != text.npos; });
}

}  // namespace

TEST_CASE("what policies say on stderr stands in lines of its own, above the live line") {
  const Environment kind("TERM", "xterm");
  const std::string text = troubled_run();
  INFO(text);
  const auto rows = rows_shown(text);
  for (const char* begin : {"memory ran out in step 2; retrying", "autopsy of step 3", "skipped step 3",
                            "Profile: ", "epoch 1 done  step 6", "memory: "}) {
    INFO(begin);
    CHECK(std::count_if(rows.begin(), rows.end(), [&](const auto& row) { return row.starts_with(begin); }) ==
          1);
  }
  for (const auto& row : rows) CHECK(row.find("samples/s") == row.npos);  // the live line is in none of them
}

namespace {

/// Says a line at each step, as a policy does that has something to tell.
struct Says {
  std::FILE* out;
  void on_window_end(lt::WindowContext& window) const {
    std::fputs(looptorch::detail::own_line(out, "step " + std::to_string(window.run.progress().step)).c_str(),
               out);
  }
};

}  // namespace

TEST_CASE("the live line stays as a fit ends, below what another policy said last") {
  const Environment kind("TERM", "xterm");
  const Screen screen(100);
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.125);
  lt::Trainer trainer(net, sgd, toy::objective, lt::ShowProgress{.out = screen.stream(), .live_seconds = 0},
                      Says{screen.stream()});
  trainer.fit(toy::batches(5), {.max_steps = 2});
  const auto rows = rows_shown(screen.text(3));
  REQUIRE(rows.size() == 4);
  CHECK(rows[0] == "step 1");
  CHECK(rows[1] == "step 2");
  CHECK_THAT(rows[2], Catch::StartsWith("epoch 1  step 2/2  loss "));
  CHECK(rows[3].empty());
}

TEST_CASE("what policies say on stderr has no codes where that is dumb") {
  const Environment kind("TERM", "dumb");
  const std::string text = troubled_run();
  CHECK_THAT(text, Catch::Contains("\nmemory ran out in step 2;") && !Catch::Contains("\033"));
}
