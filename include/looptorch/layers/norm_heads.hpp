// SPDX-License-Identifier: MIT
// Computes a layer norm and the linear layers that follow it before attention, as one node of autograd. The
// kernels are those of the separate layers. In a block of CheckpointMode::light the node saves only its
// input, and normalises again in backward.
//
// Shapes: B batch, T positions, D width, H heads of d numbers.
#pragma once

#include <looptorch/layers/joint_linear.hpp>
#include <looptorch/layers/norm_part.hpp>
#include <looptorch/memory/keep.hpp>

#include <array>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace looptorch {
namespace detail {

/// The backward node of `norm_heads`; `result` makes it and runs its forward pass. Throws, as LibTorch's
/// nodes do, if it is differentiated after its saved tensors were released.
class NormHeadsBackward final : public torch::autograd::Node {
 public:
  using Tensors = torch::autograd::variable_list;
  /// Layers whose outputs are computed by one matmul. There is a bias for each weight, or none.
  struct Group {
    std::vector<at::Tensor> weights, biases;
  };

  /// Returns the outputs of all groups' layers by heads, for an x that `takes_norm` accepts.
  static Tensors result(const at::Tensor& x, const NormParameters& norm, const std::vector<Group>& groups,
                        std::int64_t heads, const SavingMode& mode) {
    const auto node = made_node<NormHeadsBackward>();
    Tensors parameters;
    for (const Group& group : groups) {
      parameters.insert(parameters.end(), group.weights.begin(), group.weights.end());
      parameters.insert(parameters.end(), group.biases.begin(), group.biases.end());
    }
    node->set_next_edges(torch::autograd::collect_next_edges(x, norm.weight, norm.bias, parameters));
    Tensors outputs = node->run(x, norm, groups, heads, mode);
    torch::autograd::set_history(outputs, node);
    return outputs;
  }

  Tensors apply(Tensors&& gradients) override {
    const std::lock_guard lock(mutex_);
    Saved saved = unpack();  // first: may rerun a block, with its own gradients
    const BackwardScope scope;
    if (scope.create_graph) saved.rows = normed_rows(saved);
    Tensors result{{}, {}, {}};
    const at::Tensor grad_rows = part_gradients(result, gradients, saved, scope.create_graph);
    if (grad_rows.defined())
      std::tie(result[0], result[1], result[2]) =
          NormPart::gradients(saved.norm, grad_rows, {needs(0), needs(1), needs(2)});
    return result;
  }

  void release_variables() override {
    const std::lock_guard lock(mutex_);
    norm_.release(), rows_.reset_data();
    for (Part& part : parts_) part.matmul.release();
  }

  std::string name() const override { return "NormHeadsBackward"; }

 private:
  struct Part {
    RowMatmul matmul;
    OutputLayout layout{};
  };
  struct Saved {
    NormPart::Unpacked norm;
    std::vector<RowMatmul::Unpacked> weights;
    at::Tensor rows;  ///< the norm's result; undefined: not saved, or not computed again yet
  };
  [[nodiscard]] Saved unpack() const {
    Saved saved{norm_.unpack(), {}, {}};
    for (const Part& part : parts_) saved.weights.push_back(part.matmul.unpack());
    saved.rows = rows_.unpack();
    return saved;
  }

  [[nodiscard]] bool needs(std::size_t i) const { return task_should_compute_output(i); }
  [[nodiscard]] at::Tensor normed_rows(Saved& saved) const {
    const RowMatmul& matmul = parts_.front().matmul;
    return as(norm_.again(saved.norm), matmul.type()).view({-1, matmul.width()});
  }

  /// Appends the gradients of each part's parameters to `result`. Returns the gradient of the norm's result;
  /// undefined if nothing before it needs a gradient, or if no output has one.
  [[nodiscard]] at::Tensor part_gradients(Tensors& result, Tensors& gradients, Saved& saved,
                                          bool create_graph) {
    const auto rows = [&]() -> const at::Tensor& {
      if (!saved.rows.defined()) saved.rows = normed_rows(saved);
      return saved.rows;
    };
    Tensors grad_rows;
    for (std::size_t i = 0, output = 0; i < parts_.size(); ++i) {
      const auto& [matmul, layout] = parts_[i];
      const std::size_t first = result.size(), layers = matmul.outputs_per_layer().size();
      result.resize(first + matmul.parameters());
      const at::Tensor gradient = layout.join(gradients, output, layers, matmul.outputs(), *this);
      const auto is_learnt = [&, begin = std::exchange(output, output + layers)](std::size_t j) {
        return needs(j) && gradients[begin + (j - first) % layers].defined();
      };
      if (!gradient.defined()) continue;
      matmul.grad_parameters(result, first, gradient, rows, is_learnt);
      if (needs(0) || needs(1) || needs(2))
        grad_rows.push_back(
            as(matmul.grad_rows(saved.weights[i], gradient, create_graph), saved.norm.x.scalar_type()));
    }
    if (grad_rows.empty()) return {};
    at::Tensor sum = grad_rows.back();  // in the order in which autograd's engine runs nodes
    for (std::size_t i = grad_rows.size() - 1; i-- > 0;) sum = sum + grad_rows[i];
    return sum;
  }

