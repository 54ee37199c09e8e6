#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tessera::engine {

/// What the parameters, or the gradients, of one unit take on this rank.
struct UnitBytes {
  std::size_t whole = 0;  ///< of the whole unit, and of a slot for it alone
  std::size_t shard = 0;  ///< of the part that stays if the unit is sharded
  bool own_slot = false;  ///< whether it has a slot of its own if it is sharded
};

/// Units that take less memory whole than sharded: whole_bytes < sharded_bytes.
struct WholeRun {
  std::vector<std::size_t> units;  ///< ascending
  std::size_t whole_bytes = 0;
  std::size_t sharded_bytes = 0;  ///< of their shards and slots
};

/// The units to keep whole so that all units, their slots included, take the fewest bytes:
///
///   - a unit with its own slot, where    whole < shard + whole,    which holds whatever it shards;
///   - of the others, which share `slots` slots a size class (size_classes), those for which the
///   sum
///     over the classes of          min(units, slots) * largest + the shards
///     exceeds the sum of their whole sizes. A class of at most `slots` units is always whole; of n
///     equal units over N ranks, all are whole if n (1 - 1 / N) < slots.
///
/// Where both take the same, units are sharded. Neighbours in the order of sizes are one run, and
/// each unit with its own slot is one.
[[nodiscard]] std::vector<WholeRun> whole_units(std::span<const UnitBytes> units, int slots);

}  // namespace tessera::engine
