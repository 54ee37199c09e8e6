#include <algorithm>
#include <vector>

#include "engine/host_copy.hpp"
#include "engine/model_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// Calls `sink` with the unit's own parameters as `view_of(segment)` holds them, times `factor`.
template <class ViewOf>
void deliver(World& world, const engine::UnitState& unit, float factor, const ViewOf& view_of,
             const ShardedModel::State::Sink& sink) {
  engine::HostCopy copy{world};
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
void read_weights(engine::HostCopy& copy, std::span<float> values,
                  const engine::UpdatedWeights& weights, std::int64_t first) {
  const std::int64_t count = std::ssize(values);
  if (weights.remainders.elems == 0) {
    return copy.read(values, weights.masters.slice(first, count));
  }
  copy.read_joined(values, weights.parameters.slice(first, count),
                   weights.remainders.slice(first, count));
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

void ShardedModel::State::export_parameters(const Sink& sink) {
  expects(stage == Stage::idle && micro_batch == 0,
          "export_state: parameters are exported between steps");
  parameters->begin_micro_batch();  // dp: a copy for everyone
  for (std::size_t u = 0; u < units.size(); ++u) {
    use_parameters(u);
    parameters->await(u);
    const auto view_of = [&](std::size_t s) { return parameters->whole(u, s); };
    delivering([&] { deliver(world, units[u], 1.0F, view_of, sink); },
               [&] { parameters->release(u, world.compute_stream()); });
  }
}

void ShardedModel::State::export_gradients(const Sink& sink) {
  finish_micro_batch();
  expects(micro_batch == options.accumulate,
          "export_state: gradients are exported after the last micro-batch, before step");
  gradients->settle();
  const double parts = static_cast<double>(group->data_ranks()) * options.accumulate;
  const double scale = optimizer == nullptr ? 1.0 : optimizer->scalars().loss_scale;
  const float average = static_cast<float>(1.0 / (parts * scale));
  for (std::size_t u = 0; u < units.size(); ++u) {
    gradients->begin_export(u);
    const auto view_of = [&](std::size_t s) { return gradients->exported(u, s); };
    delivering([&] { deliver(world, units[u], average, view_of, sink); },
               [&] { gradients->end_export(u); });
  }
}

void ShardedModel::State::export_masters(const PieceSink& sink) {
  constexpr std::int64_t most = std::int64_t{1} << 18;          // 1 MiB of staging
  if (host_weights != nullptr) { world.host_stream().wait(); }  // updates may be under way
  engine::HostCopy copy{world};
  std::vector<float> host;
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (std::size_t s = 0; s < units[u].layout.segments().size(); ++s) {
      const Range range = gradients->resident_range(u, s);
      if (range.elems == 0) { continue; }
      const bool on_host = units[u].offloaded;
      const auto weights = on_host
                               ? engine::UpdatedWeights{.masters = host_weights->master(u, s)}
                               : engine::updated_weights(*parameters, *masters, *gradients, u, s);
      for (const Placement& placement : units[u].layout.segments()[s].placements()) {
        const std::int64_t begin = std::max(placement.first, range.first);
        const std::int64_t end =
            std::min(placement.first + placement.elems, range.first + range.elems);
        for (std::int64_t at = begin; at < end; at += most) {
          host.resize(static_cast<std::size_t>(std::min(most, end - at)));
          if (on_host) {
            const View part = weights.masters.slice(at - range.first, std::ssize(host));
            std::copy_n(part.values().as<float>(), part.elems, host.begin());
          } else {
            read_weights(copy, host, weights, at - range.first);
          }
          sink(units[u].infos[placement.parameter], at - placement.first, host);
        }
      }
    }
  }
}

}  // namespace tessera
