// SPDX-License-Identifier: MIT
// Unusable lines of manifests, texts and clips that a run skips, each with the reason. Functions that take a
// `SkippedItems*` add to it and continue; without one they throw at the first.
#pragma once

#include <looptorch/app/run/skipped_items.hpp>

#include <exception>

namespace konkanivani {

using looptorch::app::SkippedItems;

/// In a catch block: lists the exception, or rethrows it if there is no list.
inline void list_or_rethrow(SkippedItems* skipped, const std::exception& caught) {
  if (skipped == nullptr) throw;
  skipped->add(caught.what());
}

}  // namespace konkanivani
