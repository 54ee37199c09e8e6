#include "engine/model/initialise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/overflow.hpp"
#include "engine/unit/host_copy.hpp"
#include "kernels/normal/normal.hpp"
#include "kernels/table.hpp"
#include "tessera/base/error.hpp"
#include "world/world_kernels.hpp"

namespace tessera::engine {
namespace {

constexpr std::int64_t kInitChunkElems = std::int64_t{1} << 18;  // 1 MiB of staging

/// The intersection of `range` and elements [at, at + count) of a segment.
Range overlap(const Range& range, std::int64_t at, std::int64_t count) {
  const std::int64_t first = std::max(range.first, at);
  const std::int64_t end = std::min(range.first + range.elems, at + count);
  return {first, std::max<std::int64_t>(end - first, 0)};
}

/// An array over some of a segment's elements, or a part of them, on the device or in the host
/// pool.
struct Held {
  View values;
  kernels::MasterPart part;
  Range range;
  bool on_host = false;

  [[nodiscard]] View at(const Range& some) const {
    return values.slice(some.first - range.first, some.elems);
  }
};

/// A parameter, this rank's part of it, where that begins in the segment, and which elements of the
/// segment are wanted.
struct Wanted {
  const ParameterInfo& info;
  const TensorPart& part;
  std::int64_t begin;
  Range range;

  /// Calls `visit(first, at, count)` for each run of elements `some` of the segment: `count`
  /// elements, `at` behind the first of `some`, which are elements of the whole parameter from
  /// `first` on.
  template <class Visit>
  void for_each_run(const Range& some, const Visit& visit) const {
    const std::int64_t local = some.first - begin;
    part.for_each_run({local, some.elems}, [&](const Range& whole, std::int64_t at) {
      visit(whole.first, at - local, whole.elems);
    });
  }
};

/// Writes an initializer's values into arrays.
class FirstValues {
 public:
  /// `scratch`: device memory for kInitChunkElems values, needed if arrays are on the host.
  FirstValues(World& world, const Initializer& initial, float* scratch)
      : world_{world}, initial_{initial}, host_{world}, scratch_{scratch} {}

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
      const auto fill = [&](View to, kernels::MasterPart what, std::int64_t from) {
        wanted.for_each_run({from, to.elems}, [&](auto first, auto at, auto count) {
          world::kernels_of(world_).fill_normal(to.slice(at, count).values(), what, key, first,
                                                stddev, count, world_.compute_stream());
        });
      };
      if (array.on_host) {
        draw_on_device(array, part, fill);
      } else {
        fill(array.at(part), array.part, part.first);
      }
    }
  }

  // The host's random numbers may differ from the device's in the last bit.
  template <class Fill>
  void draw_on_device(const Held& array, const Range& part, const Fill& fill) {
    const std::int64_t end = part.first + part.elems;
    for (std::int64_t at = part.first; at < end; at += kInitChunkElems) {
      const View to = array.at({at, std::min(kInitChunkElems, end - at)});
      const View drawn{scratch_, to.elems, to.dtype};
      fill(drawn, array.part, at);
      world_.device().copy_out(to.data, drawn.data, to.bytes(), world_.compute_stream());
      world_.compute_stream().wait();
    }
  }

  void copy(const Wanted& wanted, const std::vector<Held>& arrays) {
    Overflows beyond;
    const DType kept = arrays.front().values.dtype;
    const std::int64_t end = wanted.range.first + wanted.range.elems;
    for (std::int64_t at = wanted.range.first; at < end; at += kInitChunkElems) {
      const std::int64_t count = std::min(kInitChunkElems, end - at);
      staging_.resize(static_cast<std::size_t>(count));
      wanted.for_each_run({at, count}, [&](auto first, auto behind, auto some) {
        const std::span values = std::span{staging_}.subspan(static_cast<std::size_t>(behind),
                                                             static_cast<std::size_t>(some));
        initial_(wanted.info, first, values);
        beyond.add(values, kept, first);
      });
      for (const Held& array : arrays) {
        const Range part = overlap(array.range, at, count);
        if (part.elems == 0) { continue; }
        const std::span values = std::span{staging_}.subspan(
            static_cast<std::size_t>(part.first - at), static_cast<std::size_t>(part.elems));
        if (array.on_host) {
          kernels::store_part(array.at(part).values(), array.part, values.data(), part.elems);
        } else {
          host_.write(array.at(part), array.part, values);
        }
      }
    }
    if (beyond.count > 0) { refuse(wanted.info, beyond, kept); }
  }

