// SPDX-License-Identifier: MIT
// Describes a tensor by its shape, type, range of numbers and the rows that hold NaN or infinity. Findings
// quote this description as text; facts_of.hpp computes it.
#pragma once

#include <looptorch/base/error.hpp>

#include <c10/core/ScalarType.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace looptorch {

/// Shape, type and range of a tensor at the time it was examined.
struct TensorFacts {
  std::vector<std::int64_t> sizes = {};
  at::ScalarType type = at::kFloat;
  /// Range of the finite elements; NaN if there are none.
  double least = std::numeric_limits<double>::quiet_NaN(), most = least;
  std::int64_t nans = 0, infinities = 0;
  bool has_positive_infinity = false;
  std::vector<std::int64_t> bad_rows = {};  ///< Indices in the first dimension with NaN or infinity.

  [[nodiscard]] bool is_finite() const { return nans + infinities == 0; }

  /// Returns "float [8, 4] from -3 to 2.5, 4 NaN".
  [[nodiscard]] std::string text() const {
    std::string text = message(c10::toString(type), " [");
    for (std::size_t i = 0; i < sizes.size(); ++i) text += message(i ? ", " : "", sizes[i]);
    text += "]";
    if (!std::isnan(least))
      text += least == most ? message(" of ", least) : message(" from ", least, " to ", most);
    if (nans > 0) text += message(", ", nans, " NaN");
    if (infinities > 0) text += message(", ", infinities, has_positive_infinity ? " infinite" : " -inf");
    return text;
  }
};

}  // namespace looptorch
