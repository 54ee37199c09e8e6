#include "tessera/shard/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"

namespace tessera {
namespace {

constexpr std::int64_t kMaxElems = std::numeric_limits<std::int64_t>::max();

// The places of parameters of one (dtypes, trainable) combination, while they are collected.
struct SegmentDraft {
  SegmentDTypes dtypes;
  bool trainable;
  TensorKind tensor;
  std::vector<Placement> placements;
  std::int64_t end = 0;  // end of the last parameter that has elements or room

  void add(std::size_t parameter, std::int64_t elems, std::int64_t room, std::int64_t align) {
    const std::int64_t extent = std::max(elems, room);
    expects(end <= kMaxElems - align && extent <= kMaxElems - round_up(end, align),
            "UnitLayout: the unit has more elements than 63 bits can count");
    const Placement place{parameter, round_up(end, align), elems, room};
    placements.push_back(place);
    // A parameter without elements must not turn the gap before it into a counted one.
    if (extent > 0) { end = place.end(); }
  }
};

SegmentDTypes dtypes_of(const ParameterSpec& spec, const LayoutOptions& options) {
  return {.parameter = spec.dtype.value_or(options.compute),
          .gradient = options.gradient,
          .reduce = options.reduce,
          .master = DType::fp32};
}

SegmentDraft& draft_for(std::vector<SegmentDraft>& drafts, const SegmentDTypes& dtypes,
                        bool trainable, TensorKind tensor) {
  const auto found = std::find_if(drafts.begin(), drafts.end(), [&](const SegmentDraft& draft) {
    return draft.dtypes == dtypes && draft.trainable == trainable && draft.tensor == tensor;
  });
  if (found != drafts.end()) { return *found; }
  return drafts.emplace_back(SegmentDraft{dtypes, trainable, tensor, {}});
}

TensorKind tensor_kind(const ParameterSpec& spec, TensorRank place) {
  if (place.size == 1 || spec.cut) { return TensorKind::own; }
  return spec.tensor_gradient == TensorGradient::part ? TensorKind::parts : TensorKind::copies;
}

TensorPart part_of(const ParameterSpec& spec, TensorRank place) {
  if (!spec.cut) { return TensorPart{spec.shape}; }
  if (spec.tensor_gradient == TensorGradient::part) {
    throw ContractError{
        fmt::format("UnitLayout: parameter '{}' is cut, so no other rank has a part of its "
                    "gradient: leave tensor_gradient at equal",
                    spec.name)};
  }
  if (spec.room > 0 && spec.cut->dim != 0) {
    throw ContractError{
        fmt::format("UnitLayout: parameter '{}' has room beyond its end and is cut along dimension "
                    "{}: cut it along dimension 0, or leave room at 0",
                    spec.name, spec.cut->dim)};
  }
  return {spec.shape, *spec.cut, place};
}

/// Only the last rank's part has the room after the whole parameter.
std::int64_t room_of(const ParameterSpec& spec, const TensorPart& part, TensorRank place) {
  if (!spec.cut || spec.room == 0) { return spec.room; }
  if (place.index + 1 < place.size) { return 0; }
  return std::max<std::int64_t>(spec.room - part.elems_before(), 0);
}

void check_names(const std::vector<ParameterSpec>& specs) {
  std::vector<std::string_view> names;
  names.reserve(specs.size());
  for (const ParameterSpec& spec : specs) { names.emplace_back(spec.name); }
  std::sort(names.begin(), names.end());
  expects(names.empty() || !names.front().empty(), "UnitLayout: a parameter has an empty name");
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw ContractError(fmt::format(
        "UnitLayout: two parameters are called '{}'; give each parameter its own name", *twice));
  }
}

// Far beyond any use, and far below any overflow.
constexpr std::int64_t kMostAlign = std::int64_t{1} << 30;

void check_align(std::int64_t align) {
  expects(align >= kAlignElems && align <= kMostAlign && align % kAlignElems == 0,
          "SegmentLayout: the alignment must be a multiple of 64 elements, up to 2^30");
}

std::int64_t checked_shard_elems(std::int64_t elems, int ranks, std::int64_t align) {
  check_align(align);
  expects(ranks >= 1, "SegmentLayout: ranks must be at least 1");
  expects(elems >= 0, "SegmentLayout: elems must not be negative");
  // Rounding up adds less than (align + 1) elements a rank.
  expects(elems <= kMaxElems - (align + 1) * ranks,
          "SegmentLayout: the padded segment has more elements than 63 bits can count");
  return round_up(ceil_div<std::int64_t>(elems, ranks), align);
}

std::string describe(const ParameterSpec& spec, const LayoutOptions& options) {
  if (spec.tied_to) {
    return fmt::format("parameter {} {} tied to {}.{}\n", spec.name, spec.shape.to_string(),
                       spec.tied_to->unit, spec.tied_to->parameter);
  }
  std::string more = spec.room == 0 ? "" : fmt::format(" room {}", spec.room);
  if (spec.cut) {
    more += fmt::format(" cut {} granule {} sections {}", spec.cut->dim, spec.cut->granule,
                        spec.cut->sections);
    if (spec.cut->lead != 1) { more += fmt::format(" lead {}", spec.cut->lead); }
  }
  if (spec.tensor_gradient == TensorGradient::part) { more += " gradients in parts"; }
  return fmt::format("parameter {} {} {} {}{}\n", spec.name, spec.shape.to_string(),
                     to_string(spec.dtype.value_or(options.compute)),
                     spec.trainable ? "trainable" : "frozen", more);
}

std::string describe(const SegmentLayout& segment) {
  const SegmentDTypes& dtypes = segment.dtypes();
  return fmt::format("segment {} gradient {} reduce {} master {} {} elems {} shard {}\n",
                     to_string(dtypes.parameter), to_string(dtypes.gradient),
                     to_string(dtypes.reduce), to_string(dtypes.master),
                     segment.trainable() ? "trainable" : "frozen", segment.elems(),
                     segment.shard_elems());
}

}  // namespace

