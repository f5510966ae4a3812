// SPDX-License-Identifier: MIT
// Computes how many bits a text takes when deflate (RFC 1951) encodes it. Needs only the number of times that
// each literal and match occurs, which deflate_size.hpp counts. Uses deflate's fixed Huffman code or the one
// that zlib would build for the text, whichever is shorter. Where several codes encode the text equally well,
// takes zlib's, since the codes' own descriptions may differ in length.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace whisper::detail {

/// Builds zlib's Huffman code for counted symbols.
class CodeBuilder {
 public:
  /// No code is longer than `longest` bits. At least two symbols get a code.
  CodeBuilder(std::span<const std::int64_t> frequencies, int longest)
      : symbols_(static_cast<int>(frequencies.size())), longest_(longest) {
    for (const auto frequency : frequencies) {
      if (frequency > 0) heap_.push_back(static_cast<int>(nodes_.size()));
      nodes_.push_back({frequency, 0, -1, 0});
    }
    add_missing();
    for (auto at = heap_.size() / 2; at-- > 0;) sink(at);
  }

  /// Returns the code length of each symbol, 0 for those without a code. Call it once.
  std::vector<int> lengths() {
    while (heap_.size() > 1) join_rarest();
    taken_.push_back(heap_.front());
    std::vector<int> count(static_cast<std::size_t>(longest_) + 1);
    if (const int overflow = set_lengths(count); overflow > 0) shorten(count, overflow);
    std::vector<int> lengths;
    for (int symbol = 0; symbol < symbols_; ++symbol) lengths.push_back(node(symbol).length);
    return lengths;
  }

 private:
  struct Node {
    std::int64_t frequency;
    int depth, parent, length;
  };

  Node& node(int index) { return nodes_[static_cast<std::size_t>(index)]; }

  void add_missing() {
    for (int last = heap_.empty() ? -1 : heap_.back(); heap_.size() < 2;) {
      const int symbol = last < 2 ? ++last : 0;
      node(symbol).frequency = 1;
      heap_.push_back(symbol);
    }
  }

  bool smaller(int a, int b) {
    return node(a).frequency < node(b).frequency ||
           (node(a).frequency == node(b).frequency && node(a).depth <= node(b).depth);
  }

  /// Moves the node at a place of the heap below all smaller ones.
  void sink(std::size_t at) {
    const int moved = heap_[at];
    for (std::size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && smaller(heap_[child + 1], heap_[child])) ++child;
      if (smaller(moved, heap_[child])) break;
      heap_[at] = heap_[child];
      at = child;
    }
    heap_[at] = moved;
  }

  void join_rarest() {
    const int first = heap_.front();
    heap_.front() = heap_.back();
    heap_.pop_back();
    sink(0);
    const int second = heap_.front(), parent = static_cast<int>(nodes_.size());
    taken_.insert(taken_.end(), {first, second});
    nodes_.push_back({node(first).frequency + node(second).frequency,
                      std::max(node(first).depth, node(second).depth) + 1, -1, 0});
    node(first).parent = node(second).parent = parent;
    heap_.front() = parent;
    sink(0);
  }

  /// Sets the nodes' lengths from the root down and counts the codes of each; returns how many nodes lie too
  /// deep.
  int set_lengths(std::vector<int>& count) {
    int overflow = 0;
    for (auto it = taken_.rbegin() + 1; it != taken_.rend(); ++it) {
      auto& length = node(*it).length;
      length = node(node(*it).parent).length + 1;
      if (length > longest_) length = longest_, ++overflow;
      if (*it < symbols_) ++count[static_cast<std::size_t>(length)];
    }
    return overflow;
  }

  /// Makes room for codes that are too long and reassigns the lengths, the longest to the rarest.
  void shorten(std::vector<int>& count, int overflow) {
    for (; overflow > 0; overflow -= 2) {
      auto length = static_cast<std::size_t>(longest_) - 1;
      while (count[length] == 0) --length;
      --count[length], count[length + 1] += 2, --count.back();
    }
    auto it = taken_.begin();
    for (int length = longest_; length > 0; --length) {
      for (int left = count[static_cast<std::size_t>(length)]; left > 0; ++it) {
        if (*it >= symbols_) continue;
        node(*it).length = length;
        --left;
      }
    }
  }

  int symbols_, longest_;
  std::vector<Node> nodes_;
  std::vector<int> heap_, taken_;  // taken_: all nodes, the rarest first
};

