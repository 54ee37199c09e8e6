#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/device/device.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera {

/// What happens to the contents of a slot when it is released.
enum class SlotPoison : std::uint8_t {
  off,
  nan,   ///< overwritten with 0xFF bytes (NaN in every dtype): a late reader computes NaN, a late
         ///< writer is found when the slot is acquired next
  tiny,  ///< overwritten with 0x01 bytes, tiny numbers: a late `+=` is found too, which leaves a
         ///< NaN as it is
};

/// A place for a unit's gathered parameters or full gradients, used by one unit after another.
///
///   free --acquire(writer)--> taken --release(reader)--> free
///
/// `acquire` makes the writing stream wait for the last reader; the writer marks what it has
/// produced in `produced`, for which readers wait; `release` records the last reader. Reuse waits
/// on those two events and on nothing else.
class Slot {
 public:
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The mark of the producer: the ring's user records and awaits it.
  [[nodiscard]] Event produced() const noexcept { return produced_.get(); }
  [[nodiscard]] bool taken() const noexcept { return taken_; }
  [[nodiscard]] const std::string& owner() const noexcept { return owner_; }

 private:
  friend class SlotRing;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  OwnedEvent produced_;
  OwnedEvent read_;
  CountedMemory use_;  // while it is taken
  std::string owner_;
  bool taken_ = false;
  bool poisoned_ = false;
};

/// Where a ring's memory is and how it counts.
struct SlotRingPlace {
  Device& device;
  MemoryTracker& memory;
  Category category;
  SlotPoison poison = SlotPoison::off;
};

/// A fixed number of slots of one size, cut from one buffer, handed out in turn.
///
/// Memory:  a slot counts as in use, with the bytes that its owner asked for, while it is taken.
///          The arena's buffer is of BufferUse::parts.
/// Errors:  ContractError if none is free, if `bytes` does not fit, if a slot is released twice or
///          never; the text names category and owners. With poison, a write after the release ends
///          the next writer's stream with one.
/// Threads: the rank's own thread.
class SlotRing {
 public:
  SlotRing() = default;
  /// Takes `slots * Arena::need(slot_bytes)` bytes from `arena`.
  SlotRing(const SlotRingPlace& place, Arena& arena, int slots, std::size_t slot_bytes);

  /// The next free slot, for `owner` (a unit's name). Work enqueued on `writer` after this call
  /// starts when the slot's last reader has finished.
  [[nodiscard]] Slot& acquire(const std::string& owner, std::size_t bytes, Stream writer);
  /// Gives the slot back: `reader` is the stream on which it was read (or written) last.
  void release(Slot& slot, Stream reader);

  /// ContractError that names the slots that are still taken. For a moment when all must be free.
  void require_all_free() const;

  [[nodiscard]] int size() const noexcept { return static_cast<int>(slots_.size()); }
  [[nodiscard]] int free() const noexcept;

 private:
  [[nodiscard]] std::vector<std::string> owners() const;

  Device* device_ = nullptr;
  MemoryTracker* memory_ = nullptr;
  Category category_ = Category::unattributed;
  SlotPoison poison_ = SlotPoison::off;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
};

}  // namespace tessera
