// SPDX-License-Identifier: MIT
// Reads Python's pickles, protocols 2 to 5, without running anything in them. Numbers, strings, lists,
// tuples, sets and dictionaries become values. The caller's PickleHost (pickle_value.hpp) decides about
// everything that a pickle would import or call. Memory is bounded by the pickle's length, and nothing
// recurses, so a hostile pickle does no harm.
#pragma once

#include <looptorch/state/weights/torch_files/pickle_value.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace looptorch::detail {

/// Reads one pickle, and owns the objects of its value.
class Unpickler {
 public:
  using Kind = PickleValue::Kind;

  Unpickler(std::string_view bytes, PickleHost& host) : bytes_(bytes), host_(host) {}

  /// Returns the pickle's value, which lives as long as this object. Throws PickleError.
  PickleValue run() {
    while (!done_) step(static_cast<unsigned char>(take(1)[0]));
    return pop();
  }

  [[nodiscard]] static PickleValue number(std::int64_t value) {
    return {.kind = Kind::integer, .integer = value};
  }
  /// Throws PickleError once all objects together list more than the pickle has bytes, which only a hostile
  /// one does, by holding the same items many times.
  [[nodiscard]] PickleValue make(Kind kind, PickleObject object = {}) {
    listed_ += object.items.size();
    if (listed_ > bytes_.size()) fail("makes more lists of its values than it has bytes");
    objects_.push_back(std::move(object));
    return {.kind = kind, .object = &objects_.back()};
  }

 private:
  [[noreturn]] static void fail(const std::string& what) { throw PickleError(what); }

