#pragma once

#include <string>

#include "engine/unit/journal.hpp"
#include "tessera/comm/channel.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// How parameters reach a rank: its gather channel, in order with the compute stream. A model's
/// units share it.
///
/// Time: everything enqueues.
class GatherLane {
 public:
  GatherLane(World& world, Journal& journal, Channel channel);

  [[nodiscard]] World& world() const noexcept { return world_; }
  [[nodiscard]] Journal& journal() const noexcept { return journal_; }
  [[nodiscard]] Stream stream() const noexcept { return channel_.stream; }
  /// Batches submitted from now on run after the compute stream's work so far.
  void order_after_compute();
  /// The compute stream waits for everything submitted so far.
  void settle();
  /// Records the batch as `verb` of `unit`.
  void submit(const char* verb, const std::string& unit, Batch batch);

 private:
  World& world_;
  Journal& journal_;
  Channel channel_;
  OwnedEvent compute_mark_;
  OwnedEvent gather_mark_;
};

}  // namespace tessera::engine
