// SPDX-License-Identifier: MIT
// Recurrent layers in a block, as if cuDNN computed them: dropout between their layers is refused, and
// cuDNN's dropout state is no tensor of the block's.
#include <looptorch/memory/keep.hpp>
#include <looptorch/memory/recompute/recurrent_layers.hpp>

#include "unit/memory/recompute/support/scenarios.hpp"

#include <string>
#include <utility>
#include <vector>

using namespace checkpointed;
using lt::detail::RecurrentCall;

namespace {

constexpr const char* kRefused = "runs a recurrent layer with dropout, whose masks cuDNN draws from a state";

/// What cuDNN's layers save besides their input.
struct Saved {
  at::Tensor cells, state, hidden = torch::zeros({2, kWidth});
  c10::weak_intrusive_ptr<c10::TensorImpl> reserve{c10::intrusive_ptr<c10::TensorImpl>()};
};

/// Saves it in their order.
struct Layer : torch::autograd::Function<Layer> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, Saved* saved) {
    const at::Tensor reserve = x.gt(0).to(at::kByte).flatten();
    saved->reserve = reserve.getIntrusivePtr();
    context->save_for_backward({saved->cells, saved->state, saved->hidden, x, reserve});
    return x.sin();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[3].cos() * (saved[4].view_as(saved[3]) + 1), {}};
  }
};

template <class Call>
Tensors trained(const Call& call) {
  torch::manual_seed(5);
  const at::Tensor x = torch::randn({5, 4, kWidth}).requires_grad_();
  auto [y, parameters] = call(x);
  y.sum().backward();
  return append(append(Tensors{y}, {x.grad()}), gradients(parameters));
}

template <class Holder, class Options>
Tensors of_layer(const Options& options) {
  return trained([&](const at::Tensor& x) {
    Holder layer(options);
    return std::pair(std::get<0>(layer(x)), layer->parameters());
  });
}
template <class Holder, class Options>
Tensors of_packed(const Options& options) {
  return trained([&](const at::Tensor& x) {
    Holder layer(options);
    const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, torch::tensor({5, 4, 2, 1}));
    return std::pair(std::get<0>(layer->forward_with_packed_input(packed)).data(), layer->parameters());
  });
}
/// Outputs and gradients of every kind of recurrent layer.
std::vector<Tensors> of_all() {
  using namespace torch::nn;
  const auto lstm = LSTMOptions(kWidth, 6).num_layers(2).bidirectional(true).dropout(0.5);
  const auto gru = GRUOptions(kWidth, 6).num_layers(2).dropout(0.5).batch_first(true);
  const auto relu = RNNOptions(kWidth, 6).nonlinearity(torch::kReLU).bias(false);
  const auto rnn = RNNOptions(kWidth, 6).num_layers(3);
  return {of_layer<LSTM>(lstm), of_packed<LSTM>(lstm), of_layer<GRU>(gru),  of_packed<GRU>(gru),
          of_layer<RNN>(rnn),   of_packed<RNN>(rnn),   of_layer<RNN>(relu), of_packed<RNN>(relu)};
}

}  // namespace

TEST_CASE("a recurrent layer whose dropout cuDNN draws is refused as the block runs again") {
  const at::Tensor x = input(cpu<float>());
  const auto layer = [](const at::Tensor& x) {
    const RecurrentCall call(/*has_dropout=*/true);
    return x.sin();
  };
  const auto block = [&](const at::Tensor& x) { return layer(x.exp()).cos(); };
  const at::Tensor y = lt::checkpoint({.name = "encoder"}, block, x);
  CHECK_THROWS_AS(y.sum().backward({}, /*keep_graph=*/true), lt::CheckpointError);
  CHECK_THROWS_WITH(y.sum().backward(), Catch::StartsWith("encoder") && Catch::Contains(kRefused));
  const auto kept = [&](const at::Tensor& x) { return lt::keep(layer, x.exp()).cos(); };
  CHECK_NOTHROW(lt::checkpoint(kept, x).sum().backward());
  CHECK_NOTHROW(lt::checkpoint({.mode = lt::CheckpointMode::offload}, block, x).sum().backward());
  CHECK_NOTHROW(block(x).sum().backward());
}

TEST_CASE("it is refused though other random numbers were drawn before it") {
  // LibTorch draws the state's seed in the first run alone.
  const auto block = [drawn = std::make_shared<bool>(false)](const at::Tensor& x) {
    const RecurrentCall call(/*has_dropout=*/true);
    if (!std::exchange(*drawn, true)) (void)torch::rand({3});
    return x.exp().sin();
  };
  CHECK_THROWS_WITH(lt::checkpoint(block, input(cpu<float>())).sum().backward(), Catch::Contains(kRefused));
}

TEST_CASE("a state that LibTorch makes between a block's runs changes nothing") {
  Saved saved;
  saved.cells = GENERATE(at::Tensor(), torch::zeros({2, kWidth}));  // a GRU has none
  const at::Tensor before = GENERATE(at::Tensor(), torch::ones({16}, at::kByte));
  check_same_bits(cpu<float>(), [&](const auto& call, const at::TensorOptions& options) {
    constexpr bool recomputes = std::decay_t<decltype(call)>::recomputes;
    saved.state = before;
    const at::Tensor x = input(options);
    const auto block = [&saved](const at::Tensor& x) {
      const at::Tensor h = x.exp();
      const RecurrentCall recurrent(/*has_dropout=*/false);
      return Layer::apply(h, &saved).cos();
    };
    const at::Tensor y = call(block, x);
    if (recomputes) CHECK(saved.reserve.expired());  // computed again, not held
    saved.state = torch::zeros({16}, at::kByte);
    y.sum().backward();
    return Tensors{y, x.grad()};
  });
}

TEST_CASE("every recurrent layer is answered as LibTorch answers it") {
  const auto expected = of_all();
  const auto library = lt::detail::override_recurrent_layers(c10::DispatchKey::AutogradCPU);
  for (const char* name : {"lstm", "gru", "rnn_tanh", "rnn_relu"})
    for (const char* of : {"input", "data"})
      CHECK(c10::Dispatcher::singleton()
                .findSchemaOrThrow((std::string("aten::") + name).c_str(), of)
                .hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU));
  const auto answered = of_all();
  for (std::size_t i = 0; i < expected.size(); ++i) check_same(expected[i], answered[i]);
}
