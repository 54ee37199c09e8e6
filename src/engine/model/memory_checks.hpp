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

/// Checks::memory: finds what a trainer does to gradients when or where they are not its own, and
/// names unit and parameter.
///
///   begin scope:  compare - (they are opened) - guard
///   end of scope: inspect - (they are sent on their way) - seal
///   in between:   nobody but the engine touches them
///
/// `guard` fills the elements that belong to no parameter with a pattern, which `inspect` compares:
/// a write beyond a parameter's end. `seal` notes what the memory holds when the engine has done
/// with it, which `compare` compares: a late writer. Slots that have been released hold tiny
/// numbers (SlotPoison::tiny), which every `+=` changes. `inspect` finds the first NaN as well; on
/// a CPU it knows one that comes from a released slot of parameters (SlotPoison::nan) by its bits.
///
/// Order:   `seal` is made by all ranks in the same order: it sends what waits for company.
/// Time:    every call waits for what it looks at.
/// Memory:  copies in host memory that nothing counts: the largest unit's gradients.
/// Errors:  ContractError for mistakes, NumericError for other NaN.
class MemoryChecks {
 public:
  MemoryChecks(World& world, LiveUnits& units, const ModelOptions& options);

  /// Before `unit`'s gradients are opened: what has been sealed of it, and all slots.
  void compare(std::size_t unit);
  void guard(std::size_t unit);
  void inspect(std::size_t unit);
  void seal(std::size_t unit);
  /// Compares all that is sealed; of it slots, and after the last micro-batch everything, are the
  /// engine's again.
  void end_micro_batch(bool last);
  /// What a forward scope of `unit` has computed.
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
  bool nan_is_expected_;                   // a loss scale that backs off
  std::vector<std::vector<View>> opened_;  // by unit: segments that the last scope wrote
  std::vector<bool> was_in_slot_;          // by unit
  std::vector<std::optional<Seal>> seals_;
  HostCopy copy_;
  std::vector<std::byte> bytes_;
  std::vector<float> values_;
};

}  // namespace tessera::engine
