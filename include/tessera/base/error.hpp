#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

/// Base of everything the library throws. `what()` is one or two lines for a person: what was
/// wrong, where, and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller broke a rule of an interface. Checked before any work, from arguments that agree
/// on all ranks; the object is unchanged and usable.
class ContractError : public Error {
 public:
  using Error::Error;
};

/// What the user asked for cannot be. Thrown before the first allocation; nothing has started.
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

/// A peer was lost, missed a deadline, or issued another operation than this rank. The
/// communicator is dead on all ranks and gives the same error again.
class CommError : public Error {
 public:
  using Error::Error;
};

/// Training has come to values that are not finite, and does not recover. It is thrown alike on
/// every rank; nothing was updated, and the object is usable.
class NumericError : public Error {
 public:
  using Error::Error;
};

/// A file does not hold what it should. Nothing was loaded.
class FormatError : public Error {
 public:
  using Error::Error;
};

/// The place of a call in the source: std::source_location, which clang 14 does not have.
struct CallSite {
  const char* file;
  int line;

  /// The place of this call or, in a default argument, of the call that takes it.
  [[nodiscard]] static constexpr CallSite here(const char* file = __builtin_FILE(),
                                               int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

namespace detail {
[[noreturn]] void throw_contract(std::string_view what, CallSite where);
[[noreturn]] void assertion_failed(const char* what, CallSite where) noexcept;
}  // namespace detail

/// Throws ContractError with the call site unless `ok`. `what` is a literal: build longer texts
/// only after the test has failed.
constexpr void expects(bool ok, const char* what, CallSite where = CallSite::here()) {
  if (!ok) [[unlikely]] { detail::throw_contract(what, where); }
}

}  // namespace tessera

/// Prints a message and aborts unless `condition` holds. For conditions that only a bug in the
/// library can break.
#define TESSERA_ASSERT(condition) \
  (static_cast<bool>(condition)   \
       ? void(0)                  \
       : ::tessera::detail::assertion_failed(#condition, ::tessera::CallSite::here()))
