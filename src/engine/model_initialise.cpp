#include <algorithm>
#include <optional>
#include <vector>

#include "engine/host_copy.hpp"
#include "engine/model_state.hpp"
#include "kernels/table.hpp"

namespace tessera {
namespace {

constexpr std::int64_t kInitChunkElems = std::int64_t{1} << 18;  // 1 MiB of staging

/// What `range` and elements [at, at + count) of a segment have in common.
Range overlap(const Range& range, std::int64_t at, std::int64_t count) {
  const std::int64_t first = std::max(range.first, at);
  const std::int64_t end = std::min(range.first + range.elems, at + count);
  return {first, std::max<std::int64_t>(end - first, 0)};
}

/// An array of some of a segment's elements.
struct Held {
  View values;
  Range range;

  [[nodiscard]] View at(const Range& part) const {
    return values.slice(part.first - range.first, part.elems);
  }
};

/// A parameter, where it begins in its segment, and which elements of the segment are asked for.
struct Wanted {
  const ParameterInfo& info;
  std::int64_t begin;
  Range range;
};

/// Writes an initializer's values into arrays.
class FirstValues {
 public:
  FirstValues(World& world, const Initializer& initial)
      : world_{world}, initial_{initial}, host_{world} {}

  void write(const Wanted& wanted, const std::vector<Held>& arrays) {
    if (const auto stddev = normal_of(wanted.info)) {
      draw(wanted, *stddev, arrays);
    } else {
      copy(wanted, arrays);
    }
  }

 private:
  /// The standard deviation of a parameter whose values the device can make.
  [[nodiscard]] std::optional<float> normal_of(const ParameterInfo& info) const {
    const auto* const drawn = initial_.target<init::Drawn>();
    if (drawn == nullptr) { return {}; }
    const init::Distribution from = drawn->distribution(info);
    if (from.kind != init::Distribution::Kind::normal) { return {}; }
    return from.number;
  }

  void draw(const Wanted& wanted, float stddev, const std::vector<Held>& arrays) {
    const kernels::NormalKey key{initial_.target<init::Drawn>()->seed, wanted.info.id};
    for (const Held& array : arrays) {
      const Range part = overlap(array.range, wanted.range.first, wanted.range.elems);
      if (part.elems == 0) { continue; }
      world_.kernels().fill_normal(array.at(part).values(), key, part.first - wanted.begin, stddev,
                                   part.elems, world_.compute_stream());
    }
  }

  void copy(const Wanted& wanted, const std::vector<Held>& arrays) {
    const std::int64_t end = wanted.range.first + wanted.range.elems;
    for (std::int64_t at = wanted.range.first; at < end; at += kInitChunkElems) {
      const std::int64_t count = std::min(kInitChunkElems, end - at);
      staging_.resize(static_cast<std::size_t>(count));
      initial_(wanted.info, at - wanted.begin, staging_);
      for (const Held& array : arrays) {
        const Range part = overlap(array.range, at, count);
        if (part.elems == 0) { continue; }
        host_.write(array.at(part),
                    std::span{staging_}.subspan(static_cast<std::size_t>(part.first - at),
                                                static_cast<std::size_t>(part.elems)));
      }
    }
  }

  World& world_;
  const Initializer& initial_;
  engine::HostCopy host_;
  std::vector<float> staging_;
};

}  // namespace

// Masters take the initializer's values in full; the parameter is rounded from them.
void ShardedModel::State::initialise(std::size_t unit, const Initializer& initial) {
  const UnitLayout& layout = units[unit].layout;
  FirstValues values{world, initial};
  for (std::size_t s = 0; s < layout.segments().size(); ++s) {
    const View parameter = parameters->resident(unit, s);
    if (parameter.elems == 0) { continue; }
    const Range kept = parameters->resident_range(unit, s);
    std::vector<Held> arrays{{parameter, kept}};
    const View master = masters == nullptr ? View{} : masters->resident(unit, s);
    if (master.elems > 0) { arrays.push_back({master, gradients->resident_range(unit, s)}); }
    for (const Held& array : arrays) {
      world.device().fill(array.values.data, 0, array.values.bytes(), world.compute_stream());
    }
    for (const Placement& placement : layout.segments()[s].placements()) {
      values.write({units[unit].infos[placement.parameter], placement.first,
                    overlap(kept, placement.first, placement.elems)},
                   arrays);
    }
  }
  world.compute_stream().wait();  // other streams read them
}

}  // namespace tessera
