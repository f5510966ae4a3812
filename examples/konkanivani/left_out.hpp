// SPDX-License-Identifier: MIT
// What a run leaves out because it cannot be used: lines of manifests, texts and clips, each with the reason.
// Functions that take a `LeftOut*` list there what is wrong and go on; without one they throw at the first.
#pragma once

#include <looptorch/app/left_out.hpp>

#include <exception>

namespace konkanivani {

using looptorch::app::LeftOut;

/// In a catch block: lists what was caught, or throws it again where there is no list.
inline void list_or_rethrow(LeftOut* left_out, const std::exception& caught) {
  if (left_out == nullptr) throw;
  left_out->add(caught.what());
}

}  // namespace konkanivani