SegmentLayout::SegmentLayout(SegmentDTypes dtypes, bool trainable,
                             std::vector<Placement> placements, std::int64_t elems, int ranks,
                             std::int64_t align_elems, TensorKind tensor)
    : dtypes_{dtypes},
      trainable_{trainable},
      placements_{std::move(placements)},
      elems_{elems},
      ranks_{ranks},
      shard_elems_{checked_shard_elems(elems, ranks, align_elems)},
      tensor_{tensor} {
  std::int64_t end = 0;
  for (const Placement& placement : placements_) {
    const std::int64_t extent = std::max(placement.elems, placement.room);
    expects(placement.first >= end && placement.first % align_elems == 0 && placement.elems >= 0 &&
                placement.room >= 0 && extent <= elems_ - std::min(placement.first, elems_),
            "SegmentLayout: placements must be aligned, in order and inside the segment");
    end = placement.end();
  }
}

Range SegmentLayout::shard(int rank) const noexcept {
  return {rank * shard_elems_, shard_elems_};
}

std::vector<Piece> SegmentLayout::pieces(int rank) const {
  expects(rank >= 0 && rank < ranks_, "SegmentLayout: this rank does not exist");
  return pieces(shard(rank));
}

std::vector<Piece> SegmentLayout::pieces(const Ranges& owned) const {
  std::vector<Piece> pieces;
  std::int64_t before = 0;  // elements of earlier ranges
  for (const Range& mine : owned) {
    for (const Placement& placement : placements_) {
      const std::int64_t begin = std::max(placement.first, mine.first);
      const std::int64_t end = std::min(placement.first + placement.elems, mine.end());
      if (begin >= end) { continue; }
      pieces.push_back(
          {placement.parameter, begin - placement.first, before + begin - mine.first, end - begin});
    }
    before += mine.elems;
  }
  return pieces;
}

