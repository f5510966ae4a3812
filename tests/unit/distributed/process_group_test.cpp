// SPDX-License-Identifier: MIT
// Ranks meet: they find the address at which others reach them, agree on a name of their start, and one that
// cannot connect ends all.
// Tests distributed: agree_on_run, own_address, packed_text
#include "support/precompiled.hpp"

#include <looptorch/distributed/agree_on_run.hpp>
#include <looptorch/distributed/own_address.hpp>
#include <looptorch/distributed/process_group.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <chrono>
#include <cstdlib>
#include <future>
#include <iostream>

namespace lt = looptorch;

namespace process_group_test {

TEST_CASE("Ranks on one machine meet on its loopback") {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  store->set("address 1", "127.0.0.1");
  CHECK(lt::detail::own_address(*store, "127.0.0.1", /*rank=*/0, /*size=*/2) == "127.0.0.1");
}

TEST_CASE("Beside a rank elsewhere the store's machine is at its address on the route to it") {
  const std::string elsewhere = "192.0.2.1", towards = lt::detail::address_towards(elsewhere);
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  store->set("address 1", "127.0.0.1");
  store->set("address 2", elsewhere);
  const std::string own = lt::detail::own_address(*store, "127.0.0.1", /*rank=*/0, /*size=*/3);
  CHECK(own == (towards.empty() ? "127.0.0.1" : towards));  // empty: a machine without a network
  CHECK(lt::detail::is_loopback(own) == towards.empty());
}

TEST_CASE("A name without an address has no route") {
  CHECK(lt::detail::address_towards("nowhere.invalid").empty());
}

TEST_CASE("Each start of the ranks has a name of its own, whatever an earlier one left in the store") {
  using namespace std::chrono_literals;
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  store->set("looptorch here 1", "earlier");
  const auto start = [&] {
    auto first = std::async(std::launch::async,
                            [&] { return lt::detail::agree_on_run(*store, /*rank=*/0, /*size=*/3, 30s); });
    std::this_thread::sleep_for(50ms);  // rank 0 answers the earlier one
    auto last = std::async(std::launch::async,
                           [&] { return lt::detail::agree_on_run(*store, /*rank=*/2, /*size=*/3, 30s); });
    const std::string own = lt::detail::agree_on_run(*store, /*rank=*/1, /*size=*/3, 30s);
    CHECK(first.get() == own);
    CHECK(last.get() == own);
    return own;
  };
  CHECK(start() != start());
}

TEST_CASE("A rank that does not come is named") {
  using namespace std::chrono_literals;
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  looptorch::testing::Warnings warnings;
  CHECK_THROWS_WITH(lt::detail::agree_on_run(*store, /*rank=*/0, /*size=*/2, 1s, /*patience=*/10ms),
                    "rank 1 is not there after 1 s");
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0], Catch::Contains("rank 0 waits for rank 1 of 2, for 1 s at most"));
  CHECK_THROWS_WITH(lt::detail::agree_on_run(*store, /*rank=*/1, /*size=*/2, 1s),
                    "rank 0 is not there after 1 s");
}

TEST_CASE("texts of any length", "[.ranks]") {
  if (!ranks::is_started()) return;
  const std::vector<std::string> texts{"", std::string("a\0b", 3) + std::string(5000, 'c')};
  auto& group = lt::ProcessGroup::of_environment();
  CHECK(group.gather(texts[static_cast<std::size_t>(group.rank())], "the test") == texts);
  CHECK(group.gather("short", "the test") == std::vector<std::string>{"short", "short"});
  group.leave_together();
}

TEST_CASE("Ranks gather texts of any length") {
  const lt::testing::TemporaryFolder folder;
  for (const auto& outcome :
       ranks::run_ranks(2, "texts of any length", folder.path(), {}, std::chrono::seconds(60))) {
    CAPTURE(outcome.output);
    CHECK(outcome.passed());
  }
}

TEST_CASE("a rank that was restarted more often", "[.ranks]") {
  if (!ranks::is_started()) return;
  ::setenv("TORCHELASTIC_RESTART_COUNT", std::to_string(ranks::rank()).c_str(), /*overwrite=*/1);
  lt::ProcessGroup::of_environment()
      .leave_together();  // rank 0 has the store, by which the other still connects
}

TEST_CASE("Ranks meet whose machines count restarts differently") {
  const lt::testing::TemporaryFolder folder;
  for (const auto& outcome : ranks::run_ranks(2, "a rank that was restarted more often", folder.path(), {},
                                              std::chrono::seconds(60))) {
    CAPTURE(outcome.output);
    CHECK(outcome.passed());
  }
}

TEST_CASE("a rank without its interface", "[.ranks]") {
  if (!ranks::is_started()) return;
  if (ranks::rank() == 1) ::setenv("GLOO_SOCKET_IFNAME", "nowhere0", /*overwrite=*/1);
  try {
    (void)lt::ProcessGroup::of_environment();
    std::cout << "connected" << std::endl;
  } catch (const lt::RanksDiffer& error) {
    std::cout << "said " << error.what() << std::endl;
  }
}

TEST_CASE("A rank that cannot connect ends the others, with its sentence") {
  const lt::testing::TemporaryFolder folder;
  const auto outcomes =
      ranks::run_ranks(3, "a rank without its interface", folder.path(), {}, std::chrono::seconds(60));
  for (const auto& outcome : outcomes) {
    CAPTURE(outcome.output, outcome.seconds);
    CHECK(outcome.output.find("said rank 1 of 3 could not meet the others at 127.0.0.1:") !=
          std::string::npos);
    CHECK(outcome.output.find("Unable to find address for: nowhere0") != std::string::npos);
    CHECK(outcome.seconds < 30);
  }
}

}  // namespace process_group_test
