// SPDX-License-Identifier: MIT
// ShapesOnly, by which --fit and memory_advice (tests/bench) run models that are larger than the machine:
// what is allocated is what a real run allocates, to the byte.
//
// Tests shapes_only: accelerator_autocast, accelerator_kernels, arguments, arithmetic, convolution
//
// Tests shapes_only: kernel_call, layers, matmul, shapes_only, skipped_kernels, virtual_blocks, workspace
#include <looptorch/adapters/int8_weight.hpp>
#include <looptorch/base/device/accelerator.hpp>
#include <looptorch/layers/ctc_loss.hpp>
#include <looptorch/memory/measure/host_memory.hpp>
#include <looptorch/optim/adafactor.hpp>
#include <looptorch/optim/adamw_8bit.hpp>
#include <looptorch/optim/adamw_bf16.hpp>
#include <looptorch/policies.hpp>
#include <looptorch/preflight.hpp>
#include <looptorch/shapes_only/shapes_only.hpp>
#include <looptorch/trainer.hpp>

#include "support/catch.hpp"

#include <c10/util/ScopeExit.h>

#include <whisper/model/model.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace {

using looptorch::ShapesOnly;

/// Counts from here on, with the virtual blocks after it.
looptorch::HostMemory& counted() { return looptorch::HostMemory::counted(); }

struct Work {
  std::string name;
  std::vector<at::Tensor> (*inputs)();
  at::Tensor (*run)(const std::vector<at::Tensor>& x);
};

at::Tensor trained(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::randn(sizes).to(type).requires_grad_();
}