/// Counts the symbols by which a deflate block describes the lengths of its own codes: runs of equal lengths.
inline void count_description(std::vector<int> lengths, std::array<std::int64_t, 19>& counts) {
  while (lengths.size() > 1 && lengths.back() == 0) lengths.pop_back();
  int last = -1;
  for (std::size_t at = 0; at < lengths.size();) {
    const int length = lengths[at];
    const bool is_new = length != 0 && length != last;
    const std::size_t most = length == 0 ? 138 : is_new ? 7 : 6, least = is_new ? 4 : 3;
    std::size_t run = 1;
    while (run < most && at + run < lengths.size() && lengths[at + run] == length) ++run;
    at += run;
    if (run < least) {
      counts[static_cast<std::size_t>(length)] += static_cast<std::int64_t>(run);
    } else if (length != 0) {
      if (length != last) ++counts[static_cast<std::size_t>(length)];
      ++counts[16];
    } else {
      ++counts[run <= 10 ? 17 : 18];
    }
    last = length;
  }
}

/// The literals and repeats of a block, counted by deflate's symbols.
class DeflateCounts {
 public:
  DeflateCounts() { literals_[256] = 1; }  // the end of the block

  void add_literal(std::uint8_t byte) { ++literals_[byte]; }

  /// `length` is 3 to 258, `distance` 1 to 32768.
  void add_repeat(std::size_t length, std::size_t distance) {
    const auto [symbol, extra] = length == 258 ? std::pair<std::size_t, int>{28, 0} : bucket(length - 3, 2);
    const auto [distance_symbol, distance_extra] = bucket(distance - 1, 1);
    ++literals_[257 + symbol], ++distances_[distance_symbol];
    extra_bits_ += extra + distance_extra;
  }

  /// Returns the size of the block in bits, with its header.
  [[nodiscard]] std::size_t bits() const {
    const auto fixed = total(literals_, fixed_lengths()) + total(distances_, std::vector<int>(30, 5));
    return static_cast<std::size_t>(3 + extra_bits_ + std::min(fixed, built_bits()));
  }

 private:
  /// Returns deflate's symbol of a length or distance, counted from 0, and its number of extra bits.
  static std::pair<std::size_t, int> bucket(std::size_t value, int fine_bits) {
    int extra = 0;
    while ((value >> extra) >= (std::size_t{2} << fine_bits)) ++extra;
    return {(static_cast<std::size_t>(extra) << fine_bits) + (value >> extra), extra};
  }

  static std::vector<int> fixed_lengths() {
    std::vector<int> lengths(286, 8);
    std::fill(lengths.begin() + 144, lengths.begin() + 256, 9);
    std::fill(lengths.begin() + 256, lengths.begin() + 280, 7);
    return lengths;
  }

  static std::int64_t total(std::span<const std::int64_t> counts, std::span<const int> lengths) {
    std::int64_t bits = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) bits += counts[i] * lengths[i];
    return bits;
  }

  [[nodiscard]] std::int64_t built_bits() const {
    constexpr std::array<std::size_t, 19> kOrder{16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                 11, 4,  12, 3, 13, 2, 14, 1, 15};
    const auto literals = CodeBuilder(literals_, 15).lengths(),
               distances = CodeBuilder(distances_, 15).lengths();
    std::array<std::int64_t, 19> counts{};
    count_description(literals, counts);
    count_description(distances, counts);
    const auto lengths = CodeBuilder(counts, 7).lengths();
    std::size_t listed = kOrder.size();
    while (listed > 4 && lengths[kOrder[listed - 1]] == 0) --listed;
    const auto description = total(counts, lengths) + 2 * counts[16] + 3 * counts[17] + 7 * counts[18];
    return 14 + 3 * static_cast<std::int64_t>(listed) + description + total(literals_, literals) +
           total(distances_, distances);
  }

  std::array<std::int64_t, 286> literals_{};
  std::array<std::int64_t, 30> distances_{};
  std::int64_t extra_bits_ = 0;
};

}  // namespace whisper::detail