Ranges SegmentLayout::padding() const {
  std::vector<Range> gaps;
  std::int64_t end = 0;
  const auto gap_until = [&](std::int64_t next) {
    if (next > end) { gaps.push_back({end, next - end}); }
  };
  for (const Placement& placement : placements_) {
    if (placement.elems == 0) { continue; }
    gap_until(placement.first);
    end = placement.first + placement.elems;
  }
  gap_until(padded_elems());
  return Ranges{gaps};
}

UnitLayout UnitLayout::make(std::vector<ParameterSpec> specs, const LayoutOptions& options,
                            int ranks) {
  expects(ranks >= 1, "UnitLayout: ranks must be at least 1");
  check_align(options.align_elems);
  check_names(specs);

  std::vector<SegmentDraft> drafts;
  std::vector<TensorPart> parts;
  parts.reserve(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& spec = specs[i];
    if (spec.room < 0) {
      throw ContractError(fmt::format(
          "UnitLayout: parameter '{}' has room for {} elements: give 0 for none, or more",
          spec.name, spec.room));
    }
    const TensorPart& part = parts.emplace_back(part_of(spec, options.tensor));
    if (spec.tied_to) { continue; }
    draft_for(drafts, dtypes_of(spec, options), spec.trainable, tensor_kind(spec, options.tensor))
        .add(i, part.elems(), room_of(spec, part, options.tensor), options.align_elems);
  }

  UnitLayout layout;
  layout.specs_ = std::move(specs);
  layout.parts_ = std::move(parts);
  layout.options_ = options;
  layout.ranks_ = ranks;
  layout.segments_.reserve(drafts.size());
  for (SegmentDraft& draft : drafts) {
    layout.segments_.emplace_back(draft.dtypes, draft.trainable, std::move(draft.placements),
                                  draft.end, ranks, options.align_elems, draft.tensor);
  }
  return layout;
}

std::optional<UnitLayout::Location> UnitLayout::locate(std::size_t index) const {
  expects(index < specs_.size(), "UnitLayout: no parameter has this index");
  for (std::size_t s = 0; s < segments_.size(); ++s) {
    for (const Placement& placement : segments_[s].placements()) {
      if (placement.parameter == index) { return Location{s, placement.first}; }
    }
  }
  return std::nullopt;
}

std::optional<std::size_t> UnitLayout::find(std::string_view name) const noexcept {
  const auto found = std::find_if(specs_.begin(), specs_.end(),
                                  [&](const ParameterSpec& spec) { return spec.name == name; });
  if (found == specs_.end()) { return std::nullopt; }
  return static_cast<std::size_t>(std::distance(specs_.begin(), found));
}

const TensorPart& UnitLayout::part(std::size_t index) const {
  expects(index < parts_.size(), "UnitLayout: no parameter has this index");
  return parts_[index];
}

std::int64_t UnitLayout::whole_elems() const noexcept {
  std::int64_t sum = 0;
  for (const ParameterSpec& spec : specs_) { sum += spec.tied_to ? 0 : spec.shape.elems(); }
  return sum;
}

UnitLayout UnitLayout::without_segments() const {
  UnitLayout layout = *this;
  layout.segments_.clear();
  return layout;
}

std::int64_t UnitLayout::parameter_elems() const noexcept {
  std::int64_t sum = 0;
  for (const SegmentLayout& segment : segments_) {
    for (const Placement& placement : segment.placements()) { sum += placement.elems; }
  }
  return sum;
}

std::string UnitLayout::describe() const {
  std::string text;
  for (const ParameterSpec& spec : specs_) { text += tessera::describe(spec, options_); }
  if (options_.tensor.size > 1) { return text; }  // sizes differ between places along it
  for (const SegmentLayout& segment : segments_) { text += tessera::describe(segment); }
  return text;
}

}  // namespace tessera
