#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/wiring.hpp"
#include "tessera/comm/channel.hpp"
#include "tessera/memory/slot_ring.hpp"
#include "tessera/pipeline/pipeline.hpp"
#include "tessera/world/world.hpp"

namespace tessera::pipeline {

/// Returns the bytes of what stages exchange. Throws ContractError if there are none.
[[nodiscard]] std::size_t bytes_of(Boundary boundary);

/// What every box of a rank is made with.
struct BoxPlace {
  World& world;
  Arena& arena;
  Boundary boundary;

  [[nodiscard]] SlotRing ring(int slots) const;
  [[nodiscard]] View view(const Slot& slot) const;
};

/// A link between two ranks: a communicator of both, in which the sender broadcasts. It is a class
/// so that std::optional can construct it in place: a Channel holds a reference.
class Pair {
 public:
  /// `sender`: 0 or 1.
  Pair(const Channel& channel, int sender) noexcept : channel_{channel}, sender_{sender} {}

  [[nodiscard]] Stream stream() const noexcept { return channel_.stream; }
  void broadcast(View item, const std::string& label) const;

 private:
  Channel channel_;
  int sender_;
};

/// The buffers in which a rank holds items that arrive over a link.
///
///   from another rank  free --ask--> coming --wait_for--> readable --close--> free
///   local              free --open--> written, then read, on the compute stream --close--> free
class Inbox {
 public:
  /// `pair` belongs to the link; empty if it is local.
  Inbox(const Link& link, const std::optional<Pair>& pair, const BoxPlace& place);

  /// Receives the next item of the step, once its buffer's last reader is done and the sender has
  /// it.
  void ask();
  /// Makes the compute stream wait until an item has arrived.
  void wait_for(int number) const;
  /// Takes a buffer for an item of a local link.
  [[nodiscard]] View open(int number);
  /// Returns an item that was asked for or opened.
  [[nodiscard]] View view(int number) const;
  /// Releases the buffer after the compute stream's work so far.
  void close(int number);
  /// The next item asked for is the first of the next step.
  void end_step() noexcept { asked_ = 0; }

 private:
  Slot& acquire(int number, Stream writer);

  const Link* link_;
  std::optional<Pair> pair_;
  BoxPlace place_;
  SlotRing ring_;
  std::vector<Slot*> held_;  // by item
  int asked_ = 0;
};

/// The buffers in which a rank writes items that leave over a link.
///
///   free --open--> written on the compute stream --send--> in transit, free once it has left
class Outbox {
 public:
  Outbox(const Link& link, const Pair& pair, const BoxPlace& place);

  /// Takes a buffer. The compute stream waits until its previous item has left.
  [[nodiscard]] View open(int number);
  /// The last opened item is written once the compute stream's work so far is done.
  void close();
  /// Sends the next item of the step.
  void send();
  /// The next item sent is the first of the next step.
  void end_step() noexcept { sent_ = 0; }

 private:
  const Link* link_;
  Pair pair_;
  BoxPlace place_;
  SlotRing ring_;
  std::vector<Slot*> held_;  // by item
  int open_ = 0;
  int sent_ = 0;
};

}  // namespace tessera::pipeline