  [[noreturn]] static void refuse(const ParameterInfo& info, const Overflows& beyond, DType kept) {
    throw ConfigError{fmt::format(
        "the initial values of '{}': {}, in which the parameter is kept, and would be infinite; "
        "keep it in bf16 or fp32 (`compute`), or change the values",
        info.full_name(), beyond.text(kept))};
  }

  World& world_;
  const Initializer& initial_;
  HostCopy host_;
  float* scratch_;
  std::vector<float> staging_;
};

/// Device memory in which masters of 16-bit parameters are drawn on their way to the host pool.
Buffer scratch_for(World& world, const LiveUnits& units) {
  for (const LiveUnit& unit : units) {
    for (std::size_t s = 0; unit.trains() && s < unit.plan().segments(); ++s) {
      const FirstValue masters = unit.update().first_masters(s);
      if (!masters.on_host || masters.values.elems == 0) { continue; }
      return world.allocate(Category::workspace, kInitChunkElems * sizeof(float),
                            "first master weights");
    }
  }
  return {};
}

// Masters take the initializer's exact values. The parameter is rounded from them, even if this
// rank keeps no masters, so that all trained parameters round alike.
void initialise_unit(World& world, const LiveUnit& unit, const Initializer& initial,
                     float* scratch) {
  const UnitPlan& plan = unit.plan();
  FirstValues values{world, initial, scratch};
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    const View parameter = unit.parameters().resident(s);
    if (parameter.elems == 0) { continue; }
    const Range kept = plan.owned[s].parameters;
    const bool trained = plan.layout.segments()[s].trainable();
    const auto rounded = trained ? kernels::MasterPart::parameter : kernels::MasterPart::value;
    std::vector<Held> arrays{{parameter, rounded, kept}};
    const FirstValue masters = unit.trains() ? unit.update().first_masters(s) : FirstValue{};
    if (masters.values.elems > 0) {
      arrays.push_back({masters.values, masters.part, plan.owned[s].updates, masters.on_host});
    }
    for (const Held& array : arrays) {
      if (array.on_host) {
        std::memset(array.values.data, 0, array.values.bytes());
        continue;
      }
      world.device().fill(array.values.data, 0, array.values.bytes(), world.compute_stream());
    }
    for (const Placement& placement : plan.layout.segments()[s].placements()) {
      values.write({plan.infos[placement.parameter], plan.layout.part(placement.parameter),
                    placement.first, overlap(kept, placement.first, placement.elems)},
                   arrays);
    }
  }
  world.compute_stream().wait();  // other streams read them
  if (unit.trains()) { unit.update().begin(); }
}

/// Checks the normal distributions that the device draws from, on all ranks that have the unit and
/// before a value is drawn, since drawn values are not looked at: that none of their numbers can
/// become infinite in the dtype of the parameter.
void require_range(const UnitPlan& plan, const init::Drawn& drawn) {
  for (const SegmentLayout& segment : plan.layout.segments()) {
    const DType kept = segment.dtypes().parameter;
    for (const Placement& placement : segment.placements()) {
      const ParameterInfo& info = plan.infos[placement.parameter];
      drawn(info, 0, {});  // throws ContractError for a number that is no standard deviation
      const init::Distribution from = drawn.distribution(info);
      if (from.kind != init::Distribution::Kind::normal) { continue; }
      if (kernels::kMostNormal * from.number < least_infinite(kept)) { continue; }
      throw ConfigError{fmt::format(
          "the initial values of '{}' are drawn with a standard deviation of {}, so that some may "
          "be beyond the range of {}, in which the parameter is kept, and would be infinite; "
          "choose a smaller one{}",
          info.full_name(), from.number, to_string(kept),
          kept == DType::fp16 ? ", or keep it in bf16 or fp32 (`compute`)" : "")};
    }
  }
}

}  // namespace

void initialise(World& world, const LiveUnits& units, const Initializer& initial) {
  if (const auto* const drawn = initial.target<init::Drawn>()) {
    for (const LiveUnit& unit : units) { require_range(unit.plan(), *drawn); }
  }
  const Buffer scratch = scratch_for(world, units);
  world.compute([&] {
    for (const LiveUnit& unit : units) {
      initialise_unit(world, unit, initial, static_cast<float*>(scratch.data()));
    }
  });
}

}  // namespace tessera::engine
