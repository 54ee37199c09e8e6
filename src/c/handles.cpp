#include "c/handles.hpp"

#include <fmt/format.h>

#include <string_view>

namespace tessera::c {

Handles& Handles::all() {
  static auto* const handles = new Handles;  // never destroyed: a thread may still close a handle
  return *handles;
}

void* Handles::add_any(Entry entry) {
  const std::lock_guard lock{mutex_};
  const std::uintptr_t number = given_ + 1;
  entries_.emplace(number, std::move(entry));
  given_ = number;
  return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): never followed
}

std::shared_ptr<void> Handles::find_any(Call call, const char* kind, const void* handle) const {
  if (handle == nullptr) { call.refuse(fmt::format("the {} is NULL", kind)); }
  const auto number = reinterpret_cast<std::uintptr_t>(handle);
  const std::lock_guard lock{mutex_};
  const auto found = entries_.find(number);
  if (found == entries_.end()) {
    call.refuse(
        number <= given_
            ? fmt::format("the {} has been closed, or its rank has ended", kind)
            : fmt::format("{} is not a handle of a {}; pass one that the library has written",
                          handle, kind));
  }
  if (std::string_view{found->second.kind} != kind) {
    call.refuse(fmt::format("this handle belongs to a {}, not to a {}", found->second.kind, kind));
  }
  return found->second.object;
}

void Handles::remove(const void* handle) noexcept {
  std::shared_ptr<void> last;  // destroyed without the lock
  const std::lock_guard lock{mutex_};
  const auto found = entries_.find(reinterpret_cast<std::uintptr_t>(handle));
  if (found == entries_.end()) { return; }
  last = std::move(found->second.object);
  entries_.erase(found);
}

}  // namespace tessera::c
