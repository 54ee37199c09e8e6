#include "engine/unit_state.hpp"

#include <utility>

namespace tessera::engine {
namespace {

enum class Extent : std::uint8_t { whole, shard };
enum class Companion : std::uint8_t { parameter, gradient, wire };

/// Shards of each segment: those that a rank keeps, or all.
int shards_of(const UnitState& unit, Extent extent) noexcept {
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

std::size_t total_bytes(const UnitState& unit, Companion companion, Extent extent) noexcept {
  std::size_t bytes = 0;
  for (const SegmentLayout& segment : unit.layout.segments()) {
    bytes += bytes_of(segment, companion, shards_of(unit, extent));
  }
  return bytes;
}

View view_at(const UnitState& unit, std::size_t s, void* base, Companion companion,
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

UnitState::UnitState(std::string name_, UnitLayout layout_, UnitOptions options_)
    : name{std::move(name_)},
      layout{std::move(layout_)},
      options{options_},
      infos(layout.specs().size()),
      alias_of(layout.specs().size()) {}

std::size_t UnitState::parameter_bytes() const noexcept {
  return total_bytes(*this, Companion::parameter, Extent::whole);
}
std::size_t UnitState::parameter_shard_bytes() const noexcept {
  return total_bytes(*this, Companion::parameter, Extent::shard);
}
std::size_t UnitState::gradient_bytes() const noexcept {
  return total_bytes(*this, Companion::gradient, Extent::whole);
}
std::size_t UnitState::wire_bytes() const noexcept {
  return total_bytes(*this, Companion::wire, Extent::whole);
}
std::size_t UnitState::gradient_shard_bytes() const noexcept {
  return total_bytes(*this, Companion::gradient, Extent::shard);
}

View UnitState::parameter_view(std::size_t s, void* base) const noexcept {
  return view_at(*this, s, base, Companion::parameter, Extent::whole);
}
View UnitState::parameter_shard_view(std::size_t s, void* base) const noexcept {
  return view_at(*this, s, base, Companion::parameter, Extent::shard);
}
View UnitState::gradient_view(std::size_t s, void* base) const noexcept {
  return view_at(*this, s, base, Companion::gradient, Extent::whole);
}
View UnitState::gradient_shard_view(std::size_t s, void* base) const noexcept {
  return view_at(*this, s, base, Companion::gradient, Extent::shard);
}

View UnitState::wire_view(std::size_t s, void* base) const noexcept {
  return view_at(*this, s, base, Companion::wire, Extent::whole);
}

}  // namespace tessera::engine
