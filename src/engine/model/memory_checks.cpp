#include "engine/model/memory_checks.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace tessera::engine {
namespace {

// A tiny number in every dtype, which no kernel produces.
constexpr unsigned char kGuard = 0x01;

/// The elements between parameters and after the last one, except the room of parameters, which
/// matrix products read and write.
std::vector<Range> guarded(const SegmentLayout& segment) {
  std::vector<Range> gaps;
  std::int64_t end = 0;
  const auto gap_until = [&](std::int64_t next) {
    if (next > end) { gaps.push_back({end, next - end}); }
  };
  for (const Placement& placement : segment.placements()) {
    if (placement.end() == placement.first) { continue; }
    gap_until(placement.first);
    end = placement.end();
  }
  gap_until(segment.padded_elems());
  return gaps;
}

/// The room of its parameters, which holds zeros.
std::vector<Range> rooms(const SegmentLayout& segment) {
  std::vector<Range> all;
  for (const Placement& placement : segment.placements()) {
    const std::int64_t end = placement.first + placement.elems;
    if (placement.end() > end) { all.push_back({end, placement.end() - end}); }
  }
  return all;
}

/// The last parameter that begins at or before element `at`; null if none does.
const Placement* placement_before(const SegmentLayout& segment, std::int64_t at) {
  const Placement* last = nullptr;
  for (const Placement& placement : segment.placements()) {
    if (placement.end() > placement.first && placement.first <= at) { last = &placement; }
  }
  return last;
}

/// A NaN of all ones, which processors propagate unchanged. Released slots are filled with it.
bool is_poison(float value) {
  return std::bit_cast<std::uint32_t>(value) >> 13U == 0xFFFFFFFFU >> 13U;
}

bool overlap(const View& a, const View& b) {
  const auto* const begin_a = static_cast<const std::byte*>(a.data);
  const auto* const begin_b = static_cast<const std::byte*>(b.data);
  const std::less<> before;
  return a.elems > 0 && b.elems > 0 && before(begin_a, begin_b + b.bytes()) &&
         before(begin_b, begin_a + a.bytes());
}

}  // namespace

MemoryChecks::MemoryChecks(World& world, LiveUnits& units, const ModelOptions& options)
    : world_{world},
      units_{units},
      nan_is_expected_{resolve(options.loss_scaling.mode, options.compute, options.gradient) ==
                       LossScaleMode::dynamic},
      opened_(units.size()),
      was_in_slot_(units.size(), false),
      seals_(units.size()),
      copy_{world} {}

std::span<const std::byte> MemoryChecks::read(ConstView view) {
  bytes_.resize(std::max(bytes_.size(), view.bytes()));
  world_.device().copy_out(bytes_.data(), view.data, view.bytes(), world_.compute_stream());
  world_.compute_stream().wait();
  return {bytes_.data(), view.bytes()};
}

// ------------------------------------------------------------------------------- late writers

std::vector<std::uint64_t> MemoryChecks::hashes_of(std::size_t unit,
                                                   const std::vector<View>& segments) {
  std::vector<std::uint64_t> hashes;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (segments[s].elems == 0) { continue; }
    const auto all = read(segments[s]);
    const std::size_t size = size_of(segments[s].dtype);
    const auto placements = plan(unit).layout.segments()[s].placements();
    for (std::size_t p = 0; p < placements.size(); ++p) {
      const std::int64_t end =
          p + 1 < placements.size() ? placements[p + 1].first : segments[s].elems;
      const auto part = all.subspan(static_cast<std::size_t>(placements[p].first) * size,
                                    static_cast<std::size_t>(end - placements[p].first) * size);
      hashes.push_back(XXH3_64bits(part.data(), part.size()));
    }
  }
  return hashes;
}

void MemoryChecks::seal(std::size_t unit) {
  if (!plan(unit).trainable()) { return; }
  units_.gradients().bucket().flush();
  world_.quiesce();
  seals_[unit] = Seal{opened_[unit], hashes_of(unit, opened_[unit]), was_in_slot_[unit]};
}

void MemoryChecks::compare_sealed(std::size_t unit) {
  if (!seals_[unit]) { return; }
  const Seal& seal = *seals_[unit];
  const std::vector<std::uint64_t> now = hashes_of(unit, seal.segments);
  const auto differs = std::ranges::mismatch(now, seal.hashes).in1 - now.begin();
  if (differs == std::ssize(now)) { return; }
  std::vector<const Placement*> parameters;
  for (std::size_t s = 0; s < seal.segments.size(); ++s) {
    if (seal.segments[s].elems == 0) { continue; }
    for (const Placement& placement : plan(unit).layout.segments()[s].placements()) {
      parameters.push_back(&placement);
    }
  }
  const std::size_t parameter = parameters[static_cast<std::size_t>(differs)]->parameter;
  seals_[unit].reset();  // reported once
  throw ContractError{
      fmt::format("backward scope of unit '{}': the gradient of '{}' was written after the scope "
                  "ended, when it was being summed over the ranks or belonged to another unit; end "
                  "the scope after the last kernel that writes it, and keep no pointer into it",
                  plan(unit).name, plan(unit).infos[parameter].name)};
}

