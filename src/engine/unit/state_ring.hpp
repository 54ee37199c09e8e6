#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/memory/buffer.hpp"
#include "tessera/memory/slot_ring.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// An array of the host pool that an update reads and writes: `bytes` for each `block` elements of
/// a segment.
struct ParkedArray {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::int64_t block = 1;

  [[nodiscard]] std::size_t bytes_of(std::int64_t elems) const noexcept {
    return static_cast<std::size_t>(elems / block) * bytes;
  }
};

/// Elements of a segment whose arrays are on the device for their update. Pointers into other
/// memory are left as they are.
class BroughtPiece {
 public:
  /// Elements [first, first + elems) of `arrays`, in `slot`. Keeps a reference to `arrays`.
  BroughtPiece(std::span<const ParkedArray> arrays, std::int64_t first, std::int64_t elems,
               void* slot) noexcept
      : arrays_{arrays}, first_{first}, elems_{elems}, slot_{static_cast<std::byte*>(slot)} {}

  [[nodiscard]] std::int64_t first() const noexcept { return first_; }
  [[nodiscard]] std::int64_t elems() const noexcept { return elems_; }
  /// The device address of the element at `host` in the host pool.
  template <class T>
  [[nodiscard]] T* on_device(T* host) const noexcept {
    return static_cast<T*>(moved(host));
  }
  /// Calls `copy(host, device, bytes)` for each array.
  void for_each(const std::function<void(void*, void*, std::size_t)>& copy) const;
  /// Bytes of a slot that `elems` elements of `arrays` use.
  [[nodiscard]] static std::size_t bytes_of(std::span<const ParkedArray> arrays,
                                            std::int64_t elems) noexcept;

 private:
  [[nodiscard]] void* moved(void* host) const noexcept;

  std::span<const ParkedArray> arrays_;
  std::int64_t first_;
  std::int64_t elems_;
  std::byte* slot_;
};

/// What units updated from the host pool share: a few pieces of device memory through which their
/// state passes. While one piece is updated the next arrives and the previous leaves, on streams of
/// their own: both directions of the link are busy.
///
///   states_in stream:  copy in 0 | copy in 1 | copy in 2 |      | copy in 3 | ...
///   update stream:               | update 0  | update 1  | update 2 | ...
///   states stream:                           | copy out 0 | copy out 1 | copy out 2 | ...
///
/// Memory:  kSlots pieces of at most kPieceElems elements, taken in the constructor; nothing if
///          nothing is parked.
class StateRing {
 public:
  /// One piece arrives, one is updated, one leaves: with three the link never waits for a kernel.
  static constexpr int kSlots = 3;
  /// 4 MiB of fp32. A link of 50 GB/s carries 0.5 MB in the 10 us that a copy takes to begin and an
  /// event to be seen: a copy of eight times that is bound by bandwidth, at 84 us. It is a multiple
  /// of kMomentBlock.
  static constexpr std::int64_t kPieceElems = std::int64_t{1} << 20;

  StateRing() = default;
  /// `slot_bytes`: the most bytes that a piece uses.
  StateRing(World& world, std::size_t slot_bytes);

  /// Brings elements [first, first + elems) of `arrays` to the device, calls `launch`, which
  /// enqueues their update on the stream that it gets, and sends them back. `unit` outlives the
  /// copies.
  void pass(std::span<const ParkedArray> arrays, std::int64_t first, std::int64_t elems,
            const std::string& unit,
            const std::function<void(const BroughtPiece&, Stream)>& launch);

 private:
  World* world_ = nullptr;
  Arena arena_;
  SlotRing ring_;
  OwnedEvent updated_;
};

}  // namespace tessera::engine
