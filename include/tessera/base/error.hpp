#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

/// A library that shards training state over ranks. ShardedModel is where to start.
namespace tessera {

/// Base of everything the library throws. `what()` says in one or two lines what was wrong, where,
/// and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller broke a rule of an interface. Checked before any work, from arguments that agree on
/// all ranks; the object is unchanged and usable.
class ContractError : public Error {
 public:
  using Error::Error;
};

/// The requested configuration is impossible. Thrown before the first allocation; nothing has
/// started.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// Memory was refused. Thrown before work is enqueued; the object is unchanged and usable.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A device call failed. The error is sticky: the object is dead.
class DeviceError : public Error {
 public:
  using Error::Error;
};

/// A peer was lost, missed a deadline, or issued another operation than this rank. The communicator
/// is dead on all ranks, and every later call on it throws the same error.
class CommError : public Error {
 public:
  using Error::Error;
};

/// Training produced values that are not finite, and does not recover. Every rank throws the same
/// error; nothing was updated, and the object is usable.
class NumericError : public Error {
 public:
  using Error::Error;
};

/// A file is damaged or has another format than expected. Nothing was loaded.
class FormatError : public Error {
 public:
  using Error::Error;
};

/// The place of a call in the source. It replaces std::source_location, which clang 14 lacks.
struct CallSite {
  const char* file;  ///< path of the source file, as the compiler was given it
  int line;          ///< line in that file, from 1

  /// Returns the place of this call or, as a default argument, of the call that uses the default.
  [[nodiscard]] static constexpr CallSite here(const char* file = __builtin_FILE(),
                                               int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

namespace detail {
[[noreturn]] void throw_contract(std::string_view what, CallSite where);
[[noreturn]] void assertion_failed(const char* what, CallSite where) noexcept;
}  // namespace detail

/// Throws ContractError with the call site unless `ok`. `what` is a string literal: a longer text
/// is built only after the test has failed.
constexpr void expects(bool ok, const char* what, CallSite where = CallSite::here()) {
  if (!ok) [[unlikely]] { detail::throw_contract(what, where); }
}

}  // namespace tessera

/// Prints a message and aborts unless `condition` holds. It checks conditions that only a bug in
/// the library can break.
#define TESSERA_ASSERT(condition) \
  (static_cast<bool>(condition)   \
       ? void(0)                  \
       : ::tessera::detail::assertion_failed(#condition, ::tessera::CallSite::here()))
