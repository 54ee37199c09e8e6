#pragma once

#include <concepts>
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "tessera/device/stream.hpp"

namespace tessera::device {

/// A callable `void()` stored in place: move-only and never on the heap, so that each step can
/// enqueue work without allocating.
class HostTask {
 public:
  /// The most bytes that a task may capture.
  static constexpr std::size_t kInlineBytes = 240;

  HostTask() = default;

  template <class Work>
    requires(!std::same_as<std::remove_cvref_t<Work>, HostTask> &&
             std::invocable<std::decay_t<Work>&>)
  HostTask(Work&& work) : actions_{&kActions<std::decay_t<Work>>} {
    using Stored = std::decay_t<Work>;
    static_assert(sizeof(Stored) <= kInlineBytes, "captures too much: capture a pointer to it");
    static_assert(alignof(Stored) <= alignof(std::max_align_t),
                  "captures are aligned too coarsely");
    static_assert(std::is_nothrow_move_constructible_v<Stored>,
                  "captures must move without throwing (a const std::string does not)");
    ::new (static_cast<void*>(storage_)) Stored(std::forward<Work>(work));
  }

  HostTask(HostTask&& other) noexcept { take(other); }
  HostTask& operator=(HostTask&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~HostTask() { reset(); }

  /// Destroys the callable and what it captured.
  void reset() noexcept {
    if (actions_ != nullptr) { std::exchange(actions_, nullptr)->destroy(storage_); }
  }
  void operator()() { actions_->run(storage_); }
  [[nodiscard]] explicit operator bool() const noexcept { return actions_ != nullptr; }

 private:
  struct Actions {
    void (*run)(void* work);
    void (*move)(void* to, void* from) noexcept;  // leaves `from` empty
    void (*destroy)(void* work) noexcept;
  };

  template <class Stored>
  static constexpr Actions kActions{
      [](void* work) { (*static_cast<Stored*>(work))(); },
      [](void* to, void* from) noexcept {
        auto* const old = static_cast<Stored*>(from);
        ::new (to) Stored(std::move(*old));
        old->~Stored();
      },
      [](void* work) noexcept { static_cast<Stored*>(work)->~Stored(); }};

  void take(HostTask& other) noexcept {
    actions_ = std::exchange(other.actions_, nullptr);
    if (actions_ != nullptr) { actions_->move(storage_, other.storage_); }
  }

  alignas(std::max_align_t) std::byte storage_[kInlineBytes];
  const Actions* actions_ = nullptr;
};

/// Enqueues `task` on a stream of a CPU device: CPU kernels and communicators work this way.
///
/// Time:   on a caller stream the task has run on return; on a worker stream it runs on the
///         stream's thread after all earlier work. Its captures are destroyed before an event
///         recorded after it is reached. On a stream of the meta device it is dropped without
///         running.
/// Errors: an exception of the task ends the stream. A caller stream throws it here, and again for
///         every later task; a worker stream skips later tasks (and destroys them without
///         running them). Throws ContractError if `stream` is not a CPU device's.
void enqueue(Stream stream, HostTask task);

}  // namespace tessera::device
