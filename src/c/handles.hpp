#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "c/errors.hpp"

namespace tessera::c {

/// The objects behind a C program's handles. A handle is a number that is never reused, in the
/// shape of a pointer: closed and invalid handles are detected, not followed. So the process has
/// one table. Threads: any.
///
/// An object's type T has a `Handle`, the C interface's type, and a `kName` for errors.
class Handles {
 public:
  static Handles& all();

  template <class T>
  typename T::Handle* add(const std::shared_ptr<T>& object) {
    return static_cast<typename T::Handle*>(add_any({T::kName, object}));
  }
  /// Throws ContractError in the name of `call` unless `handle` belongs to a T.
  template <class T>
  [[nodiscard]] std::shared_ptr<T> find(Call call, const typename T::Handle* handle) const {
    return std::static_pointer_cast<T>(find_any(call, T::kName, handle));
  }
  void remove(const void* handle) noexcept;

 private:
  struct Entry {
    const char* kind;
    std::shared_ptr<void> object;
  };
  void* add_any(Entry entry);
  [[nodiscard]] std::shared_ptr<void> find_any(Call call, const char* kind,
                                               const void* handle) const;

  mutable std::mutex mutex_;
  std::uintptr_t given_ = 0;
  std::unordered_map<std::uintptr_t, Entry> entries_;
};

/// Calls Handles::find.
template <class T>
[[nodiscard]] std::shared_ptr<T> find(Call call, const typename T::Handle* handle) {
  return Handles::all().find<T>(call, handle);
}

}  // namespace tessera::c
