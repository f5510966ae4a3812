// SPDX-License-Identifier: MIT
// Byte-pair encoding (Sennrich et al. 2016) of one piece of text: the pair of neighbours that was learnt
// first is merged first, of equal pairs the leftmost. O(n log n) by a queue over a linked list, so that a
// long run of one character costs no more than prose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace whisper {

/// Learnt merges, by the ids of the two tokens.
class MergeTable {
 public:
  struct Merge {
    std::int64_t rank, token;
  };

  void reserve(std::size_t merges) { merges_.reserve(merges); }

  /// Of a pair that is listed twice the last rank counts, as in `tokenizers`.
  void add(std::int64_t left, std::int64_t right, Merge merge) { merges_[key(left, right)] = merge; }

  [[nodiscard]] const Merge* find(std::int64_t left, std::int64_t right) const {
    const auto found = merges_.find(key(left, right));
    return found == merges_.end() ? nullptr : &found->second;
  }

  /// Merges `tokens` until no two neighbours can be merged.
  void apply(std::vector<std::int64_t>& tokens) const;

 private:
  static std::uint64_t key(std::int64_t left, std::int64_t right) {
    return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint64_t>(right);
  }

  std::unordered_map<std::uint64_t, Merge> merges_;
};

namespace detail {

/// The tokens of a piece as a linked list in an array, and the merges that its neighbours allow.
class MergeQueue {
 public:
  MergeQueue(const MergeTable& table, const std::vector<std::int64_t>& tokens)
      : table_(table), nodes_(tokens.size()) {
    for (std::size_t i = 0; i < tokens.size(); ++i) nodes_[i] = {tokens[i], i - 1, i + 1};
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) offer(i);
  }

  void run() {
    while (!queue_.empty()) {
      const auto best = queue_.top();
      queue_.pop();
      if (is_current(best)) merge(best);
    }
  }

  void write(std::vector<std::int64_t>& tokens) const {
    tokens.clear();
    for (std::size_t i = 0; i < nodes_.size(); i = nodes_[i].next) tokens.push_back(nodes_[i].token);
  }

 private:
  struct Node {
    std::int64_t token;
    std::size_t previous, next;  ///< Beyond the array at the ends.
  };

  /// A merge of two neighbours as they were when it was found.
  struct Candidate {
    std::int64_t rank;
    std::size_t left;
    std::int64_t left_token, right_token, merged;

    /// For std::priority_queue, which takes the greatest first.
    bool operator<(const Candidate& other) const {
      return std::pair(rank, left) > std::pair(other.rank, other.left);
    }
  };

  static constexpr std::int64_t kGone = -1;

  void offer(std::size_t left) {
    const auto right = nodes_[left].next;
    if (right >= nodes_.size()) return;
    const auto left_token = nodes_[left].token, right_token = nodes_[right].token;
    if (const auto* merge = table_.find(left_token, right_token)) {
      queue_.push({merge->rank, left, left_token, right_token, merge->token});
    }
  }

  [[nodiscard]] bool is_current(const Candidate& candidate) const {
    const auto& left = nodes_[candidate.left];
    return left.token == candidate.left_token && left.next < nodes_.size() &&
           nodes_[left.next].token == candidate.right_token;
  }

  void merge(const Candidate& candidate) {
    auto& left = nodes_[candidate.left];
    auto& right = nodes_[left.next];
    left.token = candidate.merged;
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

}  // namespace detail

inline void MergeTable::apply(std::vector<std::int64_t>& tokens) const {
  if (tokens.size() < 2) return;
  detail::MergeQueue queue(*this, tokens);
  queue.run();
  queue.write(tokens);
}

}  // namespace whisper
