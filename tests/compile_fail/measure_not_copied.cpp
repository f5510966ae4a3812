// SPDX-License-Identifier: MIT
// expect: looptorch: Validate copies a measure that accumulates
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

#include <memory>

struct Largest {
#ifdef LOOPTORCH_TWIN
  std::shared_ptr<double> largest;
#else
  std::unique_ptr<double> largest;
#endif
  void add(Net&, const at::Tensor&) {}
  double result() const { return largest ? *largest : 0.0; }
};

lt::Validate<std::vector<at::Tensor>, Largest>* validate = nullptr;
std::size_t size = sizeof(*validate);
