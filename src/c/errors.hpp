#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "tessera/c.h"

namespace tessera::c {

/// Keeps `error` as this thread's last error and returns its status.
tessera_status keep_error(const std::exception_ptr& error) noexcept;

/// Forgets this thread's last error: a rank's callback begins.
void forget_error() noexcept;

/// Throws the error that a callback reports by returning `status`, unless it is TESSERA_OK: this
/// thread's last error, if it is of that kind. `who` names the callback.
void rethrow_from_callback(tessera_status status, const char* who);

/// A call of the C interface, as named in its errors.
class Call {
 public:
  explicit constexpr Call(const char* name) noexcept : name_{name} {}
  [[nodiscard]] const char* name() const noexcept { return name_; }
  /// Throws ContractError with the call's name and `what`.
  [[noreturn]] void refuse(const std::string& what) const;
  /// Throws ContractError if `argument`, named `name`, is null.
  template <class T>
  void require(T* argument, const char* name) const {
    if (argument == nullptr) { refuse_null(name); }
  }
  /// Throws ContractError if there cannot be `count` elements at `argument`, named `name`: it is
  /// null, though there are some, or no memory has as many.
  template <class T>
  void require_array(const T* argument, const char* name, std::uint64_t count) const {
    if (count > 0) { require(argument, name); }
    if (count > static_cast<std::uint64_t>(PTRDIFF_MAX) / sizeof(T)) { refuse_count(name, count); }
  }

 private:
  [[noreturn]] void refuse_null(const char* name) const;
  [[noreturn]] void refuse_count(const char* name, std::uint64_t count) const;

  const char* name_;
};

/// Runs `work` with the call named `name`. No exception leaves it.
template <class Work>
tessera_status guarded(const char* name, const Work& work) noexcept {
  try {
    work(Call{name});
    return TESSERA_OK;
  } catch (...) { return keep_error(std::current_exception()); }
}

}  // namespace tessera::c