void MemoryChecks::compare(std::size_t unit) {
  world_.compute_stream().wait();
  for (std::size_t u = 0; u < seals_.size(); ++u) {
    if (u == unit || (seals_[u] && seals_[u]->in_slot)) { compare_sealed(u); }
  }
  seals_[unit].reset();
}

void MemoryChecks::forget_overlap(const View& view) {
  for (auto& seal : seals_) {
    const auto in_view = [&](const View& sealed) { return overlap(sealed, view); };
    if (seal && std::ranges::any_of(seal->segments, in_view)) { seal.reset(); }
  }
}

void MemoryChecks::end_micro_batch(bool last) {
  world_.compute_stream().wait();
  for (std::size_t u = 0; u < seals_.size(); ++u) {
    compare_sealed(u);
    if (last || (seals_[u] && seals_[u]->in_slot)) { seals_[u].reset(); }
  }
}

// ------------------------------------------------------------------------------- within a scope

void MemoryChecks::guard(std::size_t unit) {
  if (!plan(unit).trainable()) { return; }
  const auto segments = plan(unit).layout.segments();
  opened_[unit].clear();
  was_in_slot_[unit] = units_[unit].gradients().in_slot();
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const View whole = units_[unit].gradients().whole(s);
    opened_[unit].push_back(whole);
    if (whole.elems == 0) { continue; }
    forget_overlap(whole);
    for (const Range gap : guarded(segments[s])) {
      const View hole = whole.slice(gap.first, gap.elems);
      world_.device().fill(hole.data, kGuard, hole.bytes(), world_.compute_stream());
    }
  }
}

void MemoryChecks::inspect(std::size_t unit) {
  if (!plan(unit).trainable()) { return; }
  for (std::size_t s = 0; s < opened_[unit].size(); ++s) {
    const View& whole = opened_[unit][s];
    if (whole.elems == 0) { continue; }
    inspect_guards(unit, s, whole);
    inspect_values(unit, s, whole);
  }
}

// Padding must not reach the norm: it is zeroed again.
void MemoryChecks::inspect_guards(std::size_t unit, std::size_t segment, const View& whole) {
  const SegmentLayout& layout = plan(unit).layout.segments()[segment];
  const auto all = read(whole);
  const std::size_t size = size_of(whole.dtype);
  const auto require = [&](const Range& range, std::byte expected) {
    const auto part = all.subspan(static_cast<std::size_t>(range.first) * size,
                                  static_cast<std::size_t>(range.elems) * size);
    const auto written =
        std::ranges::find_if(part, [&](std::byte byte) { return byte != expected; });
    if (written == part.end()) { return; }
    const std::int64_t at = range.first + (written - part.begin()) / static_cast<int>(size);
    const Placement& last = *placement_before(layout, at);
    throw ContractError{fmt::format(
        "backward scope of unit '{}': a kernel wrote element {} of the gradient of '{}', whose "
        "size is {}; it writes past the end, where the next parameter may lie",
        plan(unit).name, at - last.first, plan(unit).infos[last.parameter].name, last.elems)};
  };
  for (const Range gap : guarded(layout)) { require(gap, std::byte{kGuard}); }
  for (const Range room : rooms(layout)) { require(room, std::byte{0}); }
  for (const Range gap : guarded(layout)) {
    const View hole = whole.slice(gap.first, gap.elems);
    world_.device().fill(hole.data, 0, hole.bytes(), world_.compute_stream());
  }
}

void MemoryChecks::inspect_values(std::size_t unit, std::size_t segment, const View& whole) {
  for (const Placement& placement : plan(unit).layout.segments()[segment].placements()) {
    require_number(whole.slice(placement.first, placement.elems),
                   fmt::format("backward scope of unit '{}': the gradient of '{}'", plan(unit).name,
                               plan(unit).infos[placement.parameter].name));
  }
}

void MemoryChecks::inspect_output(std::size_t unit, ConstView output) {
  require_number(output,
                 fmt::format("forward scope of unit '{}': the watched output", plan(unit).name));
}

void MemoryChecks::require_number(ConstView values, const std::string& whose) {
  values_.resize(static_cast<std::size_t>(values.elems));
  copy_.read(values_, values);
  const auto found = std::ranges::find_if(values_, [](float x) { return std::isnan(x); });
  if (found == values_.end()) { return; }
  if (is_poison(*found)) {
    throw ContractError{fmt::format(
        "{} is NaN at element {}, with the bit pattern of released memory: it was computed from a "
        "tensor, or a pointer taken from one, after its scope ended; use it within the scope",
        whose, found - values_.begin())};
  }
  if (nan_is_expected_) { return; }
  throw NumericError{
      fmt::format("{} is NaN at element {}, the first one in this step; check what the unit "
                  "computes, and look for pointers used after their scope",
                  whose, found - values_.begin())};
}

}  // namespace tessera::engine
