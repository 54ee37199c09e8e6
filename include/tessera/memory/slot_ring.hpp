#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/device/device.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera {

/// How the contents of a slot are overwritten when it is released, so that late accesses are found.
enum class SlotPoison : std::uint8_t {
  off,   ///< the contents stay as they are
  nan,   ///< overwritten with 0xFF bytes (NaN in every dtype): a late reader computes NaN, and a
         ///< late write is found when the slot is next acquired
  tiny,  ///< overwritten with 0x01 bytes (tiny numbers): this also finds a late `+=`, which would
         ///< leave a NaN unchanged
};

/// Memory for a unit's gathered parameters or full gradients, used by one unit after another.
///
///     free --acquire(writer)--> taken --release(reader)--> free
///
/// `acquire` makes the writing stream wait for the last reader. The writer records `produced` once
/// the contents are complete, and readers wait for that event. `release` records the last reader.
/// Reuse waits for those two events only.
///
/// Memory:  the ring owns the slot, and its arena the bytes: both must outlive every use.
class Slot {
 public:
  /// Returns the address of the slot in the ring's arena.
  [[nodiscard]] void* data() const noexcept { return data_; }
  /// Returns the size of the whole slot, which may exceed what its owner asked for.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Returns the event that marks the contents as complete. The user of the ring records it and
  /// waits for it.
  [[nodiscard]] Event produced() const noexcept { return produced_.get(); }
  /// Returns whether the slot has been acquired and not yet released.
  [[nodiscard]] bool taken() const noexcept { return taken_; }
  /// Returns the name that the slot was last acquired for; empty if it never was.
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

/// The device, the memory accounting and the checks of a ring. The device and the tracker must
/// outlive the ring.
struct SlotRingPlace {
  Device& device;                       ///< the arena's device
  MemoryTracker& memory;                ///< counts the slots in use
  Category category;                    ///< the category of the slots in use
  SlotPoison poison = SlotPoison::off;  ///< how released slots are overwritten
};

/// A fixed number of slots of one size, cut from one buffer and handed out in turn.
///
/// Memory:  while a slot is taken, the bytes that its owner asked for count as in use. The arena's
///          buffer is of BufferUse::parts, and must outlive the ring.
/// Errors:  ContractError if no slot is free, if `bytes` does not fit, or if a slot is released
///          twice or to another ring; the text names the category and the owners. With poison, a
///          write after the release ends the next writer's stream with a ContractError.
/// Threads: the rank's own thread.
class SlotRing {
 public:
  /// A ring without slots.
  SlotRing() = default;
  /// Takes `slots * Arena::need(slot_bytes)` bytes from `arena`. Throws ContractError if the arena
  /// has fewer left.
  SlotRing(const SlotRingPlace& place, Arena& arena, int slots, std::size_t slot_bytes);

  /// Takes the next free slot for `owner` (a unit's name), which will use `bytes` of it. Work
  /// enqueued on `writer` after this call starts when the slot's last reader has finished.
  [[nodiscard]] Slot& acquire(const std::string& owner, std::size_t bytes, Stream writer);
  /// Gives the slot back. `reader` is the stream on which it was last read (or written).
  void release(Slot& slot, Stream reader);

  /// Throws a ContractError that names the owners if any slot is still taken.
  void require_all_free() const;

  /// Returns the number of slots.
  [[nodiscard]] int size() const noexcept { return static_cast<int>(slots_.size()); }
  /// Returns the number of slots that are not taken.
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
