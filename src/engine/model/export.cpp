#include "engine/model/export.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "engine/model/state_mover.hpp"
#include "engine/unit/host_copy.hpp"
#include "tessera/engine/step_report.hpp"

namespace tessera::engine {
namespace {

/// What an export delivers.
struct Exported {
  StateTensor what = StateTensor::parameters;
  float factor = 1.0F;
  const ModelOptions& options;
  const StateSink& sink;

  [[nodiscard]] DType dtype_of(const ParameterSpec& spec) const {
    return what == StateTensor::parameters ? spec.dtype.value_or(options.compute)
                                           : options.gradient;
  }
};

/// Calls the sink with each parameter that the unit owns; `view_of(segment)` holds the values.
template <class ViewOf>
void deliver(World& world, const UnitPlan& unit, const Exported& exported, const ViewOf& view_of,
             StateMover& mover) {
  HostCopy copy{world};
  std::vector<float> host;
  for (std::size_t p = 0; p < unit.layout.specs().size(); ++p) {
    const ParameterSpec& spec = unit.layout.specs()[p];
    if (spec.tied_to) { continue; }  // an alias: delivered with its owner
    const bool has_values = exported.what == StateTensor::parameters || spec.trainable;
    if (!has_values && spec.shape.elems() > 0) { continue; }
    View part{nullptr, 0, exported.dtype_of(spec)};
    if (const auto location = unit.layout.locate(p); location && has_values) {
      part = view_of(location->segment).slice(location->first, unit.layout.part(p).elems());
    }
    host.resize(static_cast<std::size_t>(spec.shape.elems()));
    mover.joins(unit, p) ? mover.join(unit, p, part, host) : copy.read(host, part);
    if (exported.factor != 1.0F) {
      std::ranges::for_each(host, [&](float& x) { x *= exported.factor; });
    }
    exported.sink(unit.infos[p], host);
  }
}

/// Reads as many weights as `values` has room for, from element `first` on.
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

/// Runs `work`, then `end`, also when a sink throws.
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

void export_parameters(World& world, LiveUnits& units, const Sharding& group,
                       const ModelOptions& options, const StateSink& sink) {
  StateMover mover{world, group};
  const Exported exported{.options = options, .sink = sink};
  for (LiveUnit& unit : units) {
    unit.bring();
    unit.parameters().await();
    const auto view_of = [&](std::size_t s) { return unit.parameters().whole(s); };
    delivering([&] { deliver(world, unit.plan(), exported, view_of, mover); },
               [&] { unit.parameters().release(world.compute_stream()); });
  }
}

void export_gradients(World& world, LiveUnits& units, const Sharding& group,
                      const ModelOptions& options, float factor, const StateSink& sink) {
  StateMover mover{world, group};
  const Exported exported{StateTensor::gradients, factor, options, sink};
  units.gradients().settle();
  for (LiveUnit& unit : units) {
    GradientHome& gradients = unit.gradients();
    gradients.begin_export();
    const auto view_of = [&](std::size_t s) { return gradients.whole(s); };
    delivering([&] { deliver(world, unit.plan(), exported, view_of, mover); },
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
      for (const Piece& piece : unit.plan().layout.segments()[s].pieces(Ranges{range})) {
        const TensorPart& part = unit.plan().layout.part(piece.parameter);
        for (std::int64_t at = 0; at < piece.elems; at += most) {
          host.resize(static_cast<std::size_t>(std::min(most, piece.elems - at)));
          read_weights(copy, host, weights, piece.first_in_shard + at);
          const Range local{piece.first_in_parameter + at, std::ssize(host)};
          part.for_each_run(local, [&](const Range& whole, std::int64_t first) {
            sink(unit.plan().infos[piece.parameter], whole.first,
                 std::span{host}.subspan(static_cast<std::size_t>(first - local.first),
                                         static_cast<std::size_t>(whole.elems)));
          });
        }
      }
    }
  }
}

}  // namespace tessera::engine
