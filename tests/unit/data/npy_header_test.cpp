// SPDX-License-Identifier: MIT
// The header of NumPy's arrays, as versions of Python write it, and what is no header.
#include "support/precompiled.hpp"

#include <looptorch/data/npy_header.hpp>

#include <cstdint>
#include <string>
#include <vector>

using Catch::Contains;
using looptorch::detail::NpyHeaderError;
using looptorch::detail::parse_npy_header;
using Shape = std::vector<std::int64_t>;

TEST_CASE("a header of NumPy is read, with its blanks, in any order of keys") {
  const auto header =
      parse_npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (128, 1292), }          \n");
  CHECK(header.dtype == "<f4");
  CHECK_FALSE(header.fortran_order);
  CHECK(header.shape == Shape{128, 1292});
  CHECK(header.elements == 128 * 1292);
  const auto other = parse_npy_header("{\"shape\":(3L,),'fortran_order':True,'descr':'<f8'}");
  CHECK(other.dtype == "<f8");
  CHECK(other.fortran_order);
  CHECK(other.shape == Shape{3});
  CHECK(parse_npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': ()}").elements == 1);
  CHECK(parse_npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 0)}")
            .elements == 0);
}

TEST_CASE("what is no header is refused in a sentence") {
  const auto refused = [](const std::string& text, const std::string& why) {
    CHECK_THROWS_WITH(parse_npy_header(text), Contains(why));
    CHECK_THROWS_AS(parse_npy_header(text), NpyHeaderError);
  };
  const std::string begin = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  refused("", "has no \"{\"");
  refused("{}", "lacks one of 'descr', 'fortran_order' and 'shape'");
  refused(begin, "has no \"(\"");
  refused(begin + "(1,)", "has no \"}\"");
  refused(begin + "(1, 2)} more", "has more after its end");
  refused(begin + "(-1,)}", "has a shape that is no tuple of sizes");
  refused(begin + "(1.5,)}", "has no \")\"");
  refused(begin + "(99999999999999999999,)}", "has a shape that is no tuple of sizes");
  refused(begin + "(4294967296, 4294967296)}", "more elements than 64 bits count");
  refused(begin + "(0, 4294967296, 4294967296)}", "more elements than 64 bits count");  // nor would strides
  refused(begin + "(1,), 'shape': (1,)}", "has a key twice");
  refused("{'pickle': 1}", "has a key twice, or one that no version");
  refused("{'descr': [('mel', '<f4')]}", "describes records of several fields");
  refused("{'descr': '<f4", "ends within a string");
  refused("{'fortran_order': 1}", "neither True nor False");
  std::string many = begin + "(";
  for (int i = 0; i < 33; ++i) many += "1, ";
  refused(many + ")}", "has more than 32 dimensions");
}
