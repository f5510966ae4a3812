// SPDX-License-Identifier: MIT
// expect: looptorch: Validate needs batches that can be gone through again
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

struct Stream {
  struct Iterator {
    using iterator_concept = std::input_iterator_tag;
    using value_type = int;
    using difference_type = std::ptrdiff_t;
    int operator*() const { return 0; }
    Iterator& operator++() { return *this; }
    void operator++(int) {}
    bool operator==(std::default_sentinel_t) const { return true; }
  };
  Iterator begin() { return {}; }
  std::default_sentinel_t end() { return {}; }
};

#ifdef LOOPTORCH_TWIN
lt::Validate validate{std::vector<int>{}};
#else
lt::Validate validate{Stream{}};
#endif
