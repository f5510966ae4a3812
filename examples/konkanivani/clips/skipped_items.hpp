// SPDX-License-Identifier: MIT
// Lists what a run skips because it is unusable, with the reason: lines of manifests, texts and clips. A
// function that takes a `SkippedItems*` adds to the list and continues; if the pointer is null, it throws at
// the first unusable item.
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
