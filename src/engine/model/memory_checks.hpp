#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/unit/host_copy.hpp"
#include "engine/unit/live_units.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// Checks::memory: detects writes to gradients at the wrong time or place, and names unit and
/// parameter.
///
///   begin scope:  compare - (gradients open) - guard
///   end of scope: inspect - (gradients leave) - seal
///   in between:   only the engine touches them
///
/// `guard` fills the elements that belong to no parameter with a pattern, and `inspect` checks it:
/// this finds a write past a parameter's end. `seal` records the memory's contents when the engine
/// is done with it, and `compare` checks them: this finds a late writer. Released slots hold tiny
/// numbers (SlotPoison::tiny), which every `+=` changes. `inspect` also finds the first NaN; on a
/// CPU it recognises by its bits a NaN that comes from a released parameter slot (SlotPoison::nan).
///
/// Order:   all ranks call `seal` in the same order: it sends pending buckets.
/// Time:    every call waits for the memory that it reads.
/// Memory:  copies in host memory that no category counts: the largest unit's gradients.
/// Errors:  ContractError for mistakes, NumericError for other NaN.
class MemoryChecks {
 public:
  MemoryChecks(World& world, LiveUnits& units, const ModelOptions& options);

  /// Called before `unit`'s gradients open. Checks what was sealed of the unit, and all slots.
  void compare(std::size_t unit);
  void guard(std::size_t unit);
  void inspect(std::size_t unit);
  void seal(std::size_t unit);
  /// Checks everything that is sealed. Then the engine may write slots again, and after the last
  /// micro-batch all gradients.
  void end_micro_batch(bool last);
  /// Checks the output of a forward scope of `unit`.
  void inspect_output(std::size_t unit, ConstView output);

 private:
  struct Seal {
    std::vector<View> segments;
    std::vector<std::uint64_t> hashes;  // by segment and parameter
    bool in_slot = false;
  };

  [[nodiscard]] std::span<const std::byte> read(ConstView view);
  [[nodiscard]] std::vector<std::uint64_t> hashes_of(std::size_t unit,
                                                     const std::vector<View>& segments);
  void compare_sealed(std::size_t unit);
  void forget_overlap(const View& view);
  void inspect_guards(std::size_t unit, std::size_t segment, const View& whole);
  void inspect_values(std::size_t unit, std::size_t segment, const View& whole);
  void require_number(ConstView values, const std::string& whose);

  [[nodiscard]] const UnitPlan& plan(std::size_t unit) const { return units_.plans()[unit]; }

  World& world_;
  LiveUnits& units_;
  bool nan_is_expected_;                   // a dynamic loss scale produces NaN on purpose
  std::vector<std::vector<View>> opened_;  // by unit: the segments that the last scope wrote
  std::vector<bool> was_in_slot_;          // by unit
  std::vector<std::optional<Seal>> seals_;
  HostCopy copy_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
};

}  // namespace tessera::engine
