// SPDX-License-Identifier: MIT
// Runs the step of one token, from the decoder to the chosen tokens, as a CUDA graph: one launch and a copy
// each way instead of some hundred launches. Use it on a GPU, which computes these kernels faster than the
// host issues them. The prompt runs eagerly.
//
// Shapes: C clips, R rows (unfinished texts, the same number for each clip), N keys and values of all layers,
// H heads, P positions, S encoder positions, D width of the model, d = D / H.
#pragma once

#include <looptorch/graph/captured_call.hpp>

#include "../model/decoder.hpp"
#include "token_choice.hpp"
#include "token_search.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace whisper {

/// Decodes tokens by graphs. There is a graph for each combination of choice, number of clips, rows of a
/// clip, and positions; clips and positions are rounded up to powers of two. The memory is that of the
/// largest search so far. Rows of clips that have ended are computed until half of the clips have ended.
class TokenGraphs {
 public:
  /// The model must be on a device with graphs, and its weights must keep their places.
  explicit TokenGraphs(Decoder decoder) : decoder_(std::move(decoder)) {}

  /// Runs the tokens of `step`, whose rows have the inputs `inputs`, and returns on the host what `choice`
  /// chooses next. The first call of a search takes over `cache`, which the prompt filled with a row a clip,
  /// and empties it. Waits for the device once.
  [[nodiscard]] at::Tensor next(const SearchStep& step, const std::vector<RowInputs>& inputs,
                                const TokenChoice& choice, DecoderCache& cache) {
    const auto from = cache.layers.empty() ? follow(step) : std::vector<int64_t>();
    if (!cache.layers.empty()) begin(step, cache);
    std::vector<RowInputs> all(index(rows()));
    std::vector<int64_t> live;
    for (const auto& row : inputs) {
      live.push_back(row_of(std::ssize(live)));
      all[index(live.back())] = row;
    }
    for (std::size_t row = 0; row < from.size(); ++row) all[row].parent = from[row];
    all[0].position = length_;
    const auto inputs_here = slots();
    inputs_here.rows_R7.copy_(StepInputs::view(all), /*non_blocking=*/true);
    if (!from.empty()) {
      const auto held = cache_.self_NRHPd.narrow(3, 0, length_);
      held.narrow(1, 0, rows()).copy_(held.index_select(1, inputs_here.parents_R()));
    }
    ++length_;
    Graph& graph = graph_here(choice);
    graph.call.replay();
    const auto chosen = graph.chosen.cpu();
    return std::ssize(live) < rows() ? chosen.index_select(0, at::tensor(live)) : chosen;
  }

  /// Returns how many graphs there are.
  [[nodiscard]] std::size_t size() const { return graphs_.size(); }

 private:
  struct Graph {
    looptorch::CapturedCall call;
    TokenChoice choice;  // whose memory the graph reads
    at::Tensor chosen;
  };

  [[nodiscard]] static std::size_t index(int64_t number) { return static_cast<std::size_t>(number); }
  [[nodiscard]] static int64_t power_above(std::size_t number) {
    return static_cast<int64_t>(std::bit_ceil(number));
  }

  [[nodiscard]] int64_t rows() const { return clips_ * width_; }
  /// Returns the row in memory of a row of the search.
  [[nodiscard]] int64_t row_of(int64_t row) const {
    return places_[index(row / width_)] * width_ + row % width_;
  }

  // ---- Where rows lie ----

  void begin(const SearchStep& step, DecoderCache& cache) {
    clips_ = power_above(step.clips.size());
    width_ = std::ssize(step.tokens) / std::ssize(step.clips);
    length_ = cache.length();
    auto clips = step.clips, parents = step.parents;
    clips.resize(index(clips_), clips.front()), parents.resize(index(rows()), parents.front());
    reserve(cache.layers.front());
    cache_.self_NRHPd.zero_();  // later positions get the weight 0, and 0 times NaN is NaN
    const auto clips_C = on_device(clips), rows_R = on_device(parents);
    const auto fill = [](const at::Tensor& to, const at::Tensor& from, const at::Tensor& taken) {
      to.narrow(0, 0, taken.numel()).narrow(2, 0, from.size(2)).copy_(from.index_select(0, taken));
    };
    for (std::size_t i = 0; i < cache.layers.size(); ++i) {
      const auto self = cache_.self(static_cast<int64_t>(i)), cross = cache_.cross(static_cast<int64_t>(i));
      const auto prompt = cache.layers[i].self.view();
      fill(self.keys, prompt.keys, rows_R), fill(self.values, prompt.values, rows_R);
      fill(cross.keys, cache.layers[i].cross.keys, clips_C);
      fill(cross.values, cache.layers[i].cross.values, clips_C);
      cache.layers[i] = {};
    }
    cache.layers.clear();
    place(step.clips.size());
  }

