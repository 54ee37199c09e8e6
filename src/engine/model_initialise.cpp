#include <algorithm>
#include <vector>

#include "engine/host_copy.hpp"
#include "engine/model_state.hpp"

namespace tessera {
namespace {

constexpr std::int64_t kInitChunkElems = std::int64_t{1} << 18;  // 1 MiB of staging

/// What `range` and elements [at, at + count) of a segment have in common.
Range overlap(const Range& range, std::int64_t at, std::int64_t count) {
  const std::int64_t first = std::max(range.first, at);
  const std::int64_t end = std::min(range.first + range.elems, at + count);
  return {first, std::max<std::int64_t>(end - first, 0)};
}

}  // namespace

// Masters take the initializer's values in full; the parameter is rounded from them.
void ShardedModel::State::initialise(std::size_t unit, const Initializer& initial) {
  const UnitLayout& layout = units[unit].layout;
  engine::HostCopy host{world};
  std::vector<float> staging;
  for (std::size_t s = 0; s < layout.segments().size(); ++s) {
    const View parameter = parameters->resident(unit, s);
    if (parameter.elems == 0) { continue; }
    const Range kept = parameters->resident_range(unit, s);
    const View master = masters == nullptr ? View{} : masters->resident(unit, s);
    const Range updated = master.elems == 0 ? Range{} : gradients->resident_range(unit, s);
    for (const View& all : {parameter, master}) {
      if (all.elems > 0) { world.device().fill(all.data, 0, all.bytes(), world.compute_stream()); }
    }
    for (const Placement& placement : layout.segments()[s].placements()) {
      const Range mine = overlap(kept, placement.first, placement.elems);
      for (std::int64_t at = mine.first; at < mine.first + mine.elems; at += kInitChunkElems) {
        const std::int64_t count = std::min(kInitChunkElems, mine.first + mine.elems - at);
        staging.resize(static_cast<std::size_t>(count));
        initial(units[unit].infos[placement.parameter], at - placement.first, staging);
        host.write(parameter.slice(at - kept.first, count), staging);
        const Range both = overlap(updated, at, count);
        if (both.elems == 0) { continue; }
        host.write(master.slice(both.first - updated.first, both.elems),
                   std::span{staging}.subspan(static_cast<std::size_t>(both.first - at),
                                              static_cast<std::size_t>(both.elems)));
      }
    }
  }
}

}  // namespace tessera
