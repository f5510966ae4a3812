// SPDX-License-Identifier: MIT
// Autocast, CacheFlushEvery, When, On and ShowProgress.
#include "support/precompiled.hpp"

#include <looptorch/trainer.hpp>

#include "support/toy.hpp"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <regex>

namespace lt = looptorch;

namespace {

at::Tensor features() { return torch::sin(torch::arange(32, torch::kFloat)).reshape({8, 4}); }
toy::Net float_net() {
  auto net = toy::net();
  net->to(torch::kFloat);
  return net;
}

bool autocast_is_on() { return at::autocast::is_autocast_enabled(at::kCPU); }

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

}  // namespace

TEST_CASE("Autocast<bf16> covers forward and loss, in evaluate too, and nothing else") {
  auto net = float_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  const auto objective = [](toy::Net& net, const at::Tensor& x) {
    CHECK(autocast_is_on());
    CHECK(net->first(x).scalar_type() == torch::kBFloat16);
    return net(x).pow(2).mean();
  };
  lt::Trainer trainer(net, sgd, objective, lt::Autocast<lt::bf16>{},
                      lt::On{lt::kClip, [](lt::UpdateContext& update) {
                               CHECK_FALSE(autocast_is_on());
                               for (const auto& gradient : update.gradients())
                                 CHECK(gradient.scalar_type() == torch::kFloat);
                             }});
  trainer.fit(std::vector{features()});
  trainer.evaluate(std::vector{features()});
  CHECK_FALSE(autocast_is_on());
  CHECK(at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16);  // the CPU's own default
}

TEST_CASE("Autocast gives the loop by hand under autocast, bit for bit") {
  auto ours = float_net(), theirs = float_net();
  torch::optim::SGD a(ours->parameters(), 0.1), b(theirs->parameters(), 0.1);
  const auto objective = [](toy::Net& net, const at::Tensor& x) { return net(x).pow(2).mean(); };
  lt::Trainer trainer(ours, a, objective, lt::Autocast<lt::bf16>{});
  trainer.fit(std::vector{features()}, {.epochs = 3});
  for (int epoch = 0; epoch < 3; ++epoch) {
    b.zero_grad();
    at::Tensor loss;
    {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      loss = objective(theirs, features());
      at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
    }
    loss.backward();
    b.step();
  }
  CHECK(toy::distance(ours, theirs) == 0.0);
}