  /// Moves the rows that continue to the first half of the places once half of them suffice. Returns for each
  /// row in memory the row that it continues, or an empty list if all stay.
  std::vector<int64_t> follow(const SearchStep& step) {
    const auto fewest = power_above(step.clips.size()), before = rows();
    const bool shrinks = fewest < clips_;
    std::vector<int64_t> parents, clips;
    for (const auto parent : step.parents) parents.push_back(row_of(parent));
    for (const auto clip : step.clips) clips.push_back(places_[index(clip)]);
    if (shrinks) {
      clips_ = fewest;
      place(clips.size());
      clips.resize(index(clips_), clips.front());
      const auto taken = cache_.cross_NCHSd.index_select(1, on_device(clips));
      cache_.cross_NCHSd.narrow(1, 0, clips_).copy_(taken);
    } else if (clips.size() < places_.size()) {
      places_ = std::move(clips);
    }
    std::vector<int64_t> from(index(rows()));
    std::iota(from.begin(), from.end(), int64_t{0});
    for (std::size_t row = 0; row < parents.size(); ++row)
      from[index(row_of(static_cast<int64_t>(row)))] = parents[row];
    if (detail::counts_up(from, before)) from.clear();
    return from;
  }

  /// Gives the first `count` places to clips.
  void place(std::size_t count) {
    places_.resize(count);
    std::iota(places_.begin(), places_.end(), int64_t{0});
  }

  // ---- Memory and graphs ----

  /// Makes room for `layer`'s keys and values, for the current number of rows and clips.
  void reserve(const LayerCache& layer) {
    const auto cross = layer.cross.keys;
    auto& [self_NRHPd, cross_NCHSd] = cache_;
    const bool fits = self_NRHPd.defined() && self_NRHPd.size(1) >= rows() && cross_NCHSd.size(1) >= clips_ &&
                      cross_NCHSd.size(3) == cross.size(2) &&
                      self_NRHPd.options().type_equal(cross.options());
    if (fits) return;
    const auto old_rows = self_NRHPd.defined() ? self_NRHPd.size(1) : 0;
    const auto old_clips = cross_NCHSd.defined() ? cross_NCHSd.size(1) : 0;
    const auto of_layers = 2 * decoder_->depth(), heads = cross.size(1), d = cross.size(3);
    graphs_.clear();
    cache_ = {};
    const auto most = std::max(old_rows, rows());
    cache_.self_NRHPd = at::empty({of_layers, most, heads, decoder_->positions(), d}, cross.options());
    cache_.cross_NCHSd =
        at::empty({of_layers, std::max(old_clips, clips_), heads, cross.size(2), d}, cross.options());
    inputs_R7_ = at::zeros({most, StepInputs::kFields}, cross.options().dtype(at::kLong));
  }

  [[nodiscard]] at::Tensor on_device(const std::vector<int64_t>& numbers) const {
    return ScoreRules::ids(numbers, cache_.self_NRHPd.device());
  }

  /// Returns the memory for the inputs of the rows in use.
  [[nodiscard]] StepInputs slots() const { return {inputs_R7_.narrow(0, 0, rows())}; }

  /// Returns the graph for the current number of clips, rows and positions; captures it if there is none.
  Graph& graph_here(const TokenChoice& choice) {
    constexpr int64_t kFewestPositions = 64;
    const auto wanted = std::max(kFewestPositions, power_above(index(length_)));
    const auto positions = std::min(wanted, decoder_->positions());
    const auto* neighbour = graphs_.empty() ? nullptr : &graphs_.begin()->second.call;
    std::vector<int64_t> key{clips_, width_, positions};
    key.insert(key.end(), choice.key().begin(), choice.key().end());
    if (const auto found = graphs_.find(key); found != graphs_.end()) return found->second;
    at::Tensor chosen;
    const auto step = [&] {
      const FixedCache cache{cache_.self_NRHPd.narrow(1, 0, rows()).narrow(3, 0, positions),
                             cache_.cross_NCHSd.narrow(1, 0, clips_)};
      const auto inputs = slots();
      const auto states_RD = decoder_->extend_at(inputs.tokens_R1(), inputs.position_1(), cache).select(1, 0);
      chosen = choice(decoder_->logits(states_RD).to(at::kFloat), inputs);
    };
    step();  // loads kernels, which a capture must not do; the replay computes the same again
    looptorch::CapturedCall call(inputs_R7_.device(), step, neighbour);
    return graphs_.emplace(std::move(key), Graph{std::move(call), choice, chosen}).first->second;
  }

  Decoder decoder_;
  FixedCache cache_;
  at::Tensor inputs_R7_;           // StepInputs of the memory's rows
  int64_t clips_ = 0, width_ = 0;  // size of the memory in use
  int64_t length_ = 0;             // positions held
  std::vector<int64_t> places_;    // by clip of the search: its place in memory
  std::map<std::vector<int64_t>, Graph> graphs_;
};

}  // namespace whisper
