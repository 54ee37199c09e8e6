#pragma once

#include <cstdint>
#include <vector>

#include "tessera/profile/perfetto_trace.hpp"
#include "tessera/world/world.hpp"

namespace tessera::tools {

/// The first steps of a run, as its ranks recorded them (on rank 0; empty elsewhere).
struct Recording {
  std::int64_t step = 0;  ///< the last recorded step, which a report shows
  std::vector<RankTrace> ranks;
};

/// The step that a report of a run of `steps` shows: late enough for prefetch, and for the second
/// use of every slot.
[[nodiscard]] std::int64_t recorded_step(std::int64_t steps) noexcept;

/// *Collective.* Collects what `ranks`, in ascending order, have recorded, at the end of `step`,
/// and ends the recording.
[[nodiscard]] Recording collect_recording(World& world, std::int64_t step,
                                          const std::vector<int>& ranks);

}  // namespace tessera::tools
