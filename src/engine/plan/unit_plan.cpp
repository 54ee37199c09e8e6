#include "engine/plan/unit_plan.hpp"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace tessera::engine {
namespace {

enum class Extent : std::uint8_t { whole, shard };
enum class Companion : std::uint8_t { parameter, gradient, wire };

/// The number of shards of each segment: those that a rank keeps, or all.
int shards_of(const UnitPlan& unit, Extent extent) noexcept {
  return extent == Extent::whole ? unit.layout.ranks() : unit.kept_shards;
}

DType dtype_of(const SegmentLayout& segment, Companion companion) noexcept {
  switch (companion) {
    case Companion::parameter:
      return segment.dtypes().parameter;
    case Companion::gradient:
      return segment.dtypes().gradient;
    case Companion::wire:
      break;
  }
  return segment.dtypes().reduce;
}

std::size_t bytes_of(const SegmentLayout& segment, Companion companion, int shards) noexcept {
  if (companion != Companion::parameter && !segment.trainable()) { return 0; }
  const SegmentDTypes& dtypes = segment.dtypes();
  if (companion == Companion::wire && size_of(dtypes.reduce) >= size_of(dtypes.gradient)) {
    return 0;
  }
  return static_cast<std::size_t>(segment.shard_elems() * shards) *
         size_of(dtype_of(segment, companion));
}

std::size_t total_bytes(const UnitPlan& unit, Companion companion, Extent extent) noexcept {
  std::size_t bytes = 0;
  for (const SegmentLayout& segment : unit.layout.segments()) {
    bytes += bytes_of(segment, companion, shards_of(unit, extent));
  }
  return bytes;
}

View view_at(const UnitPlan& unit, std::size_t s, void* base, Companion companion,
             Extent extent) noexcept {
  const auto segments = unit.layout.segments();
  const SegmentLayout& segment = segments[s];
  const int shards = shards_of(unit, extent);
  if (base == nullptr || bytes_of(segment, companion, shards) == 0) {
    return {nullptr, 0, dtype_of(segment, companion)};
  }
  std::size_t offset = 0;
  for (std::size_t before = 0; before < s; ++before) {
    offset += bytes_of(segments[before], companion, shards);
  }
  return {static_cast<std::byte*>(base) + offset, segment.shard_elems() * shards,
          dtype_of(segment, companion)};
}

}  // namespace

UnitPlan::UnitPlan(std::string name_, UnitLayout layout_, UnitOptions options_)
    : name{std::move(name_)},
      layout{std::move(layout_)},
      options{options_},
      infos(layout.specs().size()),
      alias_of(layout.specs().size()),
      places{options_.pipe},
      frozen(layout.specs().size(), false) {}

bool UnitPlan::is_at(int pipe) const noexcept {
  return std::ranges::find(places, pipe) != places.end();
}

bool UnitPlan::trains_now() const noexcept {
  if (!trainable()) { return false; }
  for (std::size_t p = 0; p < infos.size(); ++p) {
    if (!alias_of[p] && infos[p].trainable && !frozen[p]) { return true; }
  }
  return false;
}

std::size_t UnitPlan::parameter_bytes() const noexcept {
  return total_bytes(*this, Companion::parameter, Extent::whole);
}
std::size_t UnitPlan::parameter_shard_bytes() const noexcept {
  return total_bytes(*this, Companion::parameter, Extent::shard);
}
std::size_t UnitPlan::gradient_bytes() const noexcept {
  return total_bytes(*this, Companion::gradient, Extent::whole);
}
std::size_t UnitPlan::wire_bytes() const noexcept {
  return total_bytes(*this, Companion::wire, Extent::whole);
}
std::size_t UnitPlan::gradient_shard_bytes() const noexcept {
  return total_bytes(*this, Companion::gradient, Extent::shard);
}

View UnitPlan::parameter_view(std::size_t s, void* base) const noexcept {
  return view_at(*this, s, base, Companion::parameter, Extent::whole);
}
View UnitPlan::parameter_shard_view(std::size_t s, void* base) const noexcept {
  return view_at(*this, s, base, Companion::parameter, Extent::shard);
}
View UnitPlan::gradient_view(std::size_t s, void* base) const noexcept {
  return view_at(*this, s, base, Companion::gradient, Extent::whole);
}
View UnitPlan::gradient_shard_view(std::size_t s, void* base) const noexcept {
  return view_at(*this, s, base, Companion::gradient, Extent::shard);
}

View UnitPlan::wire_view(std::size_t s, void* base) const noexcept {
  return view_at(*this, s, base, Companion::wire, Extent::whole);
}

std::string describe_frozen(const UnitPlans& plans) {
  std::string first;
  std::uint64_t hash = 0;
  int count = 0;
  for (const UnitPlan& unit : plans) {
    for (std::size_t p = 0; p < unit.frozen.size(); ++p) {
      if (!unit.frozen[p]) { continue; }
      const std::string name = unit.infos[p].full_name();
      if (count++ == 0) { first = name; }
      hash = XXH3_64bits_withSeed(name.data(), name.size(), hash);
    }
  }
  if (count == 0) { return {}; }
  return fmt::format(", {} frozen from '{}' on (hash {:016x})", count, first, hash);
}

std::vector<std::size_t> with_owners(const UnitPlans& plans, std::size_t unit) {
  std::vector<std::size_t> all = plans[unit].owners;
  all.push_back(unit);
  return all;
}

std::vector<std::size_t> with_the_rest(const UnitPlans& plans,
                                       const std::vector<std::size_t>& some) {
  std::vector<std::size_t> order;
  const auto add = [&](std::size_t unit) {
    if (std::ranges::find(order, unit) == order.end()) { order.push_back(unit); }
  };
  for (const std::size_t unit : some) { std::ranges::for_each(with_owners(plans, unit), add); }
  for (std::size_t u = 0; u < plans.size(); ++u) { add(u); }
  return order;
}

}  // namespace tessera::engine