  // ---- Bytes ----

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail("the pickle ends within a value");
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += static_cast<std::size_t>(size);
    return taken;
  }
  template <class Number>
  Number take_number() {  // little-endian
    Number number;
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  std::string_view take_line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("the pickle ends within a line");
    const std::string_view line = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }
  template <class Size>
  void push_text(Kind kind) {
    push(make(kind, {.text = std::string(take(take_number<Size>()))}));
  }

  // ---- The stack ----

  void push(PickleValue value) { stack_.push_back(value); }
  void push_flag(bool flag) { push({.kind = Kind::boolean, .integer = flag}); }
  PickleValue pop() {
    if (stack_.empty() || stack_.back().is(Kind::mark)) fail("the pickle takes from an empty stack");
    const PickleValue value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleObject& top(Kind kind, const char* what) {
    if (stack_.empty() || !stack_.back().is(kind)) fail(message("the pickle adds to what is no ", what));
    return *stack_.back().object;
  }
  /// Returns the values above the last mark, without it.
  std::vector<PickleValue> pop_to_mark() {
    std::size_t begin = stack_.size();
    while (begin > 0 && !stack_[begin - 1].is(Kind::mark)) --begin;
    if (begin == 0) fail("the pickle looks for a mark that is not there");
    std::vector<PickleValue> values(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return values;
  }
  std::vector<PickleValue> pop_some(std::size_t count) {
    std::vector<PickleValue> values(count);
    for (std::size_t i = count; i > 0; --i) values[i - 1] = pop();
    return values;
  }
  static void append(PickleObject& to, const std::vector<PickleValue>& values) {
    to.items.insert(to.items.end(), values.begin(), values.end());
  }

  void memoize(std::uint64_t place) {
    if (stack_.empty()) fail("the pickle remembers what is not there");
    memo_[place] = stack_.back();
  }
  void recall(std::uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) fail("the pickle refers to a value that it has not had");
    push(found->second);
  }

  // ---- Operations ----

  void push_long(std::uint64_t size) {
    const std::string_view bytes = take(size);
    if (size > 8) return push(make(Kind::other));  // as an unsigned seed: no size of a tensor
    std::uint64_t value = size > 0 && (bytes.back() & 0x80) ? ~std::uint64_t{0} : 0;
    for (std::size_t i = 0; i < size; ++i) {
      value &= ~(std::uint64_t{0xFF} << (8 * i));
      value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    }
    push(number(static_cast<std::int64_t>(value)));
  }
  void push_real() {  // big-endian
    std::uint64_t bits = 0;
    for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
    push({.kind = Kind::real, .real = std::bit_cast<double>(bits)});
  }
  void push_global(std::string name) {
    host_.check_global(name);
    push(make(Kind::global, {.text = std::move(name)}));
  }
  void push_stacked_global() {
    const PickleValue name = pop(), module = pop();
    if (!name.is(Kind::text) || !module.is(Kind::text)) fail("names a global by what is no text");
    push_global(module.object->text + "." + name.object->text);
  }
  void call() {
    const PickleValue arguments = pop(), global = pop();
    if (!arguments.is(Kind::tuple)) fail("calls a global without a tuple of arguments");
    if (!global.is(Kind::global)) fail("calls what is no global");
    push(host_.call(global.object->text, arguments.object->items));
  }
  /// Sets the attributes of an object. A dictionary's, as OrderedDict's `_metadata`, are ignored.
  void build() {
    (void)pop();
    if (stack_.empty() || !(stack_.back().is(Kind::dict) || stack_.back().is(Kind::tensor)))
      fail("sets attributes of what is no dictionary");
  }

  /// Does one operation; they are named as in Python's pickletools.
  void step(unsigned char operation) {
    switch (operation) {
      case 0x80:  // PROTO
        if (const int protocol = static_cast<unsigned char>(take(1)[0]); protocol < 2 || protocol > 5)
          fail(message("is of protocol ", protocol, "; 2 to 5 are read"));
        return;
      case 0x95:  // FRAME
        return void(take(8));
      case '.':  // STOP
        done_ = true;
        return;
      case '(':  // MARK
        return push({.kind = Kind::mark});
      case '0':  // POP
        if (!stack_.empty() && stack_.back().is(Kind::mark)) return stack_.pop_back();
        return void(pop());
      case '1':  // POP_MARK
        return void(pop_to_mark());
      case '2': {  // DUP
        const PickleValue value = pop();
        push(value), push(value);
        return;
      }
      case 'N':  // NONE
        return push({});
      case 0x88:  // NEWTRUE
        return push_flag(true);
      case 0x89:  // NEWFALSE
        return push_flag(false);
      case 'J':  // BININT
        return push(number(take_number<std::int32_t>()));
      case 'K':  // BININT1
        return push(number(take_number<std::uint8_t>()));
      case 'M':  // BININT2
        return push(number(take_number<std::uint16_t>()));
      case 0x8a:  // LONG1
        return push_long(take_number<std::uint8_t>());
      case 0x8b:  // LONG4
        return push_long(take_number<std::uint32_t>());
      case 'G':  // BINFLOAT
        return push_real();
      case 'X':  // BINUNICODE
        return push_text<std::uint32_t>(Kind::text);
      case 0x8c:  // SHORT_BINUNICODE
        return push_text<std::uint8_t>(Kind::text);
      case 0x8d:  // BINUNICODE8
        return push_text<std::uint64_t>(Kind::text);
      case 'U':  // SHORT_BINSTRING
        return push_text<std::uint8_t>(Kind::text);
      case 'T':  // BINSTRING
        return push_text<std::uint32_t>(Kind::text);
      case 'C':  // SHORT_BINBYTES
        return push_text<std::uint8_t>(Kind::bytes);
      case 'B':  // BINBYTES
        return push_text<std::uint32_t>(Kind::bytes);
      case 0x8e:  // BINBYTES8
      case 0x96:  // BYTEARRAY8
        return push_text<std::uint64_t>(Kind::bytes);
      case ']':  // EMPTY_LIST
        return push(make(Kind::list));
      case 'l':  // LIST
        return push(make(Kind::list, {.items = pop_to_mark()}));
      case 'a': {  // APPEND
        const PickleValue value = pop();
        return append(top(Kind::list, "list"), {value});
      }
      case 'e': {  // APPENDS
        const auto values = pop_to_mark();
        return append(top(Kind::list, "list"), values);
      }
      case ')':  // EMPTY_TUPLE
        return push(make(Kind::tuple));
      case 't':  // TUPLE
        return push(make(Kind::tuple, {.items = pop_to_mark()}));
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
        return push(make(Kind::tuple, {.items = pop_some(operation - 0x84u)}));
      case 0x8f:  // EMPTY_SET
        return push(make(Kind::set));
      case 0x90: {  // ADDITEMS
        const auto values = pop_to_mark();
        return append(top(Kind::set, "set"), values);
      }
      case 0x91:  // FROZENSET
        return push(make(Kind::set, {.items = pop_to_mark()}));
      case '}':  // EMPTY_DICT
        return push(make(Kind::dict));
      case 'd':  // DICT
        return push_dict(pop_to_mark());
      case 's': {  // SETITEM
        const auto pair = pop_some(2);
        return append(top(Kind::dict, "dictionary"), pair);
      }
      case 'u': {  // SETITEMS
        const auto pairs = pop_to_mark();
        if (pairs.size() % 2 != 0) fail("has a dictionary with a key and no value");
        return append(top(Kind::dict, "dictionary"), pairs);
      }
      case 'q':  // BINPUT
        return memoize(take_number<std::uint8_t>());
      case 'r':  // LONG_BINPUT
        return memoize(take_number<std::uint32_t>());
      case 0x94:  // MEMOIZE
        return memoize(memo_.size());
      case 'h':  // BINGET
        return recall(take_number<std::uint8_t>());
      case 'j':  // LONG_BINGET
        return recall(take_number<std::uint32_t>());
      case 'c': {  // GLOBAL
        std::string name(take_line());
        name += '.';
        name += take_line();
        return push_global(std::move(name));
      }
      case 0x93:  // STACK_GLOBAL
        return push_stacked_global();
      case 'R':   // REDUCE
      case 0x81:  // NEWOBJ
        return call();
      case 'b':  // BUILD
        return build();
      case 'Q':  // BINPERSID
        return push(host_.load_persistent(pop()));
      default:
        fail(message("has the operation ", static_cast<int>(operation),
                     ", which no checkpoint of tensors and plain values needs"));
    }
  }

  void push_dict(std::vector<PickleValue> pairs) {
    if (pairs.size() % 2 != 0) fail("has a dictionary with a key and no value");
    push(make(Kind::dict, {.items = std::move(pairs)}));
  }

  std::string_view bytes_;
  PickleHost& host_;
  std::size_t at_ = 0;
  std::size_t listed_ = 0;
  bool done_ = false;
  std::vector<PickleValue> stack_;
  std::unordered_map<std::uint64_t, PickleValue> memo_;
  std::deque<PickleObject> objects_;  // all of them, flat: a deep nesting is freed without recursion
};

}  // namespace looptorch::detail