const Work kWorks[] = {
    {"linear",
     [] {
       return std::vector{trained({4, 300, 256}), trained({512, 256}), trained({512})};
     },
     [](const auto& x) { return at::linear(x[0], x[1], x[2]); }},
    {"linear in bf16",
     [] {
       return std::vector{trained({4, 300, 256}, at::kBFloat16), trained({512, 256}, at::kBFloat16),
                          trained({512}, at::kBFloat16)};
     },
     [](const auto& x) { return at::linear(x[0], x[1], x[2]); }},
    {"linear of narrow rows, as an adapter's, whose result alone is large",
     [] {
       return std::vector{trained({1000, 8}), trained({512, 8})};
     },
     [](const auto& x) { return at::linear(x[0], x[1]); }},
    {"linear of narrow rows in bf16",
     [] {
       return std::vector{trained({1000, 8}, at::kBFloat16), trained({512, 8}, at::kBFloat16)};
     },
     [](const auto& x) { return at::linear(x[0], x[1]); }},
    {"views",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) {
       const auto parts = x[0].view({4, 100, 512}).transpose(0, 1).unsqueeze(2).select(2, 0).slice(0, 1, 90);
       return parts.permute({2, 0, 1}).detach() + parts.expand({89, 4, 512}).permute({2, 0, 1}).squeeze(0);
     }},
    {"linear of rows in 8 bits",
     [] {
       const auto weight = at::randn({512, 256});
       const auto rows = looptorch::detail::to_int8(weight, looptorch::detail::largest_of_rows(weight));
       return std::vector{trained({4, 300, 256}), rows.rows_NK, rows.scale_N};
     },
     [](const auto& x) {
       return looptorch::detail::int8_linear(x[0], {x[1], x[2]}, {});
     }},
    {"sum of two types",
     [] {
       return std::vector{trained({400, 512}), trained({400, 512}, at::kBFloat16)};
     },
     [](const auto& x) { return x[0] + x[1]; }},
    {"layer norm",
     [] {
       return std::vector{trained({400, 512}), trained({512}), trained({512})};
     },
     [](const auto& x) { return at::layer_norm(x[0], {512}, x[1], x[2]); }},
    {"layer norm of bf16 by fp32",
     [] {
       return std::vector{trained({400, 512}, at::kBFloat16), trained({512}), trained({512})};
     },
     [](const auto& x) { return at::layer_norm(x[0].to(at::kFloat), {512}, x[1], x[2]); }},
    {"attention",
     [] {
       return std::vector{trained({2, 4, 500, 64}), trained({2, 4, 500, 64}), trained({2, 4, 500, 64})};
     },
     [](const auto& x) { return at::scaled_dot_product_attention(x[0], x[1], x[2]); }},
    {"attention to heads behind time",
     [] {
       return std::vector{trained({2, 500, 4, 64}), trained({2, 500, 4, 64}), trained({2, 500, 4, 64})};
     },
     [](const auto& x) {
       const auto heads = [&](std::size_t i) { return x[i].transpose(1, 2); };
       return at::scaled_dot_product_attention(heads(0), heads(1), heads(2)).transpose(1, 2).flatten(2);
     }},
    {"attention with a mask",
     [] {
       return std::vector{trained({2, 4, 300, 64}), trained({2, 4, 500, 64}), trained({2, 4, 500, 64})};
     },
     [](const auto& x) {
       return at::scaled_dot_product_attention(x[0], x[1], x[2], at::ones({2, 1, 1, 500}, at::kBool));
     }},
    {"attention in fp64",
     [] {
       const auto heads = [] { return trained({2, 4, 700, 16}, at::kDouble); };
       return std::vector{heads(), heads(), heads()};
     },
     [](const auto& x) { return at::scaled_dot_product_attention(x[0], x[1], x[2]); }},
    {"GELU",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) { return at::gelu(x[0]); }},
    {"leaky ReLU",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) { return at::leaky_relu(x[0], 0.2); }},
    {"GLU",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) { return at::glu(x[0]); }},
    {"dropout",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) { return at::dropout(x[0], 0.1, true); }},
    {"cross-entropy",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) { return at::cross_entropy_loss(x[0], at::arange(400)); }},
    {"smoothed cross-entropy",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) {
       return at::cross_entropy_loss(x[0], at::arange(400), {}, at::Reduction::Sum, -100, 0.1);
     }},
    {"embedding",
     [] {
       return std::vector{trained({900, 512})};
     },
     [](const auto& x) { return at::embedding(x[0], at::arange(400)); }},
    {"embedding of more indices than a small block holds",
     [] {
       return std::vector{trained({900, 64})};
     },
     [](const auto& x) { return at::embedding(x[0], at::randint(900, {20'000}, at::kLong)); }},
    {"cross-entropy of as many labels, some of which do not count",
     [] {
       return std::vector{trained({20'000, 64})};
     },
     [](const auto& x) {
       const auto labels = at::randint(64, {20'000}, at::kLong);
       const auto counted = labels.masked_fill(labels < 8, -100).view({100, 200}).t().contiguous().flatten();
       CHECK(labels.max().template item<std::int64_t>() == 63);
       return at::cross_entropy_loss(x[0], counted, {}, at::Reduction::Sum);
     }},
    {"masked fill",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) {
       return x[0].masked_fill(at::ones({400, 1}, at::kBool), 0);
     }},
    {"convolution of one dimension",
     [] {
       return std::vector{trained({2, 80, 900}), trained({128, 80, 3}), trained({128})};
     },
     [](const auto& x) { return at::conv1d(x[0], x[1], x[2], 2, 1); }},
    {"convolution of two",
     [] {
       return std::vector{trained({2, 32, 64, 90}), trained({64, 32, 4, 4}), trained({64})};
     },
     [](const auto& x) { return at::conv2d(x[0], x[1], x[2], 2, 1); }},
    {"convolution in bf16",
     [] {
       return std::vector{trained({2, 32, 64, 90}, at::kBFloat16), trained({64, 32, 4, 4}, at::kBFloat16),
                          trained({64}, at::kBFloat16)};
     },
     [](const auto& x) { return at::conv2d(x[0], x[1], x[2], 2, 1); }},
    {"convolution of each channel, which lie last",
     [] {
       return std::vector{trained({2, 600, 128}), trained({128, 1, 1, 31}), trained({128})};
     },
     [](const auto& x) {
       return at::conv2d(x[0].transpose(1, 2).unsqueeze(2), x[1], x[2], 1, at::IntArrayRef{0, 15}, 1, 128);
     }},
    {"convolution of three, whose channels lie last",
     [] {
       const auto last = [](const at::Tensor& x) {
         return x.contiguous(at::MemoryFormat::ChannelsLast3d).requires_grad_();
       };
       return std::vector{last(at::randn({4, 8, 20, 20, 20})), last(at::randn({16, 8, 3, 3, 3}))};
     },
     [](const auto& x) { return at::conv3d(x[0], x[1]); }},
    {"transposed convolution",
     [] {
       return std::vector{trained({2, 64, 32, 40}), trained({64, 32, 4, 4})};
     },
     [](const auto& x) { return at::conv_transpose2d(x[0], x[1], {}, 2, 1); }},
    {"transposed convolution with a bias, in groups",
     [] {
       return std::vector{trained({2, 64, 32, 40}), trained({64, 16, 4, 4}), trained({32})};
     },
     [](const auto& x) { return at::conv_transpose2d(x[0], x[1], x[2], 2, 1, 0, 2); }},
    {"group norm",
     [] {
       return std::vector{trained({2, 32, 64, 90}), trained({32}), trained({32})};
     },
     [](const auto& x) { return at::group_norm(x[0], 4, x[1], x[2]); }},
    {"resizing",
     [] {
       return std::vector{trained({2, 8, 64, 90})};
     },
     [](const auto& x) {
       return at::upsample_bilinear2d(x[0], {128, 200}, false);
     }},
    {"max pooling of every second sample",
     [] {
       return std::vector{trained({16, 16, 60, 60})};
     },
     [](const auto& x) {
       return at::max_pool2d(x[0].slice(0, 0, 16, 2), {2, 2});
     }},
    {"max pooling",
     [] {
       return std::vector{trained({4, 32, 64, 90})};
     },
     [](const auto& x) { return at::max_pool2d(x[0], 2); }},
    {"the largest of each row",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) { return std::get<0>(x[0].topk(300)); }},
    {"sorted rows",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) { return std::get<0>(x[0].sort(1)); }},
    {"maxima of many rows, with their places",
     [] {
       return std::vector{trained({40'000, 8})};
     },
     [](const auto& x) { return std::get<0>(x[0].max(1)); }},
    {"medians of many rows, with their places",
     [] {
       return std::vector{trained({40'000, 8})};
     },
     [](const auto& x) { return std::get<0>(x[0].median(1)); }},
    {"numbers at places that were computed",
     [] {
       return std::vector{trained({40'000, 8})};
     },
     [](const auto& x) { return x[0].gather(1, x[0].argmax(1, true)); }},
    {"maxima in fp32, whose gradient counts equal ones",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) { return x[0].amax(1); }},
    {"maxima in bf16",
     [] {
       return std::vector{trained({400, 512}, at::kBFloat16)};
     },
     [](const auto& x) { return x[0].amax(1); }},
    {"products in bf16, whose gradient counts zeros",
     [] {
       return std::vector{trained({40, 5120}, at::kBFloat16)};
     },
     [](const auto& x) { return x[0].prod(0); }},
    {"numbers times a mask",
     [] {
       return std::vector{trained({400, 512})};
     },
     [](const auto& x) {
       return x[0] * (at::rand({400, 512}) > 0.5);
     }},
    {"means in bf16",
     [] {
       return std::vector{trained({400, 512}, at::kBFloat16)};
     },
     [](const auto& x) { return x[0].mean(0); }},
    {"means in bf16 of two numbers each",
     [] {
       return std::vector{trained({800, 2, 512}, at::kBFloat16)};
     },
     [](const auto& x) { return x[0].mean(1); }},
    {"sums in bf16 over dimensions that lie apart",
     [] {
       return std::vector{trained({8, 64, 40, 40}, at::kBFloat16), trained({64, 1, 1}, at::kBFloat16)};
     },
     [](const auto& x) { return x[0] + x[1]; }},
    {"means of bf16 in fp32",
     [] {
       return std::vector{trained({400, 512}, at::kBFloat16)};
     },
     [](const auto& x) { return x[0].mean(0, false, at::kFloat) + x[0].sum(0, false, at::kFloat); }},
    {"L1 loss in bf16",
     [] {
       return std::vector{trained({400, 512}, at::kBFloat16), trained({400, 512}, at::kBFloat16)};
     },
     [](const auto& x) { return at::l1_loss(x[0], x[1]); }},
    {"binary cross-entropy of probabilities",
     [] {
       return std::vector{trained({400, 512}), at::full({400, 512}, 0.5)};
     },
     [](const auto& x) { return at::binary_cross_entropy(at::sigmoid(x[0]), x[1]); }},
    {"binary cross-entropy in bf16",
     [] {
       return std::vector{trained({400, 512}, at::kBFloat16), trained({400, 512}, at::kBFloat16)};
     },
     [](const auto& x) { return at::binary_cross_entropy_with_logits(x[0], x[1].sigmoid()); }},
    {"solutions of linear equations",
     [] {
       return std::vector{trained({300, 300}), trained({300, 400})};
     },
     [](const auto& x) { return at::linalg_solve(x[0], x[1]); }},
    {"mean and deviation",
     [] {
       return std::vector{trained({2, 32, 64, 90})};
     },
     [](const auto& x) {
       const auto [variance, mean] = at::var_mean(x[0], at::IntArrayRef{3}, false);
       return (variance + 1e-5).sqrt() + mean;
     }},
};

/// The bytes of a piece of work.
struct Bytes {
  std::int64_t forward, results, backward, gradients;
  std::string shapes;  ///< Of results and gradients, with strides and types.
};

std::string describe(const at::Tensor& x) {
  return c10::str(x.sizes(), " ", x.strides(), " ", x.scalar_type(), "\n");
}

Bytes bytes_of(const Work& work) {
  auto& memory = counted();
  const auto inputs = work.inputs();
  Bytes bytes{};
  auto before = memory.allocated_bytes();
  const auto since = [&](std::int64_t now) { return now - before; };
  memory.reset_peak();
  at::Tensor result = work.run(inputs);
  bytes.forward = since(memory.peak_bytes()), bytes.results = since(memory.allocated_bytes());
  bytes.shapes = describe(result);
  const auto gradient = at::ones_like(result);
  before = memory.allocated_bytes();
  memory.reset_peak();
  result.backward(gradient);
  bytes.backward = since(memory.peak_bytes()), bytes.gradients = since(memory.allocated_bytes());
  for (const auto& input : inputs)
    if (input.requires_grad()) bytes.shapes += describe(input.grad());
  return bytes;
}

/// True if a peak is that of the real kernel, which may have small buffers beside it.
bool close(std::int64_t peak, std::int64_t real) {
  constexpr std::int64_t kBuffers = 600'000;
  UNSCOPED_INFO("peak " << peak << ", really " << real);
  return peak <= real + real / 100 && real - peak <= kBuffers + real / 100;
}

struct Speech {
  at::Tensor mel_BMT, tokens_BL, labels_BL;
};

/// Returns the peak of dry steps of a small Whisper.
std::int64_t whisper_needs(std::int64_t clips, bool recompute, bool half) {
  namespace lt = looptorch;
  counted();
  whisper::Whisper model(whisper::WhisperConfig{.vocab_size = 900,
                                                .d_model = 128,
                                                .encoder_layers = 3,
                                                .decoder_layers = 2,
                                                .encoder_attention_heads = 2,
                                                .decoder_attention_heads = 2,
                                                .encoder_ffn_dim = 512,
                                                .decoder_ffn_dim = 512,
                                                .max_source_positions = 300});
  lt::FusedAdamW optimizer(model->parameters(), {.lr = 1e-4});
  const auto objective = [](whisper::Whisper& model, const Speech& batch) {
    return model->loss(batch.mel_BMT, batch.tokens_BL, batch.labels_BL);
  };
  lt::Trainer trainer(model, optimizer, objective, lt::Accumulate<2>{},
                      lt::When{half, lt::Autocast<lt::bf16>{}},
                      lt::When{recompute, lt::Checkpointed<whisper::EncoderLayer>{}},
                      lt::When{recompute, lt::Checkpointed<whisper::DecoderLayer>{}}, lt::ClipGradNorm{1.0});
  const std::vector<Speech> batches{{at::randn({clips, 80, 600}), at::randint(900, {clips, 90}, at::kLong),
                                     at::randint(900, {clips, 90}, at::kLong)}};
  return lt::preflight(trainer, batches, {.cap = 100'000'000'000}).needed;
}

struct DeviceBytes {
  std::int64_t held, peak;
};

/// Returns the bytes that a device, of which ShapesOnly counts, gets for `work`: for its result with what
/// autograd keeps, and at most.
template <class Work>
DeviceBytes device_bytes(const Work& work) {
  auto& device = *looptorch::HostMemory::device();
  const auto before = device.read().allocated;
  device.reset_peak();
  [[maybe_unused]] const auto result = work();
  return {device.read().allocated - before, device.read().peak - before};
}

constexpr std::int64_t in_blocks(std::int64_t bytes) { return (bytes + 511) / 512 * 512; }

/// Returns the bytes of this process that lie in memory of its own: a virtual block's do not, even if read.
std::int64_t resident_bytes() {
  std::int64_t pages = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages >> shared;
  return 4096 * (pages - shared);
}

}  // namespace

TEST_CASE("without their arithmetic kernels allocate what they allocate with it", "[shapes_only]") {
  counted();
  const auto restored =
      c10::make_scope_exit([threads = at::get_num_threads()] { at::set_num_threads(threads); });
  at::set_num_threads(1);  // each has buffers of its own
  for (const Work& work : kWorks) {
    INFO(work.name);
    const Bytes real = bytes_of(work);
    const ShapesOnly shapes_only;
    const Bytes virtually = bytes_of(work);
    CHECK(virtually.shapes == real.shapes);
    CHECK(virtually.results == real.results);
    CHECK(virtually.gradients == real.gradients);
    CHECK(close(virtually.forward, real.forward));
    CHECK(close(virtually.backward, real.backward));
  }
}

TEST_CASE("dry steps without arithmetic find the peak of real ones", "[shapes_only]") {
  struct Run {
    std::int64_t clips;
    bool recompute, half;
  };
  for (const Run run : {Run{6, false, false}, Run{6, true, false}, Run{6, false, true}, Run{2, true, true}}) {
    INFO(run.clips << " clips, recomputed: " << run.recompute << ", 16 bits: " << run.half);
    const auto real = whisper_needs(run.clips, run.recompute, run.half);
    const ShapesOnly shapes_only;
    const auto by_shape = whisper_needs(run.clips, run.recompute, run.half);
    INFO(by_shape << " by shape, really " << real);
    CHECK(std::abs(by_shape - real) <= real / 100);
  }
}

TEST_CASE("optimizers with loops of their own allocate by shape what they allocate, and update nothing",
          "[shapes_only]") {
  auto& memory = counted();
  const auto held_after_step = [&](auto make) {
    const auto before = memory.allocated_bytes();
    const at::Tensor weight = trained({600, 512}, at::kBFloat16);
    weight.mutable_grad() = at::ones_like(weight);
    auto optimizer = make(std::vector{weight});
    memory.reset_peak();
    optimizer.step();
    return std::pair(memory.allocated_bytes() - before, memory.peak_bytes() - before);
  };
  const auto same = [&](auto make) {
    const auto real = held_after_step(make);
    const ShapesOnly shapes_only;
    CHECK(held_after_step(make) == real);
  };
  same([](const auto& weights) { return looptorch::AdamW8bit(weights); });
  same([](const auto& weights) { return looptorch::AdamWBf16(weights); });
  at::Tensor kept = at::ones({600, 512}, at::kBFloat16).requires_grad_();
  kept.mutable_grad() = at::ones_like(kept);
  looptorch::AdamW8bit optimizer({kept}, {.lr = 0.5});
  {
    const ShapesOnly shapes_only;
    optimizer.step();
  }
  CHECK(kept.eq(1).all().item<bool>());
  optimizer.step();
  CHECK_FALSE(kept.eq(1).any().item<bool>());
}

TEST_CASE("virtual blocks take no memory, however large", "[shapes_only]") {
  auto& memory = counted();
  const auto before = memory.allocated_bytes();
  const auto resident = resident_bytes();
  const ShapesOnly shapes_only;
  constexpr std::int64_t kRows = 5'000'000, kWidth = 10'000;
  const auto large = at::zeros({kRows, kWidth});
  const auto sum = (large + at::randn({kWidth})) * 2;
  CHECK(memory.allocated_bytes() - before == 2 * 4 * kRows * kWidth);
  CHECK(resident_bytes() - resident < 100'000'000);
  CHECK(at::mm(large, at::ones({kWidth, 3})).sizes() == at::IntArrayRef({kRows, 3}));
}

TEST_CASE("weights in 8 bits take no memory, and a large product in bf16 is measured on a part of it",
          "[shapes_only]") {
  namespace detail = looptorch::detail;
  counted();
  const auto resident = resident_bytes();
  const ShapesOnly shapes_only;
  constexpr std::int64_t kWidth = 200'000;
  const at::Tensor weight = at::zeros({kWidth, kWidth}, at::kBFloat16);
  const auto rows = detail::to_int8(weight, at::ones({kWidth}));
  const auto y = detail::int8_linear(at::zeros({kWidth, kWidth}, at::kBFloat16), rows, {});
  CHECK(rows.rows_NK.scalar_type() == at::kChar);
  CHECK(y.sizes() == at::IntArrayRef({kWidth, kWidth}));
  CHECK(resident_bytes() - resident < 100'000'000);
}

TEST_CASE("indices that kernels compute from meaningless numbers are zeros, and take no memory either",
          "[shapes_only]") {
  auto& memory = counted();
  const auto resident = resident_bytes();
  const ShapesOnly shapes_only;
  constexpr std::int64_t kRows = 500'000, kWidth = 1000;
  const at::Tensor x = at::randn({kRows, kWidth});
  const auto before = memory.allocated_bytes();
  const auto [values, places] = at::topk(x, 300);
  CHECK(memory.allocated_bytes() - before == 12 * 300 * kRows);
  CHECK(places[kRows / 2].eq(0).all().item<bool>());
  const at::Tensor mask = x > 0;
  CHECK(memory.allocated_bytes() - before == 12 * 300 * kRows + kWidth * kRows);
  CHECK_FALSE(mask[kRows / 2].any().item<bool>());
  CHECK(resident_bytes() - resident < 100'000'000);
}

TEST_CASE("a count or a choice by meaningless numbers ends", "[shapes_only]") {
  counted();
  const ShapesOnly shapes_only;
  const at::Tensor x = at::randn({400, 512}), mask = x > 0;
  CHECK(x.masked_select(mask).numel() == 0);
  CHECK(x.index({mask}).numel() == 0);
  CHECK(x.nonzero().size(1) == 2);
  CHECK(mask.nonzero().sizes() == at::IntArrayRef({0, 2}));
  CHECK(x.masked_scatter(mask, at::ones({400 * 512})).sizes() == x.sizes());
  CHECK(x.index_put({mask}, at::zeros({})).sizes() == x.sizes());
  CHECK(std::get<0>(x.mode(1)).size(0) == 400);
  CHECK(std::get<0>(x.kthvalue(3, 1)).size(0) == 400);
  CHECK(at::bucketize(x, at::arange(5.0)).sizes() == x.sizes());
  const at::Tensor codes = at::cdist(at::randn({40'000, 4}), at::randn({16, 4})).argmin(1);
  CHECK(at::embedding(at::randn({16, 4}), codes).sizes() == at::IntArrayRef({40'000, 4}));
  CHECK(at::one_hot(codes, 16).sizes() == at::IntArrayRef({40'000, 16}));
  const at::Tensor narrow = at::randn({200, 200});  // whose mask takes a small block
  std::fill_n(narrow.mutable_data_ptr<float>(), narrow.numel(), 3.0F);
  CHECK(narrow.index({narrow > 0}).numel() == 0);
  CHECK(at::arange(200'000).ge(0).all().item<bool>());  // real numbers
  CHECK(at::bernoulli(x).sizes() == x.sizes());
  CHECK(at::multinomial(x, 3).sizes() == at::IntArrayRef({400, 3}));
  CHECK(at::multinomial(x, 600, /*replacement=*/true).sizes() == at::IntArrayRef({400, 600}));
  CHECK(at::binary_cross_entropy(x, x, {}, at::Reduction::None).sizes() == x.sizes());
  CHECK(at::equal(x, x));  // by which an attention knows that it is to itself
  CHECK_FALSE(at::equal(x, at::randn({400, 512})));
  const at::Tensor square = at::randn({300, 300});
  CHECK(at::linalg_inv(square).sizes() == square.sizes());
  CHECK(at::linalg_cholesky(at::mm(square, square.t())).sizes() == square.sizes());
  CHECK(at::linalg_inv(at::mm(at::randn({30, 9000}), at::randn({9000, 30}))).size(0) == 30);
}

TEST_CASE("small tensors are computed, and all of them afterwards", "[shapes_only]") {
  counted();
  const auto product = [] { return at::mm(at::full({300, 300}, 2.0), at::full({300, 300}, 3.0)); };
  {
    const ShapesOnly shapes_only;
    CHECK(at::arange(10).sum().item<std::int64_t>() == 45);
    CHECK(at::full({2, 3}, 2.0).mm(at::full({3, 2}, 3.0)).sum().item<double>() == 72);
    CHECK(product().sizes() == at::IntArrayRef({300, 300}));
  }
  CHECK(product().eq(1800).all().item<bool>());
}

TEST_CASE("an accelerator's dropout keeps a byte a number, and its backward takes a gradient alone",
          "[shapes_only]") {
  const auto dropped = [](const at::Tensor& x) { return at::dropout(x, 0.1, true); };
  const std::int64_t rows = GENERATE(4, 400);  // in a real block, and in a virtual one
  const std::int64_t numbers = in_blocks(4 * 512 * rows), mask = in_blocks(512 * rows);
  {
    const ShapesOnly shapes_only(looptorch::ShapesOf::accelerator);
    const auto x = trained({rows, 512}), kept = dropped(x);
    CHECK(device_bytes([&] { return dropped(x); }).held == numbers + mask);
    const auto gradient = at::ones_like(kept);
    CHECK(device_bytes([&] { return torch::autograd::grad({kept}, {x}, {gradient}); }).peak == numbers);
    CHECK(at::dropout(x, 0.1, false).is_same(x));
  }
  auto& memory = counted();
  const auto x = trained({rows, 512});
  const auto before = memory.allocated_bytes();
  const auto result = dropped(x);
  CHECK(memory.allocated_bytes() - before == 2 * numbers);
}

TEST_CASE(
    "on an accelerator only results are there: no numbers of the host, no copies that a CPU's kernel makes",
    "[shapes_only]") {
  const ShapesOnly shapes_only(looptorch::ShapesOf::accelerator);
  const auto x = at::ones({3}), narrow = at::ones({3}, at::kBFloat16);
  const auto wide = at::ones({400, 512}), narrow_one = at::ones({400, 512}, at::kBFloat16);
  const auto peak = [](const auto& work) { return device_bytes(work).peak; };
  CHECK(peak([&] { return x * 2; }) == 512);
  CHECK(peak([&] { return x + narrow; }) == 512);
  CHECK(peak([&] { return wide + narrow_one; }) == in_blocks(4 * 400 * 512));
  CHECK(peak([&] { return at::empty({3}).add_(x); }) == 512);
  CHECK(peak([&] { return x.view({3, 1}); }) == 0);
  const auto numbers = std::int64_t{400} * 512;
  CHECK(peak([&] { return wide * wide.gt(0); }) == in_blocks(4 * numbers) + in_blocks(numbers));
  CHECK(peak([&] { return narrow_one.mean(0); }) == in_blocks(2 * 512));
  CHECK(peak([&] { return narrow_one.sum(0, false, at::kFloat); }) == in_blocks(4 * 512));
  const auto mask = wide.gt(0);
  CHECK(peak([&] { return mask.sum(0); }) == in_blocks(8 * 512) + in_blocks(8 * numbers));  // as integers
  CHECK(peak([&] { return at::_foreach_mul({x, narrow}, 2); }) == 2 * 512);
  CHECK(peak([] { return at::scalar_tensor(2.0, at::kDouble); }) == 0);  // a tensor of the host
  CHECK(peak([] { return at::scalar_tensor(2.0, at::TensorOptions(at::kDouble).device(at::kCPU)); }) == 512);
  CHECK(peak([] { return at::globalContext().defaultGenerator(at::kCPU).get_state(); }) == 0);
}

TEST_CASE("on an accelerator the loop's numbers stay unread", "[shapes_only]") {
  const auto number = at::ones({});
  CHECK(looptorch::Quantity(number).is_known());
  const ShapesOnly shapes_only(looptorch::ShapesOf::accelerator);
  CHECK_FALSE(looptorch::Quantity(number).is_known());
  looptorch::RunningMean mean;
  mean.add(number, 2.0);
  CHECK(mean.device_sum().defined());
  CHECK_FALSE(looptorch::computes_on_cpu(at::Device(at::kCPU)));
}

TEST_CASE("on an accelerator autocast runs norms and softmax in fp32, on a CPU in 16 bits", "[shapes_only]") {
  const auto types = [] {
    const looptorch::AutocastScope autocast(at::kCPU, at::kBFloat16);
    const auto x = at::ones({400, 512}, at::kBFloat16);
    return std::vector{at::layer_norm(x, {512}).scalar_type(), at::softmax(x, -1).scalar_type(),
                       at::sum(x, -1).scalar_type(),           at::pow(x, 2).scalar_type(),
                       at::mm(x, x.t()).scalar_type(),         at::relu(x).scalar_type()};
  };
  const std::vector<at::ScalarType> on_cpu(6, at::kBFloat16);
  CHECK(types() == on_cpu);
  {
    const ShapesOnly shapes_only(looptorch::ShapesOf::accelerator);
    CHECK(types() ==
          std::vector{at::kFloat, at::kFloat, at::kFloat, at::kFloat, at::kBFloat16, at::kBFloat16});
  }
  const ShapesOnly shapes_only;
  CHECK(types() == on_cpu);
}

TEST_CASE("CUDA's kernels are looptorch's own, which compute nothing and take no memory beside their results",
          "[shapes_only]") {
  constexpr std::int64_t kFrames = 100, kClips = 8, kLabels = 30;
  const auto ctc = [] {
    const auto log_probs = at::log_softmax(at::ones({kFrames, kClips, 40}), -1).requires_grad_();
    const auto targets = at::ones({kClips, kLabels}, at::kLong),
               frames = at::full({kClips}, kFrames, at::kLong),
               labels = at::full({kClips}, kLabels, at::kLong);
    return device_bytes([&] { return looptorch::ctc_loss(log_probs, targets, frames, labels); });
  };
  const auto adafactor = [] {
    const auto weight = trained({3000, 1000});
    weight.mutable_grad() = at::ones_like(weight);
    looptorch::Adafactor optimizer({weight});
    optimizer.step();
    return device_bytes([&] {
      optimizer.step();
      return 0;
    });
  };
  CHECK(looptorch::computes_on_cpu(at::ones({1})));
  const auto without = [&] {
    const ShapesOnly shapes_only(looptorch::ShapesOf::accelerator);
    CHECK_FALSE(looptorch::computes_on_cpu(at::ones({1})));
    return std::pair(ctc().peak, adafactor().peak);
  }();
  const ShapesOnly shapes_only(looptorch::ShapesOf::cuda);
  const auto paths = in_blocks(4 * kFrames * kClips * (2 * kLabels + 1));
  CHECK(ctc().held == paths + 2 * 512);
  CHECK(ctc().peak < without.first);
  CHECK(adafactor().peak < without.second);
  CHECK(looptorch::shapes_of(at::kCPU) == looptorch::ShapesOf::cpu);
  CHECK(looptorch::shapes_of(at::kCUDA) == looptorch::ShapesOf::cuda);
  CHECK(looptorch::shapes_of(at::kXPU) == looptorch::ShapesOf::accelerator);
}