  Tensors run(const at::Tensor& x, const NormParameters& norm, const std::vector<Group>& groups,
              std::int64_t heads, const SavingMode& mode) {
    const HeldScope held(mode);
    const auto type = matmul_type(x);
    const bool norm_learns = x.requires_grad() || norm.learns();
    bool weights_learn = false;
    norm_.save(x, norm);
    parts_.resize(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
      parts_[i].matmul.save(groups[i].weights, groups[i].biases, type, norm_learns);
      for (const at::Tensor& weight : groups[i].weights) weights_learn |= weight.requires_grad();
    }
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::AutoDispatchBelowADInplaceOrView no_views;
    const at::Tensor rows = as(norm_.forward(x, norm), type).view({-1, x.size(-1)});
    if (!mode.is_light && weights_learn) rows_ = {rows, /*is_output=*/false};
    Tensors outputs;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      auto& [matmul, layout] = parts_[i];
      const at::Tensor y = matmul.forward(rows, groups[i].weights, groups[i].biases);
      const Tensors split = layout.split(y, x.sizes().vec(), matmul.outputs_per_layer(), heads);
      outputs.insert(outputs.end(), split.begin(), split.end());
    }
    return outputs;
  }

  NormPart norm_;
  std::vector<Part> parts_;
  torch::autograd::SavedVariable rows_;
};

/// Returns the node's outputs; none if no node takes these tensors.
[[nodiscard]] inline std::vector<at::Tensor> norm_outputs(const at::Tensor& x, const NormParameters& norm,
                                                          std::vector<at::Tensor> weights,
                                                          std::vector<at::Tensor> biases, std::int64_t heads,
                                                          const SavingMode& mode) {
  if (x.dim() != 3 || heads < 1 || !takes_norm(x, norm)) return {};
  bool learns = x.requires_grad() || norm.learns();
  const bool is_joined = weights.size() > 1 && are_joined(x, weights, biases, learns);
  std::vector<NormHeadsBackward::Group> groups(is_joined ? 1 : weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    at::Tensor &weight = weights[i], &bias = biases[i];
    if (!is_joined && !takes_layer(x, x.size(-1), weight, bias)) return {};
    if (weight.size(0) % heads != 0 || weight.size(0) != weights[0].size(0)) return {};
    learns |= weight.requires_grad() || (bias.defined() && bias.requires_grad());
    if (is_joined) continue;
    groups[i].weights = {weight};
    if (bias.defined()) groups[i].biases = {bias};
  }
  if (!learns) return {};
  if (is_joined) {
    complete(biases, weights);
    groups[0] = {std::move(weights), std::move(biases)};
  }
  return NormHeadsBackward::result(x, norm, groups, heads, mode);
}

}  // namespace detail

/// Returns each linear layer's output for `norm(x)`, x of `[B, T, D]`, by heads: `[B, H, T, d]`. The numbers
/// are those of `joint_heads(norm(x), heads, layers...)`, which it calls where no node is made. In a block of
/// CheckpointMode::light the results are kept. `norm` is a holder of a torch::nn::LayerNorm over D.
template <class Norm, class... Layers>
[[nodiscard]] std::array<at::Tensor, sizeof...(Layers)> norm_heads(const at::Tensor& x, std::int64_t heads,
                                                                   Norm norm, Layers... layers) {
  using Result = std::array<at::Tensor, sizeof...(Layers)>;
  const detail::SavingMode mode;
  const auto by_node = [&](const at::Tensor& input) -> Result {
    const auto outputs = detail::norm_outputs(input, detail::NormParameters::of(norm), {layers->weight...},
                                              {layers->bias...}, heads, mode);
    Result result;
    std::ranges::copy(outputs, result.begin());
    return result;
  };
  if ((detail::has_no_adapter(layers) && ...)) {
    const Result result = keep_product(by_node, x);
    if (result[0].defined()) return result;
  }
  return keep_product(joint_heads<Layers...>, norm->forward(x), heads, layers...);
}

}  // namespace looptorch
