#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "c/errors.hpp"

namespace tessera::c {

/// The objects that a C program has handles of. A handle is a number that is never given twice, in
/// the shape of a pointer: one that has been closed, or never was one, is found out and not
/// followed. So this is the one table of the process. Threads: any.
///
/// An object's type T has a `Handle`, the C interface's type, and a `kName` for errors.
class Handles {
 public:
  static Handles& all();

  template <class T>
  typename T::Handle* add(const std::shared_ptr<T>& object) {
    return static_cast<typename T::Handle*>(add_any({T::kName, object}));
  }
  /// Throws ContractError in the name of `call` unless `handle` is one of a T.
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

/// Handles::find.
template <class T>
[[nodiscard]] std::shared_ptr<T> find(Call call, const typename T::Handle* handle) {
  return Handles::all().find<T>(call, handle);
}

}  // namespace tessera::c
