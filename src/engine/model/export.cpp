#include "engine/model/export.hpp"

#include <algorithm>
#include <vector>

#include "engine/unit/host_copy.hpp"

namespace tessera::engine {
namespace {

/// Calls `sink` with the unit's own parameters as `view_of(segment)` holds them, times `factor`.
template <class ViewOf>
void deliver(World& world, const UnitPlan& unit, float factor, const ViewOf& view_of,
             const StateSink& sink) {
  HostCopy copy{world};
  std::vector<float> host;
  for (std::size_t p = 0; p < unit.layout.specs().size(); ++p) {
    const auto location = unit.layout.locate(p);
    if (!location) { continue; }  // an alias: delivered with its owner
    const View segment = view_of(location->segment);
    if (segment.data == nullptr && unit.infos[p].shape.elems() > 0) { continue; }  // frozen
    const View part = segment.slice(location->first, unit.infos[p].shape.elems());
    host.resize(static_cast<std::size_t>(part.elems));
    copy.read(host, part);
    if (factor != 1.0F) {
      std::ranges::for_each(host, [factor](float& x) { x *= factor; });
    }
    sink(unit.infos[p], host);
  }
}

/// As many of them as `values` has room for, from element `first` on.
void read_weights(HostCopy& copy, std::span<float> values, const UpdatedWeights& weights,
                  std::int64_t first) {
  const std::int64_t count = std::ssize(values);
  if (weights.remainders.elems > 0) {
    return copy.read_joined(values, weights.parameters.slice(first, count),
                            weights.remainders.slice(first, count), weights.on_host);
  }
  const View masters = weights.masters.slice(first, count);
  if (!weights.on_host) { return copy.read(values, masters); }
  std::copy_n(masters.values().as<float>(), count, values.begin());
}

/// `work`, then `end`, which gives back what `work` looked at, also when a sink throws.
template <class Work, class End>
void delivering(const Work& work, const End& end) {
  try {
    work();
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace

void export_parameters(World& world, LiveUnits& units, const StateSink& sink) {
  for (LiveUnit& unit : units) {
    unit.bring();
    unit.parameters().await();
    const auto view_of = [&](std::size_t s) { return unit.parameters().whole(s); };
    delivering([&] { deliver(world, unit.plan(), 1.0F, view_of, sink); },
               [&] { unit.parameters().release(world.compute_stream()); });
  }
}

void export_gradients(World& world, LiveUnits& units, float factor, const StateSink& sink) {
  units.gradients().settle();
  for (LiveUnit& unit : units) {
    GradientHome& gradients = unit.gradients();
    gradients.begin_export();
    const auto view_of = [&](std::size_t s) { return gradients.whole(s); };
    delivering([&] { deliver(world, unit.plan(), factor, view_of, sink); },
               [&] { gradients.end_export(); });
  }
}

void export_masters(World& world, LiveUnits& units, const PieceSink& sink) {
  constexpr std::int64_t most = std::int64_t{1} << 18;  // 1 MiB of staging
  units.updates().wait();
  HostCopy copy{world};
  std::vector<float> host;
  for (const LiveUnit& unit : units) {
    for (std::size_t s = 0; s < unit.plan().segments(); ++s) {
      const Range range = unit.plan().owned[s].updates;
      if (range.elems == 0) { continue; }
      const UpdatedWeights weights = unit.update().updated(s).weights;
      for (const Placement& placement : unit.plan().layout.segments()[s].placements()) {
        const std::int64_t begin = std::max(placement.first, range.first);
        const std::int64_t end =
            std::min(placement.first + placement.elems, range.first + range.elems);
        for (std::int64_t at = begin; at < end; at += most) {
          host.resize(static_cast<std::size_t>(std::min(most, end - at)));
          read_weights(copy, host, weights, at - range.first);
          sink(unit.plan().infos[placement.parameter], at - placement.first, host);
        }
      }
    }
  }
}

}  // namespace tessera::engine
