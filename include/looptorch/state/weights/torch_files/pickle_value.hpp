// SPDX-License-Identifier: MIT
// Declares PickleValue, a value in a pickle of Python, and PickleHost, which decides which imports (GLOBAL)
// and calls (REDUCE) a pickle may make, and what they return.
#pragma once

#include <looptorch/base/error.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace looptorch::detail {

/// Thrown for a pickle that is damaged or holds what is not allowed.
struct PickleError : Error {
  using Error::Error;
};

struct PickleObject;

/// A value: a number, or a handle of an object that its Unpickler owns.
struct PickleValue {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    bytes,
    list,
    tuple,
    set,
    dict,
    global,
    tensor,
    other,
    mark
  };
  Kind kind = Kind::none;
  std::int64_t integer = 0;  ///< also of booleans
  double real = 0;
  PickleObject* object = nullptr;

  [[nodiscard]] bool is(Kind other) const { return kind == other; }
};

struct PickleObject {
  std::string text = {};  ///< of text and bytes; a global's "module.name"
  /// of lists, tuples and sets; a dictionary's keys and values alternate
  std::vector<PickleValue> items = {};
  at::Tensor tensor = {};
};

/// Resolves a pickle's requests: imports, calls and external data. Globals have their names in Python, as
/// "collections.OrderedDict".
class PickleHost {
 public:
  virtual ~PickleHost() = default;
  /// Throws PickleError for a global that is not allowed.
  virtual void check_global(const std::string& name) = 0;
  virtual PickleValue call(const std::string& global, const std::vector<PickleValue>& arguments) = 0;
  virtual PickleValue load_persistent(PickleValue id) = 0;
};

}  // namespace looptorch::detail