TEST_CASE("Autocast restores what it met when the objective throws") {
  auto net = float_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  lt::Trainer trainer(
      net, sgd, [](toy::Net&, const at::Tensor&) -> at::Tensor { throw std::runtime_error("x"); },
      lt::Autocast<lt::bf16>{});
  CHECK_THROWS_WITH(trainer.fit(std::vector{features()}), "x");
  CHECK_FALSE(autocast_is_on());
  at::autocast::set_autocast_enabled(at::kCPU, true);
  CHECK_THROWS_WITH(trainer.fit(std::vector{features()}), "x");
  CHECK(autocast_is_on());
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST_CASE("When switches a policy at run time, bf16 here") {
  for (const bool on : {false, true}) {
    auto net = float_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    bool seen = false;
    lt::Trainer trainer(
        net, sgd,
        [&](toy::Net& net, const at::Tensor& x) {
          seen = autocast_is_on();
          return net(x).pow(2).mean();
        },
        lt::When{on, lt::Autocast<lt::bf16>{}}, lt::When{!on, lt::ClipGradNorm{1.0}},
        lt::When{on, lt::Accumulate<2>{}});
    CHECK(trainer.fit(std::vector{features(), features()}).steps == (on ? 1 : 2));
    CHECK(seen == on);
    CHECK(trainer.policy<lt::ClipGradNorm>().norm.defined() == !on);
  }
}

TEST_CASE("variants of one family may be switched, but not both be on") {
  const auto run = [](bool first, bool second) {
    auto net = toy::net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    lt::Trainer trainer(net, sgd, toy::objective, lt::When{first, lt::Accumulate<2>{}},
                        lt::When{second, lt::Accumulate<3>{}});
    return trainer.fit(toy::batches(6)).steps;
  };
  CHECK(run(true, false) == 3);
  CHECK(run(false, true) == 2);
  CHECK(run(false, false) == 6);
  CHECK_THROWS_AS(run(true, true), lt::PolicyConflict);
  CHECK_THROWS_WITH(run(true, true), Catch::Contains("Accumulate<2>") && Catch::Contains("Accumulate<3>") &&
                                         Catch::Contains("two policies of one family") &&
                                         Catch::Contains("docs/errors.md#one-of-a-family"));
}

TEST_CASE("Accumulate's run-time window is checked when it is made") {
  CHECK_THROWS_WITH(lt::Accumulate<>{-2}, Catch::Contains("got -2"));
}

TEST_CASE(
    "On runs before or after the update by its phase, at a window's or an epoch's end by its argument") {
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  std::vector<std::string> log;
  const auto note = [&](const char* what) {
    return [&log, what](lt::UpdateContext&) { log.push_back(what); };
  };
  lt::Trainer trainer(net, sgd, toy::objective,
                      lt::On{lt::kObserve, [&](lt::EpochContext&) { log.push_back("epoch"); }},
                      lt::On{lt::kObserve, [&](lt::WindowContext&) { log.push_back("window"); }},
                      lt::On{lt::kAverage, note("average")}, lt::On{lt::kUpdate, note("update")},
                      lt::On{lt::kUnscale, note("unscale")}, lt::On{lt::kClip, note("clip")});
  trainer.fit(toy::batches(1));
  CHECK(log == std::vector<std::string>{"unscale", "clip", "update", "average", "window", "epoch"});
}

TEST_CASE("a vetoed update changes nothing, by a bool or by a tensor, with either kind of optimizer") {
  for (const bool by_tensor : {false, true}) {
    auto a = float_net(), b = float_net(), before = float_net();
    torch::optim::SGD plain(a->parameters(), 0.1);
    lt::FusedAdamW fused(b->parameters());
    const auto objective = [](toy::Net& net, const at::Tensor& x) { return net(x).pow(2).mean(); };
    int64_t after = 0;
    const lt::On veto{lt::kUnscale, [&](lt::UpdateContext& update) {
                        by_tensor ? update.veto(torch::ones({})) : update.veto();
                      }};
    const lt::On count{lt::kObserve, [&](lt::UpdateContext&) { ++after; }};
    lt::Trainer one(a, plain, objective, veto, count);
    lt::Trainer two(b, fused, objective, veto, count);
    CHECK(one.fit(std::vector{features()}).skipped == 1);
    CHECK(two.fit(std::vector{features()}).skipped == 1);
    CHECK(after == 0);
    CHECK(toy::distance(a, before) == 0.0);
    CHECK(toy::distance(b, before) == 0.0);
    if (by_tensor) CHECK(fused.state_of(b->parameters()[0]).empty());
  }
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
      text, std::regex("epoch 1  step 1/6  loss [0-9.]+  lr 0.125  [0-9.e+]+ samples/s  ETA [0-9:]+\n")));
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

TEST_CASE("ShowProgress keeps to one live line on a terminal, cut to its width") {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE((terminal >= 0 && ::grantpt(terminal) == 0 && ::unlockpt(terminal) == 0));
  std::FILE* screen = std::fopen(::ptsname(terminal), "w");
  REQUIRE(screen);
  winsize size{.ws_row = 25, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
  REQUIRE(::ioctl(terminal, TIOCSWINSZ, &size) == 0);
  auto net = toy::net();
  torch::optim::SGD sgd(net->parameters(), 0.125);
  lt::Trainer trainer(net, sgd, toy::objective, lt::ShowProgress{.out = screen, .live_seconds = 0});
  trainer.fit(toy::batches(5), {.max_steps = 3});
  // A terminal hands over what was written in pieces and in its own time; the line feed is the last of it.
  std::string text;
  for (pollfd ready{terminal, POLLIN, 0}; text.find('\n') == text.npos && ::poll(&ready, 1, 10000) == 1;) {
    char piece[4096];
    const auto length = ::read(terminal, piece, sizeof piece);
    if (length <= 0) break;
    text.append(piece, static_cast<std::size_t>(length));
  }
  std::fclose(screen);
  ::close(terminal);
  INFO(text);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);  // the last line stays
  CHECK(std::count(text.begin(), text.end(), '\r') ==
        4);  // three drawings, and the terminal's own before its line feed
  CHECK(text.find("\repoch 1  step 1/3  loss ") == 0);
  CHECK(text.find("\033[K") == 1 + 39);
}

TEST_CASE("times and numbers read well") {
  CHECK(lt::detail::clock_text(5) == "0:05");
  CHECK(lt::detail::clock_text(754.4) == "12:34");
  CHECK(lt::detail::clock_text(3723) == "1:02:03");
  CHECK(lt::detail::clock_text(NAN) == "?");
  CHECK(lt::detail::clock_text(INFINITY) == "?");
  CHECK(lt::detail::number_text(0.000123456, 3) == "0.000123");
}
