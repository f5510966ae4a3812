#include "support/precompiled.hpp"
TEST_CASE("smoke") { CHECK(torch::ones({2}).sum().item<double>() == 2.0); }
