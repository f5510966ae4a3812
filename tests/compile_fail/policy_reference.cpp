// SPDX-License-Identifier: MIT
// expect: looptorch: a policy is listed that is a pointer, a reference or no class. List a value
#include <looptorch/trainer.hpp>

#include "prelude.hpp"

using Updates = lt::Update<torch::optim::SGD, decltype(&objective)>;

#ifdef LOOPTORCH_TWIN
using Policy = lt::ClipGradNorm;
#else
using Policy = lt::ClipGradNorm&;
#endif

lt::ClipGradNorm clip{1.0};
lt::Trainer<Net, Updates, Policy> trainer(net, Updates(sgd, &objective), clip);
