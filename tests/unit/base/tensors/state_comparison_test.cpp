// SPDX-License-Identifier: MIT
#include "support/precompiled.hpp"

#include <looptorch/base/tensors/state_comparison.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lt = looptorch;
using Texts = std::vector<std::string>;

TEST_CASE("states differ in a value, a type, a tensor's bits, or a key of one side, each with a sentence") {
  lt::StateDict here, saved;
  here.set("same", torch::ones({2}));
  saved.set("same", torch::ones({2}));
  CHECK(lt::detail::compare_values(here, saved, "the loader's ", "the snapshot").empty());
  here.set("batch_size", std::int64_t{2}), saved.set("batch_size", std::int64_t{4});
  here.set("drop", true);
  saved.set("rate", 0.5), here.set("rate", std::string("half"));
  here.set("weights", torch::zeros({3})), saved.set("weights", torch::ones({3}));
  CHECK(lt::detail::compare_values(here, saved, "the loader's ", "the snapshot") ==
        Texts{"the loader's batch_size is 2 here, 4 in the snapshot",
              "the loader's drop is true here, nothing in the snapshot",
              "the loader's rate is half here, 0.5 in the snapshot",
              "the loader's weights is a tensor [3] here, a tensor [3] in the snapshot"});
  CHECK(lt::detail::joined({"a", "b"}, ", ") == "a, b");
}
