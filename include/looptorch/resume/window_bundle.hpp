// SPDX-License-Identifier: MIT
// Saves one window for replay, as a bundle: a snapshot of the run before an update learnt from the window,
// with the window's batches. Like all snapshots, a bundle is written as a whole or not at all, and verified
// when it is read. Its keys in the snapshot's StateDict `state`:
//
//   window.update, window.epoch   number of the update and of the epoch
//   window.pieces, window.ranks   number of pieces of a micro-batch; number of ranks, if several
//   window.total_steps            steps of the fit, if known
//   window.batches                number of batches
//   window.batch.N                batch N (batch_state)
//   window.place.N                number of batch N in the epoch, and its samples
//   window.random.N               random generators before batch N, if micro-batches are seeded
//   window.found.*                the finding when the bundle was written
#pragma once

#include <looptorch/autopsy/finding.hpp>
#include <looptorch/base/device/random_states.hpp>
#include <looptorch/base/error.hpp>
#include <looptorch/base/state_dict.hpp>
#include <looptorch/data/batch/batch_state.hpp>
#include <looptorch/loop/compose/deferred_code.hpp>
#include <looptorch/loop/window_place.hpp>
#include <looptorch/redo/traced_rerun.hpp>
#include <looptorch/resume/take_snapshot.hpp>
#include <looptorch/state/snapshot/snapshot.hpp>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Returns the numbers as a tensor, for a StateDict.
template <class Number>
[[nodiscard]] at::Tensor as_tensor(const std::vector<Number>& numbers, at::ScalarType type) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(numbers.size())}, type);
  std::copy(numbers.begin(), numbers.end(), tensor.mutable_data_ptr<Number>());
  return tensor;
}
template <class Number>
[[nodiscard]] std::vector<Number> as_numbers(const at::Tensor& tensor) {
  const Number* first = tensor.const_data_ptr<Number>();
  return {first, first + tensor.numel()};
}

/// The findings that a bundle records about its window.
struct FoundThen {
  std::string op, text;
  std::vector<double> losses;
  std::int64_t gradient_bits = 0;
  bool bad = false;
};

/// A window that Autopsy keeps, with all that `--replay` needs to run it again.
struct WindowBundle {
  std::size_t update = 0;
  std::int64_t pieces = 1;
  std::int64_t epoch = 0;
  std::optional<std::int64_t> total_steps = {};  // of the fit, for schedules
  FoundThen found = {};
  std::int64_t ranks = 0;  // number of ranks; 0: one process, which needs no weight for a single micro-batch
  std::vector<RandomStates> random = {};  // by batch, of a run whose micro-batches are seeded; or empty
  std::vector<WindowPlace> places = {};   // of the batches
  std::vector<StateDict> batches = {};

  void note(const Finding& finding) {
    found = {finding.op, finding.text(), finding.losses, static_cast<std::int64_t>(finding.gradient_bits),
             finding.is_found()};
  }

  /// Writes the bundle; `contents` is the run as the update's part began.
  std::filesystem::path write(const std::filesystem::path& folder, SnapshotContents contents) const {
    StateDict out;
    out.set("update", update);
    out.set("pieces", pieces);
    out.set("epoch", epoch);
    if (total_steps) out.set("total_steps", *total_steps);
    out.set("batches", batches.size());
    for (std::size_t i = 0; i < batches.size(); ++i) {
      out.set(message("batch.", i), batches[i]);
      out.set(message("place.", i, ".batch"), places[i].first_batch);
      out.set(message("place.", i, ".samples"), as_tensor(places[i].samples, at::kLong));
    }
    if (ranks > 0) out.set("ranks", ranks);
    for (std::size_t i = 0; i < random.size(); ++i) {
      StateDict states;
      random[i].save(states);
      out.set(message("random.", i), states);
    }
    out.set("found.op", found.op);
    out.set("found.text", found.text);
    out.set("found.losses", as_tensor(found.losses, at::kDouble));
    out.set("found.gradient_bits", found.gradient_bits);
    out.set("found.bad", StateDict::Value(found.bad));
    contents.state.set("window", out);
    return write_snapshot(folder, contents);
  }

  /// Extracts the window from a snapshot's state. Throws UsageError if it holds none.
  [[nodiscard]] static WindowBundle take_from(SnapshotContents& contents, const std::string& called) {
    const StateDict in = contents.state.under("window");
    if (in.empty())
      throw UsageError(
          message(called,
                  " is a snapshot without a window: replay() takes what Autopsy or "
                  "SkipBadWindows wrote to its `folder`; resume from a snapshot by FitOptions::resume"));
    StateDict rest;
    for (const auto& [key, value] : contents.state.values())
      if (!key.starts_with("window.")) rest.set(key, value);
    contents.state = std::move(rest);
    WindowBundle bundle{.update = static_cast<std::size_t>(in.get<std::int64_t>("update")),
                        .pieces = in.get<std::int64_t>("pieces"),
                        .epoch = in.get<std::int64_t>("epoch")};
    if (in.contains("total_steps")) bundle.total_steps = in.get<std::int64_t>("total_steps");
    if (in.contains("ranks")) bundle.ranks = in.get<std::int64_t>("ranks");
    bundle.found = {in.get<std::string>("found.op"), in.get<std::string>("found.text"),
                    as_numbers<double>(in.get<at::Tensor>("found.losses")),
                    in.get<std::int64_t>("found.gradient_bits"), in.get<bool>("found.bad")};
    for (std::int64_t i = 0; i < in.get<std::int64_t>("batches"); ++i) {
      bundle.batches.push_back(in.under(message("batch.", i)));
      WindowPlace place{.step = contents.step, .epoch = bundle.epoch};
      place.first_batch = place.last_batch = in.get<std::int64_t>(message("place.", i, ".batch"));
      place.samples = as_numbers<std::int64_t>(in.get<at::Tensor>(message("place.", i, ".samples")));
      bundle.places.push_back(std::move(place));
      if (const StateDict states = in.under(message("random.", i)); !states.empty())
        bundle.random.push_back(RandomStates::loaded(states));
    }
    return bundle;
  }
};

template <class Engine>
struct WindowCode {
  /// Writes update `update`'s part of the window under way, rewound to its beginning; returns the bundle's
  /// path. `random` has its micro-batches' generators, if each is seeded.
  template <class Batch>
  static std::filesystem::path keep(Engine& engine, std::size_t update, const Finding& found,
                                    const std::vector<Batch>& kept, std::int64_t ranks,
                                    std::vector<RandomStates> random, const std::filesystem::path& folder) {
    const WindowOrigin& origin = engine.window().origin;
    WindowBundle bundle{.update = update,
                        .pieces = engine.works()[update].pieces,
                        .epoch = origin.place().epoch,
                        .total_steps = engine.run().progress().total_steps,
                        .ranks = ranks,
                        .random = std::move(random)};
    bundle.note(found);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      bundle.batches.push_back(batch_state(kept[i]));
      bundle.places.push_back(origin.narrowed(i).place());
    }
    return bundle.write(Engine::kUpdates == 1 ? folder : folder / message("update-", update + 1),
                        collect_contents(engine, {}, {}, /*moments=*/!engine.ranks().has_sharded_moments()));
  }
};

}  // namespace looptorch::detail
