#include "engine/model/export.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/unit/host_copy.hpp"
#include "tessera/engine/step_report.hpp"
#include "tessera/world/mesh.hpp"

namespace tessera::engine {
namespace {

/// Assembles whole tensors from the parts of the ranks along `tensor` and `pipe`, on all of them.
class Assembly {
 public:
  Assembly(World& world, const Sharding& group, const ModelOptions& options)
      : world_{world},
        tensor_{group.tensor()},
        pipe_{group.pipe()},
        mark_{world.device().make_event()} {
    if (tensor_.size > 1) { along_tensor_.emplace(group.along_tensor()); }
    if (!group.in_stages()) { return; }
    std::vector<int> places(static_cast<std::size_t>(MeshShape{options.mesh}.size("pipe")));
    std::iota(places.begin(), places.end(), 0);
    along_pipe_.emplace(group.along_pipe(places));
  }

  /// *Collective over the ranks along both.* Whether parameter `p` of `unit` must be assembled.
  [[nodiscard]] bool joins(const UnitPlan& unit, std::size_t p) const {
    return along_pipe_ || (along_tensor_ && unit.layout.specs()[p].cut);
  }
  /// *Collective over the ranks along both.* Writes all of parameter `p` to `whole`. `part` is this
  /// rank's part; it is ignored where the unit is elsewhere.
  void join(const UnitPlan& unit, std::size_t p, ConstView part, std::span<float> whole) {
    const ParameterSpec& spec = unit.layout.specs()[p];
    const View staged = staging(std::ssize(whole), part.dtype);
    const std::vector<TensorPart> parts = parts_of(spec);
    if (unit.is_at(pipe_)) { gather(unit.name, parts, part, staged); }
    if (along_pipe_ && std::ssize(unit.places) < along_pipe_->communicator.size()) {
      Batch batch{"export " + unit.name};
      batch.broadcast(staged, unit.places.front());
      submit(*along_pipe_, std::move(batch));
    }
    HostCopy{world_}.read(whole, staged);
    if (parts.size() == 1) { return; }
    const std::vector<float> in_parts(whole.begin(), whole.end());
    const float* from = in_parts.data();
    for (const TensorPart& one : parts) {
      one.for_each_run({0, one.elems()}, [&](const Range& run, std::int64_t at) {
        std::copy_n(from + at, run.elems, whole.begin() + run.first);
      });
      from += one.elems();
    }
  }

 private:
  /// The parts of all ranks along `tensor`, in rank order; one part if the parameter is not cut.
  [[nodiscard]] std::vector<TensorPart> parts_of(const ParameterSpec& spec) const {
    if (!spec.cut) { return {TensorPart{spec.shape}}; }
    std::vector<TensorPart> parts;
    for (int rank = 0; rank < tensor_.size; ++rank) {
      parts.emplace_back(spec.shape, *spec.cut, TensorRank{rank, tensor_.size});
    }
    return parts;
  }

  /// Gathers the parts end to end.
  void gather(const std::string& unit, const std::vector<TensorPart>& parts, ConstView part,
              View staged) {
    Batch batch{"export " + unit};
    std::int64_t first = 0;
    for (int rank = 0; rank < static_cast<int>(parts.size()); ++rank) {
      const View slot = staged.slice(first, parts[static_cast<std::size_t>(rank)].elems());
      first += slot.elems;
      if (slot.elems == 0) { continue; }
      if (parts.size() == 1 || rank == tensor_.index) {
        world_.device().copy(slot.data, part.data, part.bytes(), world_.compute_stream());
      }
      if (parts.size() > 1) { batch.broadcast(slot, rank); }
    }
    if (along_tensor_) { submit(*along_tensor_, std::move(batch)); }
  }

  View staging(std::int64_t elems, DType dtype) {
    const std::size_t bytes = static_cast<std::size_t>(elems) * size_of(dtype);
    if (bytes > staging_.bytes()) {
      staging_ = {};
      staging_ = world_.allocate(Category::workspace, bytes, "export of a whole tensor");
    }
    return {staging_.data(), elems, dtype};
  }

  void submit(const Channel& channel, Batch batch) {
    submit_in_order(world_.compute_stream(), channel, std::move(batch), mark_.get());
  }

  World& world_;
  TensorRank tensor_;
  int pipe_;
  std::optional<Channel> along_tensor_;
  std::optional<Channel> along_pipe_;
  OwnedEvent mark_;
  Buffer staging_;
};

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
             Assembly& assembly) {
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
    assembly.joins(unit, p) ? assembly.join(unit, p, part, host) : copy.read(host, part);
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
  Assembly assembly{world, group, options};
  const Exported exported{.options = options, .sink = sink};
  for (LiveUnit& unit : units) {
    unit.bring();
    unit.parameters().await();
    const auto view_of = [&](std::size_t s) { return unit.parameters().whole(s); };
    delivering([&] { deliver(world, unit.plan(), exported, view_of, assembly); },
               [&] { unit.parameters().release(world.compute_stream()); });
  }
}

void export_gradients(World& world, LiveUnits& units, const Sharding& group,
                      const ModelOptions& options, float factor, const StateSink& sink) {
  Assembly assembly{world, group, options};
  const Exported exported{StateTensor::gradients, factor, options, sink};
  units.gradients().settle();
  for (LiveUnit& unit : units) {
    GradientHome& gradients = unit.gradients();
    gradients.begin_export();
    const auto view_of = [&](std::size_t s) { return gradients.whole(s); };
    delivering([&] { deliver(world, unit.plan(), exported, view_of, assembly); },
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
          const Range local{at - placement.first, std::ssize(host)};
          unit.plan()
              .layout.part(placement.parameter)
              .for_each_run(local, [&](const Range& whole, std::int64_t first) {
                sink(unit.plan().infos[placement.parameter], whole.first,
                     std::span{host}.subspan(static_cast<std::size_t>(first - local.first),
                                             static_cast<std::size_t>(whole.elems)));
              });
        }
      }
    }
  }
}

}  // namespace tessera::engine
