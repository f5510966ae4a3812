// SPDX-License-Identifier: MIT
// Byte-pair encoding (Sennrich et al. 2016) of one piece of text: repeatedly merges two neighbouring tokens,
// of all pairs the one whose merge was learnt first (of equal pairs the leftmost), until no pair can be
// merged. Scans an array on the stack for a short piece, such as a word, and uses a queue for a long one, in
// O(n log n).
#pragma once

#include <looptorch/base/hash/keyed_hash.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace whisper {

/// Learnt merges, by the ids of the two tokens, which must lie in [0, 2^31).
class MergeTable {
 public:
  struct Merge {
    std::int32_t rank, token;
  };

  /// Reserves room for `merges` merges without another allocation.
  void reserve(std::size_t merges);

  /// Adds a merge. If a pair is added twice, the last rank counts, as in `tokenizers`.
  void add(std::int64_t left, std::int64_t right, Merge merge);

  /// Returns the pair's merge, or one of rank `kNoMerge` if it was not learnt.
  [[nodiscard]] Merge find(std::int64_t left, std::int64_t right) const {
    return slots_[position(pair_of(left, right))].merge;
  }

  /// Merges the tokens from `begin` on until no two neighbours can be merged.
  void apply(std::vector<std::int64_t>& tokens, std::size_t begin = 0) const;

  static constexpr std::int32_t kNoMerge = std::numeric_limits<std::int32_t>::max();

 private:
  /// Marks a free slot: no pair has two ids of the largest value.
  static constexpr std::uint64_t kFree = std::numeric_limits<std::uint64_t>::max();

  struct Slot {
    std::uint64_t pair = kFree;
    Merge merge{kNoMerge, -1};
  };

  static std::uint64_t pair_of(std::int64_t left, std::int64_t right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint64_t>(right);
  }

  /// Returns the index of the pair's slot, or of the free slot for it.
  [[nodiscard]] std::size_t position(std::uint64_t pair) const {
    const auto mask = slots_.size() - 1;
    auto slot = looptorch::keyed_hash(pair) & mask;
    while (slots_[slot].pair != pair && slots_[slot].pair != kFree) slot = (slot + 1) & mask;
    return slot;
  }

  void resize(std::size_t slots);

  std::vector<Slot> slots_ = std::vector<Slot>(2);  ///< Open addressing; a power of two, at most half full.
  std::size_t size_ = 0;
};

namespace detail {

/// Up to this many tokens a scan beats the queue.
inline constexpr std::size_t kScanLimit = 48;

/// Merges at most kScanLimit tokens and returns how many remain.
inline std::size_t merge_by_scan(const MergeTable& table, std::int64_t* tokens, std::size_t size) {
  std::array<MergeTable::Merge, kScanLimit> merges;  // merges[i] joins tokens i and i + 1
  for (std::size_t i = 0; i + 1 < size; ++i) merges[i] = table.find(tokens[i], tokens[i + 1]);
  while (size > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < size; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNoMerge) break;
    tokens[best] = merges[best].token;
    --size;
    for (std::size_t i = best + 1; i < size; ++i) {
      tokens[i] = tokens[i + 1];
      merges[i - 1] = merges[i];
    }
    if (best + 1 < size) merges[best] = table.find(tokens[best], tokens[best + 1]);
    if (best > 0) merges[best - 1] = table.find(tokens[best - 1], tokens[best]);
  }
  return size;
}

/// The tokens of a piece as a linked list in an array, and the merges that its neighbours allow.
class MergeQueue {
 public:
  MergeQueue(const MergeTable& table, const std::int64_t* tokens, std::size_t size)
      : table_(table), nodes_(size) {
    for (std::size_t i = 0; i < size; ++i) nodes_[i] = {tokens[i], i - 1, i + 1};
    for (std::size_t i = 0; i + 1 < size; ++i) offer(i);
  }

  void run() {
    while (!queue_.empty()) {
      const auto best = queue_.top();
      queue_.pop();
      if (is_current(best)) merge(best);
    }
  }

  /// Writes the remaining tokens and returns their number.
  std::size_t write(std::int64_t* tokens) const {
    std::size_t size = 0;
    for (std::size_t i = 0; i < nodes_.size(); i = nodes_[i].next) tokens[size++] = nodes_[i].token;
    return size;
  }

 private:
  struct Node {
    std::int64_t token;
    std::size_t previous, next;  ///< Beyond the array at the ends.
  };

  /// A merge of two neighbours, as they were when it was found.
  struct Candidate {
    MergeTable::Merge merge;
    std::size_t left;
    std::int64_t left_token, right_token;

    /// Orders candidates for std::priority_queue, which takes the greatest first.
    bool operator<(const Candidate& other) const {
      return std::pair(merge.rank, left) > std::pair(other.merge.rank, other.left);
    }
  };

  static constexpr std::int64_t kGone = -1;

  void offer(std::size_t left) {
    const auto right = nodes_[left].next;
    if (right >= nodes_.size()) return;
    const auto left_token = nodes_[left].token, right_token = nodes_[right].token;
    const auto merge = table_.find(left_token, right_token);
    if (merge.rank != MergeTable::kNoMerge) queue_.push({merge, left, left_token, right_token});
  }

  [[nodiscard]] bool is_current(const Candidate& candidate) const {
    const auto& left = nodes_[candidate.left];
    return left.token == candidate.left_token && left.next < nodes_.size() &&
           nodes_[left.next].token == candidate.right_token;
  }

  void merge(const Candidate& candidate) {
    auto& left = nodes_[candidate.left];
    auto& right = nodes_[left.next];
    left.token = candidate.merge.token;
    left.next = right.next;
    right.token = kGone;
    if (left.next < nodes_.size()) nodes_[left.next].previous = candidate.left;
    if (left.previous < nodes_.size()) offer(left.previous);
    offer(candidate.left);
  }

  const MergeTable& table_;
  std::vector<Node> nodes_;
  std::priority_queue<Candidate> queue_;
};

inline std::size_t merge_by_queue(const MergeTable& table, std::int64_t* tokens, std::size_t size) {
  MergeQueue queue(table, tokens, size);
  queue.run();
  return queue.write(tokens);
}

}  // namespace detail

inline void MergeTable::reserve(std::size_t merges) {
  auto slots = slots_.size();
  while (slots < 2 * merges) slots *= 2;
  if (slots > slots_.size()) resize(slots);
}

inline void MergeTable::resize(std::size_t slots) {
  const auto old = std::exchange(slots_, std::vector<Slot>(slots));
  for (const auto& slot : old) {
    if (slot.pair != kFree) slots_[position(slot.pair)] = slot;
  }
}

inline void MergeTable::add(std::int64_t left, std::int64_t right, Merge merge) {
  reserve(size_ + 1);
  auto& slot = slots_[position(pair_of(left, right))];
  if (slot.pair == kFree) ++size_;
  slot = {pair_of(left, right), merge};
}

inline void MergeTable::apply(std::vector<std::int64_t>& tokens, std::size_t begin) const {
  const auto size = tokens.size() - begin;
  auto* first = tokens.data() + begin;
  const auto left = size <= detail::kScanLimit ? detail::merge_by_scan(*this, first, size)
                                               : detail::merge_by_queue(*this, first, size);
  tokens.resize(begin + left);
}

}  // namespace whisper
